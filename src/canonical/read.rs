//! Reading: a strict JSON parser that keeps integers whole and rounds floats correctly.
//!
//! Its own and not serde_json's, which turns an integer above `u64` into a float and hides a
//! duplicate key. Every error says line and column.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{DEPTH_MAX, Value};
use crate::invalid::Invalid;

/// Reads one JSON document. `place` (a file or other name) is what errors call it: the place of an
/// error is `place:line:column`, the column in characters from 1.
///
/// # Errors
/// Anything but exactly one document that FINAZ_JSON_V1 can hold.
pub fn parse(text: &[u8], place: &str) -> Result<Value, Invalid> {
    parse_line(text, place, 1)
}

/// As [`parse`] for a document that starts on line `line` of `place`, as those of JSON lines do.
///
/// # Errors
/// As [`parse`].
pub fn parse_line(text: &[u8], place: &str, line: u64) -> Result<Value, Invalid> {
    let mut reader = Reader { text, at: 0, place, line };
    if text.starts_with(b"\xef\xbb\xbf") {
        let hint = "save the file as UTF-8 without a byte-order mark";
        return Err(reader.fail(0, "JSON_BOM", "JSON must not start with a byte-order mark", hint));
    }
    if let Err(error) = std::str::from_utf8(text) {
        let hint = "save the file as UTF-8";
        return Err(reader.fail(error.valid_up_to(), "JSON_TEXT", "this is not UTF-8", hint));
    }
    let value = reader.value(0)?;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.syntax("the end of the document"));
    }
    Ok(value)
}

