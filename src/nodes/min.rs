//! `min`: the lowest of the last n values; n from 2.

use super::Definition;
use super::extreme::{Extreme, Order};

pub(super) const NODE: Definition = Definition::of::<Extreme<Lowest>>();

#[derive(Debug)]
struct Lowest;

impl Order for Lowest {
    const NAME: &'static str = "min";

    fn better(a: f64, b: f64) -> bool {
        a < b
    }
}
