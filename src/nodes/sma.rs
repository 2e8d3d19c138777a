//! `sma`: simple moving average; n from 2.
//!
//! A running total: the window is never summed anew, so the total is state of its own.

use super::state::Reader;
use super::window::Window;
use super::{Definition, Kernel, gap};
use crate::canonical::Value;
use crate::invalid::Invalid;

pub(super) const NODE: Definition = Definition::of::<Sma>();

#[derive(Debug)]
struct Sma {
    period: u32,
    /// The sum of the window.
    total: f64,
    /// The last n - 1 values.
    window: Window,
}

impl Kernel for Sma {
    const NAME: &'static str = "sma";

    fn new(period: u32) -> Self {
        Self { period, total: 0.0, window: Window::new(period - 1) }
    }

    fn is_warm(&self) -> bool {
        self.window.is_full()
    }

    fn warm_up(&mut self, x: f64) -> f64 {
        let total = self.total + x;
        if total.is_finite() {
            self.total = total;
            self.window.fill(x);
        }
        f64::NAN
    }

    #[inline]
    fn step(&mut self, x: f64) -> f64 {
        let total = self.total + x;
        let value = total / f64::from(self.period);
        // An infinite total stays infinite, or becomes NaN, when the oldest value leaves it.
        let total = total - self.window.oldest();
        if !total.is_finite() {
            return gap();
        }
        self.total = total;
        self.window.replace(x);
        value
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        vec![("total", Value::Float(self.total)), ("window", self.window.state())]
    }

    fn read(reader: &mut Reader<'_>, period: u32) -> Result<Self, Invalid> {
        let total = reader.float("total")?;
        let window = Window::read(reader, period - 1)?;
        Ok(Self { period, total, window })
    }
}
