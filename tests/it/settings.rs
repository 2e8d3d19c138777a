//! Where settings come from, which wins, and what is never shown.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::Place;

const SECRET: &str = "hunter2";

/// The place of the first setting that is refused tells which source was heeded.
fn refused_place(place: &Place, environment: &[(&str, &str)], args: &[&str]) -> String {
    let run = place.finaz_with(environment, args).exits(2);
    let document = run.json();
    document["error"]["place"].as_str().unwrap_or_else(|| panic!("no place: {run:?}")).to_owned()
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let place = Place::new();
    let config = place.file("c.yaml", "lease_ttl_sec: 0\n");
    let bad = [("FINAZ_LEASE_TTL_SEC", "0")];
    let good = [("FINAZ_LEASE_TTL_SEC", "5")];
    let list = ["snapshot", "list", "--json", "--config", &config];
    let with_flag = |value| [&list[..], &["--lease-ttl-sec", value]].concat();
    assert_eq!(refused_place(&place, &[], &list), format!("{config}:1: lease_ttl_sec"));
    assert_eq!(refused_place(&place, &bad, &list), "FINAZ_LEASE_TTL_SEC");
    assert_eq!(refused_place(&place, &good, &with_flag("0")), "--lease-ttl-sec");
    // What is overruled is not even looked at.
    assert_eq!(place.finaz_with(&good, &list).exits(0).err, "");
    assert_eq!(place.finaz_with(&bad, &with_flag("5")).exits(0).err, "");
    assert_eq!(place.finaz(&["snapshot", "list"]).exits(0).err, "");
}

#[test]
fn an_empty_variable_is_not_set() {
    let place = Place::new();
    let empty = [("FINAZ_LEASE_TTL_SEC", ""), ("FINAZ_JSON", ""), ("FINAZ_CONFIG", "")];
    let run = place.finaz_with(&empty, &["snapshot", "list"]).exits(0);
    assert_eq!((run.out.as_str(), run.err.as_str()), ("no snapshots\n", ""));
}

#[test]
fn an_unknown_variable_is_a_warning_with_what_was_meant() {
    let place = Place::new();
    let environment = [("FINAZ_PG_ULR", "x"), ("FINAZ_XYZZY", "x"), ("OTHER", "x")];
    let run = place.finaz_with(&environment, &["snapshot", "list"]).exits(0);
    assert_eq!(
        run.err,
        "warning: the variable FINAZ_PG_ULR means nothing to finaz; did you mean FINAZ_PG_URL?\n\
         warning: the variable FINAZ_XYZZY means nothing to finaz\n"
    );
    assert_eq!(place.finaz_with(&environment, &["snapshot", "list", "--quiet"]).exits(0).err, "");
}

#[test]
fn the_variable_of_any_flag_is_known() {
    let place = Place::new();
    let environment = [
        ("FINAZ_TIME_COLUMN", "t"),
        ("FINAZ_FLOW", "f"),
        ("FINAZ_DRAIN", "true"),
        ("FINAZ_REASON", "r"),
        ("FINAZ_STREAM_RUN_ID", "r"),
        ("FINAZ_BROKERS", "127.0.0.1:9092"),
    ];
    assert_eq!(place.finaz_with(&environment, &["snapshot", "list"]).exits(0).err, "");
}

#[test]
fn a_config_with_an_unknown_key_is_refused() {
    let place = Place::new();
    let config = place.file("c.yaml", "owner: me\nlease_ttl: 5\n");
    let run = place.finaz(&["snapshot", "list", "--json", "--config", &config]).exits(2);
    assert_eq!(run.refusal(), "CONFIG_UNKNOWN_KEY");
    let document = run.json();
    let message = document["error"]["message"].as_str().expect("a message");
    assert!(message.contains(":2:1: unknown key `lease_ttl`, did you mean `lease_ttl_sec`?"));
}

#[test]
fn a_config_that_is_not_there_is_refused() {
    let place = Place::new();
    let run = place.finaz(&["snapshot", "list", "--json", "--config", "no.yaml"]).exits(2);
    assert_eq!(run.refusal(), "CONFIG_UNREADABLE");
}

#[test]
fn a_number_out_of_bounds_is_refused_with_the_bounds() {
    let place = Place::new();
    for (args, bounds) in [
        (&["snapshot", "list", "--lease-ttl-sec", "0"][..], "0.1 to 86400"),
        (&["snapshot", "list", "--lease-ttl-sec", "-1"], "0.1 to 86400"),
        (&["snapshot", "list", "--lease-ttl-sec", "100000"], "0.1 to 86400"),
        (&["worker", "--batch", "100000000000"], "1 to 5000"),
        (&["worker", "--batch", "100GB"], "1 to 5000"),
        (&["lease", "acquire", "stream/x", "--ttl", "0"], "0.1 to 86400"),
        (&["lease", "acquire", "stream/x", "--ttl", "-5"], "0.1 to 86400"),
        (&["runs", "list", "--limit", "100000000000"], "1..=10000"),
        (&["runs", "list", "--limit", "0"], "1..=10000"),
    ] {
        let run = place.finaz(&[args, &["--json"]].concat()).exits(2);
        run.refusal();
        assert!(run.out.contains(bounds), "{args:?}: {run:?}");
    }
}

