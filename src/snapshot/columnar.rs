//! Events from Parquet: the flat columns that the flags name, a few thousand rows at a time.
//!
//! A time is taken by the column's own type. What the type leaves open the flags must say: the unit
//! of a plain integer (`--time-format epoch-…`), the zone of a time that is not adjusted to UTC.

use parquet::basic::{ConvertedType, LogicalType, TimeUnit};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, FixedLenByteArray, Int96};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, RowGroupReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::cell::{self, Fault, integer, natural, shown};
use super::event::{Event, Kept, Sink, Stop};
use super::settings::{Columns, EVENT_ID_MAX, Instrument, Settings};
use super::source::{Progress, Source};
use super::table::empty;
use super::time::{Times, Unit};
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
    let reader = SerializedFileReader::new(source.file()?).map_err(damaged)?;
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
        let group = reader.get_row_group(group).map_err(damaged)?;
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

/// A column and the rows of it that are in memory.
#[derive(Debug)]
struct Wanted {
    at: usize,
    name: String,
    kind: Kind,
    optional: bool,
    cells: Cells,
    levels: Vec<i16>,
    /// The next value: nulls take none.
    next: usize,
}

/// What the values of a column mean.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Bool,
    Signed,
    Unsigned,
    Float,
    Text,
    Decimal { scale: i32 },
    Date,
    Stamp { unit: Unit, utc: bool },
    Other,
}

/// Values as they are stored.
#[derive(Debug)]
enum Cells {
    Bool(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Int96(Vec<Int96>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
    Fixed(Vec<FixedLenByteArray>),
}

/// One cell.
#[derive(Debug)]
enum Cell<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(&'a str),
    /// Written out in decimal.
    Decimal(String),
    Date(i64),
    Stamp {
        value: i64,
        unit: Unit,
        utc: bool,
    },
}

impl Kind {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "types to come are refused like those unknown"
    )]
    fn of(column: &ColumnDescriptor) -> Self {
        let decimal = || Self::Decimal { scale: column.type_scale() };
        let unit = |unit| match unit {
            TimeUnit::MILLIS => Unit::Millis,
            TimeUnit::MICROS => Unit::Micros,
            TimeUnit::NANOS => Unit::Nanos,
        };
        if let Some(logical) = column.logical_type_ref() {
            return match logical {
                LogicalType::String | LogicalType::Enum | LogicalType::Json => Self::Text,
                LogicalType::Decimal(_) => decimal(),
                LogicalType::Date => Self::Date,
                LogicalType::Timestamp(stamp) => {
                    Self::Stamp { unit: unit(stamp.unit), utc: stamp.is_adjusted_to_u_t_c }
                }
                LogicalType::Integer(int) if int.is_signed => Self::Signed,
                LogicalType::Integer(_) => Self::Unsigned,
                _ => Self::Other,
            };
        }
        match column.converted_type() {
            ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON => Self::Text,
            ConvertedType::DECIMAL => decimal(),
            ConvertedType::DATE => Self::Date,
            ConvertedType::TIMESTAMP_MILLIS => Self::Stamp { unit: Unit::Millis, utc: true },
            ConvertedType::TIMESTAMP_MICROS => Self::Stamp { unit: Unit::Micros, utc: true },
            ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64 => Self::Unsigned,
            ConvertedType::INT_8
            | ConvertedType::INT_16
            | ConvertedType::INT_32
            | ConvertedType::INT_64 => Self::Signed,
            ConvertedType::NONE => Self::plain(column),
            _ => Self::Other,
        }
    }

    fn plain(column: &ColumnDescriptor) -> Self {
        use parquet::basic::Type;
        match column.physical_type() {
            Type::BOOLEAN => Self::Bool,
            Type::INT32 | Type::INT64 => Self::Signed,
            // The old timestamp of nanoseconds in a day; it does not say its zone.
            Type::INT96 => Self::Stamp { unit: Unit::Nanos, utc: false },
            Type::FLOAT | Type::DOUBLE => Self::Float,
            Type::BYTE_ARRAY => Self::Text,
            Type::FIXED_LEN_BYTE_ARRAY => Self::Other,
        }
    }
}

