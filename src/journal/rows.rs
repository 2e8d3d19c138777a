//! The rows of each kind, to bytes and back. Whole numbers and bits of floats are little-endian.
//!
//! ```text
//! fates        id 16, partition 4, offset 8, treatment 1, reason 1                          30 bytes
//! identities   id 16, payload 8 (big-endian, so that rows sort as bytes), sorted by id      24 bytes
//! accepted     instrument 4, event_time 8, seq 8, id 16, partition 4, 8 a field
//! applied      instrument 4, event_time 8, 8 a value
//! quarantined  one line of FINAZ_JSON_V1 a row, bytes as hex digits
//! ```
//! NaN, which is null, has one form: `f64::NAN`'s.

use std::collections::HashMap;
use std::sync::Arc;

use super::document::{quarantined_row, read_quarantined};
use super::segment::{Header, Kind, NewSegment, Segment};
use super::{Error, damaged};
use crate::canonical;
use crate::stream::{Accepted, Applied, Fate, Identity, Numbers, Quarantined, Reason, Treatment};

const FATE: usize = 30;
const IDENTITY: usize = 24;
const ACCEPTED: usize = 40;
const APPLIED: usize = 12;

/// Room for the rows of a segment, and for the header that comes before them in the end.
fn body_of(rows: usize, size: usize) -> Vec<u8> {
    const HEADER: usize = 4096;
    Vec::with_capacity(HEADER + rows * size)
}

/// What became of records, in the order read, committed at `at_us`.
#[must_use]
pub(super) fn fates(rows: &[Fate], seq: i64, at_us: i64) -> Option<NewSegment> {
    let mut body = body_of(rows.len(), FATE);
    for row in rows {
        body.extend_from_slice(&row.id);
        body.extend_from_slice(&row.partition.to_le_bytes());
        body.extend_from_slice(&row.offset.to_le_bytes());
        body.extend_from_slice(&[row.treatment.code(), row.reason.code()]);
    }
    let rows = count(rows.len());
    Header { rows, at: vec![(rows, at_us)], ..Header::new(Kind::Fates, seq) }.written(body)
}

/// Events that were seen, in any order; of two with one id the first is kept.
#[must_use]
pub(super) fn identities(rows: &mut Vec<Identity>, seq: i64) -> Option<NewSegment> {
    // As numbers, which compares twice as fast as bytes; stable, for the first of two.
    rows.sort_by_key(|row| u128::from_be_bytes(row.id));
    rows.dedup_by_key(|row| row.id);
    let mut body = body_of(rows.len(), IDENTITY);
    for row in &*rows {
        body.extend_from_slice(&row.id);
        body.extend_from_slice(&row.payload.to_be_bytes());
    }
    Header { rows: count(rows.len()), ..Header::new(Kind::Identities, seq) }.written(body)
}

/// Accepted events, in any order.
///
/// # Panics
/// When rows have different numbers of fields: a flow reads the same of every event.
#[must_use]
pub(super) fn accepted(rows: &[Accepted], seq: i64) -> Option<NewSegment> {
    let first = rows.first()?;
    let mut header = Header::new(Kind::Accepted, seq);
    header.width = first.fields.len();
    let mut body = body_of(rows.len(), ACCEPTED + 8 * header.width);
    let mut names = Names::default();
    for row in rows {
        assert_eq!(row.fields.len(), header.width, "a flow reads the same of every event");
        body.extend_from_slice(&names.number(&row.instrument).to_le_bytes());
        body.extend_from_slice(&row.event_time.to_le_bytes());
        body.extend_from_slice(&row.seq.to_le_bytes());
        body.extend_from_slice(&row.id);
        body.extend_from_slice(&row.partition.to_le_bytes());
        row.fields.iter().for_each(|x| body.extend_from_slice(&bits(*x)));
    }
    header.rows = count(rows.len());
    header.until = rows.iter().map(|row| row.event_time).max();
    header.instruments = names.list;
    header.written(body)
}

/// Applied events, in the order applied.
///
/// # Panics
/// When rows have different numbers of values: each node gives one.
#[must_use]
pub(super) fn applied(rows: &[Applied], seq: i64) -> Option<NewSegment> {
    let first = rows.first()?;
    let mut header = Header::new(Kind::Applied, seq);
    header.width = first.values.len();
    let mut body = body_of(rows.len(), APPLIED + 8 * header.width);
    let mut names = Names::default();
    for row in rows {
        assert_eq!(row.values.len(), header.width, "each node gives a value for every event");
        body.extend_from_slice(&names.number(&row.instrument).to_le_bytes());
        body.extend_from_slice(&row.event_time.to_le_bytes());
        row.values.iter().for_each(|x| body.extend_from_slice(&bits(*x)));
    }
    header.rows = count(rows.len());
    header.instruments = names.list;
    header.written(body)
}

