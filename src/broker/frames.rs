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

/// Cuts; a batch that is not all there at the end is left out, it comes first in the next fetch.
pub(super) fn cut(mut rest: Bytes, high_water: i64) -> Frames {
    let mut frames: Vec<Frame> = Vec::new();
    let mut stuck = None;
    while rest.len() >= PREFIX {
        let base = i64::from_be_bytes(at(&rest, 0));
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
        frames.push(frame(rest.split_to(size), base, high_water));
    }
    // Where one begins, the one before it must have ended.
    for at in 1..frames.len() {
        let next = frames[at].base;
        let frame = &mut frames[at - 1];
        if frame.header.is_err() && next > frame.base {
            frame.last = frame.last.clamp(frame.base, next - 1);
        }
    }
    stuck = stuck.filter(|_| frames.is_empty());
    Frames { frames, stuck }
}

fn frame(bytes: Bytes, base: i64, high_water: i64) -> Frame {
    let delta = i32::from_be_bytes(at(&bytes, 23));
    let last = base.saturating_add(i64::from(delta));
    let count = u32::try_from(i32::from_be_bytes(at(&bytes, 57))).unwrap_or(0);
    let stated = u32::from_be_bytes(at(&bytes, 17));
    let seen = || crc32c(&bytes[COVERED..]);
    let header = match RecordBatchHeader::peek(&bytes) {
        Err(error) => Err(error.to_string().into()),
        Ok(_) if seen() != stated => {
            Err(format!("its checksum is {stated:08x} and its bytes have {:08x}", seen()).into())
        }
        // These two the checksum does not cover.
        Ok(_) if base < 0 || last >= high_water.max(0) => {
            Err(format!("its offsets {base} to {last} are not of a log of {high_water}").into())
        }
        Ok(header) => Ok(header),
    };
    let mut frame = Frame { bytes, base, last, count, header };
    if frame.header.is_err() {
        distrust(&mut frame);
    }
    frame
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