#[test]
fn a_typed_password_is_refused_and_never_shown() {
    let place = Place::new();
    for url in [
        "postgres://u:hunter2@h/d",
        "postgres://u@h/d?password=hunter2",
        "host=h user=u password=hunter2",
    ] {
        for args in [
            &["snapshot", "list", "--json", "--pg-url", url][..],
            &["snapshot", "list", "--json", &format!("--pg-url={url}")],
        ] {
            let run = place.finaz(args).exits(2);
            assert_eq!(run.refusal(), "SECRET_ON_COMMAND_LINE");
            assert!(!run.out.contains(SECRET) && !run.err.contains(SECRET), "{run:?}");
        }
    }
    let http = "http://u:hunter2@h:8123";
    let run = place.finaz(&["doctor", "--json", "--clickhouse-url", http]).exits(2);
    assert_eq!(run.refusal(), "SECRET_ON_COMMAND_LINE");
    assert!(!run.out.contains(SECRET) && !run.err.contains(SECRET), "{run:?}");
}

#[test]
fn no_message_shows_a_password() {
    let place = Place::new();
    let url = "postgres://u:hunter2@127.0.0.1:1/d";
    let environment = [("FINAZ_PG_URL", url)];
    for args in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["db", "status"],
        &["db", "migrate", "--log-level", "trace"],
        &["runs", "list", "--json"],
        &["--help"],
        &["no-such", "x"],
    ] {
        let run = place.finaz_with(&environment, args);
        assert!(!run.out.contains(SECRET) && !run.err.contains(SECRET), "{args:?}: {run:?}");
    }
    // Where the URL does not belong, and in a form that the parser would quote.
    for args in [&["doctor", url][..], &["doctor", &format!("--pg-ulr={url}")], &[url]] {
        let run = place.finaz(args).exits(2);
        assert!(!run.out.contains(SECRET) && !run.err.contains(SECRET), "{args:?}: {run:?}");
    }
    for bad in ["mysql://u:hunter2@h/d", "hunter2", "postgres://u:hunter2@h:port/d"] {
        let run = place.finaz_with(&[("FINAZ_PG_URL", bad)], &["db", "status", "--json"]).exits(2);
        assert!(!run.out.contains(SECRET) && !run.err.contains(SECRET), "{bad}: {run:?}");
    }
}

#[test]
fn a_config_with_a_password_that_others_can_read_is_warned_about() {
    let place = Place::new();
    let config = place.file("c.yaml", "pg_url: postgres://u:hunter2@127.0.0.1:1/d\n");
    for (mode, warnings) in [(0o644, 1), (0o600, 0)] {
        fs::set_permissions(&config, fs::Permissions::from_mode(mode)).expect("our file");
        let run = place.finaz(&["snapshot", "list", "--config", &config]).exits(0);
        assert_eq!(run.err.lines().count(), warnings, "{run:?}");
        assert!(!run.err.contains(SECRET), "{run:?}");
    }
}

#[test]
fn logs_and_errors_are_json_lines_when_asked_for() {
    let place = Place::new();
    let environment =
        [("FINAZ_XYZZY", "x"), ("FINAZ_PG_URL", "postgres://u:hunter2@127.0.0.1:1/d")];
    let args = ["db", "status", "--log-format", "json", "--log-level", "debug"];
    let run = place.finaz_with(&environment, &args).exits(75);
    assert!(!run.err.is_empty());
    for line in run.err.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(entry["level"].is_string(), "{line}");
    }
    assert!(!run.err.contains(SECRET), "{run:?}");
}

#[test]
fn an_absent_service_ends_75_and_says_which() {
    let place = Place::new();
    let environment = [("FINAZ_PG_URL", "postgres://u@127.0.0.1:1/d")];
    for args in [&["runs", "list"][..], &["lease", "show", "stream/x"], &["db", "migrate"]] {
        let run = place.finaz_with(&environment, &[args, &["--json"]].concat()).exits(75);
        assert_eq!(run.refusal(), "PG_AWAY");
        assert!(run.out.contains("u@127.0.0.1:1/d"), "{run:?}");
    }
    let run = place.finaz(&["runs", "list", "--json"]).exits(2);
    assert_eq!(run.refusal(), "PG_URL_UNSET");
}
