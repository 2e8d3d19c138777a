//! Values and their hashes.

use super::*;
use crate::canonical;

fn computed(flow: &Flow, body: &[u8]) -> FeatureBatch {
    let projection = projected(flow, body).expect("a good snapshot");
    compute(flow, Hash::of(body), &projection).expect("projected for this flow")
}

/// The fixture as the import writes it.
fn fixture() -> Vec<u8> {
    include_str!("../../../fixtures/fixture.snapshot.01.jsonl")
        .lines()
        .flat_map(|line| {
            let value = canonical::parse(line.as_bytes(), "fixture").expect("JSON");
            [value.to_bytes().expect("finite"), b"\n".to_vec()].concat()
        })
        .collect()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn the_fixture_gives_the_golden() {
    let flow = Flow::parse(FIXTURE.as_bytes(), "f.yaml").expect("the fixture");
    let batch = computed(&flow, &fixture());
    assert_eq!(text(batch.values_bytes()), "[null,null,2.0,3.0,4.0,5.0]");
    assert_eq!(
        batch.values_hash.hex(),
        "9e906a09a1c594964c16291a77cb38b0ffb021e69c230d71d1dd77ebbd6a7877"
    );
    assert_eq!(Some(batch.values_hash), flow.golden);
    assert_eq!(batch.rows(), 6);
    let series = &batch.series[0];
    assert_eq!((series.instrument.as_str(), series.node.as_str()), ("sim.alpha", "ema3"));
    assert_eq!((series.values.len(), series.values_hash), (6, batch.values_hash));
    assert_eq!(batch.times[0].event_time.len(), 6);
    assert_eq!((batch.flow, batch.snapshot), (flow.hash, Hash::of(&fixture())));
}

#[test]
fn values_of_no_instrument_are_json_as_well() {
    let flow = Flow::parse(FIXTURE.as_bytes(), "f.yaml").expect("the fixture");
    let none = gather(&flow, Hash::of(b"log"), Vec::new());
    assert_eq!((text(none.values_bytes()), none.rows()), ("{}", 0));
    assert_eq!(none.values_hash, Hash::of(b"{}"));
}

#[test]
fn real_prices_give_the_hashes_of_ta_lib() {
    let vectors: serde_json::Value =
        serde_json::from_slice(include_bytes!("../../../tests/data/vectors/talib.json"))
            .expect("JSON");
    let csv = include_str!("../../../fixtures/stocks_monthly.csv");
    let mut events = Vec::new();
    let prices: Vec<(String, String)> = csv
        .lines()
        .skip(1)
        .map(|line| {
            let (symbol, rest) = line.split_once(',').expect("three columns");
            let price: f64 = rest.rsplit(',').next().and_then(|x| x.parse().ok()).expect("a price");
            let mut close = b"\"close\":".to_vec();
            canonical::write_f64(price, &mut close);
            (symbol.to_owned(), text(&close).to_owned())
        })
        .collect();
    for (time, (symbol, close)) in (0..).zip(&prices) {
        events.push((time, symbol.as_str(), 0, close.as_str()));
    }
    let flow = Flow::parse(include_bytes!("../../../manifests/stocks_monthly.yaml"), "s.yaml")
        .expect("good");
    let batch = computed(&flow, &body(&events));
    let mut checked = 0;
    for series in &batch.series {
        let key = format!("stocks_monthly.csv:price[{}]", series.instrument);
        let node = format!("{}({})", series.node.trim_end_matches("20"), 20);
        assert_eq!(vectors["series"][key][&node], series.values_hash.to_string(), "{node}");
        checked += 1;
    }
    assert_eq!(checked, 4);
}

#[test]
fn the_hashed_shape_follows_the_number_of_nodes_and_instruments() {
    let body = body(&[
        (1, "a", 0, r#""close":1.0"#),
        (1, "b", 0, r#""close":2.0"#),
        (2, "a", 1, r#""close":3.0"#),
        (3, "b", 1, r#""close":null"#),
    ]);
    let (mom, max) =
        ("id: z, type: mom, period: 1, input: close", "id: m, type: max, period: 2, input: close");
    for (instruments, nodes, shape) in [
        ("[a]", vec![mom], "[null,2.0]"),
        ("[a]", vec![mom, max], r#"{"m":[null,3.0],"z":[null,2.0]}"#),
        ("[b, a]", vec![mom], r#"{"a":[null,2.0],"b":[null,null]}"#),
        ("", vec![mom], r#"{"a":[null,2.0],"b":[null,null]}"#),
        (
            "[b, a]",
            vec![mom, max],
            r#"{"a":{"m":[null,3.0],"z":[null,2.0]},"b":{"m":[null,null],"z":[null,null]}}"#,
        ),
    ] {
        let batch = computed(&flow_of(instruments, &nodes), &body);
        assert_eq!(text(batch.values_bytes()), shape);
        assert_eq!(batch.values_hash, Hash::of(shape.as_bytes()));
        let canonical = canonical::parse(shape.as_bytes(), "shape").and_then(|v| v.to_bytes());
        assert_eq!(canonical.as_deref(), Ok(shape.as_bytes()), "the shape is canonical");
        for series in &batch.series {
            let mut list = String::from("[");
            for x in &series.values {
                list += if list.len() > 1 { "," } else { "" };
                list += &if x.is_nan() { "null".to_owned() } else { format!("{x:?}") };
            }
            assert_eq!(series.values_hash, Hash::of(format!("{list}]").as_bytes()));
        }
        assert_eq!(batch.series[0].node, "z", "in the flow's order");
    }
}

#[test]
fn a_node_after_a_node_sees_its_warm_up_as_gaps() {
    let prices: Vec<String> = (1..=8).map(|x| format!("\"close\":{x}.0")).collect();
    let events: Vec<_> =
        (0..).zip(&prices).map(|(time, close)| (time, "a", 0, close.as_str())).collect();
    let flow = flow_of(
        "[a]",
        &[
            "id: last, type: sma, period: 3, input: first",
            "id: first, type: ema, period: 3, input: close",
            "id: again, type: mom, period: 1, input: close",
        ],
    );
    let batch = computed(&flow, &body(&events));
    assert_eq!(
        text(batch.values_bytes()),
        r#"{"again":[null,1.0,1.0,1.0,1.0,1.0,1.0,1.0],"first":[null,null,2.0,3.0,4.0,5.0,6.0,7.0],"last":[null,null,null,null,3.0,4.0,5.0,6.0]}"#
    );
}

#[test]
fn a_batch_reads_back_from_its_blob() {
    let nodes =
        ["id: z, type: mom, period: 1, input: close", "id: m, type: max, period: 2, input: close"];
    let body = body(&[
        (1, "b", 0, r#""close":2.5"#),
        (5, "a", 0, r#""close":-1.0"#),
        (9, "b", 1, r#""close":1e+16"#),
    ]);
    for (instruments, count) in [("[b]", 1), ("[b]", 2), ("[b, a]", 1), ("[b, a]", 2)] {
        let flow = flow_of(instruments, &nodes[..count]);
        let batch = computed(&flow, &body);
        let blob = batch.to_blob();
        let value = canonical::parse(&blob, "blob").expect("JSON");
        assert_eq!(value.to_bytes().as_deref(), Ok(&blob[..]), "a blob is canonical");
        let back = FeatureBatch::from_blob(&blob, "blob").expect("its own blob");
        assert_eq!(back.to_blob(), blob);
        assert_eq!((back.rows(), back.values_hash), (batch.rows(), batch.values_hash));
        assert_eq!(back.values_bytes(), batch.values_bytes());
        assert_eq!(back.series[0].instrument, "b", "the order is kept");
        assert_eq!(back.times[0].event_time, [1, 9]);
    }
}

#[test]
fn a_blob_that_was_changed_anywhere_is_refused() {
    let flow = Flow::parse(FIXTURE.as_bytes(), "f.yaml").expect("the fixture");
    let blob = computed(&flow, &fixture()).to_blob();
    let text = text(&blob);
    for (from, to) in [
        ("2.0,3.0", "2.0,3.5"),
        ("2.0,3.0", "2,3.0"),
        ("\"rows\":6", "\"rows\":7"),
        ("\"kind\":\"FeatureBatch\"", "\"kind\":\"Featurebatch\""),
        ("\"node\":\"ema3\"", "\"node\":\"ema4\",\"x\":1"),
        ("\"values\":[null,", "\"values\":["),
        ("\"series\":[", "\"series\":[ "),
        ("\"series\":[", "\"series\":[{\"instrument\":\"q\",\"node\":\"q\"},"),
        ("\"values\":[", "\"values\":[[],"),
        ("9e906a09", "9e906a08"),
        ("{\"sim.alpha\":[1767", "{\"sim.alpha\":[1766,1767"),
        ("{\"flow\"", "{\"extra\":1,\"flow\""),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let error = FeatureBatch::from_blob(text.replacen(from, to, 1).as_bytes(), "blob");
        assert_eq!(error.expect_err(to).code, "BATCH_DAMAGED", "{to}");
    }
    for other in [
        b"".as_slice(),
        b"{}",
        b"[]",
        b"null",
        &fixture(),
        &flow.canonical,
        &blob[..blob.len() - 1],
    ] {
        assert_eq!(
            FeatureBatch::from_blob(other, "blob").expect_err("no batch").code,
            "BATCH_DAMAGED"
        );
    }
}

#[test]
fn a_projection_for_another_flow_is_refused() {
    let body = body(&[(1, "a", 0, r#""close":1.0,"volume":2.0"#)]);
    let one = flow_of("", &["id: m, type: mom, period: 1, input: close"]);
    let other = flow_of("", &["id: m, type: mom, period: 1, input: volume"]);
    let projection = projected(&one, &body).expect("good");
    let error = compute(&other, Hash::of(&body), &projection).expect_err("another flow's");
    assert_eq!(error.code, "FLOW_PROJECTION");
}
