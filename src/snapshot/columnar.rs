//! Events from Parquet: the flat columns that the flags name, a few thousand rows at a time.
//!
//! A time is taken by the column's own type. What the type leaves open the flags must say: the unit
//! of a plain integer (`--time-format epoch-…`), the zone of a time that is not adjusted to UTC.

use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, RowGroupReader, SerializedFileReader};

use super::cell::{self, Fault, integer, natural};
use super::column::{Cell, Wanted, stamp_range};
use super::event::{Event, Kept, Sink, Stop};
use super::settings::{Columns, EVENT_ID_MAX, Instrument, Settings};
use super::source::{Progress, Source};
use super::table::empty;
use super::time::Times;
use crate::canonical::{write_f64, write_text};
use crate::invalid::Invalid;

/// Rows read at once.
const ROWS: usize = 4096;

/// Reads the rows of a Parquet file.
pub(super) fn read(
    source: &Source,
    settings: &Settings,
    progress: Progress<'_>,
    sink: Sink<'_>,
) -> Result<(), Stop> {
    let damaged = |e: ParquetError| Stop::from(damaged(source, &e));
    let file = source.file()?;
    let reader = guarded(|| SerializedFileReader::new(file)).map_err(damaged)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let names: Vec<String> = schema.columns().iter().map(|column| column.path().string()).collect();
    let columns = settings.columns(&names, &source.place)?;
    let rows = reader.metadata().file_metadata().num_rows();
    if rows <= 0 {
        return Err(empty(source).into());
    }
    let wanted: Vec<Wanted> = wanted(&columns)
        .into_iter()
        .map(|at| Wanted::new(source, at, &schema.column(at)))
        .collect::<Result<_, _>>()?;
    let mut table = Table { source, settings, columns, wanted, row: 0, kept: Kept::default() };
    for group in 0..reader.num_row_groups() {
        let group = guarded(|| reader.get_row_group(group)).map_err(damaged)?;
        table.group(
            group.as_ref(),
            &mut |row| progress(share(source.size, row, rows), source.size),
            &mut *sink,
        )?;
    }
    if i64::try_from(table.row).ok() != Some(rows) {
        let message = format!("the file promises {rows} rows and has {}", table.row);
        let hint = "write the file again";
        return Err(Invalid::new("PARQUET_DAMAGED", source.place.as_str(), message, hint).into());
    }
    Ok(())
}

/// The part of the file's bytes that so many of its rows stand for.
fn share(size: u64, row: u64, rows: i64) -> u64 {
    let part = u128::from(size) * u128::from(row) / u128::try_from(rows).unwrap_or(1).max(1);
    u64::try_from(part).unwrap_or(size)
}

fn damaged(source: &Source, error: &ParquetError) -> Invalid {
    let message = format!("the file cannot be read as Parquet: {error}");
    Invalid::new("PARQUET_DAMAGED", source.place.as_str(), message, "is it whole?")
}

/// Calls the Parquet crate. Where it asserts on what a damaged file says, that is the file's fault as
/// well: seen with flipped bits in sizes and offsets.
fn guarded<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(ParquetError::General("its parts contradict each other".to_owned()))
    })
}

/// The columns that are read, each once.
fn wanted(columns: &Columns) -> Vec<usize> {
    let mut wanted = vec![columns.time, columns.close];
    wanted.extend(columns.instrument);
    wanted.extend(columns.event_id);
    wanted.extend(&columns.fields);
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

/// The rows on their way to the sink.
struct Table<'a> {
    source: &'a Source,
    settings: &'a Settings,
    columns: Columns,
    wanted: Vec<Wanted>,
    /// Rows read so far; so the number of a row, from 1, while it is read.
    row: u64,
    kept: Kept,
}

impl Table<'_> {
    fn group(
        &mut self,
        group: &dyn RowGroupReader,
        progress: &mut dyn FnMut(u64),
        sink: Sink<'_>,
    ) -> Result<(), Stop> {
        for column in &self.wanted {
            let packed = group.metadata().column(column.at).compression();
            if matches!(packed, Compression::BROTLI(_) | Compression::LZO) {
                let packed = packed.to_string().to_lowercase();
                let packed = packed.split('(').next().unwrap_or_default();
                let message = format!("a column is compressed with {packed}");
                let hint = "write the file with snappy, zstd, gzip or lz4";
                return Err(Invalid::new("PARQUET_TYPE", &self.source.place, message, hint).into());
            }
        }
        let failed = |e: ParquetError| Stop::from(damaged(self.source, &e));
        let mut readers = self
            .wanted
            .iter()
            .map(|column| guarded(|| group.get_column_reader(column.at)).map_err(failed))
            .collect::<Result<Vec<_>, _>>()?;
        let mut left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        while left > 0 {
            let rows = left.min(ROWS);
            for (column, reader) in self.wanted.iter_mut().zip(&mut readers) {
                guarded(|| column.fill(reader, rows)).map_err(|e| damaged(self.source, &e))?;
            }
            for row in 0..rows {
                self.row += 1;
                self.event(row, &mut *sink)?;
            }
            left -= rows;
            progress(self.row);
        }
        Ok(())
    }

    fn event(&mut self, row: usize, sink: Sink<'_>) -> Result<(), Stop> {
        let line = self.row;
        let at = |fault: Fault| Stop::from(fault.at(self.source.at(line)));
        let mut cells = self.wanted.iter_mut().map(|column| (column.at, column.cell(row)));
        let cells: Vec<(usize, Cell<'_>)> = cells
            .try_fold(Vec::new(), |mut cells, (column, cell)| {
                cells.push((column, cell?));
                Ok(cells)
            })
            .map_err(at)?;
        let cell = |wanted: usize| {
            let found = cells.iter().find(|(column, _)| *column == wanted);
            found.map_or(&Cell::Null, |(_, cell)| cell)
        };
        let time = time(&self.settings.times, cell(self.columns.time)).map_err(at)?;
        let close = close(cell(self.columns.close)).map_err(at)?;
        let event_id = self.columns.event_id.map(|id| word("event id", cell(id)));
        let event_id = event_id.transpose().map_err(at)?;
        if let Some(id) = &event_id {
            cell::name("event id", id, EVENT_ID_MAX).map_err(at)?;
        }
        let instrument = match (&self.settings.instrument, self.columns.instrument) {
            (_, Some(column)) => word("instrument", cell(column)).map_err(at)?,
            (Instrument::Fixed(name) | Instrument::Column(name), None) => name.as_str().into(),
        };
        self.kept.clear();
        for field in &self.columns.fields {
            keep(cell(*field), &mut self.kept.bytes).map_err(at)?;
            self.kept.end();
        }
        let event_id = event_id.as_deref();
        sink(&Event { line, time, close, instrument: &instrument, event_id, fields: &self.kept })
    }
}

