//! The flags of an import, checked before a byte is read.

use super::cell::{self, Fault};
use super::time::Times;
use super::{Format, ImportOptions};
use crate::artifacts::check_name;
use crate::invalid::{Invalid, nearest};

/// An instrument name longer than this is another column.
pub(super) const INSTRUMENT_MAX: usize = 256;
/// The same for an event's id.
pub(super) const EVENT_ID_MAX: usize = 1024;
/// Columns listed in a message.
const LISTED_MAX: usize = 30;

/// The keys that every event has.
pub(super) const STANDARD: [&str; 5] = ["close", "event_id", "event_time", "instrument", "seq"];

/// Where the instrument's name comes from.
#[derive(Debug)]
pub(super) enum Instrument {
    Fixed(String),
    Column(String),
}

/// What is read from a source, and how.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) times: Times,
    pub(super) time_column: String,
    /// `--time-column` was left out: in JSON lines a whole number is then nanoseconds.
    pub(super) standard_time: bool,
    pub(super) close_column: String,
    pub(super) instrument: Instrument,
    pub(super) event_id_column: Option<String>,
    /// Ordered, as the keys of an event are.
    pub(super) fields: Vec<String>,
    pub(super) header: bool,
    pub(super) sort: bool,
}

impl Settings {
    pub(super) fn new(options: &ImportOptions, format: Format) -> Result<Self, Invalid> {
        options.name.as_deref().map(check_name).transpose()?;
        let times = Times::new(options.time_format.as_deref(), options.tz.as_deref())?;
        if options.no_header && format != Format::Csv {
            let message = "only CSV has or lacks a header";
            return Err(Invalid::new("FLAG_CONFLICT", "--no-header", message, "leave it out"));
        }
        let column = |given: &Option<String>, standard: &str| {
            given.clone().unwrap_or_else(|| standard.to_owned())
        };
        Ok(Self {
            times,
            time_column: column(&options.time_column, "event_time"),
            standard_time: options.time_column.is_none(),
            close_column: column(&options.close_column, "close"),
            instrument: instrument(options, format)?,
            event_id_column: options.event_id_column.clone(),
            fields: fields(options)?,
            header: !options.no_header,
            sort: options.sort,
        })
    }

    /// Finds the columns in a table that has these. `place` is the header's.
    pub(super) fn columns(&self, names: &[String], place: &str) -> Result<Columns, Invalid> {
        let find = |flag: &str, name: &str| self.find(names, place, flag, name);
        Ok(Columns {
            time: find("--time-column", &self.time_column)?,
            close: find("--close-column", &self.close_column)?,
            instrument: match &self.instrument {
                Instrument::Fixed(_) => None,
                Instrument::Column(name) => Some(find("--instrument-column", name)?),
            },
            event_id: self
                .event_id_column
                .as_ref()
                .map(|name| find("--event-id-column", name))
                .transpose()?,
            fields: self
                .fields
                .iter()
                .map(|name| find("--field", name))
                .collect::<Result<_, _>>()?,
        })
    }

    fn find(
        &self,
        names: &[String],
        place: &str,
        flag: &str,
        name: &str,
    ) -> Result<usize, Invalid> {
        let mut at = names.iter().enumerate().filter(|(_, there)| *there == name).map(|(at, _)| at);
        match (at.next(), at.next()) {
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => {
                let message = format!("{flag}: two columns are called {}", cell::shown(name));
                let hint = "rename one, or read the file with --no-header and numbers";
                Err(Invalid::new("COLUMN_AMBIGUOUS", place, message, hint))
            }
            (None, _) => Err(self.unknown(names, place, flag, name)),
        }
    }

    fn unknown(&self, names: &[String], place: &str, flag: &str, name: &str) -> Invalid {
        let number = |name: &&String| name.parse::<f64>().is_ok();
        if self.header
            && names.iter().any(|name| number(&name))
            && !names.contains(&self.time_column)
        {
            let message = "the first line holds values, not the names of columns";
            let hint = "for a file without a header say --no-header and number the columns from 1";
            return Invalid::new("CSV_HEADER_MISSING", place, message, hint);
        }
        let message = format!(
            "{flag}: there is no column {}; the columns are {}",
            cell::shown(name),
            listed(names)
        );
        Invalid::new("COLUMN_UNKNOWN", place, message, self.hint(names, flag, name))
    }

    fn hint(&self, names: &[String], flag: &str, name: &str) -> String {
        let others = [';', '\t', '|'];
        if let [only] = names
            && let Some(other) = others.into_iter().find(|&other| only.contains(other))
        {
            let other = other.escape_debug();
            return format!("columns are parted by commas; this file seems to use `{other}`");
        }
        if !self.header {
            return "with --no-header columns are numbers from 1".to_owned();
        }
        let same = names.iter().find(|there| there.eq_ignore_ascii_case(name));
        match same.map(String::as_str).or_else(|| nearest(name, names.iter().map(String::as_str))) {
            Some(near) => format!("did you mean {flag} {}?", cell::shown(near)),
            None => format!("say which column with {flag}"),
        }
    }
}

/// The columns that are read, from 0.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) time: usize,
    pub(super) close: usize,
    pub(super) instrument: Option<usize>,
    pub(super) event_id: Option<usize>,
    pub(super) fields: Vec<usize>,
}

/// Column names for a message.
pub(super) fn listed(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED_MAX).map(|name| cell::shown(name)).collect();
    let more = names.len().saturating_sub(LISTED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

fn instrument(options: &ImportOptions, format: Format) -> Result<Instrument, Invalid> {
    match (&options.instrument, &options.instrument_column) {
        (Some(_), Some(_)) => {
            let message = "--instrument and --instrument-column exclude each other";
            let hint = "one file is one instrument, or a column says which";
            Err(Invalid::new("FLAG_CONFLICT", "--instrument", message, hint))
        }
        (Some(name), None) => {
            let at = |fault: Fault| fault.at("--instrument");
            cell::name("instrument", name, INSTRUMENT_MAX).map_err(at)?;
            Ok(Instrument::Fixed(name.clone()))
        }
        (None, Some(column)) => Ok(Instrument::Column(column.clone())),
        (None, None) if format == Format::JsonLines => {
            Ok(Instrument::Column("instrument".to_owned()))
        }
        (None, None) => {
            let message = "the instrument is not known";
            let hint = "say --instrument NAME, or --instrument-column for the column that has it";
            Err(Invalid::new("FLAG_MISSING", "--instrument", message, hint))
        }
    }
}

fn fields(options: &ImportOptions) -> Result<Vec<String>, Invalid> {
    let mut fields = options.fields.clone();
    fields.sort();
    let refuse = |name: &str, message: &str, hint: &str| {
        let message = format!("{} {message}", cell::shown(name));
        Err(Invalid::new("FIELD_INVALID", "--field", message, hint))
    };
    for pair in fields.windows(2) {
        if pair[0] == pair[1] {
            return refuse(&pair[0], "is named twice", "name each field once");
        }
    }
    for name in &fields {
        if STANDARD.contains(&name.as_str()) {
            let hint =
                "an event has it already; --close-column and the like say where it comes from";
            return refuse(name, "is a key of every event", hint);
        }
        cell::name("field", name, INSTRUMENT_MAX).map_err(|fault| fault.at("--field"))?;
    }
    Ok(fields)
}
