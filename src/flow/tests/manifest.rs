//! Reading manifests: what is accepted, and what each refusal says.

use super::*;

/// Replaces `from` in the fixture's manifest; the error.
fn refused(from: &str, to: &str) -> Invalid {
    assert!(FIXTURE.contains(from), "{from}");
    let text = FIXTURE.replacen(from, to, 1);
    Flow::parse(text.as_bytes(), "f.yaml").expect_err(&text)
}

#[test]
fn the_fixture_reads_as_written() {
    let flow = Flow::parse(FIXTURE.as_bytes(), "f.yaml").expect("the fixture");
    assert_eq!(flow.name, "fixture.01_A_feature");
    assert_eq!(flow.snapshot.as_deref(), Some("fixture.snapshot.01"));
    assert_eq!(flow.instruments, ["sim.alpha"]);
    assert_eq!(flow.allowed_lateness_ns, 5_000_000_000);
    assert_eq!(flow.dataset, "features");
    let golden = flow.golden.expect("it has one").hex();
    assert_eq!(golden, "9e906a09a1c594964c16291a77cb38b0ffb021e69c230d71d1dd77ebbd6a7877");
    let node = &flow.nodes[0];
    assert_eq!((node.id.as_str(), node.definition.name, node.period), ("ema3", "ema", 3));
    assert_eq!(node.input, Input::Field("close".to_owned()));
    assert_eq!(
        String::from_utf8_lossy(&flow.canonical),
        r#"{"clock":{"allowed_lateness":"5s"},"instruments":["sim.alpha"],"kind":"Flow","name":"fixture.01_A_feature","nodes":[{"id":"ema3","input":"close","period":3,"type":"ema"}],"sink":{"dataset":"features"},"source":{"snapshot":"fixture.snapshot.01"}}"#
    );
}

#[test]
fn every_manifest_of_the_project_is_good() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let mut flows = 0;
    for entry in std::fs::read_dir(folder).expect("manifests/") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        if text.lines().any(|line| line.trim() == "kind: Flow") {
            Flow::parse(text.as_bytes(), &path.to_string_lossy()).expect("a good flow");
            flows += 1;
        }
    }
    assert!(flows >= 3);
}

#[test]
fn yaml_json_and_the_canonical_form_hash_alike() {
    let yaml = Flow::parse(FIXTURE.as_bytes(), "f.yaml").expect("YAML");
    let json = r#"{
        "sink": {"dataset": "features"}, "nodes": [{"period": 3, "type": "ema", "id": "ema3", "input": "close"}],
        "name": "fixture.01_A_feature", "source": {"snapshot": "fixture.snapshot.01"}, "kind": "Flow",
        "clock": {"allowed_lateness": "5s"}, "instruments": ["sim.\u0061lpha"]
    }"#;
    let json = Flow::parse(json.as_bytes(), "f.json").expect("JSON");
    assert_eq!(json.hash, yaml.hash, "and without a golden");
    assert_eq!(json.golden, None);
    let again = Flow::parse(&yaml.canonical, &yaml.hash.to_string()).expect("its own form");
    assert_eq!((again.hash, &again.canonical), (yaml.hash, &yaml.canonical));
    assert_eq!(yaml.hash, Hash::of(&yaml.canonical));
    let in_blocks = FIXTURE.replace(
        "{id: ema3, type: ema, period: 3, input: close}",
        "id: ema3\n    type: 'ema'\n    period: 0x3\n    input: \"close\"",
    );
    assert_eq!(Flow::parse(in_blocks.as_bytes(), "f.yml").expect("YAML in blocks").hash, yaml.hash);
    let other = FIXTURE.replace("period: 3", "period: 4");
    assert_ne!(Flow::parse(other.as_bytes(), "f.yaml").expect("another flow").hash, yaml.hash);
}

#[test]
fn what_may_be_left_out_may_be_left_out() {
    let flow = flow_of("", &["id: m, type: mom, period: 1, input: close"]);
    assert_eq!((flow.snapshot.clone(), flow.golden, flow.allowed_lateness_ns), (None, None, 0));
    assert!(flow.instruments.is_empty());
}

