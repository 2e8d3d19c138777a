//! The config file: a flat YAML mapping from keys of [`SETTINGS`] to plain values.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::SETTINGS;
use crate::invalid::{Invalid, nearest};

/// A file of settings is a page long. More is a mistake or an attack: the parser takes quadratic time
/// over brackets that only open.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// What the file says: key, value as text, line.
pub(super) struct Entries(pub(super) Vec<(&'static str, String, Option<usize>)>);

/// Reads the config file; the second part says who else can read it.
pub(super) fn read(path: &Path) -> Result<(Entries, bool), Invalid> {
    let place = path.display().to_string();
    let (text, open_to_others) = read_text(path)?;
    let values: Values = match serde_yaml_ng::from_str(&text) {
        Ok(values) => values,
        // An empty file, or one of comments only, sets nothing.
        Err(_) if is_blank(&text) => Values(BTreeMap::new()),
        Err(error) => return Err(refused(&place, &error)),
    };
    let entries = values.0.into_iter().map(|(key, value)| (key, value, line_of(&text, key)));
    Ok((Entries(entries.collect()), open_to_others))
}

/// Reads a small text file, and says whether others than its owner may read it.
pub(super) fn read_text(path: &Path) -> Result<(String, bool), Invalid> {
    let place = path.display().to_string();
    let unreadable = |why: String| {
        Invalid::new(
            "CONFIG_UNREADABLE",
            &place,
            why,
            "name a readable text file of at most 16 KiB",
        )
    };
    let file = fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let open_to_others =
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o077 != 0);
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| unreadable(error.to_string()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(unreadable("over 16 KiB".to_owned()));
    }
    Ok((text, open_to_others))
}

fn is_blank(text: &str) -> bool {
    text.lines().all(|line| {
        let line = line.trim();
        line.is_empty() || line.starts_with('#') || line == "---"
    })
}

fn refused(place: &str, error: &serde_yaml_ng::Error) -> Invalid {
    let text = error.to_string();
    // The parser appends where, which the place already says.
    let message = text.split(" at line ").next().unwrap_or(&text);
    let place = match error.location() {
        Some(at) => format!("{place}:{}:{}", at.line(), at.column()),
        None => place.to_owned(),
    };
    let (code, hint) = match message.strip_prefix(UNKNOWN_KEY) {
        Some(_) => ("CONFIG_UNKNOWN_KEY", "see `finaz --help`: each global flag is a key"),
        None => ("CONFIG_INVALID", "write one `key: value` a line"),
    };
    Invalid::new(code, place, super::scrub(message), hint)
}

/// The line on which a block mapping sets `key`.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let at = text.lines().position(|line| {
        let line = line.trim_start().trim_start_matches(['"', '\'']);
        line.strip_prefix(key)
            .is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with(':'))
    })?;
    Some(at + 1)
}

const UNKNOWN_KEY: &str = "unknown key";

struct Values(BTreeMap<&'static str, String>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ValuesVisitor)
    }
}

struct ValuesVisitor;

impl<'de> Visitor<'de> for ValuesVisitor {
    type Value = Values;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Values, A::Error> {
        let mut values = BTreeMap::new();
        while let Some(key) = map.next_key_seed(NewKey { seen: &values })? {
            values.insert(key, map.next_value::<Option<Plain>>()?.map(|Plain(value)| value));
        }
        Ok(Values(values.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()))
    }
}

/// A known key that was not there before. Refused here and not by the map, because here the parser
/// still knows the line.
struct NewKey<'a> {
    seen: &'a BTreeMap<&'static str, Option<String>>,
}

impl<'de> DeserializeSeed<'de> for NewKey<'_> {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NewKey<'_> {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a setting")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<&'static str, E> {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
            return Err(E::custom(unknown_key(key)));
        };
        if self.seen.contains_key(setting.key) {
            return Err(E::custom(format_args!("`{key}` is set twice")));
        }
        Ok(setting.key)
    }
}

fn unknown_key(key: &str) -> String {
    let typed = key.replace('-', "_").to_lowercase();
    match nearest(&typed, SETTINGS.iter().map(|setting| setting.key)) {
        Some(meant) => format!("{UNKNOWN_KEY} `{key}`, did you mean `{meant}`?"),
        None => format!("{UNKNOWN_KEY} `{key}`"),
    }
}

/// A text, number or truth value, kept as text: all sources are checked by the same code.
struct Plain(String);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlainVisitor)
    }
}

struct PlainVisitor;

impl Visitor<'_> for PlainVisitor {
    type Value = Plain;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, true or false")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Plain, E> {
        Ok(Plain(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Plain, E> {
        Ok(Plain(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Plain, E> {
        Ok(Plain(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Plain, E> {
        Ok(Plain(value.to_string()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Plain, E> {
        Ok(Plain(value.to_owned()))
    }
}
