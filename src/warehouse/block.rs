//! Staging rows as blocks of ClickHouse's Native format, column by column.
//!
//! Native, not RowBinary: the server takes the columns as they are (measured: two thirds of its CPU
//! time for 3,000 rows), and here a column is one run of bytes. A block is the number of columns, of
//! rows, then name, type and data of each column; numbers are little-endian, lengths are LEB128
//! (<https://clickhouse.com/docs/reference/formats/Native>). The server matches columns by name and
//! refuses a type that is not its own.

use super::{Series, StagedRun};

/// Rows of one block: some 10 MB on the way, and memory here is bounded by it.
pub(super) const BLOCK_ROWS_MAX: usize = 65_536;

const COLUMNS: [(&str, &str); 10] = [
    ("run_no", "Int64"),
    ("run_id", "String"),
    ("epoch", "Int64"),
    ("fence", "Int64"),
    ("seq", "UInt64"),
    ("instrument", "String"),
    ("node", "String"),
    ("event_time", "DateTime64(9, 'UTC')"),
    ("value", "Nullable(Float64)"),
    ("staged_at", "DateTime64(6, 'UTC')"),
];

/// The names of the columns as an INSERT lists them.
pub(super) fn column_names() -> String {
    COLUMNS.map(|(name, _)| name).join(", ")
}

/// The rows of these runs in blocks of at most `rows_max` rows. `staged_at` (µs since 1970) tells two stagings of the
/// same rows apart; said here, since a default that the server fills in costs it a seventh of a small insert.
pub(super) fn blocks<'a>(
    runs: &'a [&'a StagedRun<'a>],
    rows_max: usize,
    staged_at: i64,
) -> impl Iterator<Item = Vec<u8>> + 'a {
    let mut spans = runs.iter().flat_map(|run| spans(run)).peekable();
    let mut rest: Option<Span<'a>> = None;
    std::iter::from_fn(move || {
        let mut block = Block::default();
        while block.rows < rows_max {
            let Some(span) = rest.take().or_else(|| spans.next()) else { break };
            let (now, later) = span.split(rows_max - block.rows);
            block.push(&now, staged_at);
            rest = later;
        }
        (block.rows > 0).then(|| block.finish())
    })
}

/// Neighbouring rows of one series of one run.
#[derive(Clone, Copy)]
struct Span<'a> {
    run: &'a StagedRun<'a>,
    /// The number of the first row in the run's result.
    seq: u64,
    instrument: &'a str,
    node: &'a str,
    event_time: &'a [i64],
    values: &'a [f64],
}

/// Series by series, rows numbered through.
fn spans<'a>(run: &'a StagedRun<'a>) -> impl Iterator<Item = Span<'a>> {
    let mut seq = 0;
    run.series.iter().map(move |&Series { instrument, node, event_time, values }| {
        assert_eq!(event_time.len(), values.len(), "a value has a time");
        let span = Span { run, seq, instrument, node, event_time, values };
        seq += values.len() as u64;
        span
    })
}

impl<'a> Span<'a> {
    /// The first `rows` rows, and what is left of it.
    fn split(self, rows: usize) -> (Self, Option<Self>) {
        if self.values.len() <= rows {
            return (self, None);
        }
        let (time_now, time_later) = self.event_time.split_at(rows);
        let (now, later) = self.values.split_at(rows);
        (
            Self { event_time: time_now, values: now, ..self },
            Some(Self {
                seq: self.seq + rows as u64,
                event_time: time_later,
                values: later,
                ..self
            }),
        )
    }
}

/// One buffer a column; a nullable column has a second one for its marks.
#[derive(Default)]
struct Block {
    rows: usize,
    data: [Vec<u8>; COLUMNS.len()],
    nulls: Vec<u8>,
}

impl Block {
    fn push(&mut self, span: &Span<'_>, at: i64) {
        let rows = span.values.len();
        self.rows += rows;
        let [run_no, run_id, epoch, fence, seq, instrument, node, event_time, value, staged_at] =
            &mut self.data;
        repeat(run_no, &span.run.run_no.to_le_bytes(), rows);
        repeat(run_id, &text(span.run.run_id), rows);
        repeat(epoch, &span.run.epoch.to_le_bytes(), rows);
        repeat(fence, &span.run.fence.to_le_bytes(), rows);
        repeat(instrument, &text(span.instrument), rows);
        repeat(node, &text(span.node), rows);
        repeat(staged_at, &at.to_le_bytes(), rows);
        for (number, (&time, &x)) in (span.seq..).zip(span.event_time.iter().zip(span.values)) {
            seq.extend_from_slice(&number.to_le_bytes());
            event_time.extend_from_slice(&time.to_le_bytes());
            // A NaN is a null; what stands under a null is read by nobody, but is always the same.
            self.nulls.push(u8::from(x.is_nan()));
            value.extend_from_slice(&(if x.is_nan() { 0.0 } else { x }).to_le_bytes());
        }
    }

    fn finish(self) -> Vec<u8> {
        let bytes: usize = self.data.iter().map(Vec::len).sum();
        let mut out = Vec::with_capacity(bytes + self.nulls.len() + 256);
        length(COLUMNS.len(), &mut out);
        length(self.rows, &mut out);
        for ((name, kind), data) in COLUMNS.iter().zip(&self.data) {
            out.extend_from_slice(&text(name));
            out.extend_from_slice(&text(kind));
            if kind.starts_with("Nullable") {
                out.extend_from_slice(&self.nulls);
            }
            out.extend_from_slice(data);
        }
        out
    }
}

pub(super) fn repeat(column: &mut Vec<u8>, bytes: &[u8], times: usize) {
    column.reserve(bytes.len() * times);
    for _ in 0..times {
        column.extend_from_slice(bytes);
    }
}

/// A string with its length before it.
pub(super) fn text(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    length(text.len(), &mut out);
    out.extend_from_slice(text.as_bytes());
    out
}

pub(super) fn length(mut n: usize, out: &mut Vec<u8>) {
    loop {
        let low = (n & 0x7f).to_le_bytes()[0];
        n >>= 7;
        if n == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}
