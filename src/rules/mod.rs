//! What is allowed to happen. Pure: no I/O, no clock, no async.

pub mod admission;
pub mod lease;
pub mod queue;
pub mod run;
pub mod settle;
