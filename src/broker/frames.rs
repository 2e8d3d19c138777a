//! What one fetch brings for a partition, cut into batches: the place of each in the log, and whether it can
//! be trusted, known before anything in it is looked at.

use std::sync::Arc;

use bytes::Bytes;
use krafka::__private::protocol::{RecordBatch, RecordBatchHeader};
use krafka::__private::util::crc32c;

/// Base offset and length.
const PREFIX: usize = 12;
/// The shortest batch: a header without records.
const HEADER: usize = 61;
/// From here on the checksum covers all.
const COVERED: usize = 21;
/// The shortest record that can be written.
const RECORD_MIN: usize = 7;

/// A batch.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Bytes,
    /// The first offset in it, the last one, and how many records it says it has.
    pub(super) base: i64,
    pub(super) last: i64,
    pub(super) count: u32,
    /// The header, or what is wrong with the batch.
    pub(super) header: Result<RecordBatchHeader, Arc<str>>,
}

/// What a fetch brought.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) frames: Vec<Frame>,
    /// Why not even the first batch can be cut off.
    pub(super) stuck: Option<Arc<str>>,
}

/// Cuts what a fetch from this offset brought; a batch that is not all there at the end is left out, it comes
/// first in the next fetch. So does what lies behind the high-water: a broker notes that before it reads, and records that
/// came in between are in the answer.
pub(super) fn cut(mut rest: Bytes, from: i64, high_water: i64) -> Frames {
    let mut frames: Vec<Frame> = Vec::new();
    let mut stuck = None;
    while rest.len() >= PREFIX {
        let length = i32::from_be_bytes(at(&rest, 8));
        let size = usize::try_from(length).ok().and_then(|length| length.checked_add(PREFIX));
        let Some(size) = size.filter(|size| *size >= HEADER) else {
            stuck = Some(format!("a batch says that it has {length} bytes").into());
            break;
        };
        if size > rest.len() {
            stuck = Some(format!("a batch of {size} bytes came with {}", rest.len()).into());
            break;
        }
        frames.push(frame(rest.split_to(size)));
    }
    let mut floor = None;
    for at in 0..frames.len() {
        let next = frames.get(at + 1).map(|next| next.base);
        let frame = &mut frames[at];
        place(frame, from, floor, next);
        if frame.last >= high_water {
            frames.truncate(at);
            break;
        }
        floor = Some(frame.last + 1);
    }
    stuck = stuck.filter(|_| frames.is_empty());
    Frames { frames, stuck }
}

fn frame(bytes: Bytes) -> Frame {
    let base = i64::from_be_bytes(at(&bytes, 0));
    let delta = i32::from_be_bytes(at(&bytes, 23));
    let last = base.saturating_add(i64::from(delta));
    let count = u32::try_from(i32::from_be_bytes(at(&bytes, 57))).unwrap_or(0);
    let stated = u32::from_be_bytes(at(&bytes, 17));
    let header = match RecordBatchHeader::peek(&bytes) {
        Err(error) => Err(error.to_string().into()),
        Ok(header) => match crc32c(&bytes[COVERED..]) {
            seen if seen == stated => Ok(header),
            seen => {
                Err(format!("its checksum is {stated:08x}, that of its bytes {seen:08x}").into())
            }
        },
    };
    Frame { bytes, base, last, count, header }
}

/// Checks where a batch says that it lies, which is under no checksum, by the batches around it; and bounds
/// one that cannot be read.
fn place(frame: &mut Frame, from: i64, floor: Option<i64>, next: Option<i64>) {
    let least = floor.unwrap_or(from);
    let after_next = next.is_some_and(|next| next >= least && next <= frame.base);
    let before_last = floor.is_some_and(|floor| frame.base < floor);
    if frame.base < 0 || before_last || after_next {
        let why = format!("its offsets {} to {} cannot be", frame.base, frame.last);
        frame.header = Err(why.into());
        let delta = frame.last.saturating_sub(frame.base);
        (frame.base, frame.last) = (least, least.saturating_add(delta));
    }
    if frame.header.is_err() {
        distrust(frame);
        if let Some(next) = next.filter(|next| *next > frame.base) {
            frame.last = frame.last.min(next - 1);
        }
    }
}

/// Keeps to what the size of the batch allows.
fn distrust(frame: &mut Frame) {
    let fits = u32::try_from(frame.bytes.len() / RECORD_MIN).unwrap_or(u32::MAX);
    let span = frame.last.saturating_sub(frame.base).saturating_add(1);
    if frame.count == 0 || i64::from(frame.count) > span || frame.count > fits.saturating_mul(64) {
        frame.count = 1;
        frame.last = frame.base;
    }
}

fn at<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[from..from + N]);
    part
}

impl Frame {
    /// Whether the records lie in it as they are.
    pub(super) fn plain(&self, header: &RecordBatchHeader) -> Option<Bytes> {
        use krafka::Compression;
        (header.attributes.compression == Compression::None).then(|| self.bytes.slice(HEADER..))
    }

    /// All records of a compressed batch.
    pub(super) fn unpack(&self) -> Result<RecordBatch, Arc<str>> {
        RecordBatch::decode(&mut self.bytes.clone()).map_err(|error| error.to_string().into())
    }
}
