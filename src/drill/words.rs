//! Text for a page: escaped, and times as people read them.

use std::fmt::Write as _;

/// Text as it may stand in an element or an attribute of HTML and SVG. Characters that steer a reader rather than being
/// read are shown by their number.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push(' '),
            c if c.is_control()
                || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                write!(out, "\\u{{{:x}}}", u32::from(c)).expect("a String takes all");
            }
            c => out.push(c),
        }
    }
    out
}

/// Microseconds as seconds with three digits.
pub(super) fn seconds(us: i64) -> String {
    let ms = us / 1_000;
    format!("{}.{:03}", ms / 1_000, ms.rem_euclid(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_can_be_markup() {
        let hostile = "<script>alert('x')</script>&\"\u{1b}[2J\u{202e}\n";
        let text = escaped(hostile);
        assert!(!text.contains(['<', '>', '"', '\'', '\u{1b}', '\u{202e}', '\n']), "{text}");
        assert!(text.contains("&lt;script&gt;") && text.contains("&amp;"), "{text}");
    }

    #[test]
    fn seconds_have_three_digits() {
        assert_eq!(seconds(1_500_000), "1.500");
        assert_eq!(seconds(42), "0.000");
    }
}
