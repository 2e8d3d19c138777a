//! Durations as people write them: `5s`, `100ms`, `2m`, `1h`.

/// What [`parse`] takes, for a hint.
pub const FORM: &str =
    "a whole number and a unit, such as 5s or 100ms (ns, us, ms, s, m, h, d), up to 400d";

const DAY_NS: i64 = 86_400_000_000_000;
/// Time may not jump further than this in a stream, so nothing can be later.
const MAX_NS: i64 = 400 * DAY_NS;

const UNITS: [(&str, i64); 7] = [
    // Two letters before one, which they end with.
    ("ns", 1),
    ("us", 1000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", DAY_NS),
];

/// Nanoseconds.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let (digits, unit) =
        UNITS.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)))?;
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<i64>().ok()?.checked_mul(*unit).filter(|ns| *ns <= MAX_NS)
}
