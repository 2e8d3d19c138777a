//! What is written comes back, whatever happens to it in between; what was not written does not.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::compact::{FANOUT, SEALED, merge};
use super::rows::{accepted, applied, fates, identities, quarantined};
use super::*;
use crate::canonical::Value;
use crate::ids::{Hash, StreamIdentity};
use crate::stream::{Accepted, Applied, Delta, Fate, Identity, Quarantined, Reason, Treatment};

const PLACE: &str = "sha256:here";

fn treatment() -> impl Strategy<Value = Treatment> {
    (1_u8..=5).prop_map(|code| Treatment::from_code(code).expect("a code"))
}

fn reason() -> impl Strategy<Value = Reason> {
    (0_u8..=7).prop_map(|code| Reason::from_code(code).expect("a code"))
}

/// Few enough that two rows often meet in one.
fn id() -> impl Strategy<Value = [u8; 16]> {
    prop_oneof![any::<[u8; 16]>(), (0_u8..9).prop_map(|n| [n; 16])]
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![Just(f64::NAN), Just(-0.0), Just(f64::INFINITY), any::<f64>()]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("sim.alpha".to_owned()), Just("sim.beta".to_owned()), any::<String>()]
}

fn fate() -> impl Strategy<Value = Fate> {
    (id(), any::<i32>(), any::<i64>(), treatment(), reason()).prop_map(
        |(id, partition, offset, treatment, reason)| Fate {
            id,
            partition,
            offset,
            treatment,
            reason,
        },
    )
}

fn identity() -> impl Strategy<Value = Identity> {
    (id(), any::<u64>()).prop_map(|(id, payload)| Identity { id, payload })
}

fn event_time() -> impl Strategy<Value = i64> {
    prop_oneof![-20_i64..20, any::<i64>()]
}

fn accepted_event() -> impl Strategy<Value = Accepted> {
    let fields = proptest::collection::vec(float(), 2);
    (event_time(), name(), any::<u64>(), id(), any::<i32>(), fields).prop_map(
        |(event_time, instrument, seq, id, partition, fields)| Accepted {
            event_time,
            instrument: instrument.into(),
            seq,
            id,
            partition,
            fields: fields.into(),
        },
    )
}

fn applied_event() -> impl Strategy<Value = Applied> {
    (event_time(), name(), proptest::collection::vec(float(), 1)).prop_map(
        |(event_time, instrument, values)| Applied {
            event_time,
            instrument: instrument.into(),
            values: values.into(),
        },
    )
}

fn record() -> impl Strategy<Value = Quarantined> {
    let bytes = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9));
    let words = (any::<String>(), proptest::option::of(any::<String>()));
    (any::<i32>(), any::<i64>(), treatment(), reason(), words, (bytes(), bytes())).prop_map(
        |(partition, offset, treatment, reason, (detail, event_id), (key, value))| {
            let hash = Hash::of(value.as_deref().unwrap_or_default());
            Quarantined { partition, offset, treatment, reason, detail, event_id, key, value, hash }
        },
    )
}

fn delta() -> impl Strategy<Value = Delta> {
    (
        proptest::collection::vec(fate(), 0..5),
        proptest::collection::vec(identity(), 0..5),
        proptest::collection::vec(accepted_event(), 0..4),
        proptest::collection::vec(applied_event(), 0..4),
        proptest::collection::vec(record(), 0..3),
    )
        .prop_map(|(fates, identities, accepted, applied, quarantined)| Delta {
            fates,
            identities,
            accepted,
            applied,
            quarantined,
        })
}

