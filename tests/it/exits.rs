//! Exit codes, and what stands on which stream.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::net::TcpListener;
use std::process::Stdio;

use crate::{Place, Run, left_in_store, repository, tree};

#[test]
fn a_usage_error_ends_2_and_is_a_document_under_json() {
    let place = Place::new();
    for args in [
        &["--json", "no-such-command"][..],
        &["runs", "--json"],
        &["man", "--no-such-flag", "--json"],
        &["completions", "no-such-shell", "--json"],
        &["--json"],
    ] {
        let run = place.finaz(args).exits(2);
        assert_eq!(run.refusal(), "USAGE", "{args:?}");
        assert_eq!(run.err, "", "{args:?}");
    }
    let run = place.finaz_with(&[("FINAZ_JSON", "true")], &["no-such-command"]).exits(2);
    assert_eq!(run.refusal(), "USAGE");
}

#[test]
fn a_usage_error_goes_to_stderr_otherwise() {
    let run = Place::new().finaz(&["no-such-command"]).exits(2);
    assert_eq!(run.out, "");
    assert!(run.err.starts_with("error: unrecognized subcommand 'no-such-command'\n"), "{run:?}");
}

#[test]
fn a_slip_is_answered_with_what_was_meant() {
    let run = Place::new().finaz(&["wroker", "--json"]).exits(2);
    let document = run.json();
    let hint = document["error"]["hint"].as_str().expect("a hint");
    assert!(hint.contains("worker"), "{hint}");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    for args in [&["man"][..], &["completions", "bash"], &["--help"]] {
        let place = Place::new();
        let mut command = place.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("finaz starts");
        drop(child.stdout.take());
        let mut err = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut err).expect("text");
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{args:?}: {err}");
        assert_eq!(err, "", "{args:?}");
    }
}

#[test]
fn a_full_disk_on_stdout_ends_4() {
    let place = Place::new();
    for args in [
        &["man"][..],
        &["completions", "zsh"],
        &["--help"],
        &["--version"],
        &["snapshot", "list"],
        &["snapshot", "list", "--json"],
        &["no-such-command", "--json"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let mut command = place.command(args);
        command.stdout(full).stderr(Stdio::piped());
        let child = command.spawn().expect("finaz starts");
        let output = child.wait_with_output().expect("it ends");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{args:?}: {err}");
        assert!(err.contains("stdout could not be written"), "{args:?}: {err}");
    }
}

#[test]
fn no_colour_and_no_control_sequence_reach_a_pipe() {
    let place = Place::new();
    for args in [&["--help"][..], &["snapshot", "list"], &["flow", "show", "nope"], &["nope"]] {
        for environment in [&[("TERM", "xterm-256color")][..], &[("NO_COLOR", "1")]] {
            let run = place.finaz_with(environment, args);
            assert!(!run.out.contains('\u{1b}') && !run.err.contains('\u{1b}'), "{run:?}");
        }
    }
}

#[test]
fn version_is_one_line() {
    let run = Place::new().finaz(&["--version"]).exits(0);
    assert_eq!(run.out, concat!("finaz ", env!("CARGO_PKG_VERSION"), "\n"));
    assert_eq!(run.err, "");
}

/// SIGINT and SIGTERM in the middle of an import.
#[test]
fn a_signal_ends_a_one_shot_command_with_its_own_code_and_leaves_nothing() {
    let mut rows = "t,c\n".to_owned();
    for row in 0..500_000 {
        writeln!(rows, "{},{}.5", 1_700_000_000 + row, row % 100).expect("a String takes all");
    }
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let place = Place::new();
        let file = place.file("f.csv", &rows);
        let mut command = place.command(&[
            "snapshot",
            "import",
            &file,
            "--name",
            "n",
            "--time-column",
            "t",
            "--close-column",
            "c",
            "--instrument",
            "x",
            "--time-format",
            "epoch-s",
            "--json",
        ]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("finaz starts");
        // It listens for signals before it makes its first temporary file.
        while tree(&place.path("artifacts/tmp")).is_empty() {
            assert!(child.try_wait().expect("our child").is_none(), "over before it began");
            std::thread::yield_now();
        }
        let killed = std::process::Command::new("kill")
            .args([&format!("-{signal}"), &child.id().to_string()])
            .status()
            .expect("kill");
        assert!(killed.success());
        let output = child.wait_with_output().expect("it ends");
        let run = Run {
            exit: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        assert_eq!(run.exit, Some(code), "{run:?}");
        assert_eq!(run.refusal(), "INTERRUPTED");
        assert_eq!(left_in_store(&place), Vec::<String>::new());
    }
}

/// Two sockets that nobody may knock at.
#[test]
fn no_server_is_opened_by_a_command_that_needs_none() {
    let place = Place::new();
    let [pg, clickhouse] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let port = |listener: &TcpListener| listener.local_addr().expect("bound").port();
    let pg_url = format!("postgres://u@127.0.0.1:{}/d", port(&pg));
    let clickhouse_url = format!("http://127.0.0.1:{}", port(&clickhouse));
    let environment = [("FINAZ_PG_URL", &*pg_url), ("FINAZ_CLICKHOUSE_URL", &*clickhouse_url)];
    let snapshot = repository("fixtures/fixture.snapshot.01.jsonl");
    let flow = repository("manifests/fixture.01_A_feature.yaml");
    for args in [
        &["--version"][..],
        &["--help"],
        &["completions", "bash"],
        &["man"],
        &["snapshot", "import", &snapshot, "--name", "fixture.snapshot.01"],
        &["snapshot", "list"],
        &["snapshot", "show", "fixture.snapshot.01"],
        &["flow", "validate", &flow, "--save"],
        &["flow", "list"],
        &["flow", "show", "fixture.01_A_feature"],
        &["run-once", "--dry-run", "--flow", "fixture.01_A_feature"],
        &["cas", "verify"],
    ] {
        let run = place.finaz_with(&environment, args).exits(0);
        assert_eq!(run.err, "", "{args:?}");
    }
    for listener in [pg, clickhouse] {
        listener.set_nonblocking(true).expect("ours");
        let knock = listener.accept();
        assert!(
            knock.is_err_and(|error| error.kind() == ErrorKind::WouldBlock),
            "a server was opened"
        );
    }
}
