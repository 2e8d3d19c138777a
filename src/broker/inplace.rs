//! A record taken apart where it lies in its batch: one reference to its bytes in place of one a field. What is out of
//! the ordinary is left to the client's own decoder, which says what is wrong with it.

use std::ops::Range;

use bytes::{Buf as _, Bytes};
use krafka::__private::util::varint as decode;

/// More of them are for the client's decoder, which has a limit of its own.
const HEADERS_MAX: i32 = 64;

/// A record of a batch that is not compressed.
#[derive(Debug)]
pub(super) struct InPlace {
    bytes: Bytes,
    key: Option<Range<u32>>,
    value: Option<Range<u32>>,
    /// From the first to the end of the last.
    headers: Range<u32>,
    pub(super) offset_delta: i32,
}

impl InPlace {
    /// Of a record with its length in front, as a batch of version 2 has it.
    ///
    /// # Errors
    /// The bytes, when the client's decoder has to judge them.
    pub(super) fn decode(bytes: Bytes) -> Result<Self, Bytes> {
        match parts(&bytes) {
            Some((key, value, headers, offset_delta)) => {
                Ok(Self { bytes, key, value, headers, offset_delta })
            }
            None => Err(bytes),
        }
    }

    pub(super) fn key(&self) -> Option<&[u8]> {
        self.key.clone().map(|at| self.at(at))
    }

    pub(super) fn value(&self) -> Option<&[u8]> {
        self.value.clone().map(|at| self.at(at))
    }

    /// The first header of this name, if it has a value.
    pub(super) fn header(&self, name: &str) -> Option<&[u8]> {
        let mut rest = self.at(self.headers.clone());
        while !rest.is_empty() {
            let (key, value) = (field(&mut rest)??, field(&mut rest)?);
            if key == name.as_bytes() {
                return value;
            }
        }
        None
    }

    fn at(&self, range: Range<u32>) -> &[u8] {
        let place = |at| usize::try_from(at).expect("32 bits fit");
        &self.bytes[place(range.start)..place(range.end)]
    }
}

type Parts = (Option<Range<u32>>, Option<Range<u32>>, Range<u32>, i32);

fn parts(bytes: &[u8]) -> Option<Parts> {
    let mut rest = bytes;
    let length = usize::try_from(varint(&mut rest)?).ok()?;
    // A place in the record is known from what is left of it.
    let end = u32::try_from(bytes.len() - rest.len() + length).ok()?;
    rest = rest.get(..length)?;
    rest.try_get_i8().ok()?;
    decode::decode_signed_varlong(&mut rest).ok()?;
    let offset_delta = varint(&mut rest)?;
    let mut ranged = || {
        let field = field(&mut rest)?;
        let to = end.checked_sub(u32::try_from(rest.len()).ok()?)?;
        let from = |of: &[u8]| Some(to - u32::try_from(of.len()).ok()?);
        Some(match field {
            Some(of) => Some(from(of)?..to),
            None => None,
        })
    };
    let (key, value) = (ranged()?, ranged()?);
    let count = varint(&mut rest)?;
    if !(0..=HEADERS_MAX).contains(&count) {
        return None;
    }
    let from = end.checked_sub(u32::try_from(rest.len()).ok()?)?;
    for _ in 0..count {
        field(&mut rest)??;
        field(&mut rest)?;
    }
    let to = end.checked_sub(u32::try_from(rest.len()).ok()?)?;
    Some((key, value, from..to, offset_delta))
}

/// A number of 32 bits; most take one byte.
pub(super) fn varint(rest: &mut &[u8]) -> Option<i32> {
    match rest.split_first() {
        Some((byte, behind)) if *byte < 0x80 => {
            *rest = behind;
            Some(i32::from(byte >> 1) ^ -i32::from(byte & 1))
        }
        _ => decode::decode_signed_varint(rest).ok(),
    }
}

/// What a length says is next: `None` inside for a negative one, outside where there is not so much.
fn field<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let Ok(length) = usize::try_from(varint(rest)?) else {
        return Some(None);
    };
    let (field, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(Some(field))
}

#[cfg(test)]
mod tests {
    use krafka::__private::protocol::{Record, RecordHeader};
    use proptest::prelude::*;

    use super::*;

    /// Key, value, headers and offset, as the one and the other decoder have them.
    type Told = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<Option<Vec<u8>>>, i32);

    const NAMES: [&str; 3] = ["", "a", "finaz-marker"];

    fn ours(bytes: &Bytes) -> Option<Told> {
        let record = InPlace::decode(bytes.clone()).ok()?;
        let owned = |of: Option<&[u8]>| of.map(<[u8]>::to_vec);
        let headers = NAMES.iter().map(|name| owned(record.header(name))).collect();
        Some((owned(record.key()), owned(record.value()), headers, record.offset_delta))
    }

    fn theirs(bytes: &Bytes) -> Option<Told> {
        let record = Record::decode(&mut bytes.clone()).ok()?;
        let first =
            |name: &&str| record.headers.iter().find(|header| header.key == name.as_bytes());
        let header =
            |name| first(name).and_then(|header| header.value.as_ref()).map(|v| v.to_vec());
        let headers = NAMES.iter().map(header).collect();
        let owned = |of: &Option<Bytes>| of.as_ref().map(|v| v.to_vec());
        Some((owned(&record.key), owned(&record.value), headers, record.offset_delta))
    }

    fn field() -> impl Strategy<Value = Option<Bytes>> {
        proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from))
    }

    fn header() -> impl Strategy<Value = RecordHeader> {
        (0..NAMES.len(), field())
            .prop_map(|(name, value)| RecordHeader { key: NAMES[name].into(), value })
    }

    prop_compose! {
        fn written()(
            key in field(), value in field(), headers in proptest::collection::vec(header(), 0..4),
            timestamp_delta: i64, offset_delta in 0..i32::MAX,
        ) -> Bytes {
            let record = Record { headers, timestamp_delta, offset_delta, ..Record::new(key, value) };
            let mut out = bytes::BytesMut::new();
            record.encode(&mut out).expect("it fits");
            out.freeze()
        }
    }

    proptest! {
        #[test]
        fn a_record_reads_in_place_as_the_client_reads_it(bytes in written()) {
            prop_assert!(ours(&bytes).is_some());
            prop_assert_eq!(ours(&bytes), theirs(&bytes));
        }

        #[test]
        fn a_damaged_record_never_reads_other_than_the_client_reads_it(
            bytes in written(), at: prop::sample::Index, bit in 0..8_u8, cut: prop::sample::Index, shorter: bool,
        ) {
            let mut bytes = bytes.to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if shorter {
                bytes.truncate(cut.index(bytes.len()));
            }
            let bytes = Bytes::from(bytes);
            if let Some(told) = ours(&bytes) {
                prop_assert_eq!(Some(told), theirs(&bytes));
            }
        }
    }
}
