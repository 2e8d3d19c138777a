//! A beginning of a snapshot, and the rest behind it: together they are the whole, bit for bit.

use super::*;

/// Every kind of node, some over others.
const NODES: &[&str] = &[
    "id: a, type: ema, period: 3, input: close",
    "id: b, type: dema, period: 2, input: close",
    "id: c, type: sma, period: 4, input: close",
    "id: d, type: wma, period: 3, input: close",
    "id: e, type: rsi, period: 3, input: close",
    "id: f, type: roc, period: 2, input: close",
    "id: g, type: mom, period: 2, input: volume",
    "id: h, type: min, period: 3, input: e",
    "id: i, type: max, period: 3, input: volume",
    "id: j, type: stddev, period: 3, input: a",
];

/// Events of three instruments, of which one comes late; with nulls.
fn events() -> Vec<u8> {
    let mut events = Vec::new();
    for at in 0..40_i64 {
        for (number, name) in ["p", "q", "r"].into_iter().enumerate() {
            let number = i64::try_from(number).expect("a few");
            let draw = (at * 7_919 + number * 104_729) % 1_009;
            if draw % 5 == 0 || name == "r" && at < 17 {
                continue;
            }
            let close = if draw % 11 == 0 { "null".to_owned() } else { format!("{draw}.125e-3") };
            let rest = format!(r#""close":{close},"volume":{}"#, draw % 13);
            events.push((at * 1_000_000_007, name, rest));
        }
    }
    let events: Vec<_> = events
        .iter()
        .zip(0..)
        .map(|((time, name, rest), seq)| (*time, *name, seq, rest.as_str()))
        .collect();
    body(&events)
}

/// What is kept of a beginning: each state as its value, taken up again.
fn taken_up(flow: &Flow, begun: Begun) -> Begun {
    let again = |(name, nodes): (String, InstrumentState)| {
        (name, flow.resume(&nodes.state()).expect("a state of its own"))
    };
    Begun { nodes: begun.nodes.into_iter().map(again).collect(), ..begun }
}

#[test]
fn what_goes_on_from_any_event_is_the_whole_bit_for_bit() {
    let whole = events();
    let snapshot = Hash::of(&whole);
    let ends: Vec<usize> = memchr::memchr_iter(b'\n', &whole).map(|at| at + 1).collect();
    assert!(ends.len() > 80);
    for instruments in ["", "[q, p]", "[p]"] {
        let flow = flow_of(instruments, NODES);
        let projection = projected(&flow, &whole).expect("a good snapshot");
        let complete = compute_kept(&flow, snapshot, &projection).expect("its own projection");
        let mut went_on = 0;
        for (cut, end) in ends.iter().enumerate() {
            let (beginning, mut rest) = whole.split_at(*end);
            // An instrument of the flow may not have come yet: such a run fails, and nothing goes on from it.
            let Ok(projection) = projected(&flow, beginning) else { continue };
            let begun = compute_kept(&flow, Hash::of(beginning), &projection).expect("its own");
            let begun = taken_up(&flow, begun);
            assert_eq!(begun.reached.events, cut as u64 + 1);
            let projection = project_rest(&flow, &mut rest, "snap", &begun).expect("the rest");
            assert_eq!(projection.reached, complete.reached);
            let batch = compute_on(&flow, snapshot, &projection, begun).expect("its own");
            assert!(batch.to_blob() == complete.batch.to_blob(), "from {cut}, {instruments}");
            went_on += 1;
        }
        assert!(went_on > 70, "{went_on}");
    }
}

#[test]
fn a_rest_that_is_not_behind_its_beginning_is_refused() {
    let flow = flow_of("[p]", &NODES[..1]);
    let whole = events();
    let end = memchr::memchr_iter(b'\n', &whole).nth(9).expect("ten events") + 1;
    let (beginning, rest) = whole.split_at(end);
    let projection = projected(&flow, beginning).expect("a good snapshot");
    let begun = compute_kept(&flow, Hash::of(beginning), &projection).expect("its own");
    let mut twice = beginning;
    let error = project_rest(&flow, &mut twice, "snap", &begun).expect_err("out of order");
    assert!(error.to_string().starts_with("snap:11: "), "{error}");
    let mut cut = &rest[..rest.len() - 1];
    let error = project_rest(&flow, &mut cut, "snap", &begun).expect_err("cut off");
    assert!(error.to_string().contains("does not end"), "{error}");
}
