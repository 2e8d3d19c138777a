//! `roc`: rate of change, in percent of the value n inputs ago; n from 1. 0.0 where that value is 0.

use std::ops::RangeInclusive;

use super::state::Reader;
use super::window::Window;
use super::{Definition, Kernel, PERIOD_MAX, gap};
use crate::canonical::Value;
use crate::invalid::Invalid;

pub(super) const NODE: Definition = Definition::of::<Roc>();

#[derive(Debug)]
struct Roc {
    window: Window,
}

impl Kernel for Roc {
    const NAME: &'static str = "roc";
    const PERIODS: RangeInclusive<u32> = 1..=PERIOD_MAX;

    fn new(period: u32) -> Self {
        Self { window: Window::new(period) }
    }

    fn is_warm(&self) -> bool {
        self.window.is_full()
    }

    fn warm_up(&mut self, x: f64) -> f64 {
        self.window.fill(x);
        f64::NAN
    }

    #[inline]
    fn step(&mut self, x: f64) -> f64 {
        let value = change(x, self.window.oldest());
        if !value.is_finite() {
            return gap();
        }
        self.window.replace(x);
        value
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        vec![("window", self.window.state())]
    }

    fn read(reader: &mut Reader<'_>, period: u32) -> Result<Self, Invalid> {
        Ok(Self { window: Window::read(reader, period)? })
    }
}

#[inline]
fn change(x: f64, before: f64) -> f64 {
    if before == 0.0 { 0.0 } else { (x / before - 1.0) * 100.0 }
}
