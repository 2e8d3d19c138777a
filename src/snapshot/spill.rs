//! Sorted runs in an unnamed file: a process that dies leaves nothing behind.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use super::Error;
use crate::artifacts::Artifacts;

/// Memory that the readers of all runs share.
const BUFFERS: usize = 64 << 20;
const BUFFER_MIN: usize = 16 << 10;
const BUFFER_MAX: usize = 1 << 20;

/// Runs one after the other.
#[derive(Debug)]
pub(super) struct Spill {
    file: File,
    /// The folder that the file is in.
    place: String,
    /// Where each run ends.
    ends: Vec<u64>,
}

impl Spill {
    pub(super) fn new(artifacts: &Artifacts) -> Result<Self, Error> {
        let place = artifacts.root().display().to_string();
        Ok(Self { file: artifacts.scratch()?, place, ends: Vec::new() })
    }

    /// Appends a run.
    pub(super) fn run(
        &mut self,
        write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> Result<(), Error> {
        let mut out =
            Counter { out: io::BufWriter::with_capacity(1 << 20, &self.file), written: 0 };
        write(&mut out).and_then(|()| out.out.flush()).map_err(|e| Error::io(&self.place, e))?;
        let written = out.written;
        self.ends.push(self.ends.last().copied().unwrap_or(0) + written);
        Ok(())
    }

    /// A reader for each run.
    pub(super) fn runs(&self) -> Vec<Run<'_>> {
        let size = (BUFFERS / self.ends.len().max(1)).clamp(BUFFER_MIN, BUFFER_MAX);
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let run = |(at, end): (u64, u64)| Run {
            file: &self.file,
            place: &self.place,
            at,
            end,
            size,
            buffer: Vec::new(),
            used: 0,
        };
        starts.zip(self.ends.iter().copied()).map(run).collect()
    }
}

struct Counter<W> {
    out: W,
    written: u64,
}

impl<W: io::Write> io::Write for Counter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write_all(bytes)?;
        self.written += u64::try_from(bytes.len()).expect("a length fits 64 bits");
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads one run through a buffer.
#[derive(Debug)]
pub(super) struct Run<'a> {
    file: &'a File,
    place: &'a str,
    at: u64,
    end: u64,
    size: usize,
    buffer: Vec<u8>,
    used: usize,
}

impl Run<'_> {
    /// The next `len` bytes without taking them; fewer only where the run ends.
    pub(super) fn peek(&mut self, len: usize) -> Result<&[u8], Error> {
        if self.buffer.len() - self.used < len {
            self.buffer.drain(..self.used);
            self.used = 0;
            let had = self.buffer.len();
            let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
            let more = self.size.max(len - had).min(left);
            self.buffer.resize(had + more, 0);
            let read = self.file.read_exact_at(&mut self.buffer[had..], self.at);
            read.map_err(|e| Error::io(self.place, e))?;
            self.at += u64::try_from(more).expect("a length fits 64 bits");
        }
        Ok(&self.buffer[self.used..(self.used + len).min(self.buffer.len())])
    }

    /// Takes `len` bytes that were peeked at.
    pub(super) fn take(&mut self, len: usize) {
        self.used += len;
    }
}
