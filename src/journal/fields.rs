//! A canonical object, taken apart field by field; what is left over is refused.

use std::collections::BTreeMap;

use super::{Error, VERSION, damaged};
use crate::canonical::{self, Value};
use crate::ids::Hash;

pub(super) struct Fields<'a> {
    place: &'a str,
    map: BTreeMap<String, Value>,
}

impl<'a> Fields<'a> {
    /// Reads an object of the journal: its kind and version are checked here.
    pub(super) fn read(bytes: &[u8], kind: &str, place: &'a str) -> Result<Self, Error> {
        let value =
            canonical::parse(bytes, place).map_err(|error| damaged(place, error.message))?;
        let mut fields = Self::of(value, place)?;
        let seen = fields.text("kind")?;
        if seen != kind {
            return Err(damaged(place, format!("is a {seen:?}, not a {kind:?}")));
        }
        let found = fields.int("version")?;
        if found != VERSION {
            return Err(Error::Version { place: place.to_owned(), found, known: VERSION });
        }
        Ok(fields)
    }

    pub(super) fn of(value: Value, place: &'a str) -> Result<Self, Error> {
        match value {
            Value::Map(map) => Ok(Self { place, map }),
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_) => Err(damaged(place, "holds no object where one belongs")),
        }
    }

    pub(super) fn take(&mut self, name: &str) -> Result<Value, Error> {
        let missing = || damaged(self.place, format!("has no {name:?}"));
        self.map.remove(name).ok_or_else(missing)
    }

    pub(super) fn int(&mut self, name: &str) -> Result<i64, Error> {
        let value = self.take(name)?;
        if let Value::Int(int) = value { Ok(int) } else { Err(self.wrong(name, &value)) }
    }

    /// A number that is not negative.
    pub(super) fn count(&mut self, name: &str) -> Result<u64, Error> {
        let int = self.int(name)?;
        u64::try_from(int).map_err(|_negative| self.wrong(name, &Value::Int(int)))
    }

    pub(super) fn text(&mut self, name: &str) -> Result<String, Error> {
        let value = self.take(name)?;
        if let Value::Text(text) = value { Ok(text) } else { Err(self.wrong(name, &value)) }
    }

    pub(super) fn hash(&mut self, name: &str) -> Result<Hash, Error> {
        let text = self.text(name)?;
        text.parse().map_err(|_no| self.wrong(name, &Value::Text(text)))
    }

    pub(super) fn list(&mut self, name: &str) -> Result<Vec<Value>, Error> {
        let value = self.take(name)?;
        if let Value::List(list) = value { Ok(list) } else { Err(self.wrong(name, &value)) }
    }

    /// A field that may be null, read by `read` where it is not.
    pub(super) fn optional<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Self, &str) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        if self.map.get(name) == Some(&Value::Null) {
            self.map.remove(name);
            return Ok(None);
        }
        read(self, name).map(Some)
    }

    pub(super) fn wrong(&self, name: &str, seen: &Value) -> Error {
        damaged(self.place, format!("has {} for {name:?}", seen.kind()))
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<(), Error> {
        match self.map.into_keys().next() {
            None => Ok(()),
            Some(name) => Err(damaged(self.place, format!("has an unknown field {name:?}"))),
        }
    }
}

/// An object of these fields.
pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Map(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

pub(super) fn text(text: &(impl ToString + ?Sized)) -> Value {
    Value::Text(text.to_string())
}

/// A count as the whole number it is.
pub(super) fn count(count: u64) -> Value {
    Value::Int(i64::try_from(count).expect("no count reaches 2^63"))
}
