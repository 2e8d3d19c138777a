//! Import, flows, dry runs and the artifact store: all that works without a server.

use std::fs;

use serde_json::{Value, json};

use crate::{Place, repository, tree};

const GOLDEN: &str = "sha256:9e906a09a1c594964c16291a77cb38b0ffb021e69c230d71d1dd77ebbd6a7877";

fn import_fixture(place: &Place) -> Value {
    let file = repository("fixtures/fixture.snapshot.01.jsonl");
    let args = ["snapshot", "import", &file, "--name", "fixture.snapshot.01", "--json"];
    place.finaz(&args).exits(0).json()
}

fn import_stocks(place: &Place) -> Value {
    let file = repository("fixtures/stocks_monthly.csv");
    let run = place.finaz(&[
        "snapshot",
        "import",
        &file,
        "--name",
        "stocks.monthly",
        "--instrument-column",
        "symbol",
        "--time-column",
        "date",
        "--close-column",
        "price",
        "--time-format",
        "%b %e %Y",
        "--tz",
        "UTC",
        "--json",
    ]);
    run.exits(0).json()
}

#[test]
fn the_fixture_gives_the_golden_hash_without_a_server() {
    let place = Place::new();
    let imported = import_fixture(&place);
    assert_eq!(imported["events"], 18);
    assert_eq!(imported["instruments"], 3);
    assert_eq!(imported["already_present"], false);
    let flow = repository("manifests/fixture.01_A_feature.yaml");
    let dry = place.finaz(&["run-once", "--dry-run", "--flow", &flow, "--json"]).exits(0).json();
    assert_eq!(dry["result"]["values"], json!([null, null, 2.0, 3.0, 4.0, 5.0]));
    assert_eq!(dry["result"]["values_hash"], GOLDEN);
    assert_eq!(dry["result"]["rows"], 6);
    assert_eq!(dry["golden"], "EQUAL");
    assert_eq!(dry["snapshot"], imported["snapshot"]);
    // By name, now that the flow is known; and by the two hashes.
    let flow = dry["flow"].as_str().expect("a hash");
    let snapshot = dry["snapshot"].as_str().expect("a hash");
    for flow in ["fixture.01_A_feature", flow] {
        let args = ["run-once", "--dry-run", "--flow", flow, "--snapshot", snapshot, "--json"];
        assert_eq!(place.finaz(&args).exits(0).json()["result"], dry["result"]);
    }
}

#[test]
fn a_dry_run_tells_people_the_same() {
    let place = Place::new();
    import_fixture(&place);
    let flow = repository("manifests/fixture.01_A_feature.yaml");
    let run = place.finaz(&["run-once", "--dry-run", "--flow", &flow]).exits(0);
    assert!(run.out.contains("values   [null,null,2.0,3.0,4.0,5.0]"), "{}", run.out);
    assert!(run.out.contains(GOLDEN), "{}", run.out);
    assert!(run.out.lines().all(|line| line.chars().count() <= 80), "{}", run.out);
}

#[test]
fn values_that_are_not_the_promised_ones_end_1() {
    let place = Place::new();
    import_fixture(&place);
    let manifest = fs::read_to_string(repository("manifests/fixture.01_A_feature.yaml"))
        .expect("the manifest")
        .replace("9e906a09", "00000000");
    let flow = place.file("wrong.yaml", manifest);
    let run = place.finaz(&["run-once", "--dry-run", "--flow", &flow, "--json"]).exits(1);
    assert_eq!(run.json()["golden"], "DIFFERS");
}

#[test]
fn the_same_content_is_already_present_and_another_under_the_name_is_refused() {
    let place = Place::new();
    let first = import_fixture(&place);
    let again = import_fixture(&place);
    assert_eq!(again["already_present"], true);
    assert_eq!(again["snapshot"], first["snapshot"]);
    let other = repository("fixtures/stocks_monthly.csv");
    let mut args = vec![
        "snapshot",
        "import",
        &other,
        "--name",
        "fixture.snapshot.01",
        "--instrument-column",
        "symbol",
        "--time-column",
        "date",
        "--close-column",
        "price",
        "--time-format",
        "%b %e %Y",
        "--tz",
        "UTC",
        "--json",
    ];
    let run = place.finaz(&args).exits(1);
    assert_eq!(run.refusal(), "NAME_TAKEN");
    assert!(run.out.contains(first["snapshot"].as_str().expect("a hash")), "{run:?}");
    args.push("--replace");
    assert_ne!(place.finaz(&args).exits(0).json()["snapshot"], first["snapshot"]);
}

