//! What can go wrong with ClickHouse, told apart by what to do about it.

use std::error::Error as StdError;
use std::io;

/// Why the warehouse did not do what it was asked.
///
/// No variant carries a password: the server's own words are cleaned of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server cannot be reached, hangs, dies or is overloaded. The same call may succeed later.
    #[error("ClickHouse at {place} is away: {message}")]
    Away { place: String, message: String },
    /// User or password: trying again does not help.
    #[error("ClickHouse at {place} refused the user: {message}")]
    Refused { place: String, message: String },
    /// The user may not do what we need.
    #[error("ClickHouse at {place} grants too little: {message}")]
    Forbidden { place: String, message: String },
    /// The server's certificate does not hold, or it speaks no TLS.
    #[error("the TLS of ClickHouse at {place} is not to be trusted: {message}")]
    Untrusted { place: String, message: String },
    /// A server that lacks what we use.
    #[error("ClickHouse at {place} is {seen}; {needed} or newer is needed")]
    TooOld { place: String, seen: String, needed: String },
    /// The database was laid out by an older or a newer finaz, or by none (0).
    #[error("the schema at {place} has version {found}; this finaz needs {expected}")]
    Schema { place: String, found: u32, expected: u32 },
    /// The server refused a statement of ours.
    #[error("ClickHouse at {place} refused a statement: {message}")]
    Query {
        place: String,
        /// ClickHouse's own number, as in its `ErrorCodes`.
        code: u32,
        message: String,
    },
    /// What came back is not what was asked for.
    #[error("the answer of ClickHouse at {place} makes no sense: {message}")]
    Answer { place: String, message: String },
    /// A run of which some rows are missing in the middle.
    #[error("{run_id} is staged without its row {seq}")]
    Gap { run_id: String, seq: u64 },
}

impl Error {
    /// Stable, in CAPS, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Away { .. } => "WAREHOUSE_AWAY",
            Self::Refused { .. } => "WAREHOUSE_REFUSED",
            Self::Forbidden { .. } => "WAREHOUSE_FORBIDDEN",
            Self::Untrusted { .. } => "WAREHOUSE_UNTRUSTED",
            Self::TooOld { .. } => "WAREHOUSE_TOO_OLD",
            Self::Schema { .. } => "WAREHOUSE_SCHEMA",
            Self::Query { .. } => "WAREHOUSE_QUERY",
            Self::Answer { .. } => "WAREHOUSE_ANSWER",
            Self::Gap { .. } => "WAREHOUSE_GAP",
        }
    }

    /// Whether the same call may succeed later: then no run has failed by it.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Away { .. })
    }
}

/// Numbers of ClickHouse's `ErrorCodes.cpp` that speak of the user.
const REFUSED: &[u32] = &[
    192, // UNKNOWN_USER
    193, // WRONG_PASSWORD
    194, // REQUIRED_PASSWORD
    195, // IP_ADDRESS_NOT_ALLOWED
    516, // AUTHENTICATION_FAILED
];

/// Numbers that speak of what the user may do.
const FORBIDDEN: &[u32] = &[
    291, // DATABASE_ACCESS_DENIED
    497, // ACCESS_DENIED
];

/// Numbers that speak of the server's state, not of the statement: they pass.
const PASSING: &[u32] = &[
    3,   // UNEXPECTED_END_OF_FILE: the connection broke while rows were sent
    159, // TIMEOUT_EXCEEDED
    201, // QUOTA_EXCEEDED
    202, // TOO_MANY_SIMULTANEOUS_QUERIES
    209, // SOCKET_TIMEOUT
    210, // NETWORK_ERROR
    225, // NO_ZOOKEEPER
    236, // ABORTED
    241, // MEMORY_LIMIT_EXCEEDED
    242, // TABLE_IS_READ_ONLY
    243, // NOT_ENOUGH_SPACE
    252, // TOO_MANY_PARTS
    319, // UNKNOWN_STATUS_OF_INSERT
    394, // QUERY_WAS_CANCELLED
    439, // CANNOT_SCHEDULE_TASK
    745, // SERVER_OVERLOADED
    999, // KEEPER_EXCEPTION
];

