//! The best value of a window (the highest for `max`, the lowest for `min`), with the tie rule of
//! TA-Lib, which shows where 0.0 meets -0.0: it keeps one best value and its index; a new value that
//! is as good takes its place; when it leaves the window, the EARLIEST of the best takes its place.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::marker::PhantomData;

use super::Kernel;
use super::state::{Reader, count};
use crate::canonical::Value;
use crate::invalid::Invalid;

/// Which of two values is better.
pub(super) trait Order: Debug + Send + 'static {
    const NAME: &'static str;

    /// Whether `a` is strictly better than `b`.
    fn better(a: f64, b: f64) -> bool;
}

/// The best of the last `period` values.
#[derive(Debug)]
pub(super) struct Extreme<O> {
    period: u64,
    /// How many values came so far, which is the index of the next.
    seen: u64,
    /// The index and value of what TA-Lib holds, from the first full window on.
    held: Option<(u64, f64)>,
    /// Values of the window of which none later is better, so that the first is the earliest best.
    /// Each value enters and leaves once: O(1) a value, where a scan would be O(period).
    queue: VecDeque<(u64, f64)>,
    order: PhantomData<O>,
}

impl<O: Order> Extreme<O> {
    /// The index of the first value of the window that ends with the last value seen.
    fn trailing(&self) -> u64 {
        self.seen.saturating_sub(self.period)
    }

    /// Takes `x` into the queue; the earliest best of the window.
    #[inline]
    fn enter(&mut self, x: f64) -> (u64, f64) {
        while self.queue.back().is_some_and(|&(_, last)| O::better(x, last)) {
            self.queue.pop_back();
        }
        self.queue.push_back((self.seen, x));
        self.seen += 1;
        let first = self.queue[0];
        if first.0 >= self.trailing() {
            return first;
        }
        // One value enters a step, so one at most has left.
        self.queue.pop_front();
        self.queue[0]
    }

    /// Whether this can be the state after some series.
    fn is_consistent(&self) -> bool {
        let pairs = || self.queue.iter().zip(self.queue.iter().skip(1));
        let (Some(&(first, best)), Some(&(last, _))) = (self.queue.front(), self.queue.back())
        else {
            return self.seen == 0 && self.held.is_none();
        };
        let held = match self.held {
            None => self.seen < self.period,
            Some((at, x)) => {
                let kept = |q: &(u64, f64)| q.0 == at && q.1.to_bits() == x.to_bits();
                self.seen >= self.period && x == best && self.queue.iter().any(kept)
            }
        };
        let ordered = pairs().all(|(a, b)| a.0 < b.0 && !O::better(b.1, a.1));
        held && ordered && first >= self.trailing() && last + 1 == self.seen
    }
}

impl<O: Order> Kernel for Extreme<O> {
    const NAME: &'static str = O::NAME;

    fn new(period: u32) -> Self {
        let period = period.into();
        Self { period, seen: 0, held: None, queue: VecDeque::new(), order: PhantomData }
    }

    fn is_warm(&self) -> bool {
        self.held.is_some()
    }

    fn warm_up(&mut self, x: f64) -> f64 {
        let best = self.enter(x);
        if self.seen < self.period {
            return f64::NAN;
        }
        self.held = Some(best);
        best.1
    }

    #[inline]
    fn step(&mut self, x: f64) -> f64 {
        let today = self.seen;
        let earliest = self.enter(x);
        let held = match self.held {
            Some(held) if held.0 < self.trailing() => earliest,
            Some(held) if O::better(held.1, x) => held,
            _ => (today, x),
        };
        self.held = Some(held);
        held.1
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        let pair = |&(at, x): &(u64, f64)| Value::List(vec![count(at), Value::Float(x)]);
        let held = self.held.iter().map(pair).collect();
        let queue = self.queue.iter().map(pair).collect();
        vec![("seen", count(self.seen)), ("held", Value::List(held)), ("queue", Value::List(queue))]
    }

    fn read(reader: &mut Reader<'_>, period: u32) -> Result<Self, Invalid> {
        // Room to go on counting.
        let seen = reader.count("seen", u64::MAX >> 2)?;
        let held = reader.pairs("held")?;
        let queue = reader.pairs("queue")?.into();
        let read = Self { seen, held: held.first().copied(), queue, ..Self::new(period) };
        if held.len() > 1 || !read.is_consistent() {
            return Err(reader.damaged("queue", "no series leads to this state"));
        }
        Ok(read)
    }
}
