//! The runtime behind the `finaz` command. See `ARCHITECTURE.md` for the way of a run through the rooms.
//!
//! Read the modules in this order; each may use only those above it (`tests/tidy.rs` holds it).

pub mod artifacts;
pub mod broker;
pub mod canonical;
pub mod config;
pub mod control;
pub mod drill;
pub mod export;
pub mod flow;
pub mod ids;
pub mod invalid;
pub mod journal;
pub mod manifest;
pub mod nodes;
pub mod points;
pub mod replay;
pub mod rules;
pub mod sim;
pub mod snapshot;
pub mod store;
pub mod stream;
pub mod warehouse;