#[test]
fn each_refusal_has_its_code_place_and_hint() {
    for (from, to, code, place, hint) in [
        ("period: 3", "perod: 3", "FLOW_UNKNOWN_FIELD", "f.yaml:8:27", "did you mean \"period\"?"),
        ("type: ema", "type: emma", "FLOW_NODE_TYPE", "f.yaml:8:22", "did you mean \"ema\"?"),
        ("type: ema", "type: kalman", "FLOW_NODE_TYPE", "f.yaml:8:22", "node types: \"dema\""),
        ("source:", "sources:", "FLOW_UNKNOWN_FIELD", "f.yaml:4:1", "did you mean \"source\"?"),
        ("snapshot:", "snap:", "FLOW_UNKNOWN_FIELD", "f.yaml:4:10", "fields here: \"snapshot\""),
        ("kind: Flow", "kind: flow", "FLOW_KIND", "f.yaml:2:7", "kind: Flow"),
        ("kind: Flow", "king: Flow", "FLOW_MISSING_FIELD", "f.yaml:2:1", "kind"),
        ("name: fixture.01_A_feature", "name: 17", "FLOW_WRONG_TYPE", "f.yaml:3:7", "quotes"),
        ("name: fixture.01_A_feature", "name: ''", "FLOW_NAME", "f.yaml:3:7", "safe"),
        ("name: fixture.01_A_feature", "name: \"a\\0b\"", "FLOW_NAME", "f.yaml:3:7", "safe"),
        ("name: fixture.01_A_feature", "name: \"a\\x9bb\"", "FLOW_NAME", "f.yaml:3:7", "safe"),
        ("id: ema3", "id: close", "FLOW_NODE_ID", "f.yaml:8:10", "another id"),
        ("id: ema3", "id: \" x\"", "FLOW_NAME", "f.yaml:8:10", "safe"),
        ("period: 3", "period: 0", "FLOW_PERIOD", "f.yaml:8:35", "from 2 to 100000"),
        ("period: 3", "period: 1", "FLOW_PERIOD", "f.yaml:8:35", "from 2 to 100000"),
        ("period: 3", "period: -3", "FLOW_PERIOD", "f.yaml:8:35", "from 2 to 100000"),
        ("period: 3", "period: 100001", "FLOW_PERIOD", "f.yaml:8:35", "from 2 to 100000"),
        ("period: 3", "period: 2147483648", "FLOW_PERIOD", "f.yaml:8:35", "from 2 to 100000"),
        ("period: 3", "period: 4294967299", "FLOW_PERIOD", "f.yaml:8:35", "from 2 to 100000"),
        ("period: 3", "period: 18446744073709551615", "FLOW_PERIOD", "f.yaml:8:35", "from 2"),
        ("period: 3", "period: 99999999999999999999", "FLOW_SYNTAX", "f.yaml:8:35", "smaller"),
        ("period: 3", "period: 3.0", "FLOW_WRONG_TYPE", "f.yaml:8:35", "form of a flow"),
        ("period: 3", "period: '3'", "FLOW_WRONG_TYPE", "f.yaml:8:35", "form of a flow"),
        ("period: 3", "period: .nan", "FLOW_SYNTAX", "f.yaml:8:35", "a number"),
        (", period: 3", "", "FLOW_MISSING_FIELD", "f.yaml:8:5", "from 2 to 100000"),
        ("input: close", "input: instrument", "FLOW_INPUT", "f.yaml:8:45", "close"),
        ("input: close", "input: ema3", "FLOW_CYCLE", "f.yaml:8:45", "a field of the event"),
        ("input: close", "input: [close]", "FLOW_WRONG_TYPE", "f.yaml:8:45", "form of a flow"),
        ("[sim.alpha]", "[]", "FLOW_INSTRUMENTS", "f.yaml:5:14", "leave the field out"),
        ("[sim.alpha]", "[a, b, a]", "FLOW_INSTRUMENTS", "f.yaml:5:21", "once"),
        ("[sim.alpha]", "[a, 17]", "FLOW_WRONG_TYPE", "f.yaml:5:18", "quotes"),
        ("[sim.alpha]", "sim.alpha", "FLOW_WRONG_TYPE", "f.yaml:5:14", "form of a flow"),
        ("[sim.alpha]", "[\"sim\\nalpha\"]", "FLOW_NAME", "f.yaml:5:15", "safe"),
        ("5s", "5", "FLOW_WRONG_TYPE", "f.yaml:6:27", "quotes"),
        ("5s", "5 s", "FLOW_DURATION", "f.yaml:6:27", "such as 5s"),
        ("5s", "-5s", "FLOW_DURATION", "f.yaml:6:27", "such as 5s"),
        ("5s", "401d", "FLOW_DURATION", "f.yaml:6:27", "such as 5s"),
        ("5s", "99999999999999999999h", "FLOW_DURATION", "f.yaml:6:27", "such as 5s"),
        ("{allowed_lateness: 5s}", "soon", "FLOW_WRONG_TYPE", "f.yaml:6:8", "key: value"),
        ("sha256:9e", "sha256:9E", "FLOW_GOLDEN", "f.yaml:10:9", "values_hash"),
        ("sink: {dataset: features}\n", "", "FLOW_MISSING_FIELD", "f.yaml:2:1", "dataset"),
        ("name: fix", "name: x\nname: fix", "FLOW_DUPLICATE_KEY", "f.yaml:4:1", "one of the two"),
        (
            "period: 3",
            "period: 3, period: 4",
            "FLOW_DUPLICATE_KEY",
            "f.yaml:8:38",
            "one of the two",
        ),
        ("period: 3", "<<: {a: 1}", "FLOW_UNKNOWN_FIELD", "f.yaml:8:27", "fields here"),
        ("period: 3", "period: !int 3", "FLOW_SYNTAX", "f.yaml:8:35", "form of a flow"),
        ("period: 3", "7: 3", "FLOW_SYNTAX", "f.yaml:8:27", "form of a flow"),
        ("input: close}", "input: close", "FLOW_SYNTAX", "f.yaml:9:5", "form of a flow"),
        (
            "kind: Flow",
            "%TAG ! x\n---\n---\nkind: Flow",
            "FLOW_SYNTAX",
            "f.yaml:1:1",
            "form of a flow",
        ),
    ] {
        let error = refused(from, to);
        assert_eq!(error.code, code, "{to}: {error}");
        assert_eq!(error.place, place, "{to}: {error}");
        assert!(error.hint.contains(hint), "{to}: {}", error.hint);
    }
}

