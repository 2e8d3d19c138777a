//! `dema`: double exponential moving average; n from 2. First value at index 2(n - 1).
//!
//! `2*ema(x) - ema(ema(x))`, the second average over the values of the first only.

use super::ema::Average;
use super::state::Reader;
use super::{Definition, Kernel, gap};
use crate::canonical::Value;
use crate::invalid::Invalid;

pub(super) const NODE: Definition = Definition::of::<Dema>();

#[derive(Debug)]
struct Dema {
    first: Average,
    second: Average,
}

impl Dema {
    /// Both averages after `x`, and the value or NaN, while warming up.
    fn seeded(&self, x: f64) -> Option<(Average, Average, f64)> {
        let first =
            if self.first.is_seeded() { self.first.after(x) } else { self.first.seed(x)? };
        if !first.is_seeded() {
            return Some((first, self.second, f64::NAN));
        }
        let second =
            Some(first.level).filter(|x| x.is_finite()).and_then(|x| self.second.seed(x))?;
        if !second.is_seeded() {
            return Some((first, second, f64::NAN));
        }
        let value = value(first.level, second.level);
        value.is_finite().then_some((first, second, value))
    }
}

#[inline]
fn value(first: f64, second: f64) -> f64 {
    2.0 * first - second
}

impl Kernel for Dema {
    const NAME: &'static str = "dema";

    fn new(period: u32) -> Self {
        let average = Average::new(period);
        Self { first: average, second: average }
    }

    fn is_warm(&self) -> bool {
        self.second.is_seeded()
    }

    fn warm_up(&mut self, x: f64) -> f64 {
        let Some((first, second, value)) = self.seeded(x) else {
            return f64::NAN;
        };
        self.first = first;
        self.second = second;
        value
    }

    #[inline]
    fn step(&mut self, x: f64) -> f64 {
        let first = self.first.after(x);
        let second = self.second.after(first.level);
        let value = value(first.level, second.level);
        // An average that is not finite could hide in the value only as NaN or an infinity.
        if !value.is_finite() {
            return gap();
        }
        self.first = first;
        self.second = second;
        value
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        let (seen, level) = self.first.state();
        let (second_seen, second_level) = self.second.state();
        vec![
            ("seen", seen),
            ("level", level),
            ("second_seen", second_seen),
            ("second_level", second_level),
        ]
    }

    fn read(reader: &mut Reader<'_>, period: u32) -> Result<Self, Invalid> {
        let first = Average::read(reader, period, "seen", "level")?;
        let second = Average::read(reader, period, "second_seen", "second_level")?;
        if first.is_seeded() == second.is_new() {
            return Err(
                reader.damaged("second_seen", "the second average starts with the first value")
            );
        }
        Ok(Self { first, second })
    }
}
