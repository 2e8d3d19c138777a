//! A result as a file for other programs: Parquet, CSV or JSON lines.
//!
//! Every format has the same rows: instrument, node, the number of the row in the result, the time of
//! the event in nanoseconds since 1970 UTC, and the value, which may be null. Floats read back to the
//! same bits. Writers only: where the bytes go, and that a file appears whole or not at all, is the
//! caller's business.

mod lines;
mod parquet;

use std::io::{self, Write};

/// The values of one node over one instrument. `values[i]` belongs to `event_time[i]`; NaN is null.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    pub instrument: &'a str,
    pub node: &'a str,
    /// Nanoseconds since 1970 UTC.
    pub event_time: &'a [i64],
    pub values: &'a [f64],
}

/// What to write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// One file of row groups, ZSTD; `event_time` is a timestamp (nanoseconds, UTC).
    Parquet,
    /// RFC 4180 with a header; an empty cell is null.
    Csv,
    /// One FINAZ_JSON_V1 document a line.
    JsonLines,
}

/// Writes all rows, series by series, and returns how many there were. Holds no more than one row
/// group of them in memory.
///
/// # Errors
/// What `out` says; [`io::ErrorKind::InvalidData`] for an infinite value, which no result has.
pub fn write<'a>(
    format: Format,
    series: impl IntoIterator<Item = Series<'a>>,
    out: impl Write + Send,
) -> io::Result<u64> {
    let mut rows = 0;
    let series = series.into_iter().map(|series| (take_numbers(&mut rows, &series), series));
    match format {
        Format::Parquet => parquet::write(series, out),
        Format::Csv => lines::csv(series, out),
        Format::JsonLines => lines::json(series, out),
    }?;
    Ok(rows)
}

/// The number of the first row of a series; `next` is moved behind its last.
fn take_numbers(next: &mut u64, series: &Series<'_>) -> u64 {
    assert_eq!(series.event_time.len(), series.values.len(), "a value has a time");
    let first = *next;
    *next += series.values.len() as u64;
    first
}

/// A value that can be written: `None` is null.
fn finite(x: f64) -> io::Result<Option<f64>> {
    if x.is_infinite() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a result holds an infinite value"));
    }
    Ok((!x.is_nan()).then_some(x))
}

#[cfg(test)]
mod tests;
