//! Services that go away under a stream: a daemon goes on by itself, a bounded run gives up in time, and no value changes.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::instance::{Instance, kill};
use crate::process::{Process, elapsed, poll, until};
use crate::proxy::{Mode, Proxy};
use crate::stage::Stage;
use crate::topics::{Log, lasting};

const SOON: Duration = Duration::from_secs(120);

/// Events of one instrument at these seconds.
fn write(log: &Log, seconds: std::ops::Range<i64>) {
    log.write(seconds.map(|at| log.record(&format!("e{at}"), "i", at)).collect());
}

fn daemon(stage: &Stage, log: &Log, flow: &str) -> Process {
    stage.start(&log.stream(flow, &["--run-id", "r", "--commit-every", "0.05"]))
}

/// Waits until so many records are committed.
#[track_caller]
fn committed(stage: &Stage, records: i64) {
    let read = "SELECT coalesce(max((report::json->>'read')::int), 0) FROM finaz.streams";
    until("it commits", SOON, || (stage.value(read) == records.to_string()).then_some(()));
}

/// Ends it, and holds it against a run that nothing happened to.
#[track_caller]
fn ends_as_undisturbed(stage: &Stage, log: &Log, flow: &str, mut daemon: Process) {
    assert!(daemon.is_running(), "it gave up: {}", daemon.said());
    daemon.signal(Signal::TERM);
    let report = daemon.wait(SOON).exits(0).json();
    let n = report["read"].to_string();
    let calm = stage.json(&log.stream(flow, &["--run-id", "calm", "--once-n", &n]));
    assert_eq!(lasting(&report), lasting(&calm));
    assert_eq!((&report["ledger_ok"], &report["duplicates_skipped"]), (&json!(true), &json!(0)));
}

#[test]
fn a_broker_frozen_for_forty_seconds_and_then_killed_is_gone_on_with() {
    let Some(instance) = Instance::new() else { return };
    instance.run("kafka-up");
    let log = Log::at(&instance.setting("FINAZ_BROKERS"), 1);
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..20);
    let mut daemon = daemon(&stage, &log, &flow);
    committed(&stage, 20);
    let pid = i32::try_from(instance.pid("kafka")).expect("a number");
    kill_process(Pid::from_raw(pid).expect("a pid"), Signal::STOP).expect("ours");
    // It neither ends nor loses its lease.
    let frozen = Duration::from_secs(40);
    assert_eq!(poll(frozen, || (!daemon.is_running()).then_some(())), None, "{}", daemon.said());
    assert_eq!(stage.standing("r", 0)["live"], true);
    kill_process(Pid::from_raw(pid).expect("a pid"), Signal::CONT).expect("ours");
    write(&log, 20..40);
    committed(&stage, 40);
    kill(instance.pid("kafka"));
    instance.run("kafka-up");
    write(&log, 40..60);
    committed(&stage, 60);
    ends_as_undisturbed(&stage, &log, &flow, daemon);
}

#[test]
fn a_postgresql_that_is_killed_under_a_daemon_is_waited_for() {
    let Some(instance) = Instance::new() else { return };
    instance.run("pg-up");
    let Some(log) = Log::new(1) else { return };
    let mut stage = Stage::on(&instance.setting("FINAZ_PG_URL"), None);
    stage.set("FINAZ_BROKERS", &log.brokers);
    stage.finaz(&["db", "migrate"]).exits(0);
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..20);
    let daemon = daemon(&stage, &log, &flow);
    committed(&stage, 20);
    for round in 1..=3 {
        // No farewell to its sessions; what was read meanwhile cannot be committed.
        kill(instance.pid("postgres"));
        write(&log, round * 20..round * 20 + 20);
        instance.run("pg-up");
        stage.reconnect();
        committed(&stage, round * 20 + 20);
    }
    ends_as_undisturbed(&stage, &log, &flow, daemon);
}