impl Wanted {
    fn new(source: &Source, at: usize, column: &ColumnDescriptor) -> Result<Self, Invalid> {
        use parquet::basic::Type;
        let name = column.path().string();
        if column.max_rep_level() > 0 || column.max_def_level() > 1 {
            let message = format!("the column {} is nested", shown(&name));
            let hint = "only flat columns are read";
            return Err(Invalid::new("PARQUET_TYPE", source.place.as_str(), message, hint));
        }
        let cells = match column.physical_type() {
            Type::BOOLEAN => Cells::Bool(Vec::new()),
            Type::INT32 => Cells::Int32(Vec::new()),
            Type::INT64 => Cells::Int64(Vec::new()),
            Type::INT96 => Cells::Int96(Vec::new()),
            Type::FLOAT => Cells::Float(Vec::new()),
            Type::DOUBLE => Cells::Double(Vec::new()),
            Type::BYTE_ARRAY => Cells::Bytes(Vec::new()),
            Type::FIXED_LEN_BYTE_ARRAY => Cells::Fixed(Vec::new()),
        };
        let kind = Kind::of(column);
        let optional = column.max_def_level() == 1;
        Ok(Self { at, name, kind, optional, cells, levels: Vec::new(), next: 0 })
    }

    /// Reads the next rows; an error if the column does not have so many.
    fn fill(&mut self, reader: &mut ColumnReader, rows: usize) -> Result<(), ParquetError> {
        self.levels.clear();
        self.next = 0;
        macro_rules! read {
            ($reader:ident, $values:ident) => {{
                $values.clear();
                let mut read = 0;
                while read < rows {
                    let levels = self.optional.then_some(&mut self.levels);
                    let (more, _, _) = $reader.read_records(rows - read, levels, None, $values)?;
                    if more == 0 {
                        break;
                    }
                    read += more;
                }
                (read, $values.len())
            }};
        }
        let (read, values) = match (reader, &mut self.cells) {
            (ColumnReader::BoolColumnReader(reader), Cells::Bool(values)) => read!(reader, values),
            (ColumnReader::Int32ColumnReader(reader), Cells::Int32(values)) => {
                read!(reader, values)
            }
            (ColumnReader::Int64ColumnReader(reader), Cells::Int64(values)) => {
                read!(reader, values)
            }
            (ColumnReader::Int96ColumnReader(reader), Cells::Int96(values)) => {
                read!(reader, values)
            }
            (ColumnReader::FloatColumnReader(reader), Cells::Float(values)) => {
                read!(reader, values)
            }
            (ColumnReader::DoubleColumnReader(reader), Cells::Double(values)) => {
                read!(reader, values)
            }
            (ColumnReader::ByteArrayColumnReader(reader), Cells::Bytes(values)) => {
                read!(reader, values)
            }
            (ColumnReader::FixedLenByteArrayColumnReader(reader), Cells::Fixed(values)) => {
                read!(reader, values)
            }
            (_, _) => (0, 0),
        };
        let present = self.levels.iter().filter(|level| **level == 1).count();
        let expected = if self.optional { present } else { rows };
        if read != rows || values != expected || (self.optional && self.levels.len() != rows) {
            let short = format!("column {} ends before its row group", self.name);
            return Err(ParquetError::General(short));
        }
        Ok(())
    }

