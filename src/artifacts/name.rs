//! Names that people give, and the file names that stand for them.

use crate::ids::Hash;
use crate::invalid::Invalid;

/// A longer name is a mistake, or an attack on a table.
const NAME_MAX: usize = 200;

/// The longest file name in the encoding; file systems end at 255 bytes.
const ENCODED_MAX: usize = 180;

/// What a command takes for a file and not for a name.
const FILE_ENDINGS: [&str; 8] =
    [".yaml", ".yml", ".json", ".jsonl", ".ndjson", ".csv", ".gz", ".parquet"];

/// Refuses what cannot be a name of a snapshot or a flow: empty, over 200 bytes, with control
/// characters or outer spaces, or such that a command would take it for a hash or a file.
///
/// # Errors
/// `NAME_INVALID`.
pub fn check_name(name: &str) -> Result<(), Invalid> {
    let refuse = |message: &str| {
        let shown: String = name.chars().take(40).collect();
        let place = format!("name `{}`", shown.escape_debug());
        let hint =
            "a name is 1 to 200 bytes of letters, digits and `.`, `_`, `-`, say `prices.2024`";
        Err(Invalid::new("NAME_INVALID", place, message, hint))
    };
    if name.is_empty() {
        return refuse("is empty");
    }
    if name.len() > NAME_MAX {
        return refuse(&format!("has {} bytes, more than {NAME_MAX}", name.len()));
    }
    if name.chars().any(hidden) {
        return refuse("has a control character or one that cannot be seen");
    }
    if name.trim() != name {
        return refuse("begins or ends with a space");
    }
    if name.contains('/') || FILE_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
        return refuse("reads as a file: it has a `/` or ends like one");
    }
    if name.starts_with("sha256:") {
        return refuse("reads as a hash");
    }
    Ok(())
}

/// Control characters, and those that change how their neighbours are shown or are not shown at all.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A file name for any text: two texts never share one, not even where case is not told apart.
/// Small letters, digits and `.`, `_`, `-` stand for themselves, `=x` for a capital, `%2f` for any
/// other byte; a long text is cut and ends in `~` and its SHA-256.
pub(super) fn encode(text: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(text.len() * 2);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            // A leading dot would hide the file, and `..` would leave the folder.
            b'.' if at > 0 => out.push('.'),
            b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => out.push(char::from(byte)),
            b'A'..=b'Z' => {
                out.push('=');
                out.push(char::from(byte.to_ascii_lowercase()));
            }
            _ => {
                out.push('%');
                out.push(char::from(DIGITS[usize::from(byte >> 4)]));
                out.push(char::from(DIGITS[usize::from(byte & 15)]));
            }
        }
    }
    if out.len() > ENCODED_MAX {
        out.truncate(ENCODED_MAX - 65);
        out.push('~');
        out.push_str(&Hash::of(text.as_bytes()).hex());
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn hostile_names_are_refused() {
        let long = "x".repeat(201);
        let bad = [
            "",
            " a",
            "a ",
            "a\0b",
            "a\nb",
            "\u{85}a",
            "a\u{202e}b",
            "../x",
            "a/b",
            "/etc/passwd",
            &long,
            "p.csv",
            "p.jsonl",
            "sha256:00",
        ];
        for name in bad {
            let refused = check_name(name).expect_err(name);
            assert_eq!(refused.code, "NAME_INVALID");
            assert!(!refused.to_string().contains(['\0', '\n']), "{refused}");
        }
        for name in ["a", "fixture.snapshot.01", "..", "日本", &"x".repeat(200), "A b", "NUL"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn no_two_names_share_a_file_on_any_file_system() {
        let long = "é".repeat(100);
        let texts = [
            "a__b",
            "a_b",
            "a/b",
            "a%2fb",
            "..",
            ".",
            "%2e",
            "A",
            "a",
            "=a",
            "%41",
            "~",
            "a~",
            "É",
            "é",
            "e\u{301}",
            "stream/run_1/0",
            "stream/run_1/1",
            &long,
            &format!("{long}x"),
            "con",
            "",
        ];
        let mut seen = HashMap::new();
        for text in texts {
            let file = encode(text);
            assert!(file.len() <= ENCODED_MAX && !file.contains(['/', '\0']), "{file}");
            assert!(!file.starts_with('.'), "{file}");
            assert_eq!(seen.insert(file.to_ascii_lowercase(), text), None, "{text}");
        }
    }
}
