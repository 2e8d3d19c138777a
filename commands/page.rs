//! A result as text for people: tables and labelled lines that fit the width they are given.

use comfy_table::{ContentArrangement, Row, Table, presets};

/// Digits of a hash or run id that a table shows; enough to tell a million apart.
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

/// `sha256:` or `run_` and the first digits: for tables; `--json` and single views have it whole.
pub(crate) fn short(id: &str) -> String {
    let digits = id.strip_prefix("sha256:").or_else(|| id.strip_prefix("run_"));
    let (Some(digits), true) = (digits, id.is_ascii()) else { return id.to_owned() };
    if digits.len() <= SHORT_DIGITS {
        return id.to_owned();
    }
    id[..id.len() - digits.len() + SHORT_DIGITS].to_owned()
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
        assert_eq!(short("sha256:0123456789abcdef"), "sha256:0123456789ab");
        assert_eq!(short("sha256:short"), "sha256:short");
        assert_eq!(short("sim.alpha"), "sim.alpha");
    }
}
