//! An object of a manifest, read field by field; what does not fit is refused at its place.

use std::collections::BTreeMap;

use super::{Document, hint, shown};
use crate::canonical::{Step, Value};
use crate::invalid::Invalid;

/// Names become keys, labels and columns: long enough for any of them, short enough for a table.
const NAME_BYTES_MAX: usize = 200;

/// An object of the document, and the way to it.
#[derive(Debug)]
pub struct Object<'a> {
    document: &'a Document<'a>,
    fields: &'a BTreeMap<String, Value>,
    path: Vec<Step<'a>>,
}

impl<'a> Object<'a> {
    /// The document itself, of the kind that its dialect wants.
    ///
    /// # Errors
    /// It is no object, or says that it is something else.
    pub fn root(document: &'a Document<'a>) -> Result<Self, Invalid> {
        let root = Self::of(document, &document.value, Vec::new())?;
        let (kind, dialect) = (root.text("kind")?, document.dialect);
        if kind == dialect.kind {
            return Ok(root);
        }
        let message = format!("the kind is {}, and this must be a {}", shown(kind), dialect.kind);
        Err(root.refuse("kind", dialect.codes.kind, message, format!("kind: {}", dialect.kind)))
    }

    fn of(
        document: &'a Document<'a>,
        value: &'a Value,
        path: Vec<Step<'a>>,
    ) -> Result<Self, Invalid> {
        let Value::Map(fields) = value else {
            let message = format!("this is {}, and an object is needed here", value.kind());
            let hint = "write `key: value` pairs, or {key: value}";
            return Err(document.invalid(&path, document.dialect.codes.wrong_type, message, hint));
        };
        Ok(Self { document, fields, path })
    }

