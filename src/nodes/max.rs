//! `max`: the highest of the last n values; n from 2.

use super::Definition;
use super::extreme::{Extreme, Order};

pub(super) const NODE: Definition = Definition::of::<Extreme<Highest>>();

#[derive(Debug)]
struct Highest;

impl Order for Highest {
    const NAME: &'static str = "max";

    fn better(a: f64, b: f64) -> bool {
        a > b
    }
}
