//! One cell of text: a close, or a value that is kept as it is. Numbers are read as written or
//! refused; nothing is guessed from a neighbour.

use crate::canonical::{write_f64, write_text};
use crate::invalid::Invalid;

/// What is wrong with a value, before it is known where it stands.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) hint: String,
}

impl Fault {
    pub(super) fn new(
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { code, message: message.into(), hint: hint.into() }
    }

    pub(super) fn at(self, place: impl Into<String>) -> Invalid {
        Invalid::new(self.code, place, self.message, self.hint)
    }
}

/// A text as a message may show it: short, and without what a terminal would obey.
pub(super) fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let head: String = text.chars().take(SHOWN_MAX).collect();
    let more = if head.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", head.escape_debug())
}

/// Reads a close: a finite number, or nothing (a GAP) from an empty cell. Spaces around it are legal.
pub(super) fn close(text: &str) -> Result<Option<f64>, Fault> {
    let text = text.trim_matches([' ', '\t']);
    if text.is_empty() {
        return Ok(None);
    }
    let plain = |byte| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E');
    let number = if text.bytes().all(plain) { text.parse::<f64>().ok() } else { None };
    match number {
        Some(number) if number.is_finite() => Ok(Some(number)),
        Some(_) => Err(out_of_range(text)),
        None => Err(no_number(text)),
    }
}

fn out_of_range(text: &str) -> Fault {
    let message = format!("{} is larger than any float", shown(text));
    Fault::new("NUMBER_RANGE", message, "numbers end at 1.7976931348623157e308")
}

fn no_number(text: &str) -> Fault {
    let lower = text.trim_start_matches(['-', '+']).to_ascii_lowercase();
    if ["nan", "inf", "infinity"].contains(&lower.as_str()) {
        let message = format!("{} is not a finite number", shown(text));
        return Fault::new("NUMBER_NOT_FINITE", message, "leave the cell empty: that is a GAP");
    }
    let comma = text.contains(',') && text.replace([',', '.'], "").parse::<i64>().is_ok();
    let hint = if comma {
        "write numbers with a decimal point and without grouping, as in 1234.5"
    } else {
        "a close is a number such as 1234.5; an empty cell is a GAP"
    };
    Fault::new("NUMBER_UNREADABLE", format!("{} is not a number", shown(text)), hint)
}

/// Appends the canonical form of a cell that is kept: nothing is null; what JSON would read as a
/// number is that number, whole if it is written whole; all else, an integer beyond 64 bits
/// included, is text.
pub(super) fn keep(text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    if text.is_empty() {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    match json_number(text.as_bytes()) {
        Some(Written::Whole) => {
            if let Ok(number) = text.parse::<i64>() {
                integer(number, out);
                return Ok(());
            }
            if text.parse::<u64>().is_ok() {
                out.extend_from_slice(text.as_bytes());
                return Ok(());
            }
        }
        Some(Written::Broken) => {
            let number: f64 = text.parse().map_err(|_| no_number(text))?;
            if !number.is_finite() {
                return Err(out_of_range(text));
            }
            write_f64(number, out);
            return Ok(());
        }
        None => {}
    }
    write_text(text, out);
    Ok(())
}

enum Written {
    Whole,
    Broken,
}

/// Whether JSON would read a number here, and of which kind.
fn json_number(text: &[u8]) -> Option<Written> {
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = usize::from(text.first() == Some(&b'-'));
    let whole = digits(at);
    if whole == 0 || (whole > 1 && text[at] == b'0') {
        return None;
    }
    at += whole;
    let mut written = Written::Whole;
    if text.get(at) == Some(&b'.') {
        let broken = digits(at + 1);
        if broken == 0 {
            return None;
        }
        at += 1 + broken;
        written = Written::Broken;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let exponent = if at < text.len() { digits(at) } else { 0 };
        if exponent == 0 {
            return None;
        }
        at += exponent;
        written = Written::Broken;
    }
    (at == text.len()).then_some(written)
}

/// Appends an integer in decimal.
pub(super) fn integer(number: i64, out: &mut Vec<u8>) {
    if number < 0 {
        out.push(b'-');
    }
    natural(number.unsigned_abs(), out);
}

/// Appends a number that is not negative in decimal.
pub(super) fn natural(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).expect("below ten");
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The names that instruments and events may have.
pub(super) fn name(what: &str, text: &str, bytes_max: usize) -> Result<(), Fault> {
    let refuse = |message: String| {
        let hint = format!("the {what} is 1 to {bytes_max} bytes without control characters");
        Err(Fault::new("NAME_INVALID", message, hint))
    };
    if text.is_empty() {
        return refuse(format!("the {what} is empty"));
    }
    if text.len() > bytes_max {
        return refuse(format!("the {what} {} has {} bytes", shown(text), text.len()));
    }
    if text.chars().any(char::is_control) {
        return refuse(format!("the {what} {} has a control character", shown(text)));
    }
    if text.trim() != text {
        return refuse(format!("the {what} {} begins or ends with a space", shown(text)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> String {
        let mut out = Vec::new();
        keep(text, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_close_is_a_finite_number_or_a_gap() {
        for (text, number) in
            [("1", 1.0), ("-0", -0.0), (" 1.5 ", 1.5), ("1e-5", 1e-5), (".5", 0.5)]
        {
            let read = close(text).unwrap().unwrap();
            assert_eq!(read.to_bits(), f64::to_bits(number), "{text}");
        }
        for gap in ["", "  "] {
            assert_eq!(close(gap).unwrap(), None);
        }
        let bad = [
            ("NaN", "NUMBER_NOT_FINITE"),
            ("inf", "NUMBER_NOT_FINITE"),
            ("-Infinity", "NUMBER_NOT_FINITE"),
            ("1e400", "NUMBER_RANGE"),
            ("1,5", "NUMBER_UNREADABLE"),
            ("1.234,5", "NUMBER_UNREADABLE"),
            ("1_000", "NUMBER_UNREADABLE"),
            ("0x10", "NUMBER_UNREADABLE"),
            ("e", "NUMBER_UNREADABLE"),
            ("1.5 2", "NUMBER_UNREADABLE"),
            ("null", "NUMBER_UNREADABLE"),
            ("١", "NUMBER_UNREADABLE"),
        ];
        for (text, code) in bad {
            assert_eq!(close(text).unwrap_err().code, code, "{text}");
        }
        assert!(close("1,5").unwrap_err().hint.contains("decimal point"));
    }

    #[test]
    fn a_kept_cell_is_what_json_would_read_or_text() {
        for (text, json) in [
            ("", "null"),
            ("0", "0"),
            ("-0", "0"),
            ("12", "12"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551616", "\"18446744073709551616\""),
            ("1.50", "1.5"),
            ("1e5", "100000.0"),
            ("1E-7", "1e-07"),
            ("007", "\"007\""),
            ("+1", "\"+1\""),
            ("1.", "\"1.\""),
            (".5", "\".5\""),
            ("1e", "\"1e\""),
            ("NaN", "\"NaN\""),
            ("a\"b", "\"a\\\"b\""),
            (" 1", "\" 1\""),
            ("-", "\"-\""),
            ("é", "\"é\""),
        ] {
            assert_eq!(kept(text), json, "{text}");
        }
        assert_eq!(keep("1e400", &mut Vec::new()).unwrap_err().code, "NUMBER_RANGE");
    }

    #[test]
    fn integers_are_written_as_rust_writes_them() {
        for number in [0, 7, -7, 10, 1_000_000, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            integer(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }
}
