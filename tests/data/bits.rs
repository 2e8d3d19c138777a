//! Prints one number that depends on every bit of every node over a seeded series.
//!
//! No target of Cargo: `src/nodes/tests.rs` compiles it with `rustc` for each kind of build and
//! compares what is printed. The nodes are the real ones; what they need of the library besides
//! is cut down here to what compiles without other crates.

#![allow(dead_code)]

#[path = "../../src/nodes/mod.rs"]
mod nodes;
mod seeded;

mod canonical {
    use std::collections::BTreeMap;

    #[derive(Clone, Debug, PartialEq)]
    pub enum Value {
        Int(i64),
        Float(f64),
        Text(String),
        List(Vec<Self>),
        Map(BTreeMap<String, Self>),
    }

    impl Value {
        pub fn kind(&self) -> &'static str {
            "a value"
        }
    }
}

mod invalid {
    #[derive(Debug)]
    pub struct Invalid;

    impl Invalid {
        pub fn new(_: &'static str, _: impl Into<String>, _: &str, _: &str) -> Self {
            Self
        }
    }
}

use nodes::{find, names};
use seeded::{fingerprint, prices};

fn main() {
    println!("{:016x}", fingerprint(&prices(20_000)));
}