fn encoded(delta: &Delta, seq: i64) -> Vec<NewSegment> {
    let at_us = seq * 10;
    [
        accepted(&delta.accepted, seq),
        applied(&delta.applied, seq),
        fates(&delta.fates, seq, at_us),
        identities(&mut delta.identities.clone(), seq),
        quarantined(&delta.quarantined, seq, at_us),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn head(segments: Segments, seq: i64) -> Head {
    Head {
        identity: StreamIdentity {
            run_id: "run".to_owned(),
            cluster: "cluster".to_owned(),
            topic_id: "id".to_owned(),
            topic: "topic".to_owned(),
            group: "group".to_owned(),
            flow: Hash::of(b"flow"),
            flow_name: "flow".to_owned(),
            partitions: Some(vec![0, 3]),
        },
        epoch: 1,
        fence: 2,
        seq,
        previous: Some(Hash::of(b"before")),
        drained_before: -7,
        state: Value::List(vec![Value::Float(0.1), Value::Null, Value::Text("é".to_owned())]),
        segments,
    }
}

/// Equal bit for bit, NaN included.
fn same<T: std::fmt::Debug>(a: &[T], b: &[T]) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

/// All that a list of segments holds, in order.
#[derive(Debug, Default)]
struct Content {
    fates: Vec<(i64, Fate)>,
    identities: Vec<Identity>,
    accepted: Vec<Accepted>,
    applied: Vec<Applied>,
    quarantined: Vec<(i64, Quarantined)>,
}

impl Content {
    fn of(segments: &Segments, blobs: &HashMap<Hash, Vec<u8>>) -> Self {
        let mut content = Self::default();
        for kind in Kind::ALL {
            for named in segments.of(kind) {
                let segment = Segment::parse(&blobs[&named.hash], kind, PLACE).expect("sound");
                assert!(segment.is(named));
                match kind {
                    Kind::Accepted => content.accepted.extend(segment.accepted()),
                    Kind::Applied => content.applied.extend(segment.applied()),
                    Kind::Fates => content.fates.extend(segment.fates()),
                    Kind::Identities => content.identities.extend(segment.identities()),
                    Kind::Quarantined => content.quarantined.extend(segment.quarantined()),
                }
            }
        }
        content
    }

    /// The oldest of each id, sorted.
    fn known(&self) -> BTreeMap<[u8; 16], u64> {
        self.identities.iter().rev().map(|one| (one.id, one.payload)).collect()
    }
}

/// Merges as a journal does, some at once and some only when `late` has come.
fn compacted(
    segments: &mut Segments,
    blobs: &mut HashMap<Hash, Vec<u8>>,
    waiting: &mut Vec<(Merge, i64)>,
    (late, drained): (bool, i64),
) {
    for kind in Kind::ALL {
        while let Some(merge) = segments.plan(kind) {
            assert!(merge.inputs.len() == FANOUT && merge.level > 0);
            waiting.push((merge, drained));
            if late {
                break;
            }
            adopt_all(segments, blobs, waiting);
        }
    }
}

fn adopt_all(
    segments: &mut Segments,
    blobs: &mut HashMap<Hash, Vec<u8>>,
    waiting: &mut Vec<(Merge, i64)>,
) {
    for (planned, drained) in waiting.drain(..) {
        let read: Vec<Segment<'_>> = planned
            .inputs
            .iter()
            .map(|input| Segment::parse(&blobs[&input.hash], planned.kind, PLACE).expect("sound"))
            .collect();
        let made = merge(&read, planned.level, drained).expect("of one kind");
        segments.adopt(&planned, made.as_ref().map(|made| made.named));
        blobs.extend(made.map(|made| (made.named.hash, made.blob.bytes().to_vec())));
    }
}

proptest! {
    #[test]
    fn rows_come_back_as_they_were_bit_for_bit(delta in delta(), seq in 1_i64..1000) {
        let mut segments = Segments::default();
        let mut blobs = HashMap::new();
        for made in encoded(&delta, seq) {
            segments.append(made.kind, made.named);
            blobs.insert(made.named.hash, made.blob.bytes().to_vec());
        }
        let content = Content::of(&segments, &blobs);
        let timed = |rows: &[Fate]| rows.iter().map(|row| (seq * 10, *row)).collect::<Vec<_>>();
        prop_assert_eq!(&content.fates, &timed(&delta.fates));
        prop_assert!(same(&content.accepted, &delta.accepted));
        prop_assert!(same(&content.applied, &delta.applied));
        let rows: Vec<_> = content.quarantined.iter().map(|(_, row)| row.clone()).collect();
        prop_assert_eq!(&rows, &delta.quarantined);
        let offered = Content { identities: delta.identities, ..Content::default() };
        prop_assert!(content.identities.is_sorted_by(|a, b| a.id < b.id));
        prop_assert_eq!(content.known(), offered.known());
        let head = head(segments, seq);
        prop_assert_eq!(Head::parse(&head.to_bytes(), PLACE).expect("sound"), head);
    }

    #[test]
    fn merges_at_any_moment_change_nothing_that_is_needed(
        steps in proptest::collection::vec((delta(), any::<bool>(), -25_i64..25), 1..90)
    ) {
        let mut segments = Segments::default();
        let (mut blobs, mut waiting) = (HashMap::new(), Vec::new());
        let mut model = Content::default();
        let mut drained = i64::MIN;
        for (seq, (delta, late, watermark)) in (1_i64..).zip(steps) {
            drained = drained.max(watermark);
            segments.drop_drained(drained);
            for made in encoded(&delta, seq) {
                segments.append(made.kind, made.named);
                blobs.insert(made.named.hash, made.blob.bytes().to_vec());
            }
            segments.drop_drained(drained);
            if !late {
                adopt_all(&mut segments, &mut blobs, &mut waiting);
            }
            if waiting.is_empty() {
                compacted(&mut segments, &mut blobs, &mut waiting, (late, drained));
            }
            model.fates.extend(delta.fates.iter().map(|row| (seq * 10, *row)));
            model.identities.extend(delta.identities);
            model.accepted.extend(delta.accepted);
            model.applied.extend(delta.applied);
            model.quarantined.extend(delta.quarantined.into_iter().map(|row| (seq * 10, row)));
            let head = head(segments.clone(), seq);
            prop_assert_eq!(&Head::parse(&head.to_bytes(), PLACE).expect("in order").segments, &segments);
        }
        let content = Content::of(&segments, &blobs);
        let left = |rows: &[Accepted]| {
            rows.iter().filter(|row| row.event_time >= drained).cloned().collect::<Vec<_>>()
        };
        prop_assert_eq!(&content.fates, &model.fates);
        prop_assert_eq!(content.known(), model.known());
        prop_assert!(same(&left(&content.accepted), &left(&model.accepted)));
        prop_assert!(same(&content.applied, &model.applied));
        prop_assert_eq!(&content.quarantined, &model.quarantined);
    }

    #[test]
    fn a_document_is_taken_in_bit_for_bit(deltas in proptest::collection::vec(delta(), 1..20)) {
        let mut segments = Segments::default();
        let (mut blobs, mut waiting) = (HashMap::new(), Vec::new());
        for (seq, delta) in (1_i64..).zip(&deltas) {
            for made in encoded(delta, seq) {
                segments.append(made.kind, made.named);
                blobs.insert(made.named.hash, made.blob.bytes().to_vec());
            }
            compacted(&mut segments, &mut blobs, &mut waiting, (false, i64::MIN));
        }
        let head = head(segments, 99);
        let document = Exported::of("stream/é", &head.to_bytes());
        let parts: Vec<Vec<u8>> = Kind::ALL
            .into_iter()
            .flat_map(|kind| head.segments.of(kind).iter().map(move |named| (kind, named)))
            .map(|(kind, named)| {
                exported(&Segment::parse(&blobs[&named.hash], kind, PLACE).expect("sound"))
            })
            .collect();
        let bytes = [document.open, parts.join(&b','), document.close].concat();
        let value = crate::canonical::parse(&bytes, PLACE).expect("a document");
        prop_assert_eq!(&value.to_bytes().expect("finite"), &bytes);
        let (name, read, taken) = imported(&bytes, PLACE).expect("whole");
        prop_assert_eq!((name.as_str(), &read), ("stream/é", &head));
        for segment in taken {
            prop_assert_eq!(segment.blob.bytes(), &blobs[&segment.named.hash]);
        }
    }

    #[test]
    fn segments_of_any_size_stay_few_and_in_order(
        sizes in proptest::collection::vec(0_u64..(20 << 20), 1..400)
    ) {
        let mut segments = Segments::default();
        let total: u64 = sizes.iter().sum();
        for (seq, bytes) in (1_i64..).zip(sizes) {
            let hash = Hash::of(&seq.to_le_bytes());
            let (rows, until) = (1, None);
            let named = SegmentRef { hash, rows, bytes, level: 0, first: seq, last: seq, until };
            segments.append(Kind::Fates, named);
            while let Some(merge) = segments.plan(Kind::Fates) {
                prop_assert!(merge.bytes() <= 64 << 20, "a merge of {} bytes", merge.bytes());
                let (first, last) = (merge.inputs[0], merge.inputs[merge.inputs.len() - 1]);
                let made = SegmentRef {
                    hash: Hash::of(first.hash.as_bytes()),
                    bytes: merge.bytes(),
                    level: merge.level,
                    last: last.last,
                    ..first
                };
                prop_assert!(segments.adopt(&merge, Some(made)));
            }
            let head = head(segments.clone(), seq);
            prop_assert!(Head::parse(&head.to_bytes(), PLACE).is_ok(), "out of order");
        }
        let list = segments.of(Kind::Fates);
        prop_assert_eq!(list.iter().map(|segment| segment.bytes).sum::<u64>(), total);
        // Seven a level and three levels, and what was sealed: of two neighbours that are, one is large.
        let sealed = list.iter().filter(|segment| segment.level == SEALED).count();
        let large = usize::try_from(total / (32 << 20)).expect("few");
        prop_assert!(list.len() - sealed <= 21 && sealed <= 2 * large + 21, "{} of {}", sealed, total);
    }
}

fn small() -> Vec<NewSegment> {
    let fate = |n: u8, treatment, reason| Fate {
        id: [n; 16],
        partition: 1,
        offset: i64::from(n),
        treatment,
        reason,
    };
    let event = |time| Accepted {
        event_time: time,
        instrument: "sim.alpha".into(),
        seq: 3,
        id: [7; 16],
        partition: 0,
        fields: [1.5, f64::NAN].into(),
    };
    encoded(
        &Delta {
            fates: vec![
                fate(1, Treatment::Consumed, Reason::Gap),
                fate(2, Treatment::Omitted, Reason::TimeJump),
            ],
            identities: vec![
                Identity { id: [9; 16], payload: 1 },
                Identity { id: [3; 16], payload: 2 },
            ],
            accepted: vec![event(5), event(4)],
            applied: vec![Applied {
                event_time: 1,
                instrument: "sim.beta".into(),
                values: [f64::NAN][..].into(),
            }],
            quarantined: vec![Quarantined {
                partition: 0,
                offset: 8,
                treatment: Treatment::Late,
                reason: Reason::None,
                detail: "late".to_owned(),
                event_id: None,
                key: Some(vec![0]),
                value: None,
                hash: Hash::of(b""),
            }],
        },
        4,
    )
}

/// What a parsed segment would be written as.
fn written_again(segment: &Segment<'_>) -> Vec<u8> {
    let document = exported(segment);
    let head = {
        let mut segments = Segments::default();
        let body = segment.header.written(segment.body.to_vec()).expect("rows");
        segments.append(segment.header.kind, body.named);
        head(segments, i64::MAX)
    };
    let frame = Exported::of("stream/x", &head.to_bytes());
    let bytes = [frame.open, document, frame.close].concat();
    imported(&bytes, PLACE).expect("its own rows").2.remove(0).blob.bytes().to_vec()
}

#[test]
fn a_changed_bit_is_refused_or_is_what_another_commit_would_have_written() {
    for made in small() {
        assert_eq!(
            written_again(&Segment::parse(made.blob.bytes(), made.kind, PLACE).unwrap()),
            made.blob.bytes()
        );
        let mut read = 0;
        for at in 0..made.blob.bytes().len() * 8 {
            let mut bytes = made.blob.bytes().to_vec();
            bytes[at / 8] ^= 1 << (at % 8);
            assert_ne!(Hash::of(&bytes), made.named.hash);
            let Ok(segment) = Segment::parse(&bytes, made.kind, PLACE) else { continue };
            // Another offset, another id: a sound segment under another name.
            assert_eq!(written_again(&segment), bytes, "bit {at} of {:?}", made.kind);
            read += 1;
        }
        assert!(read < made.blob.bytes().len() * 8, "{:?} took everything", made.kind);
    }
}

#[test]
fn a_cut_or_lengthened_segment_and_one_of_another_kind_are_refused() {
    for made in small() {
        for len in 0..made.blob.bytes().len() {
            assert!(Segment::parse(&made.blob.bytes()[..len], made.kind, PLACE).is_err(), "{len}");
        }
        let long = [made.blob.bytes(), b"0"].concat();
        assert!(Segment::parse(&long, made.kind, PLACE).is_err());
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != made.kind) {
            let error = Segment::parse(made.blob.bytes(), kind, PLACE).unwrap_err().to_string();
            assert!(error.contains(PLACE), "{error}");
        }
    }
}

#[test]
fn a_head_is_refused_with_any_bit_changed_that_makes_it_another_text() {
    let mut segments = Segments::default();
    small().iter().for_each(|made| segments.append(made.kind, made.named));
    let whole = head(segments, 4).to_bytes();
    for at in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        assert_ne!(Hash::of(&bytes), Hash::of(&whole));
        if let Ok(head) = Head::parse(&bytes, PLACE) {
            assert_eq!(head.to_bytes(), bytes, "bit {at} reads as something else");
        }
    }
    for len in 0..whole.len() {
        assert!(Head::parse(&whole[..len], PLACE).is_err(), "cut at {len}");
    }
}

