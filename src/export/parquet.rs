//! Parquet, by the column writers of the `parquet` crate.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{
    Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel,
};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};

use super::{Series, finite};

/// Rows of a row group: some 15 MB here while it is written, and enough for a reader to skip by.
const GROUP_ROWS_MAX: usize = 131_072;

/// `series` come with the number of their first row.
pub(super) fn write<'a>(
    series: impl Iterator<Item = (u64, Series<'a>)>,
    out: impl Write + Send,
) -> io::Result<()> {
    let schema = schema().map_err(into_io)?;
    let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties()))
        .map_err(into_io)?;
    let mut group = Group::default();
    for (mut seq, series) in series {
        let (mut times, mut values) = (series.event_time, series.values);
        while !values.is_empty() {
            let rows = values.len().min(GROUP_ROWS_MAX - group.seq.len());
            let (now, later) = values.split_at(rows);
            let (times_now, times_later) = times.split_at(rows);
            seq = group.push(seq, &Series { event_time: times_now, values: now, ..series })?;
            (values, times) = (later, times_later);
            if group.seq.len() == GROUP_ROWS_MAX {
                group.write(&mut file).map_err(into_io)?;
            }
        }
    }
    if !group.seq.is_empty() {
        group.write(&mut file).map_err(into_io)?;
    }
    file.finish().map(drop).map_err(into_io)
}

fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_column_dictionary_enabled(ColumnPath::from("value"), false);
    for counted in ["seq", "event_time"] {
        let column = ColumnPath::from(counted);
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

fn schema() -> Result<Type, ParquetError> {
    let column = |name, physical, repetition, logical| {
        Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
            .map(Arc::new)
    };
    let text = Some(LogicalType::String);
    let time = Some(LogicalType::timestamp(true, TimeUnit::NANOS));
    let fields = vec![
        column("instrument", Physical::BYTE_ARRAY, Repetition::REQUIRED, text.clone())?,
        column("node", Physical::BYTE_ARRAY, Repetition::REQUIRED, text)?,
        column("seq", Physical::INT64, Repetition::REQUIRED, None)?,
        column("event_time", Physical::INT64, Repetition::REQUIRED, time)?,
        column("value", Physical::DOUBLE, Repetition::OPTIONAL, None)?,
    ];
    Type::group_type_builder("result").with_fields(fields).build()
}

/// The rows of one row group, column by column.
#[derive(Default)]
struct Group {
    instrument: Vec<ByteArray>,
    node: Vec<ByteArray>,
    seq: Vec<i64>,
    event_time: Vec<i64>,
    /// Definition levels: 1 where there is a value, 0 where it is null.
    defined: Vec<i16>,
    /// Without the nulls.
    values: Vec<f64>,
}

impl Group {
    /// Returns the number of the row after these.
    fn push(&mut self, first: u64, series: &Series<'_>) -> io::Result<u64> {
        let rows = series.values.len();
        let next = first + rows as u64;
        // Clones of a ByteArray share their bytes.
        self.instrument.resize(self.instrument.len() + rows, series.instrument.into());
        self.node.resize(self.node.len() + rows, series.node.into());
        self.seq.extend((first..next).map(u64::cast_signed));
        self.event_time.extend_from_slice(series.event_time);
        for &x in series.values {
            let x = finite(x)?;
            self.defined.push(i16::from(x.is_some()));
            self.values.extend(x);
        }
        Ok(next)
    }

    /// Writes the rows and forgets them.
    fn write<W: Write + Send>(
        &mut self,
        file: &mut SerializedFileWriter<W>,
    ) -> Result<(), ParquetError> {
        let mut group = file.next_row_group()?;
        column::<ByteArrayType, W>(&mut group, &self.instrument, None)?;
        column::<ByteArrayType, W>(&mut group, &self.node, None)?;
        column::<Int64Type, W>(&mut group, &self.seq, None)?;
        column::<Int64Type, W>(&mut group, &self.event_time, None)?;
        column::<DoubleType, W>(&mut group, &self.values, Some(&self.defined))?;
        group.close()?;
        self.instrument.clear();
        self.node.clear();
        self.seq.clear();
        self.event_time.clear();
        self.defined.clear();
        self.values.clear();
        Ok(())
    }
}

fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    defined: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("as many columns as the schema has");
    column.typed::<T>().write_batch(values, defined, None)?;
    column.close()
}

/// Gives back the error of the writer below, so that a full disk can be told from a closed pipe.
fn into_io(error: ParquetError) -> io::Error {
    let ParquetError::External(inner) = error else { return io::Error::other(error) };
    match inner.downcast::<io::Error>() {
        Ok(inner) => *inner,
        Err(inner) => io::Error::other(inner),
    }
}
