//! Servers that results must not be entrusted to: `doctor` says so, and nothing is run there.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use url::Url;

use crate::instance::Instance;
use crate::process::{Process, Run, until};
use crate::stage::Stage;

const SOON: Duration = Duration::from_secs(30);

/// What `doctor` says of one check.
fn check(doctor: &Run, id: &str) -> Value {
    let document = doctor.json();
    let checks = document["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["id"] == id);
    check.unwrap_or_else(|| panic!("no check {id}: {document}")).clone()
}

/// `doctor` fails at this check with this in `seen`, and the worker and `run-once` refuse by this name.
#[track_caller]
fn refused(stage: &Stage, id: &str, seen: &str, name: &str) {
    let doctor = stage.finaz(&["doctor"]).exits(1);
    let found = check(&doctor, id);
    assert_eq!(found["ok"], false, "{found}");
    assert!(found["seen"].as_str().expect("text").contains(seen), "{found}");
    assert!(!found["hint"].as_str().expect("text").is_empty(), "{found}");
    let flow = stage.fixture();
    for args in [&["worker", "--drain"][..], &["run-once", "--flow", &flow]] {
        let refused = stage.finaz(args).refuses(1, "PG_UNSAFE");
        assert_eq!(refused["check"], name, "{args:?}");
    }
    assert_eq!(stage.count("SELECT count(*) FROM finaz.publications"), 0);
}

#[test]
fn a_healthy_server_passes_every_check() {
    let Some(stage) = Stage::new() else { return };
    let doctor = stage.finaz(&["doctor"]).exits(0);
    assert_eq!(doctor.json()["ok"], true, "{doctor:?}");
    assert_eq!(check(&doctor, "clickhouse")["seen"], "both");
}

#[test]
fn a_setup_without_a_warehouse_is_legal_and_said() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let doctor = stage.finaz(&["doctor"]).exits(0);
    let seen = check(&doctor, "clickhouse")["seen"].clone();
    assert!(seen.as_str().expect("text").contains("artifact store alone"), "{seen}");
    let flow = stage.fixture();
    let done = stage.json(&["run-once", "--flow", &flow]);
    assert_eq!(done["state"], "SUCCEEDED");
}

#[test]
fn a_database_that_is_read_only_is_refused() {
    let Some(stage) = Stage::without_warehouse() else { return };
    stage.sql(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on',
                                    current_database()); END $$",
    );
    refused(&stage, "pg_primary", "read-only", "PG_REPLICA");
}

#[test]
fn an_older_and_a_newer_schema_are_refused_with_both_versions_and_not_migrated_by_a_worker() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let needed: i64 = stage.value("SELECT max(version) FROM finaz.schema_version").parse().unwrap();
    let flow = stage.fixture();
    for (found, statement) in [
        (needed + 1, format!("INSERT INTO finaz.schema_version VALUES ({}, 'next')", needed + 1)),
        (needed - 1, format!("DELETE FROM finaz.schema_version WHERE version >= {needed}")),
    ] {
        stage.sql(&statement);
        let (found, needed) = (&found.into(), &needed.into());
        for args in [&["worker", "--drain"][..], &["run-once", "--flow", &flow], &["runs", "list"]]
        {
            let refused = stage.finaz(args).refuses(1, "SCHEMA_MISMATCH");
            assert_eq!((&refused["schema"], &refused["binary"]), (found, needed), "{args:?}");
        }
        let doctor = stage.finaz(&["doctor"]).exits(1);
        assert_eq!(check(&doctor, "schema")["ok"], false);
    }
    let left = stage.value("SELECT coalesce(max(version), 0) FROM finaz.schema_version");
    assert_eq!(left.parse(), Ok(needed - 1), "a worker migrated it");
}

/// Starts the server again with other settings.
fn restart(instance: &Instance, stage: &mut Stage, settings: &str) {
    instance.run("pg-down");
    let output = instance.script("pg-up").env("STACK_PG_CONF", settings).output();
    let output = output.expect("a script that can be started");
    assert!(output.status.success(), "{output:?}");
    stage.reconnect();
}