/// A head with one text in it replaced.
fn head_with(from: &str, to: &str) -> Error {
    let text = String::from_utf8(head(Segments::default(), 1).to_bytes()).unwrap();
    assert!(text.contains(from), "{text}");
    Head::parse(text.replacen(from, to, 1).as_bytes(), PLACE).unwrap_err()
}

#[test]
fn a_head_of_another_version_or_with_another_field_is_refused_by_name() {
    let other = head_with(r#""version":2"#, r#""version":3"#);
    assert!(matches!(other, Error::Version { found: 3, known: 2, .. }), "{other}");
    let more = head_with(r#""version":2"#, r#""version":2,"wit":0"#);
    assert!(more.to_string().contains(r#"unknown field "wit""#), "{more}");
    let kind = head_with("StreamHead", "StreamFates");
    assert!(kind.to_string().contains("StreamFates"), "{kind}");
    for (from, to) in [
        (r#""seq":1"#, r#""seq":0"#),
        (r#""fence":2"#, r#""fence":2.0"#),
        (r#""cluster":"cluster","#, ""),
        (r#""previous":"sha256:"#, r#""previous":"sha1:"#),
        (r#""fates":[]"#, r#""fates":[{}]"#),
        (r#"{"drained"#, r#"{ "drained"#),
    ] {
        assert!(matches!(head_with(from, to), Error::Damaged { .. }), "{to}");
    }
}

#[test]
fn rows_that_cannot_be_are_refused() {
    let made = |kind| small().into_iter().find(|made| made.kind == kind).expect("all kinds");
    let refused = |kind, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = made(kind).blob.bytes().to_vec();
        change(&mut bytes);
        let seen = Segment::parse(&bytes, kind, PLACE);
        assert!(matches!(seen, Err(Error::Damaged { .. })), "{kind:?}: {seen:?}");
    };
    // An unknown treatment, an unknown reason.
    refused(Kind::Fates, &|bytes| bytes.iter_mut().rev().take(2).for_each(|code| *code = 99));
    // Two rows in the wrong order, one id twice.
    refused(Kind::Identities, &|bytes| bytes.rotate_right(24));
    refused(Kind::Identities, &|bytes| {
        let at = bytes.len() - 48;
        bytes.copy_within(at..at + 16, at + 24);
    });
    // A NaN of another form, an instrument that has no name, a time above the highest.
    refused(Kind::Applied, &|bytes| *bytes.last_mut().unwrap() ^= 0x80);
    refused(Kind::Applied, &|bytes| {
        let at = bytes.len() - 20;
        bytes[at] = 1;
    });
    refused(Kind::Accepted, &|bytes| {
        let at = bytes.len() - 56 + 4;
        bytes[at] = 6;
    });
}
