//! YAML as a canonical value: the part of YAML that JSON can say, within a budget.
//!
//! Anchors and aliases work, but what they expand to is counted: nine lines of YAML can stand for
//! billions of values. Tags, merge keys and keys that are no text are refused.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::{Dialect, shown};
use crate::canonical::{Step, Value};

/// How many times the bytes of the largest manifest its texts may have together, by way of aliases.
const EXPANSION_MAX: usize = 4;
/// Open brackets, columns of indentation, directives.
const SLOW_MAX: usize = 500;

/// What is wrong with a document, and where.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) code: &'static str,
    pub(super) at: (u64, u64),
    pub(super) message: String,
    pub(super) hint: String,
}

/// Reads the one document of `text`.
pub(super) fn parse(text: &str, dialect: &'static Dialect) -> Result<Value, Problem> {
    refuse_slow(text, dialect)?;
    let reading = Reading::new(dialect);
    let result = Node(&reading).deserialize(serde_yaml_ng::Deserializer::from_str(text));
    let error = match result {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let at = place(&error);
    if let Some((code, message, hint)) = reading.failure.take() {
        return Err(Problem { code, at, message, hint: hint.to_owned() });
    }
    let full = error.to_string();
    // The place is told apart from the message.
    let message = full.split(" at line ").next().unwrap_or(&full).to_owned();
    let (code, hint) = if full.contains("repetition limit") || full.contains("recursion limit") {
        let hint = "write the values out, without aliases of aliases";
        (dialect.codes.too_complex, hint.to_owned())
    } else {
        let hint = format!("see the fixture's manifest for the form of a {}", dialect.noun);
        (dialect.codes.syntax, hint)
    };
    Err(Problem { code, at, message, hint })
}

/// Refuses what libyaml takes quadratic time over, before it sees it: deep nesting (minutes for a
/// megabyte of `[`) and many directives. No manifest comes near, whatever is in its texts and comments.
fn refuse_slow(text: &str, dialect: &Dialect) -> Result<(), Problem> {
    let (mut open, mut deepest, mut directives) = (0_usize, 0_usize, 0_usize);
    for (line, number) in text.lines().zip(1..) {
        directives += usize::from(line.starts_with('%'));
        for byte in line.bytes() {
            match byte {
                b'[' | b'{' => open += 1,
                b']' | b'}' => open = open.saturating_sub(1),
                _ => {}
            }
            deepest = deepest.max(open);
        }
        let indent = line.bytes().take_while(|byte| b" \t-?:".contains(byte)).count();
        if deepest > SLOW_MAX || indent > SLOW_MAX || directives > SLOW_MAX {
            let message = format!("nested too deep for a {}", dialect.noun);
            let hint = "flatten the document".to_owned();
            let code = dialect.codes.too_complex;
            return Err(Problem { code, at: (number, 1), message, hint });
        }
    }
    Ok(())
}

/// Line and column that `path` leads to in a text that [`parse`] accepts.
pub(super) fn locate(text: &str, path: &[Step<'_>]) -> (u64, u64) {
    match Seek(path).deserialize(serde_yaml_ng::Deserializer::from_str(text)) {
        Ok(()) => (1, 1),
        Err(error) => place(&error),
    }
}

fn place(error: &serde_yaml_ng::Error) -> (u64, u64) {
    let number = |n: usize| u64::try_from(n).unwrap_or(1);
    error.location().map_or((1, 1), |at| (number(at.line()), number(at.column())))
}

/// What is counted while reading, and why it was given up.
struct Reading {
    dialect: &'static Dialect,
    values: Cell<usize>,
    text_bytes: Cell<usize>,
    failure: RefCell<Option<(&'static str, String, &'static str)>>,
}

impl Reading {
    fn new(dialect: &'static Dialect) -> Self {
        let (values, text_bytes) = (Cell::default(), Cell::default());
        Self { dialect, values, text_bytes, failure: RefCell::default() }
    }

    fn fail<E: serde::de::Error>(
        &self,
        code: &'static str,
        message: &str,
        hint: &'static str,
    ) -> E {
        self.failure.replace(Some((code, message.to_owned(), hint)));
        E::custom(message)
    }

    fn count<E: serde::de::Error>(&self, text: &str) -> Result<(), E> {
        self.values.set(self.values.get() + 1);
        self.text_bytes.set(self.text_bytes.get() + text.len());
        let text_bytes_max = EXPANSION_MAX * self.dialect.bytes_max;
        if self.values.get() > self.dialect.values_max || self.text_bytes.get() > text_bytes_max {
            let hint = "write the values out, without aliases of aliases";
            let code = self.dialect.codes.too_complex;
            return Err(self.fail(code, "this expands to too many values", hint));
        }
        Ok(())
    }
}

/// Reads one value.
struct Node<'r>(&'r Reading);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.count("")?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has as well")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, x: bool) -> Result<Value, E> {
        Ok(Value::Bool(x))
    }

    fn visit_i64<E>(self, x: i64) -> Result<Value, E> {
        Ok(Value::Int(x))
    }

    fn visit_u64<E>(self, x: u64) -> Result<Value, E> {
        Ok(i64::try_from(x).map_or(Value::Uint(x), Value::Int))
    }

    fn visit_i128<E: serde::de::Error>(self, x: i128) -> Result<Value, E> {
        let message = format!("{x} does not fit 64 bits");
        Err(self.0.fail(self.0.dialect.codes.syntax, &message, "use a smaller number"))
    }

    fn visit_u128<E: serde::de::Error>(self, x: u128) -> Result<Value, E> {
        let message = format!("{x} does not fit 64 bits");
        Err(self.0.fail(self.0.dialect.codes.syntax, &message, "use a smaller number"))
    }

    fn visit_f64<E: serde::de::Error>(self, x: f64) -> Result<Value, E> {
        if x.is_finite() {
            return Ok(Value::Float(x));
        }
        let hint = "write a number that a 64-bit float can hold";
        Err(self.0.fail(self.0.dialect.codes.syntax, "NaN and infinities are no values", hint))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.0.count(text)?;
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Node(self.0))? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some(key) = entries.next_key_seed(Key(self.0, &map))? {
            let value = entries.next_value_seed(Node(self.0))?;
            map.insert(key, value);
        }
        Ok(Value::Map(map))
    }
}