/// Records that were not taken, whole.
#[must_use]
pub(super) fn quarantined(rows: &[Quarantined], seq: i64, at_us: i64) -> Option<NewSegment> {
    let mut body = Vec::new();
    for row in rows {
        quarantined_row(row).write(&mut body).expect("a row is flat and has no float");
        body.push(b'\n');
    }
    let rows = count(rows.len());
    Header { rows, at: vec![(rows, at_us)], ..Header::new(Kind::Quarantined, seq) }.written(body)
}

/// Looks at every row; afterwards each of them can be read.
pub(super) fn check(segment: &Segment<'_>, place: &str) -> Result<(), Error> {
    let Segment { header, body } = segment;
    if header.kind == Kind::Quarantined {
        return check_quarantined(segment, place);
    }
    let rows = usize::try_from(header.rows).ok();
    let wide = size(header);
    if wide.and_then(|wide| wide.checked_mul(rows?)) != Some(body.len()) {
        return Err(damaged(place, "has another length than its header says"));
    }
    let mut rows = body.chunks_exact(wide.expect("it was just compared"));
    let instruments = header.instruments.len();
    let fits = match header.kind {
        Kind::Fates => rows.all(|row| read_fate(row).is_some()),
        Kind::Identities => rows.is_sorted_by(|a, b| a[..16] < b[..16]),
        Kind::Accepted => {
            rows.clone().map(|row| i64_at(row, 4)).max() == header.until
                && rows.all(|row| known(row, instruments) && sound(&row[ACCEPTED..]))
        }
        Kind::Applied => rows.all(|row| known(row, instruments) && sound(&row[APPLIED..])),
        Kind::Quarantined => true,
    };
    let names: HashMap<&String, ()> = header.instruments.iter().map(|name| (name, ())).collect();
    if !fits || names.len() != instruments {
        return Err(damaged(place, "has a row that cannot be"));
    }
    Ok(())
}

fn check_quarantined(segment: &Segment<'_>, place: &str) -> Result<(), Error> {
    let mut rows = 0;
    for line in lines(segment.body) {
        let row = read_line(line, place)?;
        let mut again = Vec::with_capacity(line.len());
        quarantined_row(&row).write(&mut again).expect("a row is flat and has no float");
        if again != line {
            return Err(damaged(place, "has a row that is not in canonical form"));
        }
        rows += 1;
    }
    if rows != segment.header.rows || segment.body.last() != Some(&b'\n') {
        return Err(damaged(place, "has another length than its header says"));
    }
    Ok(())
}

fn read_line(line: &[u8], place: &str) -> Result<Quarantined, Error> {
    let value = canonical::parse(line, place).map_err(|error| damaged(place, error.message))?;
    read_quarantined(value, place)
}

fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let body = body.strip_suffix(b"\n").unwrap_or(body);
    body.split(|byte| *byte == b'\n')
}

/// Bytes of one row; `None` for a width that no memory holds.
fn size(header: &Header) -> Option<usize> {
    let fixed = match header.kind {
        Kind::Fates => FATE,
        Kind::Identities => IDENTITY,
        Kind::Accepted => ACCEPTED,
        Kind::Applied => APPLIED,
        Kind::Quarantined => 1,
    };
    header.width.checked_mul(8)?.checked_add(fixed)
}

/// The rows of segments that were checked when they were read.
impl Segment<'_> {
    fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.body.chunks_exact(size(&self.header).expect("it was checked"))
    }

    /// When each row was committed.
    fn times(&self) -> impl Iterator<Item = i64> {
        self.header.at.iter().flat_map(|(rows, at)| (0..*rows).map(|_row| *at))
    }

    /// Fates, each with the time of its commit in microseconds.
    pub fn fates(&self) -> impl Iterator<Item = (i64, Fate)> {
        let fates = self.rows().map(|row| read_fate(row).expect("it was checked"));
        self.times().zip(fates)
    }

    /// Identities, sorted by id.
    pub fn identities(&self) -> impl Iterator<Item = Identity> {
        self.rows().map(|row| Identity {
            id: id_at(row, 0),
            payload: u64::from_be_bytes(row[16..24].try_into().expect("8 bytes")),
        })
    }

    pub fn accepted(&self) -> impl Iterator<Item = Accepted> {
        self.rows().map(|row| Accepted {
            instrument: self.header.instruments[number_at(row)].as_str().into(),
            event_time: i64_at(row, 4),
            seq: u64::from_le_bytes(row[12..20].try_into().expect("8 bytes")),
            id: id_at(row, 20),
            partition: i32_at(row, 36),
            fields: floats(&row[ACCEPTED..]),
        })
    }

    pub fn applied(&self) -> impl Iterator<Item = Applied> {
        let names: Vec<Arc<str>> =
            self.header.instruments.iter().map(|name| name.as_str().into()).collect();
        self.rows().map(move |row| Applied {
            instrument: Arc::clone(&names[number_at(row)]),
            event_time: i64_at(row, 4),
            values: floats(&row[APPLIED..]),
        })
    }

    /// Quarantined records, each with the time of its commit in microseconds.
    pub fn quarantined(&self) -> impl Iterator<Item = (i64, Quarantined)> {
        let read = |line| read_line(line, "a checked segment").expect("it was checked");
        self.times().zip(lines(self.body).map(read))
    }
}

