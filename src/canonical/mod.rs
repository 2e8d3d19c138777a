//! FINAZ_JSON_V1: the one way to write a value down, and so the form that every hash is taken over.
//!
//! UTF-8; object keys sorted by code point; `,` and `:` without spaces; no escape that JSON does not
//! need; integers as integers (`i64` and `u64`); floats in the shortest digits that read back to the
//! same bits, laid out as CPython's `repr` lays them out. NaN and infinities do not exist. What is
//! read must be exact as well: duplicate keys, numbers out of range and lone surrogates are refused
//! (a lenient reader would hash something that the author did not write).

mod read;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

use crate::ids::Hash;
use crate::invalid::Invalid;

pub use read::{Step, locate, parse, parse_line};
pub use write::{write_f64, write_i64, write_text};

/// How deep lists and objects may nest, read or written: recursion stays far from the end of a stack.
const DEPTH_MAX: usize = 128;

/// A value of FINAZ_JSON_V1.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// Above `i64::MAX` only, so that equal integers are equal values.
    Uint(u64),
    /// Finite, or it cannot be written.
    Float(f64),
    Text(String),
    List(Vec<Self>),
    /// `String` sorts by UTF-8 bytes, which is the order of code points.
    Map(BTreeMap<String, Self>),
}

impl Value {
    /// Appends the canonical bytes.
    ///
    /// # Errors
    /// A float that is not finite, or nesting deeper than can be read back; the place is the path to it.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), Invalid> {
        write::value(self, 0, out)
    }

    /// The canonical bytes.
    ///
    /// # Errors
    /// As [`Value::write`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, Invalid> {
        let mut out = Vec::new();
        self.write(&mut out)?;
        Ok(out)
    }

    /// The SHA-256 of the canonical bytes.
    ///
    /// # Errors
    /// As [`Value::write`].
    pub fn hash(&self) -> Result<Hash, Invalid> {
        self.to_bytes().map(|bytes| Hash::of(&bytes))
    }

    /// What kind of value this is, in words for a message: `a text`, `a whole number`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a truth value",
            Self::Int(_) | Self::Uint(_) => "a whole number",
            Self::Float(_) => "a number with a fraction",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "an object",
        }
    }
}
