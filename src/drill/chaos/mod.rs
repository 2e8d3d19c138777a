//! A campaign of random faults: its plan, its history, its judges, its evidence.

mod evidence;
mod history;
mod judge;
mod kinds;
mod page;
mod picture;
mod plan;

pub use evidence::{Campaign, Dealt, Done, KindCount, Shown, SituationCount, show};
pub use history::{
    CommitEnd, End, Ending, FilesEnd, History, Op, Outcome, Rest, RunEnd, SecretsEnd, StreamEnd,
};
pub use judge::{judge, numbers};
pub use kinds::{FaultKind, Situation, name_of};
pub use page::page;
pub use plan::{Fault, Load, Plan, Rate};
