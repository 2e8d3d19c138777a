//! Times as sources write them, to integer nanoseconds since 1970 UTC.
//!
//! Nothing is guessed: without a format a text must be RFC 3339 (a space may stand for the `T`); a
//! bare number needs its unit, a date its layout, and a time without an offset needs `--tz`. A local
//! time that a clock change skips or repeats is refused.

use std::str::FromStr as _;

use chrono::format::{Parsed, parse};
use chrono::{DateTime, FixedOffset, MappedLocalTime, NaiveDateTime, Offset as _, TimeZone as _};
use chrono_tz::{TZ_VARIANTS, Tz};

use super::calendar::{DAY, days, number};
use super::cell::{Fault, shown};
use super::pattern::Pattern;
use crate::invalid::{Invalid, nearest};

/// How the times of a source are read.
#[derive(Debug)]
pub(super) struct Times {
    layout: Layout,
    zone: Option<Zone>,
}

#[derive(Debug)]
enum Layout {
    Rfc3339,
    Epoch(Unit),
    Pattern(Pattern),
}

/// The unit of a count since 1970 UTC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    pub(super) fn nanos(self) -> i64 {
        match self {
            Self::Seconds => 1_000_000_000,
            Self::Millis => 1_000_000,
            Self::Micros => 1000,
            Self::Nanos => 1,
        }
    }
}

#[derive(Debug)]
enum Zone {
    Fixed(i64),
    Named(Tz),
}

impl Times {
    /// Reads `--time-format` and `--tz`.
    pub(super) fn new(format: Option<&str>, tz: Option<&str>) -> Result<Self, Invalid> {
        let layout = match format {
            None | Some("rfc3339") => Layout::Rfc3339,
            Some("epoch-s") => Layout::Epoch(Unit::Seconds),
            Some("epoch-ms") => Layout::Epoch(Unit::Millis),
            Some("epoch-us") => Layout::Epoch(Unit::Micros),
            Some("epoch-ns") => Layout::Epoch(Unit::Nanos),
            Some(pattern) => Layout::Pattern(Pattern::new(pattern)?),
        };
        let zone = tz.map(zone).transpose()?;
        if zone.is_some() && matches!(layout, Layout::Epoch(_)) {
            let message = "an epoch counts from 1970 UTC whatever the zone";
            return Err(Invalid::new("FLAG_CONFLICT", "--tz", message, "leave out --tz"));
        }
        Ok(Self { layout, zone })
    }

    /// The unit that `--time-format epoch-…` names.
    pub(super) fn unit(&self) -> Option<Unit> {
        if let Layout::Epoch(unit) = self.layout { Some(unit) } else { None }
    }

    /// Whether no other layout was asked for.
    pub(super) fn rfc3339_is_default(&self) -> bool {
        matches!(self.layout, Layout::Rfc3339)
    }

    /// Reads one text.
    pub(super) fn read(&self, text: &str) -> Result<i64, Fault> {
        let text = text.trim_matches([' ', '\t']);
        match &self.layout {
            Layout::Rfc3339 => self.rfc3339(text),
            Layout::Epoch(unit) => epoch(text, *unit),
            Layout::Pattern(pattern) => self.pattern(pattern, text),
        }
    }

    /// A local time, as seconds since 1970 on the wall clock of the zone.
    pub(super) fn local(&self, seconds: i64, nanos: i64, text: &str) -> Result<i64, Fault> {
        let Some(zone) = &self.zone else {
            let message = format!("the time {} has no zone", shown(text));
            return Err(Fault::new(
                "TIME_WITHOUT_ZONE",
                message,
                "say which: --tz UTC, --tz Europe/Paris",
            ));
        };
        let offset = match zone {
            Zone::Fixed(offset) => *offset,
            Zone::Named(tz) => named(*tz, seconds, text)?,
        };
        join(seconds - offset, nanos, text)
    }

    fn rfc3339(&self, text: &str) -> Result<i64, Fault> {
        let bytes = text.as_bytes();
        let Some((seconds, nanos, rest)) = date_time(bytes) else { return Err(unreadable(text)) };
        if bytes[17..19] == *b"60" {
            return Err(leap_second(text));
        }
        let nanos = nanos.map_err(|()| too_fine(text))?;
        match rest {
            [] => self.local(seconds, nanos, text),
            b"Z" | b"z" => join(seconds, nanos, text),
            [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
                let (Some(hours), Some(minutes)) = (number(&[*h1, *h2]), number(&[*m1, *m2]))
                else {
                    return Err(unreadable(text));
                };
                if hours > 23 || minutes > 59 {
                    return Err(unreadable(text));
                }
                let offset = hours * 3600 + minutes * 60;
                join(if *sign == b'+' { seconds - offset } else { seconds + offset }, nanos, text)
            }
            [..] => Err(unreadable(text)),
        }
    }

