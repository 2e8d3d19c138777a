//! Checkpoints of batch runs: a published run kept with its nodes, and gone on from over a longer snapshot.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use finaz::ids::Hash;
use finaz::journal::BatchCheckpoint;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::checkpoints::age;
use crate::proxy::Proxy;
use crate::stage::Stage;

const SOON: Duration = Duration::from_secs(60);
const EVENTS: usize = 120;

/// Three instruments, one of which comes late; with nulls.
fn line(at: usize) -> String {
    let instrument = if at < 50 { ["p", "q"][at % 2] } else { ["p", "q", "r"][at % 3] };
    let draw = (at * 7_919) % 1_009;
    let close = if draw.is_multiple_of(11) { "null".to_owned() } else { format!("{draw}.375e-2") };
    format!(
        r#"{{"event_id":"e{at}","instrument":"{instrument}","event_time":{},"close":{close},"volume":{}}}"#,
        at * 1_000_000_007,
        draw % 17
    )
}

impl Stage {
    /// A snapshot of the first so many events, under the name `first-N`; its name.
    #[track_caller]
    fn first(&self, events: usize) -> String {
        let mut lines = String::new();
        for at in 0..events {
            writeln!(lines, "{}", line(at)).expect("a string takes all");
        }
        self.imported(&format!("first-{events}"), &lines)
    }

    #[track_caller]
    fn imported(&self, name: &str, lines: &str) -> String {
        let file = self.file(&format!("{name}.jsonl"), lines);
        let import = ["snapshot", "import", &file, "--name", name, "--field", "volume"];
        self.finaz(&import).exits(0);
        name.to_owned()
    }

    /// A flow of every kind of node, some over others, over these instruments or all.
    fn every_node(&self, name: &str, instruments: &str) -> String {
        let text = format!(
            "kind: Flow\nname: {name}\n{instruments}clock: {{allowed_lateness: 0s}}\nnodes:\n\
             \x20 - {{id: a, type: ema, period: 3, input: close}}\n\
             \x20 - {{id: b, type: dema, period: 2, input: close}}\n\
             \x20 - {{id: c, type: sma, period: 4, input: close}}\n\
             \x20 - {{id: d, type: wma, period: 3, input: close}}\n\
             \x20 - {{id: e, type: rsi, period: 3, input: close}}\n\
             \x20 - {{id: f, type: roc, period: 2, input: close}}\n\
             \x20 - {{id: g, type: mom, period: 2, input: volume}}\n\
             \x20 - {{id: h, type: min, period: 3, input: e}}\n\
             \x20 - {{id: i, type: max, period: 3, input: volume}}\n\
             \x20 - {{id: j, type: stddev, period: 3, input: a}}\n\
             sink: {{dataset: features}}\n"
        );
        self.file(&format!("{name}.yaml"), text)
    }

    #[track_caller]
    fn once(&self, flow: &str, snapshot: &str) -> Value {
        self.json(&["run-once", "--flow", flow, "--snapshot", snapshot])
    }

    /// A run over the first so many events, kept; what `checkpoint commit` said.
    #[track_caller]
    fn kept(&self, flow: &str, events: usize) -> Value {
        let run = self.once(flow, &self.first(events));
        self.json(&["checkpoint", "commit", "--run-id", text(&run["run_id"]), "--reason", "kept"])
    }

    /// Taken on over a snapshot.
    #[track_caller]
    fn goes_on(&self, checkpoint: &Value, snapshot: &str) -> Value {
        self.json(&on(checkpoint, snapshot))
    }

    /// Where a blob lies.
    fn blob(&self, hash: &str) -> std::path::PathBuf {
        let hex = hash.strip_prefix("sha256:").expect("a hash");
        self.artifacts().join("cas/sha256").join(&hex[..2]).join(&hex[2..])
    }
}