/// One behind the other.
pub(super) fn joined(inputs: &[Segment<'_>]) -> (Header, Vec<u8>) {
    let mut header = spanning(inputs);
    for input in inputs {
        for (rows, at) in &input.header.at {
            match header.at.last_mut() {
                Some(last) if last.1 == *at => last.0 += rows,
                Some(_) | None => header.at.push((*rows, *at)),
            }
        }
    }
    header.rows = inputs.iter().map(|input| input.header.rows).sum();
    let mut body = body_of(inputs.iter().map(|input| input.body.len()).sum(), 1);
    inputs.iter().for_each(|input| body.extend_from_slice(input.body));
    (header, body)
}

/// Sorted together; where one id is twice, the older row stays.
pub(super) fn merged_identities(inputs: &[Segment<'_>]) -> (Header, Vec<u8>) {
    let mut header = spanning(inputs);
    let mut rests: Vec<&[u8]> = inputs.iter().map(|input| input.body).collect();
    let mut body = body_of(rests.iter().map(|rest| rest.len()).sum(), 1);
    // Few inputs: a look at each first row is as quick as a heap.
    loop {
        let least =
            rests.iter_mut().filter(|rest| !rest.is_empty()).min_by(|a, b| a[..16].cmp(&b[..16]));
        let Some(rest) = least else { break };
        let (row, more) = rest.split_at(IDENTITY);
        *rest = more;
        if body.last_chunk::<IDENTITY>().is_none_or(|last| last[..16] != row[..16]) {
            body.extend_from_slice(row);
        }
    }
    header.rows = count(body.len() / IDENTITY);
    (header, body)
}

/// One behind the other, over one list of names; rows before `from` are left out.
pub(super) fn remapped(inputs: &[Segment<'_>], from: i64) -> Result<(Header, Vec<u8>), Error> {
    let mut header = spanning(inputs);
    let mut names = Names::default();
    let mut body = body_of(inputs.iter().map(|input| input.body.len()).sum(), 1);
    let mut until = None;
    for input in inputs {
        if input.header.width != header.width {
            return Err(damaged("a merge", "is of segments of two flows"));
        }
        for row in input.rows() {
            let time = i64_at(row, 4);
            if time < from {
                continue;
            }
            until = until.max(Some(time));
            let name = &input.header.instruments[number_at(row)];
            body.extend_from_slice(&names.number(name).to_le_bytes());
            body.extend_from_slice(&row[4..]);
            header.rows += 1;
        }
    }
    header.instruments = names.list;
    header.until = until.filter(|_until| header.kind == Kind::Accepted);
    Ok((header, body))
}

/// The header of what these become, without its rows.
fn spanning(inputs: &[Segment<'_>]) -> Header {
    let (first, last) = (&inputs[0].header, &inputs[inputs.len() - 1].header);
    Header { last: last.last, width: first.width, ..Header::new(first.kind, first.first) }
}

/// Names by the order in which they first occur.
#[derive(Default)]
struct Names<'a> {
    list: Vec<String>,
    numbers: HashMap<&'a str, u32>,
}

impl<'a> Names<'a> {
    fn number(&mut self, name: &'a str) -> u32 {
        let next = u32::try_from(self.list.len()).expect("fewer instruments than rows");
        *self.numbers.entry(name).or_insert_with(|| {
            self.list.push(name.to_owned());
            next
        })
    }
}

fn read_fate(row: &[u8]) -> Option<Fate> {
    Some(Fate {
        id: id_at(row, 0),
        partition: i32_at(row, 16),
        offset: i64_at(row, 20),
        treatment: Treatment::from_code(row[28])?,
        reason: Reason::from_code(row[29])?,
    })
}

fn bits(x: f64) -> [u8; 8] {
    if x.is_nan() { f64::NAN.to_le_bytes() } else { x.to_le_bytes() }
}

/// Whether each NaN has the one form it has.
fn sound(floats: &[u8]) -> bool {
    floats.as_chunks::<8>().0.iter().all(|x| bits(f64::from_le_bytes(*x)) == *x)
}

fn known(row: &[u8], instruments: usize) -> bool {
    number_at(row) < instruments
}

fn number_at(row: &[u8]) -> usize {
    let number = u32::from_le_bytes(row[..4].try_into().expect("4 bytes"));
    usize::try_from(number).expect("a pointer has 32 bits or more")
}

fn i32_at(row: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(row[at..at + 4].try_into().expect("4 bytes"))
}

fn i64_at(row: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(row[at..at + 8].try_into().expect("8 bytes"))
}

fn id_at(row: &[u8], at: usize) -> [u8; 16] {
    row[at..at + 16].try_into().expect("16 bytes")
}

fn floats(bytes: &[u8]) -> Numbers {
    bytes.as_chunks::<8>().0.iter().map(|x| f64::from_le_bytes(*x)).collect()
}

fn count(rows: usize) -> u64 {
    u64::try_from(rows).expect("rows in memory")
}
