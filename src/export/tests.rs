//! What is written is read back.

use std::fs::File;

use ::parquet::basic::{LogicalType, TimeUnit};
use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::record::Field;

use super::*;
use crate::canonical::{self, Value};

type Row = (String, String, u64, i64, Option<u64>);

const HOSTILE: &str = "a,\"b\"\r\n\u{0}\u{feff}é漢 ;'";
const TIMES: [i64; 8] = [i64::MIN, -1, 0, 0, 1, 1_577_836_800_000_000_000, 7, i64::MAX];
const VALUES: [f64; 8] =
    [f64::NAN, -0.0, 5e-324, f64::MAX, f64::MIN, 0.1 + 0.2, 1e16, f64::MIN_POSITIVE];

fn hostile() -> Vec<Series<'static>> {
    vec![
        Series { instrument: HOSTILE, node: "n", event_time: &TIMES, values: &VALUES },
        Series { instrument: "", node: HOSTILE, event_time: &TIMES[..1], values: &VALUES[..1] },
        Series { instrument: "empty", node: "n", event_time: &[], values: &[] },
        Series { instrument: "b", node: "n", event_time: &TIMES, values: &VALUES },
    ]
}

fn expected(series: &[Series<'_>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for one in series {
        for (&time, &x) in one.event_time.iter().zip(one.values) {
            let value = (!x.is_nan()).then(|| x.to_bits());
            let seq = rows.len() as u64;
            rows.push((one.instrument.to_owned(), one.node.to_owned(), seq, time, value));
        }
    }
    rows
}

fn written(format: Format, series: &[Series<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let rows = write(format, series.iter().copied(), &mut out).unwrap();
    assert_eq!(rows, expected(series).len() as u64);
    out
}

fn read_csv(bytes: &[u8]) -> Vec<Row> {
    let mut csv = csv::Reader::from_reader(bytes);
    let names = ["instrument", "node", "seq", "event_time", "value"];
    assert_eq!(csv.headers().unwrap(), names.as_slice());
    csv.deserialize::<(String, String, u64, i64, Option<f64>)>()
        .map(Result::unwrap)
        .map(|(instrument, node, seq, time, x)| (instrument, node, seq, time, x.map(f64::to_bits)))
        .collect()
}

fn read_json(bytes: &[u8]) -> Vec<Row> {
    let text = |value: &Value| {
        let Value::Text(text) = value else { panic!("{value:?}") };
        text.clone()
    };
    let int = |value: &Value| {
        let Value::Int(int) = value else { panic!("{value:?}") };
        *int
    };
    let mut rows = Vec::new();
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\n").expect("each line is ended");
        let value = canonical::parse(line, "line").unwrap();
        assert_eq!(value.to_bytes().unwrap(), line, "a line is canonical");
        let Value::Map(map) = value else { panic!("no object") };
        let x = &map["value"];
        let x = (*x != Value::Null).then(|| {
            let Value::Float(x) = x else { panic!("{x:?}") };
            x.to_bits()
        });
        let seq = int(&map["seq"]).cast_unsigned();
        rows.push((text(&map["instrument"]), text(&map["node"]), seq, int(&map["event_time"]), x));
    }
    rows
}

fn open_parquet(bytes: &[u8]) -> SerializedFileReader<File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    SerializedFileReader::new(file).unwrap()
}

fn read_parquet(bytes: &[u8]) -> Vec<Row> {
    let file = open_parquet(bytes);
    let schema = file.metadata().file_metadata().schema_descr();
    let time = schema.column(3).logical_type_ref().cloned();
    assert_eq!(time, Some(LogicalType::timestamp(true, TimeUnit::NANOS)));
    let mut rows = Vec::new();
    for row in file.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let field = |at: usize| row.get_column_iter().nth(at).unwrap().1.clone();
        let text = |at| {
            let Field::Str(text) = field(at) else { panic!("{:?}", field(at)) };
            text
        };
        let int = |at| {
            let Field::Long(int) = field(at) else { panic!("{:?}", field(at)) };
            int
        };
        let x = (field(4) != Field::Null).then(|| {
            let Field::Double(x) = field(4) else { panic!("{:?}", field(4)) };
            x.to_bits()
        });
        rows.push((text(0), text(1), int(2).cast_unsigned(), int(3), x));
    }
    rows
}

#[test]
fn every_format_reads_back_to_the_same_rows_and_bits() {
    let series = hostile();
    assert_eq!(read_csv(&written(Format::Csv, &series)), expected(&series));
    assert_eq!(read_json(&written(Format::JsonLines, &series)), expected(&series));
    assert_eq!(read_parquet(&written(Format::Parquet, &series)), expected(&series));
}

#[test]
fn a_result_without_rows_is_a_file_without_rows() {
    assert_eq!(read_csv(&written(Format::Csv, &[])), []);
    assert_eq!(read_json(&written(Format::JsonLines, &[])), []);
    assert_eq!(read_parquet(&written(Format::Parquet, &[])), []);
}

#[test]
fn a_large_result_is_cut_into_row_groups_across_series() {
    let values: Vec<f64> = (0..100_000_u32).map(|i| f64::from(i) / 3.0).collect();
    let times: Vec<i64> = (0..100_000).collect();
    let one = Series { instrument: "a", node: "n", event_time: &times, values: &values };
    let series = [one, Series { instrument: "b", ..one }, Series { instrument: "c", ..one }];
    let bytes = written(Format::Parquet, &series);
    let file = open_parquet(&bytes);
    let groups: Vec<i64> =
        (0..file.num_row_groups()).map(|at| file.metadata().row_group(at).num_rows()).collect();
    assert_eq!(groups, [131_072, 131_072, 37_856]);
    assert_eq!(read_parquet(&bytes), expected(&series));
}

#[test]
fn an_infinite_value_is_refused() {
    let series = Series { instrument: "a", node: "n", event_time: &[1], values: &[f64::INFINITY] };
    for format in [Format::Parquet, Format::Csv, Format::JsonLines] {
        let error = write(format, [series], io::sink()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{format:?}");
    }
}

/// Takes `room` bytes and then fails as a full disk does.
struct Full {
    room: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(self.room);
        self.room -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told_as_such_wherever_it_strikes() {
    let series = hostile();
    for format in [Format::Parquet, Format::Csv, Format::JsonLines] {
        let whole = written(format, &series).len();
        for room in 0..whole {
            let error = write(format, series.iter().copied(), Full { room }).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{format:?} {room}");
        }
        write(format, series.iter().copied(), Full { room: whole }).unwrap();
    }
}