/// The words that take a run on.
fn on<'a>(checkpoint: &'a Value, snapshot: &'a str) -> [&'a str; 8] {
    let id = text(&checkpoint["checkpoint"]);
    ["checkpoint", "restore", id, "--snapshot", snapshot, "--reason", "more came", "--yes"]
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

#[test]
fn a_run_that_goes_on_from_a_checkpoint_at_any_event_gives_the_whole_bit_for_bit() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let whole = stage.first(EVENTS);
    for (name, instruments) in [("all", ""), ("two", "instruments: [q, p]\n")] {
        let flow = stage.every_node(name, instruments);
        let published = stage.once(&flow, &whole);
        // What a run that goes on comes to is held against this one, blob against blob.
        for cut in [2, 3, 7, 49, 51, 90, EVENTS - 1, EVENTS] {
            let made = stage.kept(&flow, cut);
            assert_eq!(made["next_offsets"], json!({"0": cut}), "{made}");
            let of = &made["of"];
            assert_eq!(of["ledger"]["read"], cut, "{of}");
            assert_eq!(of["watermark"], (cut - 1) * 1_000_000_007, "{of}");
            let done = stage.goes_on(&made, &whole);
            assert_eq!(done["run"]["run_id"], published["run_id"]);
            assert_eq!(done["run"]["already_done"], true, "{done}");
            assert_eq!(done["run"]["result"], published["result"], "from {cut}");
            assert_eq!(done["restored"], Value::Null);
        }
    }
    let verified = stage.json(&["checkpoint", "verify"]);
    assert_eq!(verified["ok"], true, "{verified}");
    assert_eq!(stage.count("SELECT count(*) FROM finaz.restores"), 0, "nothing was published");
}

#[test]
fn the_state_of_a_run_that_went_on_twice_is_that_of_a_whole_one_elsewhere() {
    let (Some(stage), Some(elsewhere)) = (Stage::new(), Stage::without_warehouse()) else {
        return;
    };
    let flow = stage.every_node("f", "");
    let first = stage.kept(&flow, 40);
    let (middle, whole) = (stage.first(77), stage.first(EVENTS));
    let gone = stage.goes_on(&first, &middle);
    let restored = &gone["restored"];
    let span = (&restored["from_seq"], &restored["seq"], &restored["reason"]);
    assert_eq!(span, (&json!(40), &json!(77), &json!("more came")), "{gone}");
    let run = text(&gone["run"]["run_id"]);
    let admitted = stage.json(&["admit", "--flow", &flow, "--snapshot", &middle]);
    assert_eq!((text(&admitted["run_id"]), &admitted["created"]), (run, &json!(false)));
    let second = stage.json(&["checkpoint", "commit", "--run-id", run]);
    let gone = stage.goes_on(&second, &whole);
    let run = text(&gone["run"]["run_id"]).to_owned();
    let last = stage.json(&["checkpoint", "commit", "--run-id", &run]);

    let flow = elsewhere.every_node("f", "");
    let other = elsewhere.kept(&flow, EVENTS);
    assert_eq!(last["of"]["state"], other["of"]["state"]);
    assert_eq!(last["of"]["sink"], other["of"]["sink"]);
    assert_eq!(last["run_id"], other["run_id"]);
    let state = |stage: &Stage| fs::read(stage.blob(text(&last["of"]["state"]))).expect("a blob");
    assert_eq!(state(&stage), state(&elsewhere));

    // It was published as any run is: rows and blob agree, and who went on from what is on record once.
    let found = stage.json(&["reconcile", "--dry-run"]);
    let clean = (&found["checked"], &found["mismatches"], &found["orphans"]);
    assert_eq!(clean, (&json!(3), &json!([]), &json!([])), "{found}");
    let list = stage.json(&["checkpoint", "list", "--run-id", &run[..16]]);
    let [row] = &list["restores"].as_array().expect("a list")[..] else { panic!("{list}") };
    assert_eq!((&row["run_id"], &row["checkpoint"]), (&json!(run), &second["checkpoint"]));
    assert_eq!((&row["from_seq"], &row["seq"]), (&json!(77), &json!(EVENTS)), "{row}");
    assert_eq!(row["fence"], gone["run"]["fence"]);
    let diff =
        stage.json(&["checkpoint", "diff", text(&first["checkpoint"]), text(&last["checkpoint"])]);
    assert_eq!(diff["same_state"], false);
    assert_eq!(diff["instruments"], json!(["p", "q", "r"]), "{diff}");
}