#[test]
fn json_errors_have_places_as_well() {
    let good = r#"{"kind":"Flow","name":"j","nodes":[
 {"id":"a","type":"ema","period":3,"input":"close"}],
 "sink":{"dataset":"d"}}"#;
    Flow::parse(good.as_bytes(), "f.json").expect("a good one");
    for (from, to, code, place) in [
        ("\"ema\"", "\"emo\"", "FLOW_NODE_TYPE", "f.json:2:19"),
        ("\"period\"", "\"periode\"", "FLOW_UNKNOWN_FIELD", "f.json:2:25"),
        ("\"period\":3", "\"period\":0", "FLOW_PERIOD", "f.json:2:34"),
        ("\"period\":3", "\"period\":3,\"period\":3", "FLOW_DUPLICATE_KEY", "f.json:2:36"),
        ("\"d\"", "7", "FLOW_WRONG_TYPE", "f.json:3:20"),
        ("\"d\"", "1e400", "FLOW_SYNTAX", "f.json:3:20"),
        ("{\"kind\"", "\u{feff}{\"kind\"", "FLOW_BOM", "f.json:1:1"),
        ("\"kind\":\"Flow\",", "", "FLOW_MISSING_FIELD", "f.json:1:1"),
        ("}}", "}},", "FLOW_SYNTAX", "f.json:3:25"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = Flow::parse(good.replacen(from, to, 1).as_bytes(), "f.json").expect_err(to);
        assert_eq!((error.code, error.place.as_str()), (code, place), "{to}: {error}");
    }
    // A byte-order mark makes JSON no YAML, whatever the name.
    let bom = format!("\u{feff}{good}");
    assert_eq!(Flow::parse(bom.as_bytes(), "flow").expect_err("BOM").code, "FLOW_BOM");
    for place in ["f.yaml", "flow"] {
        let error = Flow::parse("\u{feff}kind: Flow\n".as_bytes(), place).expect_err("BOM");
        assert_eq!((error.code, error.message.contains("byte-order")), ("FLOW_SYNTAX", true));
    }
    let error = Flow::parse(b"kind: \xff\n", "f.yaml").expect_err("not UTF-8");
    assert_eq!((error.code, error.place.as_str()), ("FLOW_SYNTAX", "f.yaml:1:1"));
    for (text, code) in [("", "FLOW_WRONG_TYPE"), ("- a", "FLOW_WRONG_TYPE"), ("\0", "FLOW_SYNTAX")]
    {
        assert_eq!(Flow::parse(text.as_bytes(), "f.yaml").expect_err(text).code, code);
    }
}

