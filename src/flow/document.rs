//! A manifest as written: its value, and where in the file each part of it is.

use super::yaml;
use crate::canonical::{self, Step, Value};
use crate::invalid::Invalid;

/// A flow of a thousand nodes is below a tenth of this.
const BYTES_MAX: usize = 1 << 20;

/// A manifest that could be read; whether it is a flow is not known yet.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub(super) value: Value,
    text: &'a str,
    place: &'a str,
    is_json: bool,
}

impl<'a> Document<'a> {
    pub(super) fn read(bytes: &'a [u8], place: &'a str) -> Result<Self, Invalid> {
        if bytes.len() > BYTES_MAX {
            let message = format!("{} bytes; a flow has {BYTES_MAX} at most", bytes.len());
            let hint = "is this the right file? A snapshot goes to `finaz snapshot import`";
            return Err(Invalid::new("FLOW_TOO_LARGE", place, message, hint));
        }
        let is_json = is_json(bytes, place);
        if is_json {
            let value = canonical::parse(bytes, place).map_err(as_flow)?;
            let text = std::str::from_utf8(bytes).expect("JSON that parsed is UTF-8");
            return Ok(Self { value, text, place, is_json });
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            let line = before.split(|&byte| byte == b'\n').count();
            let hint = "save the file as UTF-8";
            Invalid::new("FLOW_SYNTAX", format!("{place}:{line}:1"), "this is not UTF-8", hint)
        })?;
        let value = yaml::parse(text).map_err(|problem| {
            let (line, column) = problem.at;
            let place = format!("{place}:{line}:{column}");
            Invalid::new(problem.code, place, problem.message, problem.hint)
        })?;
        Ok(Self { value, text, place, is_json })
    }

    /// An error at the place that `path` leads to.
    pub(super) fn invalid(
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

/// An error of the JSON reader under the codes of flows.
fn as_flow(error: Invalid) -> Invalid {
    let code = match error.code {
        "JSON_DUPLICATE_KEY" => "FLOW_DUPLICATE_KEY",
        "JSON_BOM" => "FLOW_BOM",
        "JSON_DEPTH" => "FLOW_TOO_COMPLEX",
        _ => "FLOW_SYNTAX",
    };
    Invalid { code, ..error }
}
