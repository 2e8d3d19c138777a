//! `rsi`: relative strength index with Wilder's smoothing, 0 to 100; n from 2. Needs n + 1 inputs.

use super::state::{Reader, count};
use super::{Definition, Kernel, gap};
use crate::canonical::Value;
use crate::invalid::Invalid;

/// TA-Lib calls a movement smaller than this none.
const EPSILON: f64 = 1e-14;

pub(super) const NODE: Definition = Definition::of::<Rsi>();

#[derive(Debug)]
struct Rsi {
    period: u32,
    /// How many inputs came, up to n + 1.
    seen: u32,
    last: f64,
    /// Sums until input n + 1, smoothed means from then on.
    gain: f64,
    loss: f64,
}

impl Rsi {
    /// The value of these means; NaN, and nothing changed, when one of them is not finite.
    #[inline]
    fn commit(&mut self, x: f64, gain: f64, loss: f64) -> f64 {
        if !(gain.is_finite() && loss.is_finite()) {
            return gap();
        }
        self.last = x;
        self.gain = gain;
        self.loss = loss;
        let total = gain + loss;
        if -EPSILON < total && total < EPSILON { 0.0 } else { 100.0 * (gain / total) }
    }
}

impl Kernel for Rsi {
    const NAME: &'static str = "rsi";

    fn new(period: u32) -> Self {
        Self { period, seen: 0, last: 0.0, gain: 0.0, loss: 0.0 }
    }

    fn is_warm(&self) -> bool {
        self.seen > self.period
    }

    fn warm_up(&mut self, x: f64) -> f64 {
        let (mut gain, mut loss) = (self.gain, self.loss);
        let step = if self.seen == 0 { 0.0 } else { x - self.last };
        if step < 0.0 {
            loss -= step;
        } else {
            gain += step;
        }
        if self.seen == self.period {
            loss /= f64::from(self.period);
            gain /= f64::from(self.period);
        }
        let value = self.commit(x, gain, loss);
        if value.is_nan() {
            return value;
        }
        self.seen += 1;
        if self.is_warm() { value } else { f64::NAN }
    }

    #[inline]
    fn step(&mut self, x: f64) -> f64 {
        let n = f64::from(self.period);
        let step = x - self.last;
        // Both every time: adding 0.0 changes no bit here, and a branch on the direction of a price
        // is one that no processor can predict.
        let down = if step < 0.0 { step } else { 0.0 };
        let up = if step > 0.0 { step } else { 0.0 };
        let loss = (self.loss * (n - 1.0) - down) / n;
        let gain = (self.gain * (n - 1.0) + up) / n;
        self.commit(x, gain, loss)
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("seen", count(self.seen.into())),
            ("last", Value::Float(self.last)),
            ("gain", Value::Float(self.gain)),
            ("loss", Value::Float(self.loss)),
        ]
    }

    fn read(reader: &mut Reader<'_>, period: u32) -> Result<Self, Invalid> {
        let seen = reader.count32("seen", period + 1)?;
        let last = reader.float("last")?;
        let (gain, loss) = (reader.float("gain")?, reader.float("loss")?);
        if gain < 0.0 || loss < 0.0 {
            return Err(reader.damaged("gain", "gains and losses are not negative"));
        }
        Ok(Self { period, seen, last, gain, loss })
    }
}