/// One step of a path into a document.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step<'a> {
    /// To the value of this key.
    Field(&'a str),
    /// To the key itself, not to its value; the last step of a path.
    Key(&'a str),
    /// To this item of a list.
    Item(usize),
}

/// Where in `text`, a document that [`parse`] accepts, a path leads: line and column. The last
/// place reached when the path leads nowhere.
#[must_use]
pub fn locate(text: &[u8], path: &[Step<'_>]) -> (u64, u64) {
    let mut reader = Reader { text, at: 0, place: "", line: 1 };
    // A document that parses has every step that its reader asks for; the place is good either way.
    let at = reader.seek(path).unwrap_or(reader.at);
    reader.position(at)
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    place: &'a str,
    line: u64,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, Invalid> {
        self.space();
        match self.peek() {
            Some(b'{' | b'[') if depth >= DEPTH_MAX => {
                let message = format!("nested more than {DEPTH_MAX} levels deep");
                Err(self.fail(self.at, "JSON_DEPTH", &message, "flatten the document"))
            }
            Some(b'{') => self.map(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.text().map(Value::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, Invalid> {
        let mut map = BTreeMap::new();
        self.at += 1;
        self.space();
        if self.take(b'}') {
            return Ok(Value::Map(map));
        }
        loop {
            self.space();
            let at = self.at;
            let key = self.key()?;
            let value = self.value(depth + 1)?;
            match map.entry(key) {
                Entry::Vacant(entry) => entry.insert(value),
                Entry::Occupied(entry) => {
                    let message = format!("the key {:?} is here twice", entry.key());
                    return Err(self.fail(
                        at,
                        "JSON_DUPLICATE_KEY",
                        &message,
                        "keep one of the two",
                    ));
                }
            };
            if !self.more(b'}', "`,` or `}`")? {
                return Ok(Value::Map(map));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Invalid> {
        let mut items = Vec::new();
        self.at += 1;
        self.space();
        if self.take(b']') {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if !self.more(b']', "`,` or `]`")? {
                return Ok(Value::List(items));
            }
        }
    }

    /// A key and its colon.
    fn key(&mut self) -> Result<String, Invalid> {
        if self.peek() != Some(b'"') {
            return Err(self.syntax("a key in double quotes"));
        }
        let key = self.text()?;
        self.space();
        if !self.take(b':') {
            return Err(self.syntax("`:`"));
        }
        Ok(key)
    }

    /// Takes a comma (true: one more follows) or `end` (false).
    fn more(&mut self, end: u8, wanted: &str) -> Result<bool, Invalid> {
        self.space();
        if self.take(b',') {
            return Ok(true);
        }
        if self.take(end) {
            return Ok(false);
        }
        Err(self.syntax(wanted))
    }

    fn number(&mut self) -> Result<Value, Invalid> {
        let from = self.at;
        let negative = self.take(b'-');
        let digits = self.at;
        let length = self.digits();
        if length == 0 {
            return Err(self.syntax("a digit"));
        }
        if length > 1 && self.text[digits] == b'0' {
            let hint = "write 1, not 01";
            return Err(self.fail(from, "JSON_NUMBER", "a number must not start with 0", hint));
        }
        let mut whole = true;
        if self.take(b'.') {
            whole = false;
            if self.digits() == 0 {
                return Err(self.syntax("a digit after the decimal point"));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            whole = false;
            self.at += 1;
            if !self.take(b'+') {
                self.take(b'-');
            }
            if self.digits() == 0 {
                return Err(self.syntax("a digit of the exponent"));
            }
        }
        let text = std::str::from_utf8(&self.text[from..self.at]).expect("digits are ASCII");
        let (value, limit) = if !whole {
            // std rounds correctly, which serde_json does with a feature only.
            let x = text.parse::<f64>().ok().filter(|x| x.is_finite());
            (x.map(Value::Float), "a 64-bit float")
        } else if negative {
            (text.parse().ok().map(Value::Int), "a signed 64-bit integer")
        } else {
            (text.parse().ok().map(whole_number), "an unsigned 64-bit integer")
        };
        value.ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            let message = format!("{shown} does not fit {limit}");
            self.fail(from, "JSON_NUMBER", &message, "use a smaller number, or a text")
        })
    }

    /// Passes over digits; how many there were.
    fn digits(&mut self) -> usize {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - from
    }

    fn text(&mut self) -> Result<String, Invalid> {
        let open = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let from = self.at;
            while self.peek().is_some_and(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            // Whole characters: every byte that ends the run is ASCII, and all was checked as UTF-8.
            text.push_str(std::str::from_utf8(&self.text[from..self.at]).expect("checked before"));
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(_) => {
                    let hint = "write it as an escape, such as \\n or \\u0000";
                    let message = "a control character inside a text";
                    return Err(self.fail(self.at, "JSON_TEXT", message, hint));
                }
                None => {
                    let message = "the text that opens here is never closed";
                    return Err(self.fail(open, "JSON_SYNTAX", message, "close it with `\"`"));
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, Invalid> {
        let from = self.at;
        self.at += 2;
        Ok(match self.text.get(from + 1) {
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(&byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'u') => return self.unicode(from),
            _ => {
                let hint = "write a backslash as \\\\";
                return Err(self.fail(from, "JSON_TEXT", "no escape of JSON", hint));
            }
        })
    }

    /// The rest of a `\u` escape that began at `from`, with its second half when it has one.
    fn unicode(&mut self, from: usize) -> Result<char, Invalid> {
        let first = self.hex4();
        let code = match first {
            Some(high @ 0xd800..0xdc00) if self.text[self.at..].starts_with(b"\\u") => {
                self.at += 2;
                self.hex4()
                    .filter(|low| (0xdc00..0xe000).contains(low))
                    .map(|low| 0x10000 + ((high - 0xd800) << 10 | (low - 0xdc00)))
            }
            other => other,
        };
        code.and_then(char::from_u32).ok_or_else(|| {
            let hint = "\\u takes four hex digits; characters above \\uffff take a pair of them";
            self.fail(from, "JSON_TEXT", "not the escape of a character", hint)
        })
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |code, &digit| Some(code << 4 | char::from(digit).to_digit(16)?))
    }

    fn word(&mut self) -> Result<Value, Invalid> {
        for (word, value) in
            [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))]
        {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        let rest = &self.text[self.at..];
        if ["NaN", "Infinity", "nan", "inf"].iter().any(|word| rest.starts_with(word.as_bytes())) {
            let message = "NaN and infinities are no values";
            let hint = "write null for a missing value";
            return Err(self.fail(self.at, "JSON_NUMBER", message, hint));
        }
        Err(self.syntax("a value"))
    }

    /// The offset that `path` leads to.
    fn seek(&mut self, path: &[Step<'_>]) -> Result<usize, Invalid> {
        self.space();
        let Some((step, rest)) = path.split_first() else {
            return Ok(self.at);
        };
        let from = self.at;
        self.at += 1;
        let mut index = 0;
        loop {
            self.space();
            let at = self.at;
            let found = match step {
                Step::Item(wanted) => index == *wanted,
                Step::Field(wanted) => self.key()? == *wanted,
                Step::Key(wanted) => {
                    if self.key()? == *wanted {
                        return Ok(at);
                    }
                    false
                }
            };
            if found {
                return self.seek(rest);
            }
            self.value(0)?;
            self.space();
            if !self.take(b',') {
                return Ok(from);
            }
            index += 1;
        }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let here = self.peek() == Some(byte);
        self.at += usize::from(here);
        here
    }

    /// What stands here is not what was `wanted`.
    fn syntax(&self, wanted: &str) -> Invalid {
        let rest = String::from_utf8_lossy(&self.text[self.at..]);
        let message = match rest.chars().next() {
            None => format!("the document ends here; {wanted} was expected"),
            Some(found) => format!("{found:?} where {wanted} was expected"),
        };
        self.fail(
            self.at,
            "JSON_SYNTAX",
            &message,
            "JSON: double quotes, no comments, no last comma",
        )
    }

    fn fail(&self, at: usize, code: &'static str, message: &str, hint: &str) -> Invalid {
        let (line, column) = self.position(at);
        Invalid::new(code, format!("{}:{line}:{column}", self.place), message, hint)
    }

    fn position(&self, at: usize) -> (u64, u64) {
        let before = &self.text[..at.min(self.text.len())];
        let line = before.split(|&byte| byte == b'\n');
        let (lines, last) = line.fold((0, before), |(count, _), line| (count + 1, line));
        // A character starts with every byte but the continuations of UTF-8.
        let column = last.iter().filter(|&&byte| byte & 0xc0 != 0x80).fold(1, |count, _| count + 1);
        (self.line + lines - 1, column)
    }
}

fn whole_number(x: u64) -> Value {
    i64::try_from(x).map_or(Value::Uint(x), Value::Int)
}
