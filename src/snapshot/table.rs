//! Events from CSV.

use super::Error;
use super::cell;
use super::csv::Records;
use super::event::{Event, Kept, Sink, Stop};
use super::settings::{Columns, EVENT_ID_MAX, Instrument, Settings};
use super::source::{Progress, Source};
use crate::invalid::Invalid;

/// Reads the rows of a CSV file.
pub(super) fn read(
    source: &Source,
    settings: &Settings,
    progress: Progress<'_>,
    sink: Sink<'_>,
) -> Result<(), Stop> {
    let mut records = Records::new(source, source.lines(progress)?);
    let mut kept = Kept::default();
    if !records.next()? {
        return Err(empty(source).into());
    }
    let names: Vec<String> = if settings.header {
        (0..records.len()).map(|at| records.field(at).to_owned()).collect()
    } else {
        (1..=records.len()).map(|number| number.to_string()).collect()
    };
    let columns = settings.columns(&names, &source.at(records.line))?;
    if settings.header && !records.next()? {
        return Err(empty(source).into());
    }
    loop {
        row(source, settings, &columns, &records, &mut kept)
            .and_then(|event| sink(&event))
            .map_err(|stop| doubt_header(settings, &records, stop))?;
        if !records.next()? {
            return Ok(());
        }
    }
}

fn row<'a>(
    source: &Source,
    settings: &'a Settings,
    columns: &Columns,
    records: &'a Records<'_>,
    kept: &'a mut Kept,
) -> Result<Event<'a>, Stop> {
    let at = |fault: cell::Fault| Stop::from(fault.at(source.at(records.line)));
    kept.clear();
    for field in &columns.fields {
        cell::keep(records.field(*field), &mut kept.bytes).map_err(at)?;
        kept.end();
    }
    let event_id = columns.event_id.map(|id| records.field(id));
    if let Some(id) = event_id {
        cell::name("event id", id, EVENT_ID_MAX).map_err(at)?;
    }
    let instrument = match (&settings.instrument, columns.instrument) {
        (_, Some(column)) => records.field(column),
        (Instrument::Fixed(name) | Instrument::Column(name), None) => name,
    };
    Ok(Event {
        line: records.line,
        time: settings.times.read(records.field(columns.time)).map_err(at)?,
        close: cell::close(records.field(columns.close)).map_err(at)?,
        instrument,
        event_id,
        fields: kept,
    })
}

/// Says of a first line that cannot be read that it may be a header.
fn doubt_header(settings: &Settings, records: &Records<'_>, stop: Stop) -> Stop {
    match stop {
        Stop::Failed(Error::Invalid(mut invalid)) if !settings.header && records.line == 1 => {
            invalid.hint.push_str("; if line 1 is a header, leave out --no-header");
            Invalid::into(invalid)
        }
        Stop::Failed(_) | Stop::Unordered | Stop::Found(_) => stop,
    }
}

/// The refusal of a source without one event.
pub(super) fn empty(source: &Source) -> Invalid {
    let hint = "an import needs one event at least";
    Invalid::new("FILE_EMPTY", source.place.as_str(), "there is no event in the file", hint)
}
