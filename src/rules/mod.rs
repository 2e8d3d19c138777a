//! What is allowed to happen. Pure: no I/O, no clock, no async.

pub mod admission;
pub mod lease;
pub mod run;
