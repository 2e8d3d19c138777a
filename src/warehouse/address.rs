//! Where ClickHouse is and how it may be reached: the URL taken apart, the password kept apart.

use std::fmt;
use std::path::PathBuf;

use url::{Host, Url};

use crate::invalid::Invalid;

const DATABASE_DEFAULT: &str = "finaz";
/// ClickHouse takes longer names; a file system of its data folder may not.
const DATABASE_LENGTH_MAX: usize = 64;

/// A ClickHouse server, a user of it and a database. `Debug` shows no password.
pub(super) struct Address {
    /// `http://host:port`, without user, password, path or parameters: fit to be shown.
    pub(super) origin: String,
    pub(super) loopback: bool,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    /// Letters, digits and underscores only, so it can stand in a statement as it is.
    pub(super) database: String,
    /// `sslrootcert=` of the URL.
    pub(super) ca: Option<PathBuf>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("origin", &self.origin)
            .field("user", &self.user)
            .field("database", &self.database)
            .field("ca", &self.ca)
            .finish_non_exhaustive()
    }
}

impl Address {
    /// Takes `http[s]://[user[:password]@]host[:port][/database][?database=…&sslrootcert=FILE]` apart.
    ///
    /// # Errors
    /// [`Invalid`] without the password: not such a URL, or plaintext to another machine without
    /// `allow_plaintext`.
    pub(super) fn parse(text: &str, allow_plaintext: bool) -> Result<Self, Invalid> {
        let url = Url::parse(text).map_err(|error| refuse(format!("is not a URL: {error}")))?;
        let https = match url.scheme() {
            "https" => true,
            "http" => false,
            other => return Err(refuse(format!("has the scheme `{}`", other.escape_debug()))),
        };
        let host = url.host().ok_or_else(|| refuse("names no host"))?;
        let loopback = is_loopback(&host);
        if !https && !allow_plaintext && !loopback {
            return Err(Invalid::new(
                "PLAINTEXT",
                PLACE,
                format!("goes to `{host}` in plaintext, password and results included"),
                "use https://, or allow plaintext explicitly",
            ));
        }
        let (database, ca) = parameters(&url)?;
        Ok(Self {
            origin: url.origin().ascii_serialization(),
            loopback,
            user: Some(percent_decoded(url.username())?).filter(|user| !user.is_empty()),
            password: url.password().map(percent_decoded).transpose()?,
            database: database.unwrap_or_else(|| DATABASE_DEFAULT.to_owned()),
            ca,
        })
    }
}

const PLACE: &str = "the ClickHouse URL";

pub(super) fn refuse(message: impl Into<String>) -> Invalid {
    Invalid::new(
        "CLICKHOUSE_URL",
        PLACE,
        message,
        "write http[s]://[user[:password]@]host[:port][/database][?sslrootcert=FILE]",
    )
}

/// The database, from the path or `?database=`, and the CA file.
fn parameters(url: &Url) -> Result<(Option<String>, Option<PathBuf>), Invalid> {
    let path = url.path().trim_start_matches('/');
    let mut database = (!path.is_empty()).then(|| percent_decoded(path)).transpose()?;
    let mut ca = None;
    for (name, value) in url.query_pairs() {
        match name.as_ref() {
            "database" if database.as_deref().is_some_and(|first| first != value) => {
                return Err(refuse("names two databases"));
            }
            "database" => database = Some(value.into_owned()),
            "sslrootcert" => ca = Some(PathBuf::from(value.as_ref())),
            // Not even its value: a password is often put here.
            other => {
                let name = other.escape_debug();
                return Err(refuse(format!("has the parameter `{name}`, which is not known")));
            }
        }
    }
    if let Some(name) = &database
        && !is_name(name)
    {
        let name = name.escape_debug();
        return Err(refuse(format!(
            "names the database `{name}`: a letter or `_`, then letters, digits and `_`, at most {DATABASE_LENGTH_MAX}"
        )));
    }
    Ok((database, ca))
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= DATABASE_LENGTH_MAX
        && bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

/// RFC 3986: `%41` is `A`, and `+` is a plus (a form's space is not meant in user and password).
fn percent_decoded(text: &str) -> Result<String, Invalid> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let decoded = match after {
            [high, low, ..] if byte == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match decoded {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| refuse("has a user, password or path that is not UTF-8"))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, Invalid> {
        Address::parse(text, false)
    }

    #[test]
    fn a_url_is_taken_apart() {
        let address = parse("https://me:p%40s+%25@ch.example:8443/prices?sslrootcert=/etc/ca.pem")
            .expect("a good URL");
        assert_eq!(address.origin, "https://ch.example:8443");
        assert_eq!(address.user.as_deref(), Some("me"));
        assert_eq!(address.password.as_deref(), Some("p@s+%"));
        assert_eq!(address.database, "prices");
        assert_eq!(address.ca, Some(PathBuf::from("/etc/ca.pem")));

        let address = parse("http://127.0.0.1:8123").expect("the shortest URL");
        assert_eq!((address.database.as_str(), address.user), ("finaz", None));
        let address = parse("http://[::1]:8123/?database=d_2").expect("a database as parameter");
        assert_eq!(address.database, "d_2");
    }

    #[test]
    fn plaintext_leaves_this_machine_only_when_allowed() {
        for here in ["http://localhost:1", "http://127.9.9.9:1", "http://[::1]:1"] {
            assert!(parse(here).is_ok(), "{here}");
        }
        for away in ["http://10.0.0.1:1", "http://localhost.example:1", "http://[::2]:1"] {
            assert_eq!(parse(away).expect_err(away).code, "PLAINTEXT");
            assert!(Address::parse(away, true).is_ok(), "{away}");
        }
    }

    #[test]
    fn a_bad_url_is_refused_without_its_password() {
        let bad = [
            "",
            "127.0.0.1:8123",
            "tcp://u:hunter2@127.0.0.1:9000",
            "http://u:hunter2@",
            "http://u:hunter2@127.0.0.1:99999",
            "http://u:hunter2@127.0.0.1/a/b",
            "http://u:hunter2@127.0.0.1/a?database=b",
            "http://u:hunter2@127.0.0.1/a`b",
            "http://u:hunter2@127.0.0.1/1a",
            "http://u:hunter2@127.0.0.1/?database=",
            "http://127.0.0.1/?password=hunter2",
            "http://u:hunter2%ff@127.0.0.1",
            "http://u:hunter2@10.0.0.1",
        ];
        for text in bad {
            let error = parse(text).expect_err(text);
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
        let long = format!("http://127.0.0.1/{}", "d".repeat(65));
        assert!(parse(&long).is_err());
    }

    #[test]
    fn debug_shows_no_password() {
        let address = parse("http://u:hunter2@127.0.0.1").expect("a good URL");
        assert!(!format!("{address:?}").contains("hunter2"));
    }
}
