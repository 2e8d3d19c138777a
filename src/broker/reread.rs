//! What could not be decoded, tried again from the bytes that were kept of it.

use bytes::Bytes;
use krafka::__private::protocol::Record;

use super::frames::cut;
use super::lane::Lane;
use super::opened::next_of;
use super::{Event, Got};

/// The record at this offset, out of its own bytes or those of the batch that it came in; `None` as long as it cannot be
/// decoded.
#[must_use]
pub fn reread(partition: i32, offset: i64, raw: &[u8]) -> Option<Got> {
    let bytes = Bytes::copy_from_slice(raw);
    let frames = cut(bytes.clone(), offset, i64::MAX).frames;
    if frames.iter().any(|frame| frame.header.is_ok()) {
        let (mut lane, mut events) = (Lane::new(partition, offset), Vec::new());
        lane.take(frames, Vec::new());
        lane.hand_over(1, &mut events);
        return match events.pop() {
            Some(Event::Record { offset: at, got, .. }) if at == offset => Some(got),
            _ => None,
        };
    }
    let mut rest = bytes;
    let mut record = next_of(&mut rest).filter(|_| rest.is_empty())?;
    Record::decode(&mut record).ok().map(Got::walked)
}

#[cfg(test)]
mod tests {
    use krafka::__private::protocol::RecordBatchBuilder;

    use super::*;

    fn batch() -> Vec<u8> {
        let builder = RecordBatchBuilder::new();
        let builder = builder.add_record(Some("k"), Some("first"));
        let mut batch = builder.add_record(None::<Bytes>, Some("second")).build();
        batch.base_offset = 40;
        batch.encode().expect("a batch").to_vec()
    }

    #[test]
    fn a_record_is_found_in_its_batch_by_its_offset_and_alone_by_its_length() {
        let (whole, text) = (batch(), |got: Option<Got>| got?.value().map(<[u8]>::to_vec));
        for (offset, value) in [(40, "first"), (41, "second")] {
            let found = text(reread(0, offset, &whole));
            assert_eq!(found.as_deref(), Some(value.as_bytes()), "{offset}");
        }
        assert!(reread(0, 42, &whole).is_none());
        let mut rest = Bytes::from(whole[61..].to_vec());
        let first = next_of(&mut rest).expect("a record");
        assert_eq!(text(reread(0, 7, &first)).as_deref(), Some(&b"first"[..]));
        assert_eq!(reread(0, 7, &first).expect("again").key(), Some(&b"k"[..]));
    }

    #[test]
    fn what_is_damaged_stays_so_at_every_byte_and_length() {
        let whole = batch();
        for at in 0..whole.len() {
            assert!(reread(0, 40, &whole[..at]).is_none(), "cut at {at}");
            let mut turned = whole.clone();
            turned[at] ^= 0x40;
            // What is under no checksum: offset, length, leader epoch.
            assert!(at < 21 || reread(0, 40, &turned).is_none(), "turned at {at}");
        }
    }
}