#[test]
fn a_snapshot_that_begins_otherwise_another_epoch_and_another_engine_are_refused_with_the_field() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let flow = stage.every_node("f", "");
    let made = stage.kept(&flow, 30);
    let whole = stage.first(60);
    let runs = stage.count("SELECT count(*) FROM finaz.api_runs");
    let lines: Vec<String> = (0..60).map(line).collect();
    let changed = lines.join("\n").replacen("\"event_id\":\"e17\"", "\"event_id\":\"x17\"", 1);
    let cases = [
        (stage.imported("changed", &changed), 17),
        (stage.imported("less", &lines[1..].join("\n")), 0),
        (stage.first(29), 29),
    ];
    for (snapshot, event) in &cases {
        let refused = stage.finaz(&on(&made, snapshot)).refuses(1, "CHECKPOINT_INCOMPATIBLE");
        assert_eq!((&refused["field"], &refused["event"]), (&json!("snapshot"), &json!(event)));
        assert_eq!(refused["held"], made["of"]["snapshot"], "{refused}");
    }
    stage.finaz(&on(&made, "no-such")).refuses(2, "SNAPSHOT_UNKNOWN");

    stage.json(&["lease", "new-epoch", "--reason", "a backup was restored"]);
    let other = stage.finaz(&on(&made, &whole)).refuses(1, "CHECKPOINT_INCOMPATIBLE");
    let said = (&other["field"], &other["held"], &other["offered"]);
    assert_eq!(said, (&json!("epoch"), &json!("1"), &json!("2")));

    let manifest = fs::read(stage.blob(text(&made["manifest"]))).expect("a blob");
    let (mut foreign, _) = BatchCheckpoint::parse(&manifest, "manifest").expect("its own");
    foreign.made.engine += 1;
    let (bytes, manifest_hash) = foreign.to_bytes();
    let blob = Hash::of(&bytes);
    fs::write(stage.blob(&blob.to_string()), bytes).expect("written");
    stage.sql(&format!(
        "UPDATE finaz.checkpoints SET manifest = '\\x{}', manifest_hash = '\\x{}'",
        blob.hex(),
        manifest_hash.hex()
    ));
    assert!(text(&other["hint"]).contains("--epoch 1"), "{other}");
    let unknowing = [&on(&made, &whole)[..], &["--epoch", "3"]].concat();
    stage.finaz(&unknowing).refuses(1, "CHECKPOINT_INCOMPATIBLE");
    let knowing = [&on(&made, &whole)[..], &["--epoch", "1"]].concat();
    let other = stage.finaz(&knowing).refuses(1, "CHECKPOINT_INCOMPATIBLE");
    assert_eq!(other["field"], "engine", "{other}");
    assert_eq!(stage.count("SELECT count(*) FROM finaz.api_runs"), runs, "nothing was admitted");

    stage.sql(&format!(
        "UPDATE finaz.checkpoints SET manifest = '\\x{}', manifest_hash = '\\x{}'",
        &text(&made["manifest"])[7..],
        &text(&made["manifest_hash"])[7..]
    ));
    stage.json(&knowing);
}

#[test]
fn a_missing_or_changed_blob_of_a_run_is_named_and_nothing_goes_on_from_it() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let flow = stage.every_node("f", "");
    let made = stage.kept(&flow, 30);
    let whole = stage.first(60);
    let runs = stage.count("SELECT count(*) FROM finaz.api_runs");
    let id = text(&made["checkpoint"]);
    let blobs = made["blobs"].as_array().expect("blobs").iter().map(|blob| text(&blob["hash"]));
    let hashes: Vec<&str> = blobs.chain([text(&made["manifest"])]).collect();
    assert_eq!(hashes.len(), 5, "{made}");
    for hash in hashes {
        let file = stage.blob(hash);
        let whole_blob = fs::read(&file).expect("a blob");
        let mut turned = whole_blob.clone();
        turned[whole_blob.len() / 2] ^= 1;
        for damage in [None, Some(&turned[..]), Some(&whole_blob[..whole_blob.len() - 1])] {
            fs::remove_file(&file).expect("removed");
            if let Some(bytes) = damage {
                fs::write(&file, bytes).expect("written");
            }
            let refused = stage.finaz(&on(&made, &whole)).refuses(1, "CHECKPOINT_DAMAGED");
            assert!(text(&refused["message"]).contains(&hash[7..]), "{refused}");
            let verified = stage.finaz(&["checkpoint", "verify", id]).exits(1).json();
            assert!(verified["faults"].to_string().contains(&hash[7..]), "{verified}");
            if hash == text(&made["of"]["sink"]["result"]) {
                // Nor is it taken for what it was, to be kept anew.
                let commit = ["checkpoint", "commit", "--run-id", text(&made["run_id"])];
                let code = if damage.is_some() { "ARTIFACT_CORRUPT" } else { "ARTIFACT_MISSING" };
                stage.finaz(&commit).refuses(1, code);
            }
            let _gone = fs::remove_file(&file);
            fs::write(&file, &whole_blob).expect("put back");
        }
    }
    assert_eq!(stage.count("SELECT count(*) FROM finaz.api_runs"), runs, "nothing was admitted");
    stage.finaz(&["checkpoint", "verify", id]).exits(0);
    stage.goes_on(&made, &whole);
}

