//! `ema`: exponential moving average with an SMA seed; n from 2.
//!
//! `k = 2/(n+1)`; the first value is the mean of the first n, then `(x - prev)*k + prev`.

use super::state::{Reader, count};
use super::{Definition, Kernel, gap};
use crate::canonical::Value;
use crate::invalid::Invalid;

pub(super) const NODE: Definition = Definition::of::<Ema>();

#[derive(Debug)]
struct Ema {
    average: Average,
}

/// The average itself, a plain value: a step gives another one, so that a step can be tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Average {
    period: u32,
    k: f64,
    /// How many values the seed has, up to the period.
    seen: u32,
    /// The sum of the seed until it is complete, then the average.
    pub(super) level: f64,
}

impl Average {
    pub(super) fn new(period: u32) -> Self {
        Self { period, k: 2.0 / f64::from(period + 1), seen: 0, level: 0.0 }
    }

    /// The average after `x` while the seed is not complete; `None` when it would not be finite.
    pub(super) fn seed(self, x: f64) -> Option<Self> {
        let seen = self.seen + 1;
        let total = self.level + x;
        let level = if seen == self.period { total / f64::from(self.period) } else { total };
        level.is_finite().then_some(Self { seen, level, ..self })
    }

    /// The average after `x` once it is; it may not be finite.
    #[inline]
    pub(super) fn after(self, x: f64) -> Self {
        Self { level: (x - self.level) * self.k + self.level, ..self }
    }

    pub(super) fn is_new(self) -> bool {
        self.seen == 0
    }

    pub(super) fn is_seeded(self) -> bool {
        self.seen == self.period
    }

    /// The fields of a state that are this average's.
    pub(super) fn state(self) -> (Value, Value) {
        (count(self.seen.into()), Value::Float(self.level))
    }

    /// The average of these two fields.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        period: u32,
        seen: &str,
        level: &str,
    ) -> Result<Self, Invalid> {
        let read = Self {
            seen: reader.count32(seen, period)?,
            level: reader.float(level)?,
            ..Self::new(period)
        };
        if read.seen == 0 && read.level.to_bits() != 0 {
            return Err(reader.damaged(level, "a sum of no values is 0.0"));
        }
        Ok(read)
    }
}

impl Kernel for Ema {
    const NAME: &'static str = "ema";

    fn new(period: u32) -> Self {
        Self { average: Average::new(period) }
    }

    fn is_warm(&self) -> bool {
        self.average.is_seeded()
    }

    fn warm_up(&mut self, x: f64) -> f64 {
        let Some(average) = self.average.seed(x) else {
            return f64::NAN;
        };
        self.average = average;
        if average.is_seeded() { average.level } else { f64::NAN }
    }

    #[inline]
    fn step(&mut self, x: f64) -> f64 {
        let average = self.average.after(x);
        if !average.level.is_finite() {
            return gap();
        }
        self.average = average;
        average.level
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        let (seen, level) = self.average.state();
        vec![("seen", seen), ("level", level)]
    }

    fn read(reader: &mut Reader<'_>, period: u32) -> Result<Self, Invalid> {
        Ok(Self { average: Average::read(reader, period, "seen", "level")? })
    }
}