#[test]
fn nodes_may_be_named_in_any_order_but_not_in_a_circle() {
    let flow = flow_of(
        "",
        &[
            "id: c, type: sma, period: 2, input: b",
            "id: b, type: ema, period: 3, input: a",
            "id: a, type: mom, period: 1, input: volume",
            "id: d, type: max, period: 2, input: close",
        ],
    );
    assert_eq!(flow.plan.fields, ["close", "volume"]);
    assert_eq!(flow.nodes[0].input, Input::Node(1));
    let text = "kind: Flow\nname: x\nsink: {dataset: d}\nnodes:\n\
        - {id: out, type: sma, period: 2, input: a}\n\
        - {id: a, type: sma, period: 2, input: b}\n\
        - {id: b, type: sma, period: 2, input: c}\n\
        - {id: c, type: sma, period: 2, input: a}\n";
    let error = Flow::parse(text.as_bytes(), "f.yaml").expect_err("a circle");
    assert_eq!((error.code, error.place.as_str()), ("FLOW_CYCLE", "f.yaml:6:40"));
    assert!(error.message.ends_with(r#""a" <- "b" <- "c" <- "a""#), "{error}");
    let twice = text.replace("id: out", "id: b");
    let error = Flow::parse(twice.as_bytes(), "f.yaml").expect_err("two of one id");
    assert_eq!((error.code, error.place.as_str()), ("FLOW_NODE_ID", "f.yaml:7:8"));
    // A chain of all the nodes there may be, in the worst order.
    let link = |i: usize| format!("- {{id: n{i}, type: mom, period: 1, input: n{}}}\n", i + 1);
    let head = "kind: Flow\nname: x\nsink: {dataset: d}\nnodes:\n";
    let links = |count: usize| (0..count).map(link).collect::<String>();
    Flow::parse(format!("{head}{}", links(1000)).as_bytes(), "f.yaml").expect("a long chain");
    let error = Flow::parse(format!("{head}{}", links(1001)).as_bytes(), "f.yaml");
    assert_eq!(error.expect_err("too many").code, "FLOW_NODES");
}

#[test]
fn durations_have_units() {
    for (text, ns) in [
        ("0s", 0),
        ("1ns", 1),
        ("7us", 7000),
        ("100ms", 100_000_000),
        ("5s", 5_000_000_000),
        ("2m", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("400d", 34_560_000_000_000_000),
    ] {
        let text = FIXTURE.replace("5s", text);
        assert_eq!(
            Flow::parse(text.as_bytes(), "f.yaml").map(|flow| flow.allowed_lateness_ns),
            Ok(ns)
        );
    }
}