#[test]
fn what_a_checkpoint_of_a_run_names_outlives_gc_until_it_is_dropped_and_the_result_outlives_that() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let flow = stage.every_node("f", "");
    let made = stage.kept(&flow, 30);
    let id = text(&made["checkpoint"]).to_owned();
    let again = stage.json(&["checkpoint", "commit", "--run-id", text(&made["run_id"])]);
    assert_eq!(
        (&again["already_present"], &made["already_present"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(again["manifest_hash"], made["manifest_hash"]);
    let gc = || {
        age(&stage.artifacts());
        stage.json(&["cas", "gc", "--min-age-sec", "300"])["removed"].as_u64().expect("a number")
    };
    assert_eq!(gc(), 0);
    let verified = stage.json(&["checkpoint", "verify", &id]);
    assert_eq!(verified["ok"], true, "{verified}");
    stage.json(&["checkpoint", "drop", &id]);
    assert_eq!(gc(), 2, "its manifest and its state");
    stage.finaz(&["checkpoint", "show", &id]).refuses(2, "CHECKPOINT_UNKNOWN");
    let anew = stage.json(&["checkpoint", "commit", "--run-id", text(&made["run_id"])]);
    assert_eq!(anew["manifest_hash"], made["manifest_hash"], "a run is always the same");
}

#[test]
fn a_run_that_is_something_else_than_was_published_is_a_conflict_and_is_not_kept() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let flow = stage.every_node("f", "");
    let made = stage.kept(&flow, 30);
    let whole = stage.first(60);
    let run = stage.once(&flow, &whole);
    // Somebody wrote into the database.
    stage.sql(
        "UPDATE finaz.publications AS p SET ref = o.ref, values_hash = o.values_hash, rows = o.rows
         FROM finaz.publications AS o WHERE p.run_no = 2 AND o.run_no = 1",
    );
    let refused = stage.finaz(&on(&made, &whole)).refuses(1, "PUBLICATION_CONFLICT");
    assert_eq!(
        (&refused["held"], &refused["offered"]),
        (&made["of"]["sink"]["result"], &run["result"]["ref"])
    );
    let commit = ["checkpoint", "commit", "--run-id", text(&run["run_id"])];
    let refused = stage.finaz(&commit).refuses(1, "PUBLICATION_CONFLICT");
    assert_eq!(refused["run_id"], run["run_id"]);
    assert_eq!(stage.count("SELECT count(*) FROM finaz.checkpoints"), 1);
}

#[test]
fn a_run_that_goes_on_and_is_stopped_or_killed_is_given_back_or_swept_and_is_done_the_next_time() {
    let Some(mut stage) = Stage::new() else { return };
    stage.set("FINAZ_LEASE_TTL_SEC", "1");
    let flow = stage.every_node("f", "");
    let made = stage.kept(&flow, 30);
    let whole = stage.first(60);
    let direct = stage.clickhouse_url().to_owned();
    for (signal, state) in [(Signal::TERM, "QUEUED"), (Signal::KILL, "RUNNING")] {
        let clickhouse = Proxy::held_at_staging(&mut stage);
        let mut going = stage.start(&on(&made, &whole));
        clickhouse.springs();
        going.signal(signal);
        let run = going.wait(SOON);
        assert_eq!(run.exit, (signal == Signal::TERM).then_some(143), "{run:?}");
        assert_eq!(stage.runs(state), 1);
        assert_eq!(stage.count("SELECT count(*) FROM finaz.restores"), 0);
    }
    stage.set("FINAZ_CLICKHOUSE_URL", &direct);
    let done = stage.goes_on(&made, &whole);
    assert_eq!(done["run"]["already_done"], false, "{done}");
    assert_eq!(done["restored"]["fence"], done["run"]["fence"]);
    assert_eq!(stage.count("SELECT count(*) FROM finaz.restores"), 1);
}

#[test]
fn a_run_that_was_cancelled_is_gone_on_with_under_another_key() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let flow = stage.every_node("f", "");
    let made = stage.kept(&flow, 30);
    let whole = stage.first(60);
    let admitted = stage.json(&["admit", "--flow", &flow, "--snapshot", &whole]);
    stage.json(&["runs", "cancel", text(&admitted["run_id"])]);
    let refused = stage.finaz(&on(&made, &whole)).refuses(1, "RUN_CANCELLED");
    assert!(text(&refused["hint"]).contains("--key"), "{refused}");
    let other = stage.json(&[&on(&made, &whole)[..], &["--key", "again"]].concat());
    let plain = ["run-once", "--flow", &flow, "--snapshot", &whole, "--key", "again"];
    let plain = stage.json(&plain);
    assert_eq!(plain["already_done"], true, "it is the run of that key");
    assert_eq!(plain["result"]["ref"], other["run"]["result"]["ref"]);
}

