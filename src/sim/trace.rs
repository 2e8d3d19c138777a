//! What happened in which order: a hash over all of it, and its last lines for who looks for the cause.

use std::collections::VecDeque;

use crate::ids::Hash;

/// Lines that are kept for a failure.
const LAST: usize = 60;

/// A trace as it grows.
#[derive(Debug)]
pub(super) struct Trace {
    hash: Hash,
    bytes: Vec<u8>,
    lines: VecDeque<String>,
    keeps_all: bool,
    pub(super) steps: u64,
}

impl Trace {
    pub(super) fn new(keeps_all: bool) -> Self {
        let (lines, bytes) = (VecDeque::new(), Vec::new());
        Self { hash: Hash::of(b""), bytes, lines, keeps_all, steps: 0 }
    }

    pub(super) fn note(&mut self, at: u64, text: &str) {
        let line = format!("{:>5}.{:06} {text}", at / 1_000_000, at % 1_000_000);
        self.steps += 1;
        self.bytes.extend_from_slice(line.as_bytes());
        self.bytes.push(b'\n');
        if self.bytes.len() > 1 << 16 {
            self.fold();
        }
        if !self.keeps_all && self.lines.len() == LAST {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    fn fold(&mut self) {
        self.bytes.extend_from_slice(self.hash.as_bytes());
        self.hash = Hash::of(&self.bytes);
        self.bytes.clear();
    }

    /// Hash, and the lines that were kept.
    pub(super) fn end(mut self) -> (Hash, Vec<String>) {
        self.fold();
        (self.hash, self.lines.into())
    }
}
