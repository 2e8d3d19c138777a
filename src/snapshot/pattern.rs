//! strftime layouts: what chrono reads, less what would have to be guessed.

use chrono::format::{Item, StrftimeItems};

use super::calendar::{DAY, days, number};
use super::cell::shown;
use crate::invalid::{Invalid, nearest};

/// A strftime pattern, and its fixed layout where it has one: that is read without chrono.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) text: String,
    pub(super) items: Vec<Item<'static>>,
    fixed: Option<Vec<Place>>,
}

/// What a fixed layout has at one place.
#[derive(Debug)]
enum Place {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Fraction(usize),
    Byte(u8),
}

impl Pattern {
    /// Reads a pattern given by a person.
    pub(super) fn new(text: &str) -> Result<Self, Invalid> {
        let refuse = |message: String, hint: &str| {
            Invalid::new("TIME_FORMAT_INVALID", "--time-format", message, hint)
        };
        const HINT: &str = "rfc3339, epoch-s, epoch-ms, epoch-us, epoch-ns, or a strftime layout such as '%Y-%m-%d %H:%M'";
        if !text.contains('%') {
            let known = ["rfc3339", "epoch-s", "epoch-ms", "epoch-us", "epoch-ns"];
            let hint = nearest(text, known).map(|near| format!("did you mean `{near}`?"));
            return Err(refuse(
                format!("no time format {}", shown(text)),
                hint.as_deref().unwrap_or(HINT),
            ));
        }
        let bare = text.replace("%%", "");
        if bare.contains("%f") {
            // chrono counts nanoseconds with it, Python microseconds.
            let message = "`%f` does not say what it counts".to_owned();
            return Err(refuse(
                message,
                "`%.f` is a fraction with its dot; `%3f`, `%6f`, `%9f` are without",
            ));
        }
        if bare.contains("%Z") {
            let message = "`%Z` cannot be read: names of zones are ambiguous".to_owned();
            return Err(refuse(message, "write the name as it stands in the text, and say --tz"));
        }
        let Ok(items) = StrftimeItems::new(text).parse_to_owned() else {
            return Err(refuse(format!("{} is no layout", shown(text)), HINT));
        };
        Ok(Self { text: text.to_owned(), items, fixed: fixed(text) })
    }

    /// Reads a text that has exactly the fixed layout.
    pub(super) fn fixed(&self, text: &[u8]) -> Option<(i64, i64)> {
        let (mut year, mut month, mut day) = (0, 1, 1);
        let (mut hour, mut minute, mut second, mut nanos) = (0, 0, 0, 0);
        let mut rest = text;
        let mut take = |width: usize| {
            let (digits, left) = rest.split_at_checked(width)?;
            rest = left;
            Some(digits)
        };
        for place in self.fixed.as_ref()? {
            match place {
                Place::Year => year = number(take(4)?)?,
                Place::Month => month = number(take(2)?)?,
                Place::Day => day = number(take(2)?)?,
                Place::Hour => hour = number(take(2)?)?,
                Place::Minute => minute = number(take(2)?)?,
                Place::Second => second = number(take(2)?)?,
                Place::Fraction(width) => {
                    nanos = number(take(*width)?)? * 10_i64.pow(9 - u32::try_from(*width).ok()?);
                }
                Place::Byte(byte) => {
                    if take(1)? != [*byte] {
                        return None;
                    }
                }
            }
        }
        if !rest.is_empty() || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        Some((days(year, month, day)? * DAY + hour * 3600 + minute * 60 + second, nanos))
    }
}

#[cfg(test)]
impl Pattern {
    /// Leaves it to chrono alone.
    pub(super) fn forget_layout(&mut self) {
        self.fixed = None;
    }
}

/// The places of a pattern that has one layout only, and a date in it.
fn fixed(pattern: &str) -> Option<Vec<Place>> {
    let pattern = pattern.replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S");
    let mut places = Vec::new();
    let mut rest = pattern.as_bytes();
    let mut seen = Vec::new();
    while let Some((first, left)) = rest.split_first() {
        rest = left;
        if *first != b'%' {
            places.push(Place::Byte(*first));
            continue;
        }
        let (place, used) = match rest {
            [b'Y', ..] => (Place::Year, 1),
            [b'm', ..] => (Place::Month, 1),
            [b'd', ..] => (Place::Day, 1),
            [b'H', ..] => (Place::Hour, 1),
            [b'M', ..] => (Place::Minute, 1),
            [b'S', ..] => (Place::Second, 1),
            [b'3', b'f', ..] => (Place::Fraction(3), 2),
            [b'6', b'f', ..] => (Place::Fraction(6), 2),
            [b'9', b'f', ..] => (Place::Fraction(9), 2),
            [..] => return None,
        };
        seen.push(rest[used - 1]);
        places.push(place);
        rest = &rest[used..];
    }
    let times = |wanted: u8| seen.iter().filter(|&&seen| seen == wanted).count();
    let date = b"Ymd".iter().all(|&wanted| times(wanted) == 1);
    // chrono judges what is there twice, and a minute without its hour.
    let time = b"HMSf".iter().all(|&wanted| times(wanted) <= 1)
        && (times(b'H') == times(b'M') || times(b'H') + times(b'M') + times(b'S') == 0)
        && times(b'S') <= times(b'M')
        && times(b'f') <= times(b'S');
    (date && time).then_some(places)
}
