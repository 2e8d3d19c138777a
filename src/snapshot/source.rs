//! The file that is imported: what it is, its bytes unpacked, its lines.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::{Error, Format};
use crate::invalid::Invalid;

/// A longer line is a file that has no lines, or a bomb.
const LINE_MAX: usize = 1 << 20;
const CHUNK: usize = 256 << 10;
/// Bytes between two calls of `progress`.
const STEP: u64 = 1 << 20;

/// Told the bytes of the file that were read, and their sum.
pub(super) type Progress<'a> = &'a dyn Fn(u64, u64);

/// An opened source.
#[derive(Debug)]
pub(super) struct Source {
    /// As the caller named it; for places.
    pub(super) place: String,
    pub(super) format: Format,
    pub(super) size: u64,
    file: File,
    gzip: bool,
}

impl Source {
    /// Opens a file and finds out what is in it: gzip and Parquet by their first bytes, JSON lines
    /// and CSV by the name's ending or else by the first byte.
    pub(super) fn open(path: &Path, format: Option<Format>) -> Result<Self, Error> {
        let place = path.display().to_string();
        let unreadable = |e: io::Error| {
            let hint = "give the path of a file that can be read";
            Error::Invalid(Invalid::new("FILE_UNREADABLE", place.as_str(), e.to_string(), hint))
        };
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            let hint = "a source is read twice at times: write a stream to a file first";
            let message = "is not a regular file";
            return Err(Invalid::new("FILE_UNREADABLE", place, message, hint).into());
        }
        let mut head = [0; 4];
        let read = head_of(&mut &file, &mut head).map_err(|e| Error::io(&place, e))?;
        let gzip = head[..read].starts_with(&[0x1f, 0x8b]);
        let size = metadata.len();
        let mut source = Self { place, format: Format::Csv, size, file, gzip };
        let read = if gzip {
            let mut bytes = source.bytes(&|_, _| {})?;
            head_of(&mut bytes, &mut head).map_err(|e| source.failed(e))?
        } else {
            read
        };
        source.format = source.sniff(path, &head[..read], format)?;
        Ok(source)
    }

    fn sniff(&self, path: &Path, head: &[u8], asked: Option<Format>) -> Result<Format, Error> {
        let refuse = |code, message: &str, hint: &str| {
            Err(Invalid::new(code, self.place.as_str(), message, hint).into())
        };
        if head.is_empty() {
            return refuse("FILE_EMPTY", "the file is empty", "an import needs one event at least");
        }
        for (magic, what) in [
            (b"PK\x03\x04".as_slice(), "a zip archive or a spreadsheet"),
            (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
            (b"\xfd7zX", "compressed with xz"),
            (b"BZh", "compressed with bzip2"),
            (b"\x1f\x8b", "compressed twice"),
            (b"\xff\xfe", "UTF-16"),
            (b"\xfe\xff", "UTF-16"),
        ] {
            if head.starts_with(magic) {
                let hint = "unpack it, or save it as UTF-8; gzip alone is read as it is";
                return refuse("FORMAT_UNKNOWN", &format!("the file is {what}"), hint);
            }
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        let columnar = head.starts_with(b"PAR1");
        let named = if ends(&[".parquet", ".pq"]) || columnar {
            Format::Parquet
        } else if ends(&[".jsonl", ".ndjson", ".json"])
            || (head.starts_with(b"{") && !ends(&[".csv", ".txt"]))
        {
            Format::JsonLines
        } else {
            Format::Csv
        };
        let format = asked.unwrap_or(named);
        if format == Format::Parquet && !columnar {
            return refuse(
                "PARQUET_DAMAGED",
                "the file does not begin like Parquet",
                "is it whole?",
            );
        }
        if format == Format::Parquet && self.gzip {
            let hint = "unpack it with gunzip; Parquet is compressed inside";
            return refuse("FORMAT_UNKNOWN", "Parquet inside of gzip cannot be read", hint);
        }
        Ok(format)
    }

    /// The file itself.
    pub(super) fn file(&self) -> Result<File, Error> {
        self.file.try_clone().map_err(|e| self.failed(e))
    }

    /// The bytes from the start, unpacked.
    pub(super) fn bytes<'a>(&self, progress: Progress<'a>) -> Result<Box<dyn Read + 'a>, Error> {
        use std::io::Seek as _;
        let mut file = self.file()?;
        file.rewind().map_err(|e| self.failed(e))?;
        let counted = Counted { file, total: self.size, progress, done: Cell::new(0) };
        if self.gzip {
            let buffered = BufReader::with_capacity(CHUNK, counted);
            return Ok(Box::new(MultiGzDecoder::new(buffered)));
        }
        Ok(Box::new(counted))
    }

    /// The lines from the start.
    pub(super) fn lines<'a>(&self, progress: Progress<'a>) -> Result<Lines<'a>, Error> {
        Ok(Lines {
            input: self.bytes(progress)?,
            buffer: vec![0; LINE_MAX + 2 * CHUNK],
            start: 0,
            end: 0,
            line: 0,
            done: false,
        })
    }

    /// What a failed read means: the system failed, or the packed bytes are damaged.
    pub(super) fn failed(&self, source: io::Error) -> Error {
        if source.raw_os_error().is_some() || !self.gzip {
            return Error::io(&self.place, source);
        }
        let message = if source.kind() == io::ErrorKind::UnexpectedEof {
            "the gzip file is cut off, or something follows its end".to_owned()
        } else {
            format!("the gzip file is damaged: {source}")
        };
        let hint = "fetch the file again; `gzip -t` tells whether it is whole";
        Invalid::new("GZIP_DAMAGED", self.place.as_str(), message, hint).into()
    }

    /// The place of a line.
    pub(super) fn at(&self, line: u64) -> String {
        format!("{}:{line}", self.place)
    }
}