#[test]
fn runs_that_are_not_published_and_names_of_none_are_refused_and_a_beginning_is_enough() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let flow = stage.every_node("f", "");
    let first = stage.first(10);
    let admitted = stage.json(&["admit", "--flow", &flow, "--snapshot", &first]);
    let run = text(&admitted["run_id"]).to_owned();
    let commit = |run: &str| stage.finaz(&["checkpoint", "commit", "--run-id", run]);
    let refused = commit(&run).refuses(1, "NOT_PUBLISHED");
    assert_eq!(refused["state"], "QUEUED");
    commit(&format!("run_{}", "0".repeat(64))).refuses(2, "RUN_UNKNOWN");
    commit("run_12").refuses(2, "RUN_ID_SHORT");
    commit("no-stream").refuses(2, "STREAM_UNKNOWN");
    let made = stage.kept(&flow, 10);
    assert_eq!(text(&made["run_id"]), run);
    let split = ["checkpoint", "commit", "--run-id", &run, "--partition", "0"];
    stage.finaz(&split).refuses(2, "PARTITION_UNKNOWN");
    let hash = text(&made["manifest_hash"]);
    for name in [&run[..], &run[..10], &format!("{}@1", &run[..20]), hash, &hash[7..15]] {
        let shown = stage.json(&["checkpoint", "show", name]);
        assert_eq!(shown["checkpoint"], made["checkpoint"], "{name}");
    }
    for name in [&run[..9], "run_", "run_%%%%%%%", &format!("{run}@2"), &format!("{run}0")] {
        stage.finaz(&["checkpoint", "show", name]).refuses(2, "CHECKPOINT_UNKNOWN");
    }
    let id = text(&made["checkpoint"]);
    let asks = stage.finaz(&["checkpoint", "restore", id, "--reason", "x"]);
    asks.refuses(2, "CONSENT_MISSING");
    let empty = ["checkpoint", "restore", id, "--reason", " ", "--yes"];
    stage.finaz(&empty).refuses(2, "REASON_EMPTY");
}

#[test]
fn on_a_terminal_a_run_goes_on_only_for_the_name_of_the_checkpoint() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let flow = stage.every_node("f", "");
    let made = stage.kept(&flow, 30);
    let whole = stage.first(60);
    let id = text(&made["checkpoint"]);
    let args = ["checkpoint", "restore", id, "--reason", "x", "--snapshot", &whole];
    for typed in ["", "yes\n", &format!("{}\n", &id[..20])] {
        let said = stage.on_terminal(&args, typed).exits(1);
        assert!(said.out.contains("CONSENT_REFUSED"), "{said:?}");
        assert_eq!(stage.count("SELECT count(*) FROM finaz.restores"), 0);
    }
    let said = stage.on_terminal(&args, &format!("{id}\n")).exits(0);
    assert!(said.out.contains(&format!("type {id} to go on: ")), "{said:?}");
    assert_eq!(stage.count("SELECT count(*) FROM finaz.restores"), 1);
}
