//! `wma`: linearly weighted moving average, the newest value n times; n from 2.
//!
//! Two running totals: `weighted` loses `plain` a step, which lowers every weight by one.

use super::state::Reader;
use super::window::Window;
use super::{Definition, Kernel, gap};
use crate::canonical::Value;
use crate::invalid::Invalid;

pub(super) const NODE: Definition = Definition::of::<Wma>();

#[derive(Debug)]
struct Wma {
    period: u32,
    weighted: f64,
    plain: f64,
    /// The value that left the window last.
    trailing: f64,
    /// The last n - 1 values.
    window: Window,
}

impl Kernel for Wma {
    const NAME: &'static str = "wma";

    fn new(period: u32) -> Self {
        let window = Window::new(period - 1);
        Self { period, weighted: 0.0, plain: 0.0, trailing: 0.0, window }
    }

    fn is_warm(&self) -> bool {
        self.window.is_full()
    }

    fn warm_up(&mut self, x: f64) -> f64 {
        let plain = self.plain + x;
        let weight = u32::try_from(self.window.len() + 1).expect("not above the period");
        let weighted = self.weighted + x * f64::from(weight);
        if plain.is_finite() && weighted.is_finite() {
            self.plain = plain;
            self.weighted = weighted;
            self.window.fill(x);
        }
        f64::NAN
    }

    #[inline]
    fn step(&mut self, x: f64) -> f64 {
        let plain = self.plain + x - self.trailing;
        let weighted = self.weighted + x * f64::from(self.period);
        let value = weighted / divider(self.period);
        let weighted = weighted - plain;
        if !(plain.is_finite() && weighted.is_finite()) {
            return gap();
        }
        self.plain = plain;
        self.weighted = weighted;
        self.trailing = self.window.oldest();
        self.window.replace(x);
        value
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("weighted", Value::Float(self.weighted)),
            ("plain", Value::Float(self.plain)),
            ("trailing", Value::Float(self.trailing)),
            ("window", self.window.state()),
        ]
    }

    fn read(reader: &mut Reader<'_>, period: u32) -> Result<Self, Invalid> {
        let (weighted, plain) = (reader.float("weighted")?, reader.float("plain")?);
        let trailing = reader.float("trailing")?;
        let window = Window::read(reader, period - 1)?;
        Ok(Self { period, weighted, plain, trailing, window })
    }
}

/// The sum of the weights, n(n+1)/2, which is exact: both factors are below 2^17.
#[inline]
fn divider(period: u32) -> f64 {
    f64::from(period) * f64::from(period + 1) / 2.0
}