#[test]
fn sessions_that_are_ended_under_a_daemon_cost_it_nothing() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..20);
    let daemon = daemon(&stage, &log, &flow);
    committed(&stage, 20);
    let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                     WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for round in 1..=5 {
        until("it has sessions", SOON, || (stage.count(terminate) > 0).then_some(()));
        write(&log, round * 20..round * 20 + 20);
        until("it has sessions", SOON, || (stage.count(terminate) > 0).then_some(()));
        committed(&stage, round * 20 + 20);
    }
    ends_as_undisturbed(&stage, &log, &flow, daemon);
}

#[test]
fn a_daemon_told_to_end_while_it_is_cut_off_for_a_moment_is_drained() {
    let Some(log) = Log::new(1) else { return };
    let Some(mut stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..20);
    let server = stage.pg_url().to_owned();
    let proxy = Proxy::to(&stage, &server);
    stage.set("FINAZ_PG_URL", &proxy.url(&server));
    stage.set("FINAZ_LEASE_TTL_SEC", "60");
    let daemon = daemon(&stage, &log, &flow);
    committed(&stage, 20);
    proxy.set(Mode::Cut);
    write(&log, 20..40);
    // It waits longer each time: it is told in one of these pauses.
    let tries = || daemon.said().matches("trying again from the last commit").count();
    until("it waits", SOON, || (tries() >= 4).then_some(()));
    proxy.set(Mode::Pass);
    ends_as_undisturbed(&stage, &log, &flow, daemon);
    assert_eq!(stage.json(&["lease", "list", "--active"])["leases"], json!([]));
}