/// What the server said is cut here: a proxy may answer with a page.
const MESSAGE_LENGTH_MAX: usize = 600;

/// Turns the client's error into ours; `secret` is struck out of whatever it says.
pub(super) fn classify(
    place: &str,
    secret: Option<&str>,
    error: &clickhouse::error::Error,
) -> Error {
    use clickhouse::error::Error as Client;

    let place = place.to_owned();
    let words = |text: &str| cleaned(text, secret);
    if let Client::BadResponse(text) = error {
        return answered(place, words(text));
    }
    if let Client::TimedOut = error {
        return Error::Away { place, message: "no answer in time".to_owned() };
    }
    let message = words(&chain(error));
    let Client::Network(source) = error else {
        return Error::Answer { place, message };
    };
    if is_tls(source.as_ref()) {
        Error::Untrusted { place, message }
    } else {
        Error::Away { place, message }
    }
}

/// The server (or something before it) answered with an error.
fn answered(place: String, message: String) -> Error {
    match code_in(&message) {
        Some(code) if REFUSED.contains(&code) => Error::Refused { place, message },
        Some(code) if FORBIDDEN.contains(&code) => Error::Forbidden { place, message },
        Some(code) if PASSING.contains(&code) => Error::Away { place, message },
        Some(code) => Error::Query { place, code, message },
        // Not ClickHouse's way to answer: a proxy whose server is gone, or another program.
        None => {
            Error::Away { place, message: format!("answered, but not as ClickHouse: {message}") }
        }
    }
}

/// `Code: 60. DB::Exception: …` or, without a text, `Code: 60`.
fn code_in(message: &str) -> Option<u32> {
    let rest = message.strip_prefix("Code: ")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn cleaned(text: &str, secret: Option<&str>) -> String {
    let text = text.trim();
    let mut text = match secret {
        Some(secret) if !secret.is_empty() => text.replace(secret, "***"),
        _ => text.to_owned(),
    };
    if let Some((end, _)) = text.char_indices().nth(MESSAGE_LENGTH_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// An error and everything it came from, outermost first, without saying a thing twice.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = error.source();
    }
    text
}

/// Whether TLS itself is what failed, somewhere down the chain.
fn is_tls(error: &(dyn StdError + 'static)) -> bool {
    if error.is::<rustls::Error>() {
        return true;
    }
    // An `io::Error` names as its source not what it wraps but the source of that.
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match wrapped {
        Some(inside) => is_tls(inside),
        None => error.source().is_some_and(is_tls),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clickhouse::error::Error as Client;

    fn of(error: &Client) -> Error {
        classify("http://h:1", Some("hunter2"), error)
    }

    fn said(text: &str) -> Error {
        of(&Client::BadResponse(text.to_owned()))
    }

    #[test]
    fn a_wrong_statement_is_not_a_server_away() {
        let error = said("Code: 62. DB::Exception: Syntax error. (SYNTAX_ERROR)");
        assert!(matches!(error, Error::Query { code: 62, .. }), "{error:?}");
        assert!(matches!(said("Code: 60"), Error::Query { code: 60, .. }));
    }

    #[test]
    fn an_overloaded_or_dying_server_is_away() {
        for text in ["Code: 252. DB::Exception: Too many parts", "Code: 241", "502 Bad Gateway", ""]
        {
            assert!(said(text).is_away(), "{text}");
        }
        assert!(of(&Client::TimedOut).is_away());
        assert!(of(&Client::Network("connection reset".into())).is_away());
    }

    #[test]
    fn a_wrong_password_is_refused_and_not_shown() {
        let error = said("Code: 516. DB::Exception: hunter2: Authentication failed");
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        let grant = said("Code: 497. DB::Exception: Not enough privileges");
        assert!(matches!(grant, Error::Forbidden { .. }), "{grant:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }

    #[test]
    fn a_page_of_a_proxy_is_cut() {
        let error = said(&"ß".repeat(100_000));
        assert!(error.to_string().len() < 2_000);
    }
}