    /// All of it.
    #[must_use]
    pub fn fields(&self) -> &'a BTreeMap<String, Value> {
        self.fields
    }

    /// # Errors
    /// A field besides these.
    pub fn only(&self, known: &[&str]) -> Result<(), Invalid> {
        let Some(field) = self.fields.keys().find(|field| !known.contains(&field.as_str())) else {
            return Ok(());
        };
        let message = format!("there is no field {}", shown(field));
        let hint = hint(field, known.iter().copied(), "fields here");
        let path = self.path(&[Step::Key(field)]);
        Err(self.document.invalid(&path, self.document.dialect.codes.unknown_field, message, hint))
    }

    /// # Errors
    /// The field is there and no object.
    pub fn object(&self, field: &'a str) -> Result<Option<Self>, Invalid> {
        let read = |value| Self::of(self.document, value, self.path(&[Step::Field(field)]));
        self.fields.get(field).map(read).transpose()
    }

    /// # Errors
    /// The field is there and no list.
    pub fn list(&self, field: &'a str) -> Result<Option<&'a [Value]>, Invalid> {
        match self.fields.get(field) {
            None => Ok(None),
            Some(Value::List(items)) => Ok(Some(items)),
            Some(other) => Err(self.wrong_type(field, other, "a list")),
        }
    }

    /// The items of a list, each an object.
    ///
    /// # Errors
    /// As [`Object::list`], or an item is no object.
    pub fn objects(&self, field: &'a str) -> Result<Option<Vec<Self>>, Invalid> {
        let Some(items) = self.list(field)? else { return Ok(None) };
        let object = |(index, item)| {
            Self::of(self.document, item, self.path(&[Step::Field(field), Step::Item(index)]))
        };
        items.iter().enumerate().map(object).collect::<Result<_, _>>().map(Some)
    }

    /// # Errors
    /// The field is missing or no text.
    pub fn text(&self, field: &'a str) -> Result<&'a str, Invalid> {
        match self.fields.get(field) {
            Some(Value::Text(text)) => Ok(text),
            Some(other) => Err(self.wrong_type(field, other, "a text")),
            None => Err(self.missing(field, "a text")),
        }
    }

    /// A text that is fit to be a name.
    ///
    /// # Errors
    /// As [`Object::text`]; empty, over 200 bytes, control characters, outer spaces.
    pub fn name(&self, field: &'a str) -> Result<&'a str, Invalid> {
        let name = self.text(field)?;
        self.check_name(&[Step::Field(field)], name)?;
        Ok(name)
    }

    /// Whether `name`, found by going `way` from here, is fit to be one.
    ///
    /// # Errors
    /// As [`Object::name`].
    pub fn check_name(&self, way: &[Step<'a>], name: &str) -> Result<(), Invalid> {
        let message = if name.is_empty() {
            "a name has at least one character".to_owned()
        } else if name.len() > NAME_BYTES_MAX {
            format!("a name of {} bytes; {NAME_BYTES_MAX} is the most", name.len())
        } else if name.chars().any(char::is_control) {
            format!("a control character in the name {}", shown(name))
        } else if name.trim() != name {
            format!("space around the name {}", shown(name))
        } else {
            return Ok(());
        };
        let hint = "letters, digits, `.`, `_` and `-` are safe";
        Err(self.refuse_at(way, self.document.dialect.codes.name, message, hint))
    }

    /// A whole number; `wanted` says which, should there be none.
    ///
    /// # Errors
    /// The field is missing or no whole number.
    pub fn whole(&self, field: &'a str, wanted: &str) -> Result<i128, Invalid> {
        match self.fields.get(field) {
            Some(Value::Int(x)) => Ok(i128::from(*x)),
            Some(Value::Uint(x)) => Ok(i128::from(*x)),
            Some(other) => Err(self.wrong_type(field, other, wanted)),
            None => Err(self.missing(field, wanted)),
        }
    }

    /// A finite number.
    ///
    /// # Errors
    /// The field is missing or no number.
    #[expect(clippy::cast_precision_loss, reason = "a price written as a whole number above 2^53")]
    pub fn number(&self, field: &'a str) -> Result<f64, Invalid> {
        match self.fields.get(field) {
            Some(Value::Float(x)) => Ok(*x),
            Some(Value::Int(x)) => Ok(*x as f64),
            Some(Value::Uint(x)) => Ok(*x as f64),
            Some(other) => Err(self.wrong_type(field, other, "a number")),
            None => Err(self.missing(field, "a number")),
        }
    }

    /// A field that must be there is not.
    #[must_use]
    pub fn missing(&self, field: &str, wanted: &str) -> Invalid {
        let message = format!("the field `{field}` is missing");
        let hint = format!("add `{field}: …`, {wanted}");
        let code = self.document.dialect.codes.missing_field;
        self.document.invalid(&self.path, code, message, hint)
    }

    /// A field is something else than what is wanted.
    #[must_use]
    pub fn wrong_type(&self, field: &'a str, found: &Value, wanted: &str) -> Invalid {
        let message = format!("`{field}` is {}, and {wanted} is needed", found.kind());
        let hint = match (found, wanted) {
            (Value::Int(_) | Value::Uint(_) | Value::Float(_) | Value::Bool(_), "a text") => {
                "put it in quotes if it is meant as a text".to_owned()
            }
            _ => format!("see the fixture's manifest for the form of a {}", self.noun()),
        };
        self.refuse(field, self.document.dialect.codes.wrong_type, message, hint)
    }

    fn noun(&self) -> &'static str {
        self.document.dialect.noun
    }

    /// An error at the value of a field.
    #[must_use]
    pub fn refuse(
        &self,
        field: &'a str,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Invalid {
        self.refuse_at(&[Step::Field(field)], code, message, hint)
    }

    /// An error at the place that `way` leads to from here.
    #[must_use]
    pub fn refuse_at(
        &self,
        way: &[Step<'a>],
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Invalid {
        self.document.invalid(&self.path(way), code, message, hint)
    }

    fn path(&self, way: &[Step<'a>]) -> Vec<Step<'a>> {
        self.path.iter().chain(way).copied().collect()
    }
}
