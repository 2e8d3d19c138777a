//! The last values of a series: a ring that fills up and then replaces its oldest.

use super::state::Reader;
use crate::canonical::Value;
use crate::invalid::Invalid;

/// The last `capacity` values.
#[derive(Debug)]
pub(super) struct Window {
    values: Vec<f64>,
    capacity: usize,
    /// Where the oldest value is once the ring is full.
    oldest: usize,
}

impl Window {
    pub(super) fn new(capacity: u32) -> Self {
        let capacity = usize::try_from(capacity).expect("a period fits in memory");
        Self { values: Vec::new(), capacity, oldest: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.values.len() == self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Takes in `x` while there is room.
    pub(super) fn fill(&mut self, x: f64) {
        self.values.push(x);
    }

    /// The oldest value of a full window.
    #[inline]
    pub(super) fn oldest(&self) -> f64 {
        self.values[self.oldest]
    }

    /// Puts `x` in the place of the oldest value of a full window.
    #[inline]
    pub(super) fn replace(&mut self, x: f64) {
        self.values[self.oldest] = x;
        self.oldest += 1;
        if self.oldest == self.values.len() {
            self.oldest = 0;
        }
    }

    /// The values, oldest first.
    pub(super) fn state(&self) -> Value {
        let (new, old) = self.values.split_at(self.oldest);
        Value::List(old.iter().chain(new).map(|&x| Value::Float(x)).collect())
    }

    /// The window of a state's field `window`.
    pub(super) fn read(reader: &mut Reader<'_>, capacity: u32) -> Result<Self, Invalid> {
        let mut window = Self::new(capacity);
        window.values = reader.floats("window")?;
        if window.values.len() > window.capacity {
            return Err(reader.damaged("window", &format!("it has more than {capacity} values")));
        }
        Ok(window)
    }
}