    fn pattern(&self, pattern: &Pattern, text: &str) -> Result<i64, Fault> {
        if let Some((seconds, nanos)) = pattern.fixed(text.as_bytes()) {
            return self.local(seconds, nanos, text);
        }
        let unfit = |_| {
            let message = format!("the time {} does not fit {}", shown(text), shown(&pattern.text));
            Fault::new("TIME_UNREADABLE", message, "--time-format must describe the whole text")
        };
        let mut parsed = Parsed::new();
        parse(&mut parsed, text, pattern.items.iter()).map_err(unfit)?;
        if parsed.timestamp().is_some() {
            let utc = parsed.to_naive_datetime_with_offset(0).map_err(unfit)?;
            return whole(utc, text).and_then(|(seconds, nanos)| join(seconds, nanos, text));
        }
        let date = parsed.to_naive_date().map_err(unfit)?;
        let timeless = parsed.hour_div_12().is_none()
            && parsed.hour_mod_12().is_none()
            && parsed.minute().is_none()
            && parsed.second().is_none();
        let time = if timeless {
            chrono::NaiveTime::MIN
        } else {
            parsed.to_naive_time().map_err(unfit)?
        };
        let (seconds, nanos) = whole(date.and_time(time), text)?;
        match parsed.offset() {
            Some(offset) => join(seconds - i64::from(offset), nanos, text),
            None => self.local(seconds, nanos, text),
        }
    }
}

/// Seconds and nanoseconds of a date and time; a leap second has none.
fn whole(time: NaiveDateTime, text: &str) -> Result<(i64, i64), Fault> {
    let utc = time.and_utc();
    let nanos = i64::from(utc.timestamp_subsec_nanos());
    if nanos >= 1_000_000_000 {
        return Err(leap_second(text));
    }
    Ok((utc.timestamp(), nanos))
}

/// Nanoseconds since 1970, if 64 bits hold them.
fn join(seconds: i64, nanos: i64, text: &str) -> Result<i64, Fault> {
    let time = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    i64::try_from(time).map_err(|_| out_of_range(text))
}

fn named(tz: Tz, seconds: i64, text: &str) -> Result<i64, Fault> {
    let Some(local) = DateTime::from_timestamp(seconds, 0) else { return Err(out_of_range(text)) };
    let offset = |offset: FixedOffset| i64::from(offset.local_minus_utc());
    match tz.offset_from_local_datetime(&local.naive_utc()) {
        MappedLocalTime::Single(only) => Ok(offset(only.fix())),
        MappedLocalTime::Ambiguous(early, late) => {
            let message = format!(
                "the time {} happened twice in {tz}: at {} and at {}",
                shown(text),
                early.fix(),
                late.fix()
            );
            let hint = "the source must say which: write times with their offset, or in UTC";
            Err(Fault::new("TIME_AMBIGUOUS", message, hint))
        }
        MappedLocalTime::None => {
            let message =
                format!("the time {} never was in {tz}: a clock change skipped it", shown(text));
            Err(Fault::new("TIME_NONEXISTENT", message, "is --tz the zone of this source?"))
        }
    }
}

fn unreadable(text: &str) -> Fault {
    let is = |c: char| text.contains(c);
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let hint = if text.is_empty() {
        "an event without a time cannot be placed; remove the row"
    } else if digits + usize::from(is('.')) + usize::from(is('-')) == text.len()
        && !text[1..].contains('-')
    {
        "a bare number needs its unit: --time-format epoch-s, epoch-ms, epoch-us or epoch-ns"
    } else if text.len() == 10 && digits == 8 && is('-') {
        "a date alone needs its layout: --time-format %Y-%m-%d, and its zone: --tz"
    } else if is('/') {
        "say what is day and what is month: --time-format %d/%m/%Y or %m/%d/%Y"
    } else {
        "describe the layout with --time-format, for example '%Y-%m-%d %H:%M:%S%.f' or '%b %d %Y'"
    };
    Fault::new("TIME_UNREADABLE", format!("the time {} is not RFC 3339", shown(text)), hint)
}

