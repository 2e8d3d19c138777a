//! State as a canonical value, and back: damaged state is refused, never guessed at.

use std::collections::BTreeMap;

use crate::canonical::Value;
use crate::invalid::Invalid;

/// The state of the node `name` with `period`, in fields of its own.
pub(super) fn write(name: &str, period: u32, fields: Vec<(&'static str, Value)>) -> Value {
    let mut map: BTreeMap<_, _> =
        fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect();
    map.insert("type".to_owned(), Value::Text(name.to_owned()));
    map.insert("period".to_owned(), Value::Int(period.into()));
    Value::Map(map)
}

/// A count as a value.
pub(super) fn count(count: u64) -> Value {
    Value::Int(i64::try_from(count).expect("no series has 2^63 values"))
}

/// Reads the fields of a state one by one.
pub(super) struct Reader<'a> {
    name: &'static str,
    fields: &'a BTreeMap<String, Value>,
    taken: usize,
}

impl<'a> Reader<'a> {
    /// Opens a state that must be one of the node `name` with `period`.
    pub(super) fn open(name: &'static str, period: u32, state: &'a Value) -> Result<Self, Invalid> {
        let Value::Map(fields) = state else {
            return Err(damaged(name, "", &format!("{} is no state", state.kind())));
        };
        let mut reader = Self { name, fields, taken: 0 };
        if *reader.take("type")? != Value::Text(name.to_owned()) {
            return Err(reader.damaged("type", "the state of another node"));
        }
        if *reader.take("period")? != Value::Int(period.into()) {
            return Err(reader.damaged("period", &format!("the period here is {period}")));
        }
        Ok(reader)
    }

    /// A count of at most `max`.
    pub(super) fn count(&mut self, field: &str, max: u64) -> Result<u64, Invalid> {
        let value = self.take(field)?;
        let Value::Int(count) = value else {
            return Err(self.damaged(field, &format!("{} is no count", value.kind())));
        };
        u64::try_from(*count)
            .ok()
            .filter(|count| *count <= max)
            .ok_or_else(|| self.damaged(field, &format!("{count} is not from 0 to {max}")))
    }

    /// A count of at most `max`, which fits 32 bits.
    pub(super) fn count32(&mut self, field: &str, max: u32) -> Result<u32, Invalid> {
        Ok(u32::try_from(self.count(field, max.into())?).expect("not above the maximum"))
    }

    /// A finite float.
    pub(super) fn float(&mut self, field: &str) -> Result<f64, Invalid> {
        let value = self.take(field)?;
        self.finite(field, value)
    }

    /// Finite floats.
    pub(super) fn floats(&mut self, field: &str) -> Result<Vec<f64>, Invalid> {
        self.list(field)?.iter().map(|value| self.finite(field, value)).collect()
    }

    /// Pairs of a count and a finite float.
    pub(super) fn pairs(&mut self, field: &str) -> Result<Vec<(u64, f64)>, Invalid> {
        let pair = |value: &Value| {
            let Value::List(pair) = value else { return None };
            let [Value::Int(at), Value::Float(x)] = pair.as_slice() else { return None };
            Some((u64::try_from(*at).ok()?, *x)).filter(|pair| pair.1.is_finite())
        };
        let pairs: Option<_> = self.list(field)?.iter().map(pair).collect();
        pairs.ok_or_else(|| self.damaged(field, "not pairs of a count and a number"))
    }

    /// Every field was taken: there is none that this node does not know.
    pub(super) fn end(self) -> Result<(), Invalid> {
        if self.fields.len() == self.taken {
            return Ok(());
        }
        Err(self.damaged("", "it has fields that this node does not know"))
    }

    /// The error for a field whose value cannot be.
    pub(super) fn damaged(&self, field: &str, message: &str) -> Invalid {
        damaged(self.name, field, message)
    }

    fn take(&mut self, field: &str) -> Result<&'a Value, Invalid> {
        self.taken += 1;
        self.fields.get(field).ok_or_else(|| self.damaged(field, "missing"))
    }

    fn list(&mut self, field: &str) -> Result<&'a [Value], Invalid> {
        let value = self.take(field)?;
        let Value::List(list) = value else {
            return Err(self.damaged(field, &format!("{} is no list", value.kind())));
        };
        Ok(list)
    }

    fn finite(&self, field: &str, value: &Value) -> Result<f64, Invalid> {
        let Value::Float(x) = value else {
            return Err(self.damaged(field, &format!("{} is no float", value.kind())));
        };
        Some(*x)
            .filter(|x| x.is_finite())
            .ok_or_else(|| self.damaged(field, &format!("{x} is not finite")))
    }
}

fn damaged(name: &str, field: &str, message: &str) -> Invalid {
    let place = format!("state of {name}{}{field}", if field.is_empty() { "" } else { "." });
    Invalid::new("NODE_STATE", place, message, "restore an earlier checkpoint, or compute anew")
}
