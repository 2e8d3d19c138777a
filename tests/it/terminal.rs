//! What only a terminal gets: colour and a progress bar. `script` makes the terminal.

use std::fmt::Write as _;
use std::process::Command;

use crate::{Place, Run};

/// Runs `finaz` on a terminal of its own, where both streams are one.
fn on_terminal(place: &Place, environment: &[(&str, &str)], args: &[&str]) -> Run {
    let mut line = env!("CARGO_BIN_EXE_finaz").to_owned();
    for arg in args {
        write!(line, " '{arg}'").expect("a String takes all");
    }
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"])
        .env_clear()
        .envs(place.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("PATH", "/usr/bin:/bin")
        .env("TERM", "xterm")
        .envs(environment.iter().copied())
        .current_dir(place.path(""));
    Run::of(command)
}

fn import(place: &Place) -> Vec<String> {
    let mut rows = "t,c\n".to_owned();
    for row in 0..200_000 {
        writeln!(rows, "{},1.5", 1_700_000_000 + row).expect("a String takes all");
    }
    let file = place.file("f.csv", &rows);
    let flags = "--name n --time-column t --close-column c --instrument x --time-format epoch-s";
    let mut args = vec!["snapshot".to_owned(), "import".to_owned(), file];
    args.extend(flags.split(' ').map(str::to_owned));
    args
}

#[test]
fn a_bar_is_shown_on_a_terminal_and_taken_away_and_a_pipe_gets_none() {
    let place = Place::new();
    let args = import(&place);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let run = on_terminal(&place, &[], &args).exits(0);
    let (bar, result) = run.out.rsplit_once("\r\u{1b}[2K").expect("the bar is cleared");
    assert!(bar.contains("importing"), "{bar}");
    assert!(result.starts_with("snapshot"), "{result}");
    for quiet in ["--quiet", "--json"] {
        let run = on_terminal(&place, &[], &[&args[..], &[quiet]].concat()).exits(0);
        assert!(!run.out.contains("importing"), "{quiet}: {run:?}");
    }
    let run = place.finaz(&args).exits(0);
    assert!(!run.out.contains('\u{1b}') && run.err.is_empty(), "{run:?}");
}

#[test]
fn colour_is_on_a_terminal_only_and_never_under_no_color() {
    let place = Place::new();
    let args = ["snapshot", "show", "nope"];
    let run = on_terminal(&place, &[], &args).exits(2);
    assert!(run.out.contains("\u{1b}[1;31merror:\u{1b}[0m nope: no such snapshot"), "{run:?}");
    for environment in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let run = on_terminal(&place, &[environment], &args).exits(2);
        assert!(run.out.starts_with("error: nope"), "{run:?}");
    }
    let help = on_terminal(&place, &[("NO_COLOR", "1")], &["--help"]).exits(0);
    assert!(!help.out.contains('\u{1b}'), "{help:?}");
}
