//! Comma-separated values, as RFC 4180 has them.
//!
//! Not the `csv` crate: it takes a quote that never closes for a field as large as the file. Here
//! such a quote is refused with the place where it opened, and a record has a bounded length.

use super::Error;
use super::cell::shown;
use super::source::{Lines, Source};
use crate::invalid::Invalid;

/// A record may span lines inside of quotes, but not without end.
const RECORD_MAX: usize = 1 << 20;

/// The records of a source.
#[derive(Debug)]
pub(super) struct Records<'a> {
    source: &'a Source,
    lines: Lines<'a>,
    /// The record, its quotes taken off, and where its fields end.
    text: String,
    ends: Vec<usize>,
    /// The line on which the record begins.
    pub(super) line: u64,
    /// How many fields a record must have, once the first was seen.
    width: Option<usize>,
}

impl<'a> Records<'a> {
    pub(super) fn new(source: &'a Source, lines: Lines<'a>) -> Self {
        Self { source, lines, text: String::new(), ends: Vec::new(), line: 0, width: None }
    }

    /// Goes to the next record; false at the end. Empty lines are none.
    pub(super) fn next(&mut self) -> Result<bool, Error> {
        loop {
            let Some((number, mut line)) = self.lines.next(self.source)? else {
                return Ok(false);
            };
            if number == 1 {
                line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
            }
            let ended = line.strip_suffix(b"\r").unwrap_or(line);
            if ended.is_empty() {
                continue;
            }
            self.ends.clear();
            self.text.clear();
            if memchr::memchr(b'"', ended).is_none() {
                let Ok(text) = std::str::from_utf8(ended) else {
                    return Err(not_utf8(self.source, number));
                };
                self.text.push_str(text);
                self.ends.extend(memchr::memchr_iter(b',', text.as_bytes()));
                self.ends.push(text.len());
                self.line = number;
            } else {
                let first = line.to_vec();
                self.line = number;
                self.quoted(first)?;
            }
            self.check_width()?;
            return Ok(true);
        }
    }

    /// A field of the record, from 0.
    pub(super) fn field(&self, at: usize) -> &str {
        // A field of an unquoted record ends at its comma, which belongs to nobody.
        let from = if at == 0 { 0 } else { self.ends[at - 1] + 1 };
        &self.text[from..self.ends[at]]
    }

    /// How many fields the record has.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    fn check_width(&mut self) -> Result<(), Error> {
        let width = *self.width.get_or_insert(self.ends.len());
        if self.ends.len() == width {
            return Ok(());
        }
        let message = format!("has {} columns where the first line has {width}", self.ends.len());
        let hint = "a comma inside of a value must be in quotes; a decimal comma is not read";
        Err(Invalid::new("CSV_COLUMNS", self.source.at(self.line), message, hint).into())
    }

    /// Takes a record with quotes apart; it may go on over lines.
    fn quoted(&mut self, mut line: Vec<u8>) -> Result<(), Error> {
        let mut number = self.line;
        let mut out = Vec::with_capacity(line.len());
        let mut opened = None;
        loop {
            self.take((number, &line), &mut out, &mut opened)?;
            let Some((opened_line, column)) = opened else { break };
            let place = format!("{}:{column}", self.source.at(opened_line));
            let open = |message: &str| {
                let hint = "close the quote; a quote inside of a quoted value is written twice";
                Err(Invalid::new("CSV_QUOTE_OPEN", place.as_str(), message, hint).into())
            };
            out.push(b'\n');
            if out.len() > RECORD_MAX {
                return open("a quote opens here and does not close within a mebibyte");
            }
            match self.lines.next(self.source)? {
                Some((next, text)) => (number, line) = (next, text.to_vec()),
                None => return open("a quote opens here and never closes"),
            }
        }
        self.ends.push(out.len());
        self.text = String::from_utf8(out).map_err(|_| not_utf8(self.source, self.line))?;
        Ok(())
    }

    /// One line of a record with quotes. `opened` is where an open quote stands, before and after.
    fn take(
        &mut self,
        (number, line): (u64, &[u8]),
        out: &mut Vec<u8>,
        opened: &mut Option<(u64, usize)>,
    ) -> Result<(), Error> {
        let mut at = 0;
        // Whether a field is to begin here; a quote counts only there.
        let mut begins = opened.is_none();
        while at < line.len() {
            let byte = line[at];
            if opened.is_some() {
                match (byte, line.get(at + 1)) {
                    (b'"', Some(b'"')) => {
                        out.push(b'"');
                        at += 1;
                    }
                    (b'"', None | Some(b',')) => *opened = None,
                    (b'"', Some(b'\r')) if at + 2 == line.len() => *opened = None,
                    (b'"', Some(_)) => return Err(self.after_quote(number, line, at)),
                    (_, _) => out.push(byte),
                }
            } else if begins && byte == b'"' {
                *opened = Some((number, at + 1));
                begins = false;
            } else if byte == b',' {
                self.ends.push(out.len());
                out.push(b',');
                begins = true;
            } else if byte != b'\r' || at + 1 < line.len() {
                out.push(byte);
                begins = false;
            }
            at += 1;
        }
        Ok(())
    }

    fn after_quote(&self, number: u64, line: &[u8], at: usize) -> Error {
        let rest = String::from_utf8_lossy(&line[at + 1..]);
        let place = format!("{}:{}", self.source.at(number), at + 1);
        let message = format!("a quote closes here and {} follows", shown(&rest));
        let hint = "after a quoted value comes a comma; a quote inside of it is written twice";
        Invalid::new("CSV_QUOTE_OPEN", place, message, hint).into()
    }
}

fn not_utf8(source: &Source, line: u64) -> Error {
    let hint = "save the file as UTF-8";
    Invalid::new("TEXT_ENCODING", source.at(line), "the line is not UTF-8", hint).into()
}
