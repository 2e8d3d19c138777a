//! What a stream makes of a log: pure, one record at a time, the same on every replay of the same log.
//!
//! `record` names what a record can be and what became of it, `engine` decides, `lane` is one partition, `identities`
//! what was seen, `ledger` the sums, `waitroom` what is not applied yet,
//! `state` what is kept, `history` what it goes on from, `retry` decides anew about what was omitted, `pressure` when it
//! holds back, `forecast` when retention
//! will have blocked it. Nothing here reads a clock, a network or a disk: what is
//! new since the last commit leaves as a [`Delta`], and comes back from the journal as it left.

mod engine;
mod forecast;
mod history;
mod identities;
mod lane;
mod ledger;
mod pressure;
mod record;
mod retry;
mod state;
#[cfg(test)]
mod tests;
mod waitroom;

pub use crate::flow::Numbers;
pub use engine::{Engine, Plan, Record};
pub use forecast::{Movement, Reach, blocked_in_sec};
pub use history::{Foreseen, Seeded};
pub use lane::{Anchor, Marker};
pub use ledger::Ledger;
pub use pressure::{Limits, Load, Pressure, enough};
pub use record::{
    Accepted, Applied, Delta, Fate, Identity, Quarantined, Reason, Treatment, identity_of,
};
pub use retry::Retried;
pub use state::{Astray, ENGINE, Gathering, Kept, Position, STATE, Standing, partitions_of};