fn head_of(input: &mut dyn Read, head: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < head.len() {
        match input.read(&mut head[read..])? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

/// Tells how much of the file was read.
struct Counted<'a> {
    file: File,
    total: u64,
    progress: Progress<'a>,
    done: Cell<u64>,
}

impl Read for Counted<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(out)?;
        let before = self.done.get();
        let done = before + u64::try_from(read).expect("a length fits 64 bits");
        self.done.set(done);
        if read == 0 || done / STEP > before / STEP {
            (self.progress)(done, self.total);
        }
        Ok(read)
    }
}

/// Lines of bounded length, without their `\n`.
pub(super) struct Lines<'a> {
    input: Box<dyn Read + 'a>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The number of the line that was given last, from 1.
    line: u64,
    done: bool,
}

impl fmt::Debug for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("line", &self.line).finish_non_exhaustive()
    }
}

impl Lines<'_> {
    /// The next line and its number, with a `\r` that ends it.
    pub(super) fn next(&mut self, source: &Source) -> Result<Option<(u64, &[u8])>, Error> {
        let mut searched = self.start;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                let line = self.start..searched + at;
                self.start = line.end + 1;
                self.line += 1;
                return Ok(Some((self.line, &self.buffer[line])));
            }
            searched = self.end;
            if self.end - self.start > LINE_MAX {
                let message = format!("the line has more than {LINE_MAX} bytes");
                let hint = "lines end in a line feed; is this the file that was meant?";
                return Err(
                    Invalid::new("LINE_TOO_LONG", source.at(self.line + 1), message, hint).into()
                );
            }
            if self.done {
                let rest = self.start..self.end;
                self.start = self.end;
                self.line += u64::from(!rest.is_empty());
                return Ok((!rest.is_empty()).then_some((self.line, &self.buffer[rest])));
            }
            if self.buffer.len() - self.end < CHUNK {
                self.buffer.copy_within(self.start..self.end, 0);
                searched -= self.start;
                self.end -= self.start;
                self.start = 0;
            }
            let read = loop {
                match self.input.read(&mut self.buffer[self.end..]) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    read => break read.map_err(|e| source.failed(e))?,
                }
            };
            self.end += read;
            self.done = read == 0;
        }
    }
}
