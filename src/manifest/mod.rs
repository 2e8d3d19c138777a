//! Manifests in YAML or JSON: read into values within a budget, every error with its line and a hint.
//!
//! A manifest says by `kind` what it is. The room that knows a kind has its [`Dialect`]: the codes
//! under which it refuses, and how large one may be.

mod document;
mod object;
mod suggest;
mod yaml;

pub use document::Document;
pub use object::Object;
pub use suggest::{hint, shown};

/// What is particular to one kind of manifest.
#[derive(Debug)]
pub struct Dialect {
    /// What `kind` says.
    pub kind: &'static str,
    /// The same in words, for messages: `flow`.
    pub noun: &'static str,
    /// Bytes of a manifest.
    pub bytes_max: usize,
    /// Values in it, those that aliases expand to counted.
    pub values_max: usize,
    /// Where to send a file that is too large to be of this kind.
    pub too_large_hint: &'static str,
    pub codes: Codes,
}

/// Stable codes of refusals, one set a kind.
#[derive(Debug)]
pub struct Codes {
    pub too_large: &'static str,
    pub too_complex: &'static str,
    pub syntax: &'static str,
    pub bom: &'static str,
    pub duplicate_key: &'static str,
    pub kind: &'static str,
    pub unknown_field: &'static str,
    pub missing_field: &'static str,
    pub wrong_type: &'static str,
    pub name: &'static str,
}