fn leap_second(text: &str) -> Fault {
    let message = format!("the time {} is a leap second", shown(text));
    Fault::new("TIME_UNREADABLE", message, "nanoseconds since 1970 have no place for it")
}

fn too_fine(text: &str) -> Fault {
    let message = format!("the time {} is finer than a nanosecond", shown(text));
    Fault::new("TIME_PRECISION", message, "write at most nine digits after the point")
}

fn out_of_range(text: &str) -> Fault {
    let message = format!("the time {} is outside of the years 1677 to 2262", shown(text));
    Fault::new("TIME_RANGE", message, "is the unit or the layout right?")
}

fn epoch(text: &str, unit: Unit) -> Result<i64, Fault> {
    let refuse = || {
        let message =
            format!("the time {} is not a count of seconds or parts of them", shown(text));
        Fault::new("TIME_UNREADABLE", message, "--time-format epoch-… reads plain decimal numbers")
    };
    let (minus, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let decimal = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !decimal(whole) || !decimal(fraction) || digits.ends_with('.') {
        return Err(refuse());
    }
    let whole: u64 = whole.parse().map_err(|_| out_of_range(text))?;
    let mut time = i128::from(whole) * i128::from(unit.nanos());
    let mut scale = unit.nanos();
    for digit in fraction.bytes() {
        scale /= 10;
        if scale == 0 && digit != b'0' {
            return Err(too_fine(text));
        }
        time += i128::from(digit - b'0') * i128::from(scale);
    }
    i64::try_from(if minus { -time } else { time }).map_err(|_| out_of_range(text))
}

fn zone(text: &str) -> Result<Zone, Invalid> {
    if let [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] = text.as_bytes()
        && let (Some(hours @ 0..=23), Some(minutes @ 0..=59)) =
            (number(&[*h1, *h2]), number(&[*m1, *m2]))
    {
        let offset = hours * 3600 + minutes * 60;
        return Ok(Zone::Fixed(if *sign == b'+' { offset } else { -offset }));
    }
    match Tz::from_str(text) {
        _ if ["UTC", "utc", "Z"].contains(&text) => Ok(Zone::Fixed(0)),
        Ok(tz) => Ok(Zone::Named(tz)),
        Err(_) => {
            let near = nearest(text, TZ_VARIANTS.iter().map(|tz| tz.name()));
            let hint = near.map_or_else(
                || {
                    "a zone is UTC, a name such as Europe/Paris, or an offset such as +02:00"
                        .to_owned()
                },
                |near| format!("did you mean `{near}`?"),
            );
            Err(Invalid::new("TZ_UNKNOWN", "--tz", format!("no zone {}", shown(text)), hint))
        }
    }
}

/// `YYYY-MM-DD?HH:MM:SS[.fraction]`: seconds, nanoseconds (or that they are too fine), what follows.
fn date_time(text: &[u8]) -> Option<(i64, Result<i64, ()>, &[u8])> {
    let (head, mut rest) = text.split_at_checked(19)?;
    let marks = [head[4], head[7], head[13], head[16]];
    if marks != *b"--::" || !matches!(head[10], b'T' | b't' | b' ') {
        return None;
    }
    let (year, month, day) = (number(&head[..4])?, number(&head[5..7])?, number(&head[8..10])?);
    let (hour, minute) = (number(&head[11..13])?, number(&head[14..16])?);
    let second = number(&head[17..])?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut nanos = Ok(0);
    if let [b'.', fraction @ ..] = rest {
        let len = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, after) = fraction.split_at(len);
        let (fine, finer) = digits.split_at(len.min(9));
        let scale = 10_i64.pow(9 - u32::try_from(fine.len()).ok()?);
        nanos = if finer.iter().all(|&digit| digit == b'0') {
            Ok(number(fine)? * scale)
        } else {
            Err(())
        };
        rest = after;
    }
    Some((days(year, month, day)? * DAY + hour * 3600 + minute * 60 + second, nanos, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: Option<&str>, tz: Option<&str>, text: &str) -> Result<i64, &'static str> {
        Times::new(format, tz).unwrap().read(text).map_err(|fault| fault.code)
    }

    const T: i64 = 1_640_991_660_000_000_000; // 2021-12-31T23:01:00Z

    #[test]
    fn without_a_format_only_rfc_3339_is_read() {
        for text in [
            "2021-12-31T23:01:00Z",
            "2021-12-31 23:01:00+00:00",
            "2022-01-01t01:01:00.000+02:00",
            "2021-12-31T18:01:00-05:00",
            "2021-12-31T23:01:00.0000000000000Z",
        ] {
            assert_eq!(read(None, None, text), Ok(T), "{text}");
            assert_eq!(read(None, Some("Asia/Tokyo"), text), Ok(T), "an offset in the text counts");
        }
        assert_eq!(read(None, None, "2021-12-31T23:01:00.000000001Z"), Ok(T + 1));
        assert_eq!(read(None, None, "1969-12-31T23:59:59.5Z"), Ok(-500_000_000));
        for (text, code) in [
            ("2021-12-31 23:01:00", "TIME_WITHOUT_ZONE"),
            ("2021-12-31", "TIME_UNREADABLE"),
            ("1640991660", "TIME_UNREADABLE"),
            ("2021-12-31T23:01Z", "TIME_UNREADABLE"),
            ("", "TIME_UNREADABLE"),
            ("2021-12-31T24:00:00Z", "TIME_UNREADABLE"),
            ("2021-02-29T00:00:00Z", "TIME_UNREADABLE"),
            ("2016-12-31T23:59:60Z", "TIME_UNREADABLE"),
            ("2021-12-31T23:01:00.0000000001Z", "TIME_PRECISION"),
            ("2021-12-31T23:01:00.Z", "TIME_UNREADABLE"),
            ("2021-12-31T23:01:00+0000", "TIME_UNREADABLE"),
            ("2021-12-31T23:01:00+24:00", "TIME_UNREADABLE"),
            ("9999-01-01T00:00:00Z", "TIME_RANGE"),
            ("1600-01-01T00:00:00Z", "TIME_RANGE"),
            ("2021-12-31T23:01:00 Z", "TIME_UNREADABLE"),
            ("２021-12-31T23:01:00Z", "TIME_UNREADABLE"),
            ("-", "TIME_UNREADABLE"),
            ("12/31/2021", "TIME_UNREADABLE"),
        ] {
            assert_eq!(read(None, None, text), Err(code), "{text}");
        }
    }

    #[test]
    fn the_ends_of_64_bits_are_exact() {
        assert_eq!(read(None, None, "2262-04-11T23:47:16.854775807Z"), Ok(i64::MAX));
        assert_eq!(read(None, None, "2262-04-11T23:47:16.854775808Z"), Err("TIME_RANGE"));
        assert_eq!(read(None, None, "1677-09-21T00:12:43.145224192Z"), Ok(i64::MIN));
        assert_eq!(read(None, None, "1677-09-21T00:12:43.145224191Z"), Err("TIME_RANGE"));
        assert_eq!(read(Some("epoch-ns"), None, "-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(read(Some("epoch-ns"), None, "9223372036854775807"), Ok(i64::MAX));
    }

    #[test]
    fn local_times_need_a_zone_and_those_a_clock_change_spoils_are_refused() {
        assert_eq!(read(None, Some("UTC"), "2021-12-31 23:01:00.000000"), Ok(T));
        assert_eq!(read(None, Some("+01:00"), "2022-01-01 00:01:00"), Ok(T));
        assert_eq!(read(None, Some("America/New_York"), "2021-12-31T18:01:00"), Ok(T));
        let zone = Some("America/New_York");
        assert_eq!(read(None, zone, "2024-11-03T01:30:00"), Err("TIME_AMBIGUOUS"));
        assert_eq!(read(None, zone, "2024-03-10T02:30:00"), Err("TIME_NONEXISTENT"));
        assert_eq!(read(None, zone, "2024-03-10T03:00:00"), Ok(1_710_054_000_000_000_000));
        for (tz, near) in [("Europe/Pari", "Europe/Paris"), ("+1", "such as"), ("", "such as")] {
            let refused = Times::new(None, Some(tz)).unwrap_err();
            assert_eq!(refused.code, "TZ_UNKNOWN");
            assert!(refused.hint.contains(near), "{refused:?}");
        }
    }

    #[test]
    fn an_epoch_has_a_unit_and_may_have_a_fraction() {
        for (format, text) in [
            ("epoch-s", "1640991660"),
            ("epoch-ms", "1640991660000"),
            ("epoch-us", "1640991660000000"),
            ("epoch-ns", "1640991660000000000"),
            ("epoch-s", "1640991660.0000000000"),
            (" epoch-s".trim(), " 1640991660 "),
        ] {
            assert_eq!(read(Some(format), None, text), Ok(T), "{format}");
        }
        assert_eq!(read(Some("epoch-s"), None, "-1.5"), Ok(-1_500_000_000));
        assert_eq!(read(Some("epoch-ms"), None, "0.000001"), Ok(1));
        for (text, code) in [
            ("0.0000001", "TIME_PRECISION"),
            ("1e9", "TIME_UNREADABLE"),
            ("", "TIME_UNREADABLE"),
            ("1.", "TIME_UNREADABLE"),
            (".5", "TIME_UNREADABLE"),
            ("--1", "TIME_UNREADABLE"),
            ("+1", "TIME_UNREADABLE"),
            ("99999999999999999999", "TIME_RANGE"),
            ("9223372036854775807", "TIME_RANGE"),
        ] {
            assert_eq!(read(Some("epoch-ms"), None, text), Err(code), "{text}");
        }
        assert_eq!(Times::new(Some("epoch-s"), Some("UTC")).unwrap_err().code, "FLAG_CONFLICT");
    }

    #[test]
    fn a_layout_reads_the_same_with_and_without_chrono() {
        let cases = [
            ("%Y%m%d %H%M%S%3f", "20200101 170000065", Ok(1_577_898_000_065_000_000)),
            ("%Y-%m-%d", "1950-01-03", Ok(-630_979_200_000_000_000)),
            ("%Y-%m-%d %H:%M:%S.%6f", "2021-12-31 23:01:00.000001", Ok(T + 1000)),
            ("%F %T", "2021-12-31 23:01:00", Ok(T)),
            ("%Y-%m-%d %H:%M", "2021-12-31 23:01", Ok(T)),
            ("%Y-%m-%d", "1950-1-3", Ok(-630_979_200_000_000_000)),
            ("%Y%m%d", "20240230", Err("TIME_UNREADABLE")),
            ("%Y-%m-%d %H:%M:%S", "2021-12-31 23:01", Err("TIME_UNREADABLE")),
            ("%Y-%m-%d %H:%M:%S", "2021-12-31 23:01:00 x", Err("TIME_UNREADABLE")),
            ("%Y-%m-%d %H:%M:%S", "2016-12-31 23:59:60", Err("TIME_UNREADABLE")),
            ("%Y-%m-%d %H", "2021-12-31 23", Err("TIME_UNREADABLE")),
        ];
        for (format, text, time) in cases {
            assert_eq!(read(Some(format), Some("UTC"), text), time, "{format} {text}");
            let mut times = Times::new(Some(format), Some("UTC")).unwrap();
            if let Layout::Pattern(pattern) = &mut times.layout {
                pattern.forget_layout();
            }
            assert_eq!(
                times.read(text).map_err(|fault| fault.code),
                time,
                "chrono: {format} {text}"
            );
        }
    }

    #[test]
    fn a_layout_may_have_names_offsets_and_epochs() {
        let day = 946_684_800_000_000_000;
        assert_eq!(read(Some("%b %d %Y"), Some("UTC"), "Jan 1 2000"), Ok(day));
        assert_eq!(read(Some("%d/%m/%Y"), Some("UTC"), "01/01/2000"), Ok(day));
        assert_eq!(
            read(Some("%Y-%m-%d %H:%M:%S%.f %z"), None, "2000-01-01 01:00:00.5 +0100"),
            Ok(day + 500_000_000)
        );
        assert_eq!(read(Some("t=%s"), None, "t=946684800"), Ok(day));
        assert_eq!(read(Some("%I:%M %p %d.%m.%Y"), Some("UTC"), "12:00 AM 01.01.2000"), Ok(day));
        assert_eq!(read(Some("%Y-%m-%d"), None, "2000-01-01"), Err("TIME_WITHOUT_ZONE"));
        assert_eq!(read(Some("%Y-%m"), Some("UTC"), "2000-01"), Err("TIME_UNREADABLE"));
        for bad in ["%Y-%m-%d %H:%M:%S.%f", "%Y %Z", "%Q", "%Y-%", "epoch", "iso", ""] {
            assert_eq!(
                Times::new(Some(bad), None).unwrap_err().code,
                "TIME_FORMAT_INVALID",
                "{bad}"
            );
        }
    }
}