#[test]
fn a_bounded_run_without_a_broker_gives_up_in_time_with_75() {
    let Some(log) = Log::new(1) else { return };
    let Some(mut stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    stage.set("FINAZ_SERVICE_TIMEOUT_SEC", "2");
    // Nobody listens there, and one who listens and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = silent.local_addr().expect("an address").to_string();
    let closed = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = closed.local_addr().expect("an address").to_string();
    drop(closed);
    for brokers in [address, silent] {
        let mut run = None;
        let took = elapsed(|| {
            let args = log.stream(&flow, &["--once-n", "5"]);
            run = Some(stage.finaz_with(&[("FINAZ_BROKERS", &brokers)], &args));
        });
        let run = run.expect("it ran");
        assert_eq!(run.exit, Some(75), "{run:?}");
        assert!(took < Duration::from_secs(30), "{took:?}");
    }
    assert_eq!(stage.count("SELECT count(*) FROM finaz.streams"), 0);
}

#[test]
fn a_stream_over_tls_with_a_login_is_read_and_each_mistake_is_told_apart() {
    let Some(instance) = Instance::new() else { return };
    instance.run("kafka-up");
    let plain = instance.setting("FINAZ_BROKERS");
    let log = Log::at(&plain, 2);
    write(&log, 0..20);
    let tls = instance.script("env").arg("tls").output().expect("the settings over TLS");
    let tls = String::from_utf8(tls.stdout).expect("text");
    let tls = tls.lines().find_map(|line| line.strip_prefix("FINAZ_BROKERS=")).expect("brokers");
    let Some(mut stage) = Stage::without_warehouse() else { return };
    stage.set("FINAZ_BROKERS", tls);
    stage.set("FINAZ_SERVICE_TIMEOUT_SEC", "20");
    let flow = stage.live_flow("f", &["i"]);
    let ca = instance.state().join("certs/ca.crt").display().to_string();
    let password = instance.state().join("password").display().to_string();
    let wrong = stage.file("wrong", "hunter2\n");
    let login = |password: &str| {
        let words = ["--broker-user", "finaz", "--broker-password-file", password];
        words.map(str::to_owned).to_vec()
    };
    let args = |more: &[&str], login: Vec<String>| -> Vec<String> {
        let args = log.stream(&flow, more);
        args.into_iter().map(str::to_owned).chain(login).collect()
    };
    let run = |args: &[String]| stage.finaz(&args.iter().map(String::as_str).collect::<Vec<_>>());
    for mechanism in ["plain", "scram-sha-256", "scram-sha-512"] {
        let tls = ["--tls-ca", &ca, "--broker-sasl", mechanism];
        let bounded = [&tls[..], &["--run-id", mechanism, "--once-n", "20"]].concat();
        let report = run(&args(&bounded, login(&password))).exits(0).json();
        assert_eq!((&report["read"], &report["ledger_ok"]), (&json!(20), &json!(true)));
        // A daemon does not wait for a password to become right.
        for more in [&bounded[..], &tls] {
            let run = run(&args(more, login(&wrong)));
            assert!(!run.out.contains("hunter2") && !run.err.contains("hunter2"), "{run:?}");
            run.refuses(2, "BROKER_LOGIN");
        }
    }
    run(&args(&[], login(&password))).refuses(2, "BROKER_UNTRUSTED");
    run(&args(&[], Vec::new())).refuses(2, "BROKER_SPEAKS_TLS");
    let anonymous = ["--broker-tls", "on", "--tls-ca", &ca];
    run(&args(&anonymous, Vec::new())).refuses(2, "BROKER_WANTS_LOGIN");
    let mut place = args(&anonymous, Vec::new());
    place.extend(["--brokers".to_owned(), plain]);
    run(&place).refuses(2, "BROKER_SPEAKS_PLAINTEXT");
    // Markers are written by the other client; a daemon comes back to a broker that was killed, over TLS as well.
    let tls = ["--tls-ca", &ca];
    let daemon =
        args(&[&tls[..], &["--run-id", "r", "--commit-every", "0.05"]].concat(), login(&password));
    let daemon = stage.start(&daemon.iter().map(String::as_str).collect::<Vec<_>>());
    let read = "SELECT coalesce(max((report::json->>'read')::int), 0) FROM finaz.streams WHERE run_id = 'r'";
    until("it commits", SOON, || (stage.value(read) == "20").then_some(()));
    kill(instance.pid("kafka"));
    instance.run("kafka-up");
    write(&log, 20..40);
    until("it commits", SOON, || (stage.value(read) == "40").then_some(()));
    let mut mark =
        ["stream", "mark", "END_OF_BOUNDED_SOURCE", "--topic", &log.topic, "--tls-ca", &ca]
            .map(str::to_owned)
            .to_vec();
    mark.extend(login(&password));
    run(&mark).exits(0);
    let report = daemon.wait(SOON).exits(0).json();
    assert_eq!((&report["state"], &report["read"]), (&json!("ENDED"), &json!(40)), "{report}");
}

#[test]
fn a_topic_that_is_not_there_is_bad_input_and_is_not_made() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    let slip = log.topic.replacen("stream", "straem", 1);
    let args = ["stream", "--topic", &slip, "--group", "g", "--flow", &flow];
    for more in [&[][..], &["--once-n", "5"]] {
        let refused = stage.finaz(&[&args[..], more].concat()).refuses(2, "TOPIC_UNKNOWN");
        assert!(refused["hint"].to_string().contains(&log.topic), "{refused}");
    }
    stage
        .finaz(&["stream", "mark", "IDLE_CONFIRMED", "--topic", &slip])
        .refuses(2, "TOPIC_UNKNOWN");
    let names = log.runtime.block_on(log.kafka.admin().list_topics(Default::default()));
    assert!(!names.expect("topics").contains(&slip), "it was made");
    assert_eq!(stage.count("SELECT count(*) FROM finaz.streams"), 0);
    assert_eq!(stage.count("SELECT count(*) FROM finaz.leases WHERE name LIKE 'stream/%'"), 0);
}

#[test]
fn a_bounded_run_that_finds_too_little_waits_and_heeds_a_signal() {
    let Some(log) = Log::new(1) else { return };
    let Some(stage) = Stage::for_log(&log) else { return };
    let flow = stage.live_flow("f", &["i"]);
    write(&log, 0..5);
    let mut run = stage
        .start(&log.stream(&flow, &["--run-id", "r", "--once-n", "9", "--commit-every", "0.05"]));
    committed(&stage, 5);
    let begun = Instant::now();
    run.signal(Signal::TERM);
    let report = run.wait(SOON).exits(0).json();
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!((&report["state"], &report["read"]), (&"DRAINED".into(), &json!(5)), "{report}");
    write(&log, 5..12);
    let report = stage.json(&log.stream(&flow, &["--run-id", "r", "--once-n", "9"]));
    assert_eq!((&report["read"], &report["state"]), (&json!(9), &"STOPPED".into()));
}
