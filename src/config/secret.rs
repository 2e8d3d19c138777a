//! Text that may hold a password: usable in full only by asking for it, shown without it.

use std::fmt;

/// A connection URL. `Debug` and `Display` leave out the password and every query parameter.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The whole text. Only for the one who connects with it; never for a message.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The password of a URL, as it is written there.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        let (_, rest) = self.0.split_once("://")?;
        let (userinfo, _) = rest.rsplit_once('@')?;
        Some(userinfo.split_once(':')?.1)
    }

    /// Whether a password is in it, or may be: what cannot be told apart counts as one.
    #[must_use]
    pub fn has_password(&self) -> bool {
        let Some((_, rest)) = self.0.split_once("://") else {
            return mentions_password(&self.0);
        };
        let (head, query) = rest.split_once('?').unwrap_or((rest, ""));
        let in_userinfo = match head.rsplit_once('@') {
            Some((userinfo, _)) => userinfo.contains(':'),
            // `u:p?w@host`: the question mark was part of the password.
            None => query.contains('@'),
        };
        in_userinfo || mentions_password(query)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            return f.write_str(&words_without_password(&self.0));
        };
        let (head, query) = rest.split_once('?').unwrap_or((rest, ""));
        match head.rsplit_once('@') {
            Some((userinfo, place)) => {
                let user = userinfo.split(':').next().unwrap_or_default();
                write!(f, "{scheme}://{user}@{place}")
            }
            None if query.contains('@') => write!(f, "{scheme}://(hidden)"),
            None => write!(f, "{scheme}://{head}"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Any text with the passwords taken out of the URLs and `password=` pairs in it: the last net under
/// messages that are made elsewhere, such as a parser that quotes what it was given.
#[must_use]
pub fn scrub(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(|c: char| c.is_whitespace() || "'\"`<>".contains(c)) {
        let word = piece.trim_end_matches(|c: char| c.is_whitespace() || "'\"`<>".contains(c));
        if word.contains("://") && Secret::new(word).has_password() {
            out.push_str(&Secret::new(word).to_string());
        } else if mentions_password(word) {
            out.push_str("password=(hidden)");
        } else {
            out.push_str(word);
        }
        out.push_str(&piece[word.len()..]);
    }
    out
}

/// `password=`, `sslpassword =` and the like, in a query or in libpq's `key=value` words.
fn mentions_password(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.match_indices("password").any(|(at, word)| {
        let after = text[at + word.len()..].trim_start();
        after.starts_with('=') && after.len() > 1
    })
}

/// libpq's `host=h user=u password=p` with only the words that say where.
fn words_without_password(text: &str) -> String {
    const SHOWN: &[&str] = &["host", "hostaddr", "port", "dbname", "user"];
    let shown: Vec<&str> = text
        .split_whitespace()
        .filter(|word| word.split_once('=').is_some_and(|(key, _)| SHOWN.contains(&key)))
        .collect();
    if shown.is_empty() { "(hidden)".to_owned() } else { shown.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_of_a_password_is_shown() {
        for url in [
            "postgres://u:hunter2@h:5432/db",
            "postgres://u:hunter2@h/db?sslmode=require",
            "postgres://u:hunter2/x@h/db",
            "postgres://u:hunter2@x@h/db",
            "postgres://u:hunter2?x@h/db",
            "postgres://u@h/db?password=hunter2",
            "postgres://u@h/db?a=b&password=hunter2@x",
            "postgres://h/db?password=hunter2@x",
            "host=h password=hunter2 user=u",
            "host=h password = 'hunter2' user=u",
            "password=hunter2",
        ] {
            let secret = Secret::new(url);
            assert!(secret.has_password(), "{url}");
            for shown in [format!("{secret}"), format!("{secret:?}")] {
                assert!(!shown.contains("hunter2"), "{url} is shown as {shown}");
            }
        }
    }

    #[test]
    fn what_is_no_secret_stays_readable() {
        for (url, shown) in [
            ("postgres://u@h:5432/db?sslmode=disable", "postgres://u@h:5432/db"),
            ("http://127.0.0.1:8123", "http://127.0.0.1:8123"),
            ("host=/run/pg user=u dbname=d sslmode=disable", "host=/run/pg user=u dbname=d"),
        ] {
            assert!(!Secret::new(url).has_password(), "{url}");
            assert_eq!(Secret::new(url).to_string(), shown);
        }
    }

    #[test]
    fn a_message_is_scrubbed_and_otherwise_untouched() {
        assert_eq!(
            scrub("unexpected argument 'postgres://u:hunter2@h/db' found"),
            "unexpected argument 'postgres://u@h/db' found"
        );
        assert_eq!(scrub("bad  word\npassword=hunter2 next"), "bad  word\npassword=(hidden) next");
        assert_eq!(scrub("set a password, see https://a.b/c"), "set a password, see https://a.b/c");
    }
}
