//! Blobs as streams: written without knowing their hash, read without holding them in memory.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use ring::digest::{Context, SHA256};

use super::disk::Tmp;
use super::error::Error;
use super::packs::Found;
use super::{Artifacts, pack};
use crate::ids::Hash;

const BUFFER: usize = 256 << 10;

/// Takes a blob of any size. Dropped without [`BlobWriter::finish`], it leaves nothing.
pub struct BlobWriter<'a> {
    store: &'a Artifacts,
    tmp: Tmp,
    digest: Context,
    buffer: Vec<u8>,
}

impl fmt::Debug for BlobWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobWriter").field("tmp", &self.tmp.path).finish_non_exhaustive()
    }
}

impl<'a> BlobWriter<'a> {
    pub(super) fn new(store: &'a Artifacts, tmp: Tmp) -> Self {
        Self { store, tmp, digest: Context::new(&SHA256), buffer: Vec::with_capacity(BUFFER) }
    }

    /// The hash of what was written so far: lets a caller decide before anything has a final name.
    #[must_use]
    pub fn hash(&self) -> Hash {
        let mut whole = self.digest.clone();
        whole.update(&self.buffer);
        digest(whole)
    }

    /// Makes the blob last under its name; whether it was there already comes second.
    ///
    /// # Errors
    /// As [`Artifacts::put`].
    pub fn finish(mut self) -> Result<(Hash, bool), Error> {
        let hash = self.hash();
        self.drain().map_err(|e| Error::io(&self.tmp.path, e))?;
        let Self { store, tmp, .. } = self;
        if store.held(&hash)? {
            return Ok((hash, true));
        }
        store.disk.sync_file(&tmp.file, &tmp.path)?;
        store.place(tmp, &store.loose(&hash))?;
        Ok((hash, false))
    }

    fn drain(&mut self) -> io::Result<()> {
        self.tmp.write_all(&self.buffer)?;
        self.digest.update(&self.buffer);
        self.buffer.clear();
        Ok(())
    }
}

impl Write for BlobWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > BUFFER {
            self.drain()?;
        }
        if bytes.len() >= BUFFER {
            self.tmp.write_all(bytes)?;
            self.digest.update(bytes);
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.drain()
    }
}

fn digest(context: Context) -> Hash {
    Hash::from_digest(context.finish().as_ref()).expect("SHA-256 has 32 bytes")
}

/// A blob, loose or in a pack, as a file and a part of it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    /// The pack it lies in.
    pub(super) pack: Option<Hash>,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Part {
    pub(super) fn of_pack(found: Found) -> Self {
        let Found { pack, path, file, entry } = found;
        Self { file, path, pack: Some(pack), offset: entry.offset, len: entry.len }
    }

    /// Reads all of it, if it is what the hash names. `Err(Ok(seen))` says what is there instead.
    pub(super) fn read(&self, hash: &Hash) -> Result<Vec<u8>, Result<String, io::Error>> {
        let size = self.file.metadata().map_err(Err)?.len();
        if self.offset.saturating_add(self.len) > size {
            return Err(Ok("is cut off".to_owned()));
        }
        let len = usize::try_from(self.len).map_err(|_| Ok("is too large to read".to_owned()))?;
        let mut bytes = vec![0; len];
        match self.file.read_exact_at(&mut bytes, self.offset) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Ok("is cut off".to_owned()));
            }
            Err(e) => return Err(Err(e)),
        }
        let seen = Hash::of(&bytes);
        if seen == *hash { Ok(bytes) } else { Err(Ok(format!("holds {seen}"))) }
    }

    pub(super) fn reader(self, hash: Hash) -> BlobReader {
        // No larger than the blob: to clear a large buffer costs more than to read a small one.
        let size = usize::try_from(self.len).map_or(BUFFER, |len| len.min(BUFFER));
        BlobReader {
            hash,
            left: self.len,
            at: self.offset,
            part: self,
            digest: Context::new(&SHA256),
            buffer: vec![0; size].into_boxed_slice(),
            used: 0,
            filled: 0,
        }
    }

    pub(super) fn corrupt(&self, hash: &Hash, seen: String) -> Error {
        Error::Corrupt { hash: *hash, place: self.path.display().to_string(), seen }
    }
}

/// Streams a blob. What was read is known to be right only once [`BlobReader::finish`] says so.
pub struct BlobReader {
    hash: Hash,
    part: Part,
    at: u64,
    left: u64,
    digest: Context,
    buffer: Box<[u8]>,
    used: usize,
    filled: usize,
}

impl fmt::Debug for BlobReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobReader").field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl BlobReader {
    /// The size of the blob in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.part.len
    }

    /// Reads what is left, and fails when the whole is not what the hash names.
    ///
    /// # Errors
    /// [`Error::Corrupt`], or what the system said.
    pub fn finish(mut self) -> Result<(), Error> {
        loop {
            match self.fill_buf().map(<[u8]>::len) {
                Ok(0) => break,
                Ok(len) => self.consume(len),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(self.part.corrupt(&self.hash, "is cut off".to_owned()));
                }
                Err(e) => return Err(Error::io(&self.part.path, e)),
            }
        }
        let seen = digest(self.digest);
        if seen == self.hash {
            return Ok(());
        }
        Err(self.part.corrupt(&self.hash, format!("holds {seen}")))
    }
}

impl BufRead for BlobReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.filled && self.left > 0 {
            let want = self.left.min(pack::wide(self.buffer.len()));
            let want = usize::try_from(want).expect("not above the buffer");
            let got = self.part.file.read_at(&mut self.buffer[..want], self.at)?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.digest.update(&self.buffer[..got]);
            (self.used, self.filled) = (0, got);
            self.at += pack::wide(got);
            self.left -= pack::wide(got);
        }
        Ok(&self.buffer[self.used..self.filled])
    }

    fn consume(&mut self, len: usize) {
        self.used += len;
    }
}

impl Read for BlobReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.fill_buf()?.read(out)?;
        self.consume(got);
        Ok(got)
    }
}
