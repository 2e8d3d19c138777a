//! Replay: a snapshot as it would have arrived, with faults on demand.
//!
//! A [`Schedule`] of faults, frozen in a manifest or drawn from a seed ([`generate`]), turns the events
//! of a snapshot into [`Arrivals`], a stream in one order on every machine; the [`Log`] writes one line
//! of FINAZ_JSON_V1 an arrival and hashes them all. What only costs wall-clock time (a pause, a source
//! that is down, the speed) is told beside an arrival and is in no line. Everything here is pure.

mod arrivals;
mod draw;
mod generate;
mod log_line;
mod pace;
mod partition;
mod schedule;
#[cfg(test)]
mod tests;

use std::io;

use crate::invalid::Invalid;

pub use arrivals::{Applied, Arrival, Arrivals};
pub use generate::{Wanted, generate};
pub use log_line::Log;
pub use pace::Speed;
pub use partition::partition;
pub use schedule::{Fault, Kind, Schedule};

/// Why a snapshot could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The schedule does not fit the snapshot, or that is none.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("{place}: {source}")]
    Io { place: String, source: io::Error },
}