#[test]
fn snapshots_are_listed_and_described() {
    let place = Place::new();
    let imported = import_stocks(&place);
    let list = place.finaz(&["snapshot", "list", "--json"]).exits(0).json();
    assert_eq!(
        list,
        json!({"snapshots": [{"name": "stocks.monthly", "snapshot": imported["snapshot"]}]})
    );
    let shown = place.finaz(&["snapshot", "show", "stocks.monthly", "--json"]).exits(0).json();
    assert_eq!(shown["events"], 560);
    assert_eq!(shown["names"], json!(["stocks.monthly"]));
    assert_eq!(shown["instruments"].as_array().map(Vec::len), Some(5));
    let google = &shown["instruments"][2];
    assert_eq!(google["name"], "GOOG");
    assert_eq!(google["first"], "2004-08-01T00:00:00Z");
    let people = place.finaz(&["snapshot", "show", "stocks.monthly"]).exits(0);
    assert!(people.out.contains("GOOG"), "{}", people.out);
}

#[test]
fn flows_are_validated_saved_and_shown() {
    let place = Place::new();
    let files = [
        repository("manifests/fixture.01_A_feature.yaml"),
        repository("manifests/stocks_monthly.yaml"),
    ];
    let args = ["flow", "validate", &files[0], &files[1], "--json"];
    let validated = place.finaz(&args).exits(0).json();
    assert_eq!(validated["flows"][0]["name"], "fixture.01_A_feature");
    assert_eq!(validated["flows"][0]["golden"], GOLDEN);
    assert_eq!(validated["flows"][0]["nodes"][0]["type"], "ema");
    assert!(!place.path("artifacts").exists(), "a mere check makes no store");
    assert_eq!(place.finaz(&["flow", "list"]).exits(0).out, "no flows\n");
    assert!(!place.path("artifacts").exists(), "a question makes no store");

    place.finaz(&[&args[..], &["--save"]].concat()).exits(0).json();
    let list = place.finaz(&["flow", "list", "--json"]).exits(0).json();
    let names: Vec<&Value> =
        list["flows"].as_array().expect("a list").iter().map(|flow| &flow["name"]).collect();
    assert_eq!(names, ["fixture.01_A_feature", "stocks_monthly"]);
    let shown = place.finaz(&["flow", "show", "stocks_monthly", "--json"]).exits(0).json();
    assert_eq!(shown["instruments"], json!(["MSFT", "GOOG"]));
    assert_eq!(shown["flow"], validated["flows"][1]["flow"]);
    let people = place.finaz(&["flow", "show", "stocks_monthly"]).exits(0);
    assert!(people.out.contains("rsi20"), "{}", people.out);
}

#[test]
fn of_several_manifests_with_a_bad_one_none_is_saved() {
    let place = Place::new();
    let good = repository("manifests/stocks_monthly.yaml");
    let bad = place.file("bad.yaml", "kind: Flow\nname: x\n");
    place.finaz(&["flow", "validate", &good, &bad, "--save"]).exits(2);
    assert_eq!(place.finaz(&["flow", "list"]).exits(0).out, "no flows\n");
}

#[test]
fn a_snapshot_file_that_needs_no_flags_runs_as_it_is() {
    let place = Place::new();
    let flow = repository("manifests/fixture.01_A_feature.yaml");
    let file = repository("fixtures/fixture.snapshot.01.jsonl");
    let args = ["run-once", "--dry-run", "--flow", &flow, "--snapshot", &file, "--json"];
    assert_eq!(place.finaz(&args).exits(0).json()["result"]["values_hash"], GOLDEN);
    let csv = repository("fixtures/stocks_monthly.csv");
    let args = ["run-once", "--dry-run", "--flow", &flow, "--snapshot", &csv, "--json"];
    let run = place.finaz(&args).exits(2);
    assert_eq!(run.refusal(), "SNAPSHOT_NOT_IMPORTED");
    assert!(run.out.contains("finaz snapshot import"), "{run:?}");
}