fn refuse(code: &'static str, message: &str, hint: &str) -> Fault {
    Fault::new(code, message, hint)
}

fn time(times: &Times, cell: &Cell<'_>) -> Result<i64, Fault> {
    if !times.rfc3339_is_default() && matches!(cell, Cell::Date(_) | Cell::Stamp { .. }) {
        let message = "the column is a time already, and --time-format says another";
        return Err(refuse("FLAG_CONFLICT", message, "leave out --time-format"));
    }
    match cell {
        Cell::Stamp { value, unit, utc } => {
            let nanos = i128::from(*value) * i128::from(unit.nanos());
            if *utc {
                return i64::try_from(nanos).map_err(|_| stamp_range());
            }
            let second = i128::from(1_000_000_000);
            let seconds = i64::try_from(nanos.div_euclid(second)).map_err(|_| stamp_range())?;
            let part = i64::try_from(nanos.rem_euclid(second)).map_err(|_| stamp_range())?;
            times.local(seconds, part, &format!("{nanos} ns, not adjusted to UTC"))
        }
        Cell::Date(days) => times.local(days * 86_400, 0, &format!("day {days}, a date")),
        Cell::Int(number) => times.read(&number.to_string()),
        Cell::Uint(number) => times.read(&number.to_string()),
        Cell::Decimal(text) => times.read(text),
        Cell::Text(text) => times.read(text),
        Cell::Float(number) if number.is_finite() => {
            let mut digits = Vec::new();
            write_f64(*number, &mut digits);
            times.read(&String::from_utf8_lossy(&digits))
        }
        Cell::Null => Err(refuse("TIME_UNREADABLE", "the time is null", "remove the row")),
        Cell::Bool(_) | Cell::Float(_) => {
            Err(refuse("TIME_UNREADABLE", "the time is no time", "is it the right column?"))
        }
    }
}

fn close(cell: &Cell<'_>) -> Result<Option<f64>, Fault> {
    match cell {
        Cell::Null => Ok(None),
        Cell::Float(number) => finite(*number).map(Some),
        Cell::Int(number) => cell::close(&number.to_string()),
        Cell::Uint(number) => cell::close(&number.to_string()),
        Cell::Decimal(text) => cell::close(text),
        Cell::Text(text) => cell::close(text),
        Cell::Bool(_) | Cell::Date(_) | Cell::Stamp { .. } => {
            Err(refuse("NUMBER_UNREADABLE", "the close is no number", "is it the right column?"))
        }
    }
}

fn finite(number: f64) -> Result<f64, Fault> {
    if number.is_finite() {
        return Ok(number);
    }
    let message = format!("{number} is not a finite number");
    Err(Fault::new("NUMBER_NOT_FINITE", message, "write null: that is a GAP"))
}

fn word<'a>(what: &str, cell: &'a Cell<'_>) -> Result<std::borrow::Cow<'a, str>, Fault> {
    match cell {
        Cell::Text(text) => Ok((*text).into()),
        Cell::Int(number) => Ok(number.to_string().into()),
        Cell::Uint(number) => Ok(number.to_string().into()),
        Cell::Null
        | Cell::Bool(_)
        | Cell::Float(_)
        | Cell::Decimal(_)
        | Cell::Date(_)
        | Cell::Stamp { .. } => {
            let message = format!("the {what} is no text");
            Err(Fault::new("PARQUET_TYPE", message, format!("the {what} must be a text")))
        }
    }
}

fn keep(cell: &Cell<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    match cell {
        Cell::Null => out.extend_from_slice(b"null"),
        Cell::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Cell::Int(number) => integer(*number, out),
        Cell::Uint(number) => natural(*number, out),
        Cell::Float(number) => write_f64(finite(*number)?, out),
        Cell::Decimal(text) => cell::keep(text, out)?,
        Cell::Text(text) => write_text(text, out),
        Cell::Date(_) | Cell::Stamp { .. } => {
            let message = "a time cannot be kept as a field";
            return Err(refuse("PARQUET_TYPE", message, "write it as a number or a text"));
        }
    }
    Ok(())
}
