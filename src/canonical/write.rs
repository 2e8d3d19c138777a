//! Writing: digits from ryu, layout from CPython.

use std::io::Write as _;

use super::{DEPTH_MAX, Value};
use crate::invalid::Invalid;

/// Appends `x` as CPython's `repr` writes it: `2.0`, `1e-05`, `1e+16`, `-0.0`.
///
/// `x` must be finite; anything else is a broken invariant of the caller and panics.
pub fn write_f64(x: f64, out: &mut Vec<u8>) {
    assert!(x.is_finite(), "only finite numbers have a canonical form");
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(x).as_bytes();
    let digits = usize::from(text[0] == b'-');
    if text[digits..].starts_with(b"0.0000") {
        // CPython leaves decimals one power of ten earlier: 0.00001234 is 1.234e-05.
        out.extend_from_slice(&text[..digits]);
        let rest = &text[digits + 6..];
        out.push(rest[0]);
        if rest.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&rest[1..]);
        }
        out.extend_from_slice(b"e-05");
        return;
    }
    let Some(e) = text.iter().position(|&byte| byte == b'e') else {
        out.extend_from_slice(text);
        return;
    };
    // CPython signs the exponent and gives it two digits or more.
    out.extend_from_slice(&text[..=e]);
    let exponent = &text[e + 1..];
    let (sign, exponent) = match exponent.strip_prefix(b"-") {
        Some(rest) => (b'-', rest),
        None => (b'+', exponent),
    };
    out.push(sign);
    if exponent.len() < 2 {
        out.push(b'0');
    }
    out.extend_from_slice(exponent);
}

/// Appends a whole number.
pub fn write_i64(x: i64, out: &mut Vec<u8>) {
    write!(out, "{x}").expect("a Vec takes every byte");
}

/// Appends `text` in quotes with the escapes that JSON demands and no other, as CPython's
/// `json.dumps(ensure_ascii=False)` does.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bytes = text.as_bytes();
    out.push(b'"');
    let mut from = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let short = match byte {
            b'"' | b'\\' => byte,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0c => b'f',
            0..0x20 => 0,
            _ => continue,
        };
        out.extend_from_slice(&bytes[from..at]);
        from = at + 1;
        if short == 0 {
            let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', HEX[high], HEX[low]]);
        } else {
            out.extend_from_slice(&[b'\\', short]);
        }
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}

/// Appends `value`, found `depth` levels down.
pub(super) fn value(value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<(), Invalid> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(x) => write_i64(*x, out),
        Value::Uint(x) => out.extend_from_slice(x.to_string().as_bytes()),
        Value::Float(x) if x.is_finite() => write_f64(*x, out),
        Value::Float(x) => {
            let message = format!("{x} has no canonical form");
            return Err(Invalid::new("JSON_NUMBER", "", message, "write null for a missing value"));
        }
        Value::Text(text) => write_text(text, out),
        Value::List(_) | Value::Map(_) if depth >= DEPTH_MAX => {
            let message = format!("nested more than {DEPTH_MAX} levels deep");
            return Err(Invalid::new("JSON_DEPTH", "", message, "flatten the document"));
        }
        Value::List(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                self::value(item, depth + 1, out)
                    .map_err(|error| within(&format!("[{index}]"), error))?;
            }
            out.push(b']');
        }
        Value::Map(map) => {
            out.push(b'{');
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_text(key, out);
                out.push(b':');
                self::value(item, depth + 1, out).map_err(|error| within(key, error))?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

/// The same error, its place one step further out: `nodes` and `[0].x` give `nodes[0].x`.
fn within(step: &str, mut error: Invalid) -> Invalid {
    let dot = if error.place.is_empty() || error.place.starts_with('[') { "" } else { "." };
    error.place = format!("{step}{dot}{}", error.place);
    error
}