#[test]
fn an_unknown_flow_or_snapshot_is_refused_with_the_name_that_was_meant() {
    let place = Place::new();
    import_fixture(&place);
    let flow = repository("manifests/fixture.01_A_feature.yaml");
    place.finaz(&["flow", "validate", &flow, "--save", "--json"]).exits(0).json();
    let hash = format!("sha256:{}", "0".repeat(64));
    for (args, code, hint) in [
        (
            ["--flow", "fixture.01_A_featur", "--snapshot", "x"],
            "FLOW_UNKNOWN",
            "fixture.01_A_feature",
        ),
        (
            ["--flow", "fixture.01_A_feature", "--snapshot", "fixture.snapshot.1"],
            "SNAPSHOT_UNKNOWN",
            "fixture.snapshot.01",
        ),
        (["--flow", &hash, "--snapshot", "x"], "FLOW_UNKNOWN", "flow list"),
        (
            ["--flow", "fixture.01_A_feature", "--snapshot", &hash],
            "SNAPSHOT_UNKNOWN",
            "snapshot list",
        ),
        (["--flow", "./no.yaml", "--snapshot", "x"], "FLOW_UNREADABLE", "manifest"),
    ] {
        let run = place.finaz(&[&["run-once", "--dry-run", "--json"][..], &args].concat()).exits(2);
        assert_eq!(run.refusal(), code, "{args:?}");
        assert!(run.out.contains(hint), "{args:?}: {run:?}");
    }
    let flow_hash =
        place.finaz(&["flow", "list", "--json"]).exits(0).json()["flows"][0]["flow"].clone();
    let args =
        ["--flow", "fixture.01_A_feature", "--snapshot", flow_hash.as_str().expect("a hash")];
    let run = place.finaz(&[&["run-once", "--dry-run", "--json"][..], &args].concat()).exits(2);
    assert_eq!(run.refusal(), "SNAPSHOT_UNKNOWN", "a flow is no snapshot");
}

#[test]
fn the_artifact_store_is_verified_and_damage_is_found() {
    let place = Place::new();
    let imported = import_fixture(&place);
    let sound = place.finaz(&["cas", "verify", "--json"]).exits(0).json();
    assert_eq!((&sound["damages"], &sound["labels"]), (&json!(0), &json!(1)));
    let hex = imported["snapshot"].as_str().and_then(|hash| hash.strip_prefix("sha256:"));
    let (first, rest) = hex.expect("a hash").split_at(2);
    let blob = place.path("artifacts").join("cas/sha256").join(first).join(rest);
    let mut bytes = fs::read(&blob).expect("a loose blob");
    bytes[7] ^= 1;
    fs::remove_file(&blob).expect("ours");
    fs::write(&blob, bytes).expect("ours");
    let damaged = place.finaz(&["cas", "verify", "--json"]).exits(1).json();
    assert_eq!(damaged["damages"], 1);
    assert_eq!(damaged["damaged"][0]["hash"], imported["snapshot"]);
    let flow = repository("manifests/fixture.01_A_feature.yaml");
    let run = place.finaz(&["run-once", "--dry-run", "--flow", &flow, "--json"]).exits(1);
    assert_eq!(run.refusal(), "ARTIFACT_CORRUPT");
}

#[test]
fn files_of_the_store_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    import_fixture(&place);
    for name in tree(&place.path("artifacts")) {
        let path = place.path("artifacts").join(&name);
        let mode = |path: &std::path::Path| {
            fs::metadata(path).expect("it is there").permissions().mode() & 0o777
        };
        assert_eq!(mode(&path), 0o600, "{name}");
        assert_eq!(mode(path.parent().expect("a folder")), 0o700, "{name}");
    }
}
