//! The log of arrivals: a line each, and the hash of them all.

use std::fmt;
use std::io::{self, Write};

use ring::digest::{Context, SHA256};

use super::Arrival;
use crate::canonical::{write_i64, write_text};
use crate::ids::Hash;

/// Lines hashed and written at once.
const BUFFER: usize = 64 << 10;

/// Writes the log as it grows.
pub struct Log<W> {
    to: W,
    digest: Context,
    buffer: Vec<u8>,
}

impl<W> fmt::Debug for Log<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl<W: Write> Log<W> {
    /// A log that goes to `to`, which may be a sink: the hash is the same.
    pub fn new(to: W) -> Self {
        Self { to, digest: Context::new(&SHA256), buffer: Vec::with_capacity(2 * BUFFER) }
    }

    /// Adds the line of an arrival: `{arrival, arrival_ns, event, fault, key}`, keys in their order.
    ///
    /// # Errors
    /// What the writer says.
    pub fn add(&mut self, arrival: &Arrival<'_>) -> io::Result<()> {
        let out = &mut self.buffer;
        out.extend_from_slice(br#"{"arrival":"#);
        write_i64(i64::try_from(arrival.number).expect("counted one by one"), out);
        out.extend_from_slice(br#","arrival_ns":"#);
        write_i64(arrival.arrival_ns, out);
        out.extend_from_slice(br#","event":"#);
        out.extend_from_slice(arrival.event.unwrap_or(b"null"));
        out.extend_from_slice(br#","fault":"#);
        match arrival.fault {
            Some(fault) => write_text(fault, out),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(br#","key":"#);
        write_text(arrival.key, out);
        out.extend_from_slice(b"}\n");
        if out.len() >= BUFFER { self.drain() } else { Ok(()) }
    }

    /// The hash of the log, and the writer back.
    ///
    /// # Errors
    /// What the writer says.
    pub fn finish(mut self) -> io::Result<(Hash, W)> {
        self.drain()?;
        self.to.flush()?;
        let digest = self.digest.finish();
        Ok((Hash::from_digest(digest.as_ref()).expect("SHA-256 has 32 bytes"), self.to))
    }

    fn drain(&mut self) -> io::Result<()> {
        self.digest.update(&self.buffer);
        self.to.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
