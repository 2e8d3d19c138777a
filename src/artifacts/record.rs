//! A small file that says something about blobs: one line of FINAZ_JSON_V1 and a line with its hash,
//! so that damage is told from a change.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::Artifacts;
use super::disk::Tmp;
use super::error::Error;
use crate::canonical::{Value, parse};
use crate::ids::Hash;

/// The fields of a record.
pub type Fields = BTreeMap<String, Value>;

/// Reads the record at `path`; `None` where there is none.
pub(super) fn read(path: &Path) -> Result<Option<Fields>, Error> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io(path, e)),
    };
    let sound = || {
        let (line, seal) = std::str::from_utf8(&text).ok()?.strip_suffix('\n')?.split_once('\n')?;
        let sealed = seal.parse() == Ok(Hash::of(line.as_bytes()));
        let value = sealed.then(|| parse(line.as_bytes(), "record").ok()).flatten()?;
        if let Value::Map(fields) = value { Some(fields) } else { None }
    };
    sound().map(Some).ok_or_else(|| corrupt(path, "does not have the hash that it states"))
}

pub(super) fn corrupt(path: &Path, seen: &str) -> Error {
    Error::RecordCorrupt { place: path.display().to_string(), seen: seen.to_owned() }
}

/// The text `key` of a record.
pub(super) fn text<'a>(fields: &'a Fields, key: &str, path: &Path) -> Result<&'a str, Error> {
    if let Some(Value::Text(text)) = fields.get(key) {
        return Ok(text);
    }
    Err(corrupt(path, "is no record of this kind"))
}

/// The whole number `key` of a record.
pub(super) fn int(fields: &Fields, key: &str, path: &Path) -> Result<i64, Error> {
    if let Some(Value::Int(number)) = fields.get(key) {
        return Ok(*number);
    }
    Err(corrupt(path, "is no record of this kind"))
}

impl Artifacts {
    /// A record, written and synced, that has no final name yet.
    pub(super) fn record(&self, fields: Fields) -> Result<Tmp, Error> {
        let mut text = Value::Map(fields).to_bytes()?;
        let seal = Hash::of(&text);
        text.extend_from_slice(format!("\n{seal}\n").as_bytes());
        let tmp = self.written(&text)?;
        self.disk.sync_file(&tmp.file, &tmp.path)?;
        Ok(tmp)
    }
}
