//! Days of the Gregorian calendar, and the digits they are written with.

/// Seconds in a day.
pub(super) const DAY: i64 = 86_400;

/// A number of decimal digits and nothing else.
pub(super) fn number(digits: &[u8]) -> Option<i64> {
    let mut number = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i64::from(digit - b'0');
    }
    (!digits.is_empty()).then_some(number)
}

/// Days since 1970-01-01 of a date of the Gregorian calendar, if there is such a date.
pub(super) fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    // Years that begin in March put the leap day last, so that months are a formula.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(before + (153 * month + 2) / 5 + day - 1 - 719_468)
}

#[cfg(test)]
mod tests {
    use chrono::{Datelike as _, NaiveDate};

    use super::*;

    #[test]
    fn days_are_those_of_chrono() {
        let epoch = NaiveDate::from_ymd_opt(1970, 1, 1).unwrap();
        let mut date = NaiveDate::from_ymd_opt(0, 1, 1).unwrap();
        while date.year() < 2500 {
            let (year, month, day) = (date.year().into(), date.month().into(), date.day().into());
            assert_eq!(days(year, month, day), Some((date - epoch).num_days()), "{date}");
            date = date.checked_add_days(chrono::Days::new(13)).unwrap();
        }
        for (year, month, day) in
            [(2023, 2, 29), (1900, 2, 29), (2024, 13, 1), (2024, 0, 1), (2024, 4, 31), (2024, 1, 0)]
        {
            assert_eq!(days(year, month, day), None);
        }
    }
}
