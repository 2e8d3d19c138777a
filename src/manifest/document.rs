//! A manifest as written: its value, and where in the file each part of it is.

use super::{Dialect, yaml};
use crate::canonical::{self, Step, Value};
use crate::invalid::Invalid;

/// A manifest that could be read; whether it is one of its kind is not known yet.
#[derive(Debug)]
pub struct Document<'a> {
    pub value: Value,
    pub(super) dialect: &'static Dialect,
    text: &'a str,
    place: &'a str,
    is_json: bool,
}

impl<'a> Document<'a> {
    /// Reads YAML or JSON. `place` is the file's name, or another name for errors; a name that ends
    /// in `.json` is read as JSON, `.yaml` and `.yml` as YAML, any other as JSON if it starts with `{`.
    ///
    /// # Errors
    /// A code of the dialect, the place as `file:line:column`.
    pub fn read(
        bytes: &'a [u8],
        place: &'a str,
        dialect: &'static Dialect,
    ) -> Result<Self, Invalid> {
        let codes = &dialect.codes;
        if bytes.len() > dialect.bytes_max {
            let (noun, most) = (dialect.noun, dialect.bytes_max);
            let message = format!("{} bytes; a {noun} has {most} at most", bytes.len());
            return Err(Invalid::new(codes.too_large, place, message, dialect.too_large_hint));
        }
        let is_json = is_json(bytes, place);
        if is_json {
            let value =
                canonical::parse(bytes, place).map_err(|error| in_dialect(error, dialect))?;
            let text = std::str::from_utf8(bytes).expect("JSON that parsed is UTF-8");
            return Ok(Self { value, dialect, text, place, is_json });
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            let line = before.split(|&byte| byte == b'\n').count();
            let hint = "save the file as UTF-8";
            Invalid::new(codes.syntax, format!("{place}:{line}:1"), "this is not UTF-8", hint)
        })?;
        if text.starts_with('\u{feff}') {
            let message = "a manifest must not start with a byte-order mark";
            let hint = "save the file as UTF-8 without a byte-order mark";
            return Err(Invalid::new(codes.syntax, format!("{place}:1:1"), message, hint));
        }
        let value = yaml::parse(text, dialect).map_err(|problem| {
            let (line, column) = problem.at;
            let place = format!("{place}:{line}:{column}");
            Invalid::new(problem.code, place, problem.message, problem.hint)
        })?;
        Ok(Self { value, dialect, text, place, is_json })
    }

    /// An error at the place that `path` leads to.
    #[must_use]
    pub fn invalid(
        &self,
        path: &[Step<'_>],
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Invalid {
        let (line, column) = if self.is_json {
            canonical::locate(self.text.as_bytes(), path)
        } else {
            yaml::locate(self.text, path)
        };
        Invalid::new(code, format!("{}:{line}:{column}", self.place), message, hint)
    }
}

fn is_json(bytes: &[u8], place: &str) -> bool {
    if place.ends_with(".json") {
        return true;
    }
    if place.ends_with(".yaml") || place.ends_with(".yml") {
        return false;
    }
    bytes
        .trim_ascii_start()
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(bytes)
        .trim_ascii_start()
        .starts_with(b"{")
}

/// An error of the JSON reader under the codes of the dialect.
fn in_dialect(error: Invalid, dialect: &Dialect) -> Invalid {
    let codes = &dialect.codes;
    let code = match error.code {
        "JSON_DUPLICATE_KEY" => codes.duplicate_key,
        "JSON_BOM" => codes.bom,
        "JSON_DEPTH" => codes.too_complex,
        _ => codes.syntax,
    };
    Invalid { code, ..error }
}
