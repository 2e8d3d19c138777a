//! The whole system in one thread, with virtual time and every fault drawn from a seed: worker and stream over a
//! simulated store, broker and disk, held against the invariants at each step.
//!
//! What decides is the program's own: rules, flows, nodes, the engine of the stream, the formats of its journal. What is
//! simulated is what it talks to. `kernel` is time and processes, `world` what there is, `store`, `broker`, `disk` the
//! services, `worker`, `owner`, `client`, `source` the processes, `nemesis` the faults, `judge` the invariants, `seen` what
//! a campaign must have met.
//! No I/O, no clock.

mod broker;
mod campaign;
mod client;
mod disk;
mod judge;
mod kernel;
mod lanes;
mod nemesis;
mod options;
mod owner;
mod scene;
mod seen;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod trace;
mod worker;
mod world;

pub use campaign::{Campaign, Checked, Coverage, Failure};
pub use options::Options;
pub use scene::{Outcome, play};
pub use store::SimStore;

/// A mistake that a test plants, so that it is seen to be caught.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mistake {
    /// An effect is let through under any fence.
    FenceUnchecked,
    /// A lease counts after its time is over.
    ExpiryUnchecked,
    /// The sweep takes runs whose owner is alive.
    SweepOfTheLiving,
    /// Nobody sweeps.
    NoSweep,
    /// The queue is read by `id > last`.
    ByLastNumber,
    /// Two processes of one name are one owner.
    OwnerByName,
    /// A pointer is moved from wherever it stands.
    PointerUnchecked,
    /// A blob is renamed before it is synced.
    NoFsync,
    /// A blob is counted on before its name is synced.
    NoFolderSync,
    /// Accepted events that still wait are not kept with the offsets that are past them.
    HighWaterBeforeDrain,
    /// Identities are not kept.
    IdentitiesForgotten,
}
