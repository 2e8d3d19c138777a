//! What a stream makes of a log: pure, one record at a time, the same on every replay of the same log.
//!
//! `record` names what a record can be and what became of it; the engine that decides lies beside it. Nothing here
//! reads a clock, a network or a disk: what is new since the last commit leaves as a [`Delta`], and comes back
//! from the journal as it left.

mod record;

pub use record::{
    Accepted, Applied, Delta, Fate, Identity, Quarantined, Reason, Treatment, identity_of,
};
