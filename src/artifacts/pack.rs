//! A pack: many small blobs in one file, so that making them last costs one fsync and not thousands.
//!
//! ```text
//! head     16 bytes  "finaz pack 0001\n"
//! blobs              back to back, in the order of the index
//! index    48 a blob hash 32, offset u64, length u64 (big endian), ordered by hash
//! tail     64 bytes  count u64, offset of the index u64, SHA-256 of the index 32, head again
//! ```
//! The file is named by the SHA-256 of its index: the same set of blobs is the same file, and a pack
//! whose index was damaged is found out. Each blob is checked by its own hash when it is read.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::error::Error;
use crate::ids::Hash;

const MAGIC: &[u8; 16] = b"finaz pack 0001\n";
const ENTRY: usize = 48;
const TAIL: usize = 64;

/// A pack is closed at this many blobs, so that an index (3 MiB) is always read in one piece.
pub(super) const BLOBS_MAX: usize = 65_536;
/// A pack is closed once its blobs exceed this, so that rewriting one stays cheap.
pub(super) const BYTES_MAX: u64 = 64 << 20;

/// Up to here the whole index is read at once; above, only where the hash must be.
const WHOLE_MAX: usize = 1024;
/// Half the width of that part. Hashes are spread evenly: with 65,536 of them the place is off by
/// 128 (one standard deviation) at worst, so 1,024 is missed about never, and then all is read.
const NEAR: usize = 1024;

/// Where one blob lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) hash: Hash,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Entry {
    fn read(bytes: &[u8]) -> Self {
        let hash = Hash::from_digest(&bytes[..32]).expect("32 bytes were cut");
        Self { hash, offset: number(&bytes[32..40]), len: number(&bytes[40..48]) }
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("8 bytes were cut"))
}

/// Size as an offset in a file.
pub(super) fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("a length fits 64 bits")
}

/// The index of a pack that is to be written: what goes where, and the name that follows from it.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) name: Hash,
    pub(super) entries: Vec<Entry>,
    index: Vec<u8>,
}

impl Plan {
    /// Lays out these blobs, which must be ordered by hash and all different.
    pub(super) fn new(blobs: impl Iterator<Item = (Hash, u64)>) -> Self {
        let mut at = wide(MAGIC.len());
        let mut entries = Vec::new();
        let mut index = Vec::new();
        for (hash, len) in blobs {
            index.extend_from_slice(hash.as_bytes());
            index.extend_from_slice(&at.to_be_bytes());
            index.extend_from_slice(&len.to_be_bytes());
            entries.push(Entry { hash, offset: at, len });
            at += len;
        }
        Self { name: Hash::of(&index), entries, index }
    }

    pub(super) fn start(out: &mut impl Write) -> io::Result<()> {
        out.write_all(MAGIC)
    }

    /// Writes what follows the blobs.
    pub(super) fn finish(&self, out: &mut impl Write) -> io::Result<()> {
        let end = self.entries.last().map_or(wide(MAGIC.len()), |last| last.offset + last.len);
        out.write_all(&self.index)?;
        out.write_all(&wide(self.entries.len()).to_be_bytes())?;
        out.write_all(&end.to_be_bytes())?;
        out.write_all(self.name.as_bytes())?;
        out.write_all(MAGIC)
    }
}

/// The tail of a pack: enough to search it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    pub(super) count: usize,
    index_at: u64,
}

/// Why a pack could not be read: it is damaged, or the system failed.
#[derive(Debug)]
pub(super) enum Trouble {
    Damaged(&'static str),
    Io(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(source: io::Error) -> Self {
        // Short of what its tail promises: cut off since it was opened.
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return Self::Damaged("is cut off");
        }
        Self::Io(source)
    }
}

impl Trouble {
    pub(super) fn at(self, path: &Path) -> Error {
        match self {
            Self::Damaged(seen) => {
                Error::PackCorrupt { place: path.display().to_string(), seen: seen.to_owned() }
            }
            Self::Io(source) => Error::io(path, source),
        }
    }
}

impl Tail {
    /// Reads the tail and holds it against the size of the file and the file's `name`.
    pub(super) fn read(file: &File, name: Hash) -> Result<Self, Trouble> {
        let size = file.metadata()?.len();
        let Some(tail_at) = size.checked_sub(wide(TAIL)) else {
            return Err(Trouble::Damaged("is cut off"));
        };
        let mut tail = [0; TAIL];
        file.read_exact_at(&mut tail, tail_at)?;
        if &tail[48..] != MAGIC {
            return Err(Trouble::Damaged("has no tail: it is cut off or overwritten"));
        }
        let (count, index_at) = (number(&tail[..8]), number(&tail[8..16]));
        let count = usize::try_from(count).ok().filter(|count| (1..=BLOBS_MAX).contains(count));
        let Some(count) = count else { return Err(Trouble::Damaged("has a count out of range")) };
        if index_at.checked_add(wide(count * ENTRY)) != Some(tail_at) {
            return Err(Trouble::Damaged("has another size than its tail says"));
        }
        if &tail[16..48] != name.as_bytes() {
            return Err(Trouble::Damaged("has another name than its index"));
        }
        Ok(Self { count, index_at })
    }

    /// The entries `from..to`.
    fn entries(self, file: &File, from: usize, to: usize) -> Result<Vec<Entry>, Trouble> {
        let mut bytes = vec![0; (to - from) * ENTRY];
        file.read_exact_at(&mut bytes, self.index_at + wide(from * ENTRY))?;
        Ok(bytes.chunks_exact(ENTRY).map(Entry::read).collect())
    }

    /// One entry by its place in the index.
    pub(super) fn entry(self, file: &File, slot: usize) -> Result<Entry, Trouble> {
        let mut bytes = [0; ENTRY];
        file.read_exact_at(&mut bytes, self.index_at + wide(slot * ENTRY))?;
        Ok(Entry::read(&bytes))
    }

    /// The whole index, held against the pack's name and its own order.
    pub(super) fn index(self, file: &File, name: Hash) -> Result<Vec<Entry>, Trouble> {
        let mut bytes = vec![0; self.count * ENTRY];
        file.read_exact_at(&mut bytes, self.index_at)?;
        if Hash::of(&bytes) != name {
            return Err(Trouble::Damaged("has a damaged index"));
        }
        Ok(bytes.chunks_exact(ENTRY).map(Entry::read).collect())
    }

    /// Looks for one blob in a few reads, without keeping anything.
    pub(super) fn find(self, file: &File, hash: &Hash) -> Result<Option<Entry>, Trouble> {
        let search = |part: &[Entry]| {
            part.binary_search_by(|entry| entry.hash.cmp(hash)).ok().map(|slot| part[slot])
        };
        if self.count <= WHOLE_MAX {
            return Ok(search(&self.entries(file, 0, self.count)?));
        }
        let guess = (u128::from(prefix(hash)) * u128::from(wide(self.count))) >> 64;
        let guess = usize::try_from(guess).expect("less than the count");
        let (from, to) = (guess.saturating_sub(NEAR), (guess + NEAR).min(self.count));
        let part = self.entries(file, from, to)?;
        let before = from > 0 && part.first().is_some_and(|first| *hash < first.hash);
        let after = to < self.count && part.last().is_some_and(|last| *hash > last.hash);
        if before || after {
            return Ok(search(&self.entries(file, 0, self.count)?));
        }
        Ok(search(&part))
    }
}

/// The first eight bytes of a hash, as a number that orders like it.
pub(super) fn prefix(hash: &Hash) -> u64 {
    number(&hash.as_bytes()[..8])
}
