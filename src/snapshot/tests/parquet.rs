//! Parquet: every type that a column may have, and files that are not whole.

use std::sync::Arc;

use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray,
    FixedLenByteArrayType, FloatType, Int32Type, Int64Type, Int96, Int96Type,
};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::super::ImportOptions;
use super::{Bench, T, plain, some};
use crate::canonical::Value;

const SECOND: i64 = 1_000_000_000;

/// Two rows of values and a null in between.
fn column<D: DataType>(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: &[D::T]) {
    let mut column = group.next_column().unwrap().unwrap();
    let levels: &[i16] = if values.len() == 3 { &[1, 1, 1] } else { &[1, 0, 1] };
    column.typed::<D>().write_batch(values, Some(levels), None).unwrap();
    column.close().unwrap();
}

fn file(
    schema: &str,
    groups: usize,
    write: impl Fn(&mut SerializedRowGroupWriter<'_, Vec<u8>>, i64),
) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    for n in 0..groups {
        let mut group = writer.next_row_group().unwrap();
        write(&mut group, i64::try_from(n).unwrap());
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

/// Three rows a group, one second apart, the second without a close.
fn prices(groups: usize) -> Vec<u8> {
    let schema = "message m { optional int64 time (TIMESTAMP(MICROS,true)); optional double close; optional binary name (STRING); }";
    file(schema, groups, |group, n| {
        let at = |row: i64| T / 1000 + (n * 3 + row) * 1_000_000;
        column::<Int64Type>(group, &[at(0), at(1), at(2)]);
        column::<DoubleType>(group, &[1.5, 2.5]);
        column::<ByteArrayType>(group, &["a", "a", "a"].map(ByteArray::from));
    })
}

/// A column of every type; their first row is the same instant in all that are times.
fn types() -> Vec<u8> {
    let schema = "message m {
        optional int64 millis (TIMESTAMP(MILLIS,true)); optional int64 nanos (TIMESTAMP(NANOS,false));
        optional int32 day (DATE); optional int64 seconds; optional int96 old; optional binary text (STRING);
        optional float f; optional double d; optional int32 i; optional int64 u (INTEGER(64,false));
        optional int32 u32 (INTEGER(32,false)); optional int64 dec (DECIMAL(18,3));
        optional fixed_len_byte_array(5) fixed (DECIMAL(10,2)); optional boolean b; optional binary number (STRING); }";
    let day = i32::try_from(T / SECOND / 86_400).unwrap();
    let mut old = Int96::new();
    old.set_data(0, 0, u32::try_from(day).unwrap() + 2_440_588);
    file(schema, 1, |group, _| {
        column::<Int64Type>(group, &[T / 1_000_000; 3]);
        column::<Int64Type>(group, &[T; 3]);
        column::<Int32Type>(group, &[day; 3]);
        column::<Int64Type>(group, &[T / SECOND; 3]);
        column::<Int96Type>(group, &[old; 3]);
        column::<ByteArrayType>(group, &["2024-01-01 00:00:00"; 3].map(ByteArray::from));
        column::<FloatType>(group, &[1.1, 2.0]);
        column::<DoubleType>(group, &[1.1, 2.0]);
        column::<Int32Type>(group, &[-7, 8]);
        column::<Int64Type>(group, &[-1, 8]);
        column::<Int32Type>(group, &[-1, 8]);
        column::<Int64Type>(group, &[-1005, 1]);
        let fixed = [[0xff, 0xff, 0xff, 0xff, 0x9c].to_vec(), vec![0, 0, 0, 0, 5]];
        column::<FixedLenByteArrayType>(
            group,
            &fixed.map(|bytes| FixedLenByteArray::from(ByteArray::from(bytes))),
        );
        column::<BoolType>(group, &[true, false]);
        column::<ByteArrayType>(group, &["10", "x"].map(ByteArray::from));
    })
}

/// Flags for it, less those of the time.
fn typed() -> ImportOptions {
    let fields =
        ["i", "u", "u32", "dec", "fixed", "b", "number", "f", "d"].map(str::to_owned).to_vec();
    ImportOptions { close_column: some("d"), fields, ..plain() }
}

#[test]
fn a_column_is_read_by_its_type() {
    let bench = Bench::new();
    let source = bench.file("types.parquet", &types());
    let mut snapshots = Vec::new();
    for (time, format, tz) in [
        ("millis", None, None),
        ("nanos", None, some("UTC")),
        ("day", None, some("+00:00")),
        ("seconds", some("epoch-s"), None),
        ("old", None, some("UTC")),
        ("text", None, some("UTC")),
        ("text", some("%F %T"), some("Etc/UTC")),
    ] {
        let options = ImportOptions { time_column: some(time), time_format: format, tz, ..typed() };
        snapshots.push(bench.import(&source, &options).unwrap().snapshot);
    }
    snapshots.dedup();
    assert_eq!(snapshots.len(), 1, "the same times, written in seven ways");
    let events = bench.events(&snapshots[0]);
    assert_eq!(events[0]["event_time"], Value::Int(T));
    let row = |at: usize| {
        ["close", "i", "u", "u32", "dec", "fixed", "b", "number", "f"]
            .map(|key| events[at][key].clone())
    };
    assert_eq!(
        row(0),
        [
            Value::Float(1.1),
            Value::Int(-7),
            Value::Uint(u64::MAX),
            Value::Int(4_294_967_295),
            Value::Float(-1.005),
            Value::Float(-1.0),
            Value::Bool(true),
            Value::Text("10".to_owned()),
            Value::Float(f64::from(1.1_f32)),
        ]
    );
    assert!(row(1).iter().all(|value| *value == Value::Null));
    assert_eq!(row(2)[4..6], [Value::Float(0.001), Value::Float(0.05)]);
}

#[test]
fn what_a_type_leaves_open_must_be_said() {
    let bench = Bench::new();
    let source = bench.file("types.parquet", &types());
    for (time, format, tz, code) in [
        ("seconds", None, None, "TIME_UNREADABLE"),
        ("nanos", None, None, "TIME_WITHOUT_ZONE"),
        ("day", None, None, "TIME_WITHOUT_ZONE"),
        ("old", None, None, "TIME_WITHOUT_ZONE"),
        ("millis", some("epoch-ms"), None, "FLAG_CONFLICT"),
        ("b", None, None, "TIME_UNREADABLE"),
        ("i", some("epoch-s"), None, "TIME_UNREADABLE"),
    ] {
        let options = ImportOptions { time_column: some(time), time_format: format, tz, ..typed() };
        let refused = bench.refused(&source, &options);
        assert_eq!(refused.code, code, "{time}: {refused:?}");
    }
    for (column, code) in [
        ("millis", "NUMBER_UNREADABLE"),
        ("b", "NUMBER_UNREADABLE"),
        ("number", "NUMBER_UNREADABLE"),
    ] {
        let options =
            ImportOptions { time_column: some("millis"), close_column: some(column), ..typed() };
        assert_eq!(bench.refused(&source, &options).code, code, "{column}");
    }
}

#[test]
fn rows_of_many_groups_come_in_order_with_their_number_in_errors() {
    let bench = Bench::new();
    let options = ImportOptions { instrument: None, instrument_column: some("name"), ..plain() };
    let done = bench.import(&bench.file("a.parquet", &prices(2000)), &options).unwrap();
    assert_eq!((done.events, done.instruments), (6000, 1));
    let events = bench.events(&done.snapshot);
    assert_eq!(events[5999]["event_time"], Value::Int(T + 5999 * SECOND));
    assert_eq!(events[5998]["close"], Value::Null);
    let schema =
        "message m { optional int64 time (TIMESTAMP(NANOS,true)); optional double close; }";
    let bytes = file(schema, 3, |group, n| {
        column::<Int64Type>(group, &[T, T, T]);
        column::<DoubleType>(group, &[1.0, if n == 2 { f64::NAN } else { 1.0 }]);
    });
    let refused = bench.refused(&bench.file("nan.parquet", &bytes), &plain());
    assert_eq!(refused.code, "NUMBER_NOT_FINITE");
    assert!(refused.place.ends_with("nan.parquet:9"), "{refused:?}");
    let none = file(schema, 0, |_, _| {});
    assert_eq!(bench.refused(&bench.file("none.parquet", &none), &plain()).code, "FILE_EMPTY");
}

#[test]
fn nested_and_unknown_columns_are_refused_by_name() {
    let bench = Bench::new();
    let schema = "message m { optional int64 time (TIMESTAMP(NANOS,true)); optional double close; optional group g { optional double x; } }";
    let bytes = file(schema, 1, |group, _| {
        column::<Int64Type>(group, &[T, T, T]);
        column::<DoubleType>(group, &[1.0, 2.0]);
        let mut nested = group.next_column().unwrap().unwrap();
        nested.typed::<DoubleType>().write_batch(&[1.0], Some(&[2, 1, 0]), None).unwrap();
        nested.close().unwrap();
    });
    let source = bench.file("a.parquet", &bytes);
    let refused = bench.refused(&source, &ImportOptions { close_column: some("g.x"), ..plain() });
    assert_eq!(refused.code, "PARQUET_TYPE");
    let refused = bench.refused(&source, &ImportOptions { close_column: some("colse"), ..plain() });
    assert_eq!(refused.code, "COLUMN_UNKNOWN");
    assert!(refused.hint.contains("`close`") && refused.message.contains("`g.x`"), "{refused:?}");
    bench.import(&source, &plain()).unwrap();
}

#[test]
fn a_file_cut_or_flipped_anywhere_is_refused_or_read_but_never_a_crash() {
    let bench = Bench::new();
    let whole = prices(4);
    let options = ImportOptions { sort: true, replace: true, ..plain() };
    for len in (4..whole.len()).step_by(7) {
        let refused = bench.refused(&bench.file("a.parquet", &whole[..len]), &options);
        assert_eq!(refused.code, "PARQUET_DAMAGED", "{len}");
    }
    for at in (4..whole.len()).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= if at % 2 == 0 { 0x01 } else { 0x80 };
        // Parquet has no checksum that must be there: a flipped price is another price.
        drop(bench.import(&bench.file("a.parquet", &bytes), &options));
    }
}