/// Reads one key that is not in the map yet. A visitor of its own, because only an error from inside
/// a visit gets the place of the key and not that of the whole map.
struct Key<'r>(&'r Reading, &'r BTreeMap<String, Value>);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is a text (put it in quotes)")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<String, E> {
        self.0.count(key)?;
        if self.1.contains_key(key) {
            let message = format!("the key {} is here twice", shown(key));
            return Err(self.0.fail(
                self.0.dialect.codes.duplicate_key,
                &message,
                "keep one of the two",
            ));
        }
        Ok(key.to_owned())
    }
}

/// Goes where a path leads, and fails there: only an error of `serde_yaml_ng` has a place.
struct Seek<'p>(&'p [Step<'p>]);

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = ();

    // Every visit that is not written below fails, which is what is wanted.
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("to end here")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Some((Step::Item(wanted), rest)) = self.0.split_first() else {
            return Err(A::Error::custom("here"));
        };
        for _ in 0..*wanted {
            items.next_element::<IgnoredAny>()?;
        }
        items.next_element_seed(Self(rest))?;
        Err(A::Error::custom("no such item"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Some((step, rest)) = self.0.split_first() else {
            return Err(A::Error::custom("here"));
        };
        while let Some(found) = entries.next_key_seed(KeySeek(*step))? {
            if found {
                entries.next_value_seed(Self(rest))?;
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Err(A::Error::custom("no such key"))
    }
}

/// Whether this key is the one whose value is wanted; fails at the key that is wanted itself.
struct KeySeek<'p>(Step<'p>);

impl<'de> DeserializeSeed<'de> for KeySeek<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for KeySeek<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<bool, E> {
        match self.0 {
            Step::Key(wanted) if wanted == key => Err(E::custom("here")),
            Step::Field(wanted) => Ok(wanted == key),
            Step::Key(_) | Step::Item(_) => Ok(false),
        }
    }
}