#[test]
fn a_server_that_may_lose_commits_is_full_or_is_a_standby_is_refused() {
    let Some(instance) = Instance::new() else { return };
    instance.run("pg-up");
    let mut stage = Stage::on(&instance.setting("FINAZ_PG_URL"), None);
    stage.finaz(&["db", "migrate"]).exits(0);
    restart(&instance, &mut stage, "fsync = off");
    refused(&stage, "pg_durability", "fsync false", "PG_NOT_DURABLE");
    restart(&instance, &mut stage, "full_page_writes = off");
    refused(&stage, "pg_durability", "full_page_writes false", "PG_NOT_DURABLE");
    restart(&instance, &mut stage, "max_connections = 12");
    refused(&stage, "pg_connections", "of 12 free", "PG_CONNECTIONS");
    // Our own sessions set it to on whatever the server says: reported, not refused.
    restart(&instance, &mut stage, "synchronous_commit = off");
    let doctor = stage.finaz(&["doctor"]).exits(1);
    assert_eq!(check(&doctor, "pg_synchronous_commit")["seen"], "off");
    stage.finaz(&["worker", "--drain"]).exits(0);
    // A standby that has nobody to follow: readable, and in recovery.
    instance.run("pg-down");
    let signal = instance.state().join("postgres/data/standby.signal");
    fs::write(&signal, "").expect("a written file");
    fs::set_permissions(&signal, fs::Permissions::from_mode(0o666)).expect("a mode");
    restart(&instance, &mut stage, "");
    assert_eq!(stage.value("SELECT pg_is_in_recovery()"), "t");
    refused(&stage, "pg_primary", "a replica", "PG_REPLICA");
}

/// pgbouncer in front of the stage's server; the URL by way of it. `None`, with a line, where it is not installed.
#[expect(clippy::print_stdout, reason = "the line that says a test was skipped")]
fn pooler(stage: &Stage, mode: &str, size: u32) -> Option<(Process, String)> {
    if Command::new("pgbouncer").arg("--version").output().is_err() {
        println!("skipped: pgbouncer is not installed");
        return None;
    }
    let server = Url::parse(stage.pg_url()).expect("a URL");
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let settings = format!(
        "[databases]\n* = host=127.0.0.1 port={} user={} password={}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = any\npool_mode = {mode}\ndefault_pool_size = {size}\n",
        server.port().expect("a port"),
        server.username(),
        server.password().expect("a password"),
    );
    let settings = stage.file("pgbouncer.ini", settings);
    fs::set_permissions(&settings, fs::Permissions::from_mode(0o600)).expect("a mode");
    // It runs as root no more than PostgreSQL does.
    let mut command = if rustix::process::geteuid().is_root() {
        let folder = stage.path("");
        fs::set_permissions(folder, fs::Permissions::from_mode(0o711)).expect("a mode");
        let given = Command::new("chown").args(["postgres", &settings]).status();
        assert!(given.expect("chown can be started").success());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "pgbouncer"]);
        command
    } else {
        Command::new("pgbouncer")
    };
    command.arg(&settings);
    let process = stage.spawn(command);
    until("pgbouncer listens", SOON, || TcpStream::connect(("127.0.0.1", port)).ok());
    let mut url = server;
    url.set_port(Some(port)).expect("a port");
    Some((process, url.into()))
}

#[test]
fn a_pooler_in_transaction_mode_is_refused_and_one_in_session_mode_is_not() {
    let Some(mut stage) = Stage::without_warehouse() else { return };
    for size in [1, 2, 20] {
        let Some((pooler, url)) = pooler(&stage, "transaction", size) else { return };
        stage.set("FINAZ_PG_URL", &url);
        refused(&stage, "pg_sessions", "transaction mode", "PG_POOLER");
        drop(pooler);
    }
    let Some((_pooler, url)) = pooler(&stage, "session", 20) else { return };
    stage.set("FINAZ_PG_URL", &url);
    stage.finaz(&["doctor"]).exits(0);
    let flow = stage.fixture();
    assert_eq!(stage.json(&["run-once", "--flow", &flow])["state"], "SUCCEEDED");
}

#[test]
fn a_server_that_lets_us_not_in_ends_a_worker_at_once_and_no_password_is_shown() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let mut wrong = Url::parse(stage.pg_url()).expect("a URL");
    wrong.set_password(Some("hunter2")).expect("a URL with a password");
    let mut elsewhere = Url::parse(stage.pg_url()).expect("a URL");
    elsewhere.set_path("no_such_database");
    let real = elsewhere.password().expect("a password").to_owned();
    for url in [wrong, elsewhere] {
        for args in [&["worker"][..], &["runs", "list"], &["db", "migrate"]] {
            let run = stage.start_with(&[("FINAZ_PG_URL", url.as_str())], args).wait(SOON);
            assert!(!run.out.contains("hunter2") && !run.err.contains("hunter2"), "{run:?}");
            assert!(!run.out.contains(&real) && !run.err.contains(&real), "{args:?} show it");
            run.refuses(2, "PG_DENIED");
        }
    }
}
