//! Imports as a caller sees them: what the body is, and what is refused without a trace.

mod csv;
mod jsonl;
mod order;
mod parquet;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Error, ImportOptions, Imported, describe, import};
use crate::artifacts::{Artifacts, Kind};
use crate::canonical::Value;
use crate::ids::Hash;
use crate::invalid::Invalid;

/// A store and a folder for sources.
struct Bench {
    folder: TempDir,
    artifacts: Artifacts,
}

impl Bench {
    fn new() -> Self {
        // In memory where that can be had: no test here takes the power away.
        let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
        let artifacts = Artifacts::open(&folder.path().join("artifacts")).unwrap();
        Self { folder, artifacts }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn import(&self, file: &Path, options: &ImportOptions) -> Result<Imported, Error> {
        import(&self.artifacts, file, options, &|_, _| {})
    }

    fn body(&self, snapshot: &Hash) -> String {
        let mut body = String::new();
        let mut reader = self.artifacts.reader(snapshot).unwrap();
        reader.read_to_string(&mut body).unwrap();
        reader.finish().unwrap();
        body
    }

    /// The events as they are read back.
    fn events(&self, snapshot: &Hash) -> Vec<BTreeMap<String, Value>> {
        self.body(snapshot)
            .lines()
            .map(|line| {
                let event = crate::canonical::parse(line.as_bytes(), "body").unwrap();
                let Value::Map(event) = event else { panic!("{event:?}") };
                event
            })
            .collect()
    }

    /// Everything in the store, to see that a refusal leaves it as it was.
    fn files(&self) -> Vec<PathBuf> {
        fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        walk(&self.folder.path().join("artifacts"), &mut found);
        found.sort();
        found
    }

    fn refused(&self, file: &Path, options: &ImportOptions) -> Invalid {
        let before = self.files();
        let error = self.import(file, options).expect_err("it was imported");
        assert_eq!(self.files(), before, "something was left behind by {error}");
        match error {
            Error::Invalid(invalid) => {
                assert!(!invalid.hint.is_empty() && !invalid.place.is_empty());
                invalid
            }
            Error::Artifacts(error) => panic!("{error}"),
            Error::Io { .. } => panic!("{error}"),
        }
    }
}

/// Flags for a file with the columns `time`, `close` and one instrument.
fn plain() -> ImportOptions {
    ImportOptions {
        name: Some("prices".to_owned()),
        time_column: some("time"),
        instrument: some("X"),
        ..ImportOptions::default()
    }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut encoder = flate2::read::GzEncoder::new(bytes, flate2::Compression::best());
    encoder.read_to_end(&mut packed).unwrap();
    packed
}

const CSV: &str = "time,close,volume\n2024-01-01T00:00:00Z,1.5,10\n2024-01-01T00:00:01Z,,x\n\
                   2024-01-01T00:00:01Z,2,\n";
const T: i64 = 1_704_067_200_000_000_000;

#[test]
fn the_body_is_the_one_that_was_agreed() {
    let bench = Bench::new();
    let options = ImportOptions { fields: vec!["volume".to_owned()], ..plain() };
    let done = bench.import(&bench.file("a.csv", CSV.as_bytes()), &options).unwrap();
    let next = T + 1_000_000_000;
    let body = format!(
        "{{\"close\":1.5,\"event_id\":\"X@{T}#0\",\"event_time\":{T},\"instrument\":\"X\",\"seq\":0,\"volume\":10}}\n\
         {{\"close\":null,\"event_id\":\"X@{next}#0\",\"event_time\":{next},\"instrument\":\"X\",\"seq\":1,\"volume\":\"x\"}}\n\
         {{\"close\":2.0,\"event_id\":\"X@{next}#1\",\"event_time\":{next},\"instrument\":\"X\",\"seq\":2,\"volume\":null}}\n"
    );
    assert_eq!(bench.body(&done.snapshot), body);
    assert_eq!(done.snapshot, Hash::of(body.as_bytes()));
    assert_eq!((done.events, done.instruments, done.already_present), (3, 1, false));
    let label = bench.artifacts.label(Kind::Snapshot, "prices").unwrap().unwrap();
    assert_eq!((label.hash, label.golden), (done.snapshot, None));
    let described = describe(&bench.artifacts, &done.snapshot).unwrap();
    assert_eq!(
        (described.events, described.gaps, described.fields),
        (3, 1, vec!["volume".to_owned()])
    );
    let only = &described.instruments[0];
    assert_eq!((only.name.as_str(), only.first, only.last), ("X", T, next));
    assert!(
        bench
            .files()
            .iter()
            .all(|file| !file.starts_with(bench.folder.path().join("artifacts/tmp")))
    );
}

#[test]
fn the_same_content_is_present_already_however_it_was_packed() {
    let bench = Bench::new();
    let first = bench.import(&bench.file("a.csv", CSV.as_bytes()), &plain()).unwrap();
    let crlf = format!("\u{feff}{}", CSV.replace('\n', "\r\n"));
    for (name, bytes) in [
        ("a.csv", CSV.as_bytes().to_vec()),
        ("crlf.csv", crlf.clone().into_bytes()),
        ("a.csv.gz", gzip(CSV.as_bytes())),
        ("gzip.csv", gzip(crlf.as_bytes())),
        ("no-ending", gzip(CSV.as_bytes())),
        ("two-members.csv.gz", [gzip(&CSV.as_bytes()[..30]), gzip(&CSV.as_bytes()[30..])].concat()),
        ("no-newline.csv", CSV.trim_end().as_bytes().to_vec()),
        ("empty-lines.csv", CSV.replace("\n2024", "\n\n2024").into_bytes()),
        ("quoted.csv", CSV.replace("1.5", "\"1.5\"").replace("close", "\"close\"").into_bytes()),
    ] {
        let again = bench.import(&bench.file(name, &bytes), &plain()).unwrap();
        assert_eq!((again.snapshot, again.already_present), (first.snapshot, true), "{name}");
    }
}

#[test]
fn a_name_with_other_content_is_refused_and_kept_unless_it_is_replaced() {
    let bench = Bench::new();
    let first = bench.import(&bench.file("a.csv", CSV.as_bytes()), &plain()).unwrap();
    let other = bench.file("b.csv", CSV.replace("1.5", "1.6").as_bytes());
    let before = bench.files();
    let error = bench.import(&other, &plain()).unwrap_err();
    assert!(
        matches!(&error, Error::Artifacts(crate::artifacts::Error::LabelTaken { .. })),
        "{error}"
    );
    assert_eq!(bench.files(), before);
    let held =
        |bench: &Bench| bench.artifacts.label(Kind::Snapshot, "prices").unwrap().unwrap().hash;
    assert_eq!(held(&bench), first.snapshot);
    let replaced = bench.import(&other, &ImportOptions { replace: true, ..plain() }).unwrap();
    assert_eq!(held(&bench), replaced.snapshot);
    assert_ne!(replaced.snapshot, first.snapshot);
}

#[test]
fn flags_that_contradict_or_say_too_little_are_refused() {
    let bench = Bench::new();
    let file = bench.file("a.csv", CSV.as_bytes());
    let cases: [(&str, &str, ImportOptions); 11] = [
        (
            "FLAG_CONFLICT",
            "--instrument",
            ImportOptions { instrument_column: some("volume"), ..plain() },
        ),
        ("FLAG_MISSING", "--instrument", ImportOptions { instrument: None, ..plain() }),
        (
            "FLAG_CONFLICT",
            "--tz",
            ImportOptions { time_format: some("epoch-s"), tz: some("UTC"), ..plain() },
        ),
        ("TZ_UNKNOWN", "--tz", ImportOptions { tz: some("Mars/Olympus"), ..plain() }),
        (
            "TIME_FORMAT_INVALID",
            "--time-format",
            ImportOptions { time_format: some("epoch-ps"), ..plain() },
        ),
        ("FIELD_INVALID", "--field", ImportOptions { fields: vec!["seq".to_owned()], ..plain() }),
        ("FIELD_INVALID", "--field", ImportOptions { fields: vec!["v".to_owned(); 2], ..plain() }),
        ("NAME_INVALID", "--instrument", ImportOptions { instrument: some("a\nb"), ..plain() }),
        ("NAME_INVALID", "--instrument", ImportOptions { instrument: some(""), ..plain() }),
        ("NAME_INVALID", "name", ImportOptions { name: Some("../x".to_owned()), ..plain() }),
        ("NAME_INVALID", "name", ImportOptions { name: Some(String::new()), ..plain() }),
    ];
    for (code, place, options) in cases {
        let refused = bench.refused(&file, &options);
        assert_eq!(refused.code, code, "{refused:?}");
        assert!(refused.place.starts_with(place), "{refused:?}");
    }
    let lines = bench.file("a.jsonl", b"{}");
    let refused = bench.refused(&lines, &ImportOptions { no_header: true, ..plain() });
    assert_eq!((refused.code, refused.place.as_str()), ("FLAG_CONFLICT", "--no-header"));
}

#[test]
fn what_is_no_source_is_refused_for_what_it_is() {
    let bench = Bench::new();
    let packed = gzip(&[CSV, &"2024-01-01T00:00:02Z,1,2\n".repeat(200)].concat().into_bytes());
    let mut flipped = packed.clone();
    let end = flipped.len() - 6;
    flipped[end] ^= 1;
    for (code, name, bytes) in [
        ("FILE_EMPTY", "a.csv", Vec::new()),
        ("FILE_EMPTY", "a.jsonl", Vec::new()),
        ("FILE_EMPTY", "a.csv.gz", gzip(b"")),
        ("FILE_EMPTY", "header.csv", b"time,close\n".to_vec()),
        ("FILE_EMPTY", "lines.csv", b"\n\r\n\n".to_vec()),
        ("FILE_EMPTY", "lines.jsonl", b"\n \n".to_vec()),
        ("FORMAT_UNKNOWN", "a.xlsx", b"PK\x03\x04rest".to_vec()),
        ("FORMAT_UNKNOWN", "a.csv.zst", b"\x28\xb5\x2f\xfdrest".to_vec()),
        ("FORMAT_UNKNOWN", "a.csv", b"\xff\xfet\0i\0".to_vec()),
        ("FORMAT_UNKNOWN", "twice.gz", gzip(&packed)),
        ("FORMAT_UNKNOWN", "a.parquet.gz", gzip(b"PAR1 and more")),
        ("PARQUET_DAMAGED", "a.parquet", CSV.as_bytes().to_vec()),
        ("GZIP_DAMAGED", "cut.csv.gz", packed[..packed.len() - 9].to_vec()),
        ("GZIP_DAMAGED", "head.csv.gz", packed[..12].to_vec()),
        ("GZIP_DAMAGED", "flipped.csv.gz", flipped),
        ("GZIP_DAMAGED", "tail.csv.gz", [packed.clone(), b"more".to_vec()].concat()),
        ("LINE_TOO_LONG", "bomb.csv.gz", gzip(&vec![b'0'; 50 << 20])),
        ("LINE_TOO_LONG", "bomb.jsonl.gz", gzip(&vec![b'0'; 50 << 20])),
        ("TEXT_ENCODING", "latin.csv", b"time,close\n\xe9,1\n".to_vec()),
    ] {
        let file = bench.file(name, &bytes);
        let refused = bench.refused(&file, &ImportOptions { sort: true, ..plain() });
        assert_eq!(refused.code, code, "{name}: {refused:?}");
        assert!(refused.place.contains(name), "{refused:?}");
    }
    for path in
        [bench.folder.path().to_owned(), bench.folder.path().join("none"), "/dev/null".into()]
    {
        assert_eq!(bench.refused(&path, &plain()).code, "FILE_UNREADABLE");
    }
}

#[test]
fn an_import_that_is_stopped_by_its_progress_leaves_nothing() {
    let bench = Bench::new();
    let file = bench.file("a.csv", CSV.as_bytes());
    let before = bench.files();
    let told = std::cell::Cell::new(None);
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        import(&bench.artifacts, &file, &plain(), &|done, total| {
            told.set(Some((done, total)));
            std::panic::resume_unwind(Box::new("stopped"));
        })
    }));
    let len = u64::try_from(CSV.len()).unwrap();
    assert_eq!(told.get(), Some((len, len)));
    assert!(stopped.is_err());
    assert_eq!(bench.files(), before);
}

#[test]
fn a_blob_that_is_no_snapshot_is_not_described() {
    let bench = Bench::new();
    for blob in [b"hello".as_slice(), b"{\"close\":1.0}\n", b"{\"close\":1.0}"] {
        let hash = bench.artifacts.put(blob).unwrap();
        let error = describe(&bench.artifacts, &hash).unwrap_err();
        assert!(
            matches!(&error, Error::Invalid(invalid) if invalid.code == "NOT_A_SNAPSHOT"),
            "{error}"
        );
    }
    let missing = describe(&bench.artifacts, &Hash::of(b"never")).unwrap_err();
    assert!(matches!(missing, Error::Artifacts(crate::artifacts::Error::Missing { .. })));
}
