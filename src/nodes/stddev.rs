//! `stddev`: population standard deviation of the last n values; n from 2.

use super::state::Reader;
use super::window::Window;
use super::{Definition, Kernel, gap};
use crate::canonical::Value;
use crate::invalid::Invalid;

/// TA-Lib calls a variance smaller than this none.
const EPSILON: f64 = 1e-14;

pub(super) const NODE: Definition = Definition::of::<Stddev>();

#[derive(Debug)]
struct Stddev {
    period: u32,
    /// The running sum of the window and of its squares.
    total: f64,
    squares: f64,
    /// The last n - 1 values.
    window: Window,
}

impl Kernel for Stddev {
    const NAME: &'static str = "stddev";

    fn new(period: u32) -> Self {
        let window = Window::new(period - 1);
        Self { period, total: 0.0, squares: 0.0, window }
    }

    fn is_warm(&self) -> bool {
        self.window.is_full()
    }

    fn warm_up(&mut self, x: f64) -> f64 {
        let (total, squares) = (self.total + x, self.squares + x * x);
        if total.is_finite() && squares.is_finite() {
            self.total = total;
            self.squares = squares;
            self.window.fill(x);
        }
        f64::NAN
    }

    #[inline]
    fn step(&mut self, x: f64) -> f64 {
        let n = f64::from(self.period);
        let (total, squares) = (self.total + x, self.squares + x * x);
        let (mean, mean_square) = (total / n, squares / n);
        let oldest = self.window.oldest();
        let (total, squares) = (total - oldest, squares - oldest * oldest);
        if !(total.is_finite() && squares.is_finite()) {
            return gap();
        }
        self.total = total;
        self.squares = squares;
        self.window.replace(x);
        let variance = mean_square - mean * mean;
        if variance < EPSILON { 0.0 } else { variance.sqrt() }
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("total", Value::Float(self.total)),
            ("squares", Value::Float(self.squares)),
            ("window", self.window.state()),
        ]
    }

    fn read(reader: &mut Reader<'_>, period: u32) -> Result<Self, Invalid> {
        let (total, squares) = (reader.float("total")?, reader.float("squares")?);
        let window = Window::read(reader, period - 1)?;
        Ok(Self { period, total, squares, window })
    }
}
