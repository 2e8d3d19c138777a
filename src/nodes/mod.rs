//! Nodes: one series in, one series out, a value a time, in memory that does not grow.
//!
//! To add a node, write its file and add its name to `register!` below: the file says the node's
//! name, its periods and how to make one; the flow's parser, the engine and the conformance test
//! (`tests.rs`) then know it.
//!
//! Every node is bit-identical to TA-Lib C 0.6.4. Each operation rounds on its own, in the order
//! written: no `mul_add`, no regrouping, no window that is summed anew where TA-Lib keeps a running
//! total. The policy for what is missing is `reject_gap`: a null or non-finite input is a GAP, as is
//! an input that would make the result or the state non-finite; the value is null and the state is
//! as if the input had never come. NaN is how a column of floats says null.

mod extreme;
mod state;
#[cfg(test)]
mod tests;
mod window;

use std::fmt::Debug;
use std::mem;
use std::ops::RangeInclusive;

use self::state::Reader;
use crate::canonical::Value;
use crate::invalid::Invalid;

macro_rules! register {
    ($($name:ident,)*) => {
        $(mod $name;)*
        /// Every node there is, by name.
        const NODES: &[Definition] = &[$($name::NODE),*];
    };
}

register! {
    dema,
    ema,
    max,
    min,
    mom,
    roc,
    rsi,
    sma,
    stddev,
    wma,
}

/// The largest window of any node: what bounds the memory of one instrument.
const PERIOD_MAX: u32 = 100_000;

/// How many values a loop computes before they are moved on: they stay in the fastest cache.
const BLOCK: usize = 512;

/// What a node's file says about it.
#[derive(Clone, Debug)]
pub struct Definition {
    /// As flows name it.
    pub name: &'static str,
    /// The periods it takes.
    pub periods: RangeInclusive<u32>,
    /// A node that has seen nothing; the period must be one of `periods`.
    pub make: fn(u32) -> Box<dyn Node>,
}

impl Definition {
    const fn of<K: Kernel>() -> Self {
        Self {
            name: K::NAME,
            periods: K::PERIODS,
            make: |period| Box::new(Running { period, kernel: K::new(period) }),
        }
    }
}

/// The state of one node over one series.
pub trait Node: Debug + Send {
    /// The value for the next input; NaN is null on both sides.
    fn push(&mut self, x: f64) -> f64;

    /// As [`Node::push`] for each of `inputs`, appended to `out`.
    fn extend(&mut self, inputs: &[f64], out: &mut Vec<f64>);

    /// All that the node remembers.
    fn state(&self) -> Value;

    /// Takes up what [`Node::state`] gave, bit for bit.
    ///
    /// # Errors
    /// `NODE_STATE` for what no node of this name and period can have given; the node is then unchanged.
    fn restore(&mut self, state: &Value) -> Result<(), Invalid>;
}

/// What the file of a node implements.
trait Kernel: Debug + Send + Sized + 'static {
    const NAME: &'static str;
    const PERIODS: RangeInclusive<u32> = 2..=PERIOD_MAX;

    /// One that has seen nothing.
    fn new(period: u32) -> Self;

    /// Whether the next value can be had by [`Kernel::step`]; once true, true for ever.
    fn is_warm(&self) -> bool;

    /// Takes in a finite input while warming up: NaN, or the first value. An input that would make
    /// the value or the state non-finite must leave the state untouched.
    fn warm_up(&mut self, x: f64) -> f64;

    /// The value for the next input, which is finite, of a warm node. NaN for an input that would
    /// make the value or the state non-finite; it must leave the state untouched.
    fn step(&mut self, x: f64) -> f64;

    /// All that it remembers, in fields.
    fn write(&self) -> Vec<(&'static str, Value)>;

    /// Reads what [`Kernel::write`] gave.
    fn read(reader: &mut Reader<'_>, period: u32) -> Result<Self, Invalid>;
}

/// The value of a GAP. Cold and never inlined, so that the test for a GAP is a branch, which costs
/// nothing, and not a select, which every next value would have to wait for.
#[cold]
#[inline(never)]
fn gap() -> f64 {
    f64::NAN
}

/// A kernel at work.
#[derive(Debug)]
struct Running<K> {
    period: u32,
    kernel: K,
}

impl<K: Kernel> Node for Running<K> {
    fn push(&mut self, x: f64) -> f64 {
        if !x.is_finite() {
            f64::NAN
        } else if self.kernel.is_warm() {
            self.kernel.step(x)
        } else {
            self.kernel.warm_up(x)
        }
    }

    fn extend(&mut self, mut inputs: &[f64], out: &mut Vec<f64>) {
        while let Some((&x, rest)) = inputs.split_first() {
            if self.kernel.is_warm() {
                break;
            }
            out.push(self.push(x));
            inputs = rest;
        }
        // As a local that nothing points to, the state lives in registers: no store and load
        // between two values, which would take longer than the arithmetic. Block by block, because
        // a growing `Vec` inside the loop, or a closure for `Vec::extend`, would point to it.
        let mut kernel = mem::replace(&mut self.kernel, K::new(self.period));
        out.reserve(inputs.len());
        for block in inputs.chunks(BLOCK) {
            let mut values = [0.0; BLOCK];
            for (value, &x) in values.iter_mut().zip(block) {
                *value = if x.is_finite() { kernel.step(x) } else { gap() };
            }
            out.extend_from_slice(&values[..block.len()]);
        }
        self.kernel = kernel;
    }

    fn state(&self) -> Value {
        state::write(K::NAME, self.period, self.kernel.write())
    }

    fn restore(&mut self, state: &Value) -> Result<(), Invalid> {
        let mut reader = Reader::open(K::NAME, self.period, state)?;
        let kernel = K::read(&mut reader, self.period)?;
        reader.end()?;
        self.kernel = kernel;
        Ok(())
    }
}

/// The node of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Definition> {
    NODES.iter().find(|node| node.name == name)
}

/// The names of all nodes, sorted.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    NODES.iter().map(|node| node.name)
}
