//! Drills: what is checked, what came of it, what happened when, and the evidence as JSON and as one page.
//!
//! No I/O and no clock: `control/drill` carries a drill out and hands in what it saw.

pub mod chaos;
mod check;
mod draw;
mod evidence;
mod matrix;
mod matrix_page;
mod moment;
mod page;
mod picture;
mod words;

pub use check::{Broke, Check, Planned, Sheet, Verdict};
pub use draw::Draw;
pub use evidence::{Environment, Evidence, QueueNumbers, Versions};
pub use matrix::{CellRun, Fault, Fell, LaneMoment, MatrixEvidence, PLACES, Place, Way, Work};
pub use matrix_page::matrix_page;
pub use moment::Moment;
pub use page::page;
