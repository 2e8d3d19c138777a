//! One column of a Parquet file: its values in memory, and what its type says they are.

use parquet::basic::{ConvertedType, LogicalType, TimeUnit};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, FixedLenByteArray, Int96};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescriptor;

use super::cell::{Fault, shown};
use super::source::Source;
use super::time::Unit;
use crate::invalid::Invalid;

/// A column and the rows of it that are in memory.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) at: usize,
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
pub(super) enum Cell<'a> {
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
    pub(super) fn new(
        source: &Source,
        at: usize,
        column: &ColumnDescriptor,
    ) -> Result<Self, Invalid> {
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
    pub(super) fn fill(
        &mut self,
        reader: &mut ColumnReader,
        rows: usize,
    ) -> Result<(), ParquetError> {
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
    pub(super) fn cell(&mut self, row: usize) -> Result<Cell<'_>, Fault> {
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

pub(super) fn stamp_range() -> Fault {
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
