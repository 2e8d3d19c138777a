//! A result as text for people: tables and labelled lines that fit the width they are given.

use comfy_table::{ContentArrangement, Row, Table, presets};

/// Digits of an id that a table shows: enough to tell a million apart, and to name a run by.
const SHORT_DIGITS: usize = 12;

/// Text under construction.
#[derive(Debug)]
pub(crate) struct Page {
    width: u16,
    text: String,
}

impl Page {
    pub(crate) fn new(width: u16) -> Self {
        Self { width, text: String::new() }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// One line, wrapped by the terminal if need be.
    pub(crate) fn line(&mut self, line: &str) {
        self.text.push_str(&harmless(line));
        self.text.push('\n');
    }

    /// Labelled values in two columns, each value in full: a label of eight letters, a blank and a hash
    /// are 80.
    pub(crate) fn pairs(&mut self, pairs: &[(&str, String)]) {
        let wide = pairs.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        for (label, value) in pairs {
            self.line(&format!("{label:wide$} {value}"));
        }
    }

    /// A table with a header; `nothing` is said instead when there are no rows.
    pub(crate) fn table(&mut self, header: &[&str], rows: Vec<Vec<String>>, nothing: &str) {
        if rows.is_empty() {
            return self.line(nothing);
        }
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(self.width)
            .set_header(Row::from(header.iter().map(|name| name.to_uppercase())));
        for row in rows {
            table.add_row(Row::from(row.iter().map(|cell| harmless(cell))));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        for line in table.trim_fmt().lines() {
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }
}

/// The text with every hash, run id and UUID in it cut to its first digits, for tables: `--json` and
/// single views have them whole.
pub(crate) fn short(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_digit) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c| !is_digit(c) && c != '-').unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        out.push_str(before);
        out.push_str(&word[..shown(word)]);
        rest = after;
    }
    out.push_str(rest);
    out
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || ('a'..='f').contains(&c)
}

/// How much of a word of digits and dashes is shown: not all of the 64 digits of a SHA-256, the 32 of half
/// a one, nor of a UUID.
fn shown(word: &str) -> usize {
    let dashes: Vec<usize> = word.match_indices('-').map(|(at, _)| at).collect();
    match (word.len(), dashes.as_slice()) {
        (64 | 32, []) => SHORT_DIGITS,
        (36, [8, 13, 18, 23]) => 8,
        (all, _) => all,
    }
}

/// A time to the millisecond: `2026-11-30T14:22:56.905079Z` without its last digits.
pub(crate) fn moment(rfc3339: &str) -> String {
    match rfc3339.split_once('.') {
        Some((seconds, fraction)) if fraction.ends_with('Z') && fraction.is_ascii() => {
            format!("{seconds}.{}Z", &fraction[..fraction.len().saturating_sub(1).min(3)])
        }
        Some(_) | None => rfc3339.to_owned(),
    }
}

/// A time to the second, where a table has no room for more.
pub(crate) fn second(rfc3339: &str) -> String {
    match rfc3339.split_once('.') {
        Some((seconds, fraction)) if fraction.ends_with('Z') => format!("{seconds}Z"),
        Some(_) | None => rfc3339.to_owned(),
    }
}

/// A value, or `-` where there is none.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Names and messages come from files and databases: a control character in one must not reach the
/// terminal, where it could move the cursor or worse.
pub(crate) fn harmless(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let dangerous = c.is_control() && c != '\n'
                || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            let escaped = if dangerous { Some(c.escape_default()) } else { None };
            let plain = if dangerous { None } else { Some(c) };
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_table_stays_within_its_width() {
        let mut page = Page::new(80);
        let message = "the relation of a very long message to the width of a terminal ".repeat(4);
        let rows = vec![vec![short(&format!("run_{}", "a".repeat(64))), "FAILED".into(), message]];
        page.table(&["run", "state", "error"], rows, "");
        let text = page.into_text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("run_aaaaaaaaaaaa  FAILED"), "{text}");
    }

    #[test]
    fn a_hostile_name_cannot_drive_the_terminal() {
        let mut page = Page::new(80);
        page.table(&["name"], vec![vec!["a\u{1b}[2Jb\rc\u{202e}d".into()]], "");
        page.line("x\u{7}y");
        assert_eq!(page.into_text(), "NAME\na\\u{1b}[2Jb\\rc\\u{202e}d\nx\\u{7}y\n");
    }

    #[test]
    fn only_ids_are_shortened() {
        let hex = "0123456789abcdef".repeat(4);
        assert_eq!(short(&format!("sha256:{hex}")), "sha256:0123456789ab");
        assert_eq!(short(&format!("run/run_{hex}, and more")), "run/run_0123456789ab, and more");
        assert_eq!(short("w-1/6f9619ff-8b86-4d01-b42d-00cf4fc964ff"), "w-1/6f9619ff");
        for same in ["sha256:abc", "sim.alpha", "2024-01-01", "", &format!("{hex}0"), "é-beef"] {
            assert_eq!(short(same), same);
        }
    }

    #[test]
    fn a_moment_has_milliseconds() {
        assert_eq!(moment("2026-11-30T14:22:56.905079Z"), "2026-11-30T14:22:56.905Z");
        assert_eq!(second("2026-11-30T14:22:56.905079Z"), "2026-11-30T14:22:56Z");
        for same in ["2026-11-30T14:22:56Z", "2026-11-30T14:22:56.9Z", "infinity", "."] {
            assert_eq!(moment(same), same);
        }
    }
}