    /// The cell of the next row.
    fn cell(&mut self, row: usize) -> Result<Cell<'_>, Fault> {
        if self.optional && self.levels[row] == 0 {
            return Ok(Cell::Null);
        }
        let at = self.next;
        self.next += 1;
        let kind = self.kind;
        let signed = |value: i64| match kind {
            Kind::Decimal { scale } => Cell::Decimal(decimal(i128::from(value), scale)),
            Kind::Date => Cell::Date(value),
            Kind::Stamp { unit, utc } => Cell::Stamp { value, unit, utc },
            Kind::Bool | Kind::Signed | Kind::Unsigned | Kind::Float | Kind::Text | Kind::Other => {
                Cell::Int(value)
            }
        };
        Ok(match (&self.cells, kind) {
            (_, Kind::Other) => {
                let message = format!("the type of the column {} is not read", shown(&self.name));
                return Err(Fault::new("PARQUET_TYPE", message, "write it as a number or a text"));
            }
            (Cells::Bool(values), _) => Cell::Bool(values[at]),
            (Cells::Int32(values), Kind::Unsigned) => {
                Cell::Int(i64::from(u32::from_ne_bytes(values[at].to_ne_bytes())))
            }
            (Cells::Int32(values), _) => signed(i64::from(values[at])),
            (Cells::Int64(values), Kind::Unsigned) => {
                Cell::Uint(u64::from_ne_bytes(values[at].to_ne_bytes()))
            }
            (Cells::Int64(values), _) => signed(values[at]),
            (Cells::Int96(values), _) => signed(julian(&values[at])?),
            (Cells::Float(values), _) => Cell::Float(f64::from(values[at])),
            (Cells::Double(values), _) => Cell::Float(values[at]),
            (Cells::Bytes(values), _) => bytes(&self.name, values[at].data(), kind)?,
            (Cells::Fixed(values), _) => bytes(&self.name, values[at].data(), kind)?,
        })
    }
}

/// Bytes as text, or as a decimal: big endian, two's complement.
fn bytes<'a>(name: &str, bytes: &'a [u8], kind: Kind) -> Result<Cell<'a>, Fault> {
    if let Kind::Decimal { scale } = kind {
        let sign = if bytes.first().is_some_and(|first| first & 0x80 != 0) { 0xff } else { 0 };
        let mut wide = [sign; 16];
        if let Some(from) = wide.len().checked_sub(bytes.len()) {
            wide[from..].copy_from_slice(bytes);
            return Ok(Cell::Decimal(decimal(i128::from_be_bytes(wide), scale)));
        }
        let message = format!("a decimal in the column {} has over 38 digits", shown(name));
        return Err(Fault::new("NUMBER_RANGE", message, "write it as a float"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Cell::Text(text)),
        Err(_) => {
            let message = format!("a text in the column {} is not UTF-8", shown(name));
            Err(Fault::new("TEXT_ENCODING", message, "write the file with UTF-8 texts"))
        }
    }
}

/// Nanoseconds since 1970 of a Julian day and the nanoseconds in it.
fn julian(value: &Int96) -> Result<i64, Fault> {
    const DAY_OF_1970: i64 = 2_440_588;
    let [low, high, day] = [0, 1, 2].map(|at| value.data()[at]);
    let nanos = i128::from(u64::from(high) << 32 | u64::from(low));
    let time = i128::from(i64::from(day) - DAY_OF_1970) * 86_400_000_000_000 + nanos;
    i64::try_from(time).map_err(|_| stamp_range())
}

fn stamp_range() -> Fault {
    let message = "the time is outside of the years 1677 to 2262";
    Fault::new("TIME_RANGE", message, "is it the right column?")
}

/// A decimal number written out.
fn decimal(unscaled: i128, scale: i32) -> String {
    let digits = unscaled.unsigned_abs().to_string();
    let sign = if unscaled < 0 { "-" } else { "" };
    let places = usize::try_from(scale).unwrap_or(0);
    if places == 0 {
        return format!("{sign}{digits}");
    }
    let digits = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    format!("{sign}{whole}.{fraction}")
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
        let failed = |e: ParquetError| Stop::from(damaged(self.source, &e));
        let mut readers = self
            .wanted
            .iter()
            .map(|column| group.get_column_reader(column.at).map_err(failed))
            .collect::<Result<Vec<_>, _>>()?;
        let mut left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        while left > 0 {
            let rows = left.min(ROWS);
            for (column, reader) in self.wanted.iter_mut().zip(&mut readers) {
                column.fill(reader, rows).map_err(|e| damaged(self.source, &e))?;
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
