//! The README says nothing that is not so.

use std::fs;
use std::path::Path;

use crate::{Place, repository};

fn readme() -> String {
    fs::read_to_string(repository("README.md")).expect("README.md")
}

/// Every `finaz x y` that begins a line of a block or a span of code.
fn commands(text: &str) -> Vec<Vec<String>> {
    let pieces = text.split(['`', '\n']).map(|piece| piece.trim_start_matches("$ "));
    let named = pieces.filter_map(|piece| piece.strip_prefix("finaz "));
    let words = named.map(|rest| {
        let words = rest.split_whitespace();
        let words =
            words.take_while(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
        words.filter(|word| !word.starts_with('-')).map(str::to_owned).collect()
    });
    words.collect()
}

#[test]
fn every_command_it_names_exists() {
    let place = Place::new();
    let commands = commands(&readme());
    assert!(commands.len() > 30, "{commands:?}");
    for command in commands {
        let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
        args.push("--help");
        assert_eq!(place.finaz(&args).exit, Some(0), "`finaz {}`", command.join(" "));
    }
}

#[test]
fn every_flag_and_key_it_names_exists() {
    let place = Place::new();
    let mut helps = String::new();
    for command in
        ["snapshot import", "run-once", "admit", "worker", "reconcile", "replay", "stream"]
    {
        let args: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        helps.push_str(&place.finaz(&args).exits(0).out);
    }
    let text = readme();
    for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
        if word.len() > 2 && word.starts_with("--") && !word.ends_with('-') {
            assert!(helps.contains(word), "{word} is no flag");
        }
    }
    let yaml = text.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let config =
        yaml.expect("a config file").replace("/run/secrets/finaz-pg", &place.file("pw", "x"));
    let config = place.file("c.yaml", config);
    place.finaz(&["flow", "list", "--config", &config, "--artifacts", "a"]).exits(0);
}

#[test]
fn the_promise_is_in_it_word_for_word_and_no_other() {
    let text = readme();
    assert!(text.contains("at-least-once delivery, idempotent publication, recoverable cut"));
    assert!(!text.to_lowercase().contains("exactly once") && !text.contains("exactly-once"));
}

#[test]
fn the_output_it_shows_is_what_comes_out() {
    let place = Place::new();
    let text = readme();
    let import = |file: &str, name: &str, flags: &[&str]| {
        let file = repository(file);
        let args = [&["snapshot", "import", &file, "--name", name], flags].concat();
        place.finaz(&args).exits(0);
    };
    import("fixtures/fixture.snapshot.01.jsonl", "fixture.snapshot.01", &[]);
    let flags = [
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
    ];
    import("fixtures/stocks_monthly.csv", "stocks.monthly", &flags);
    for flow in ["manifests/fixture.01_A_feature.yaml", "manifests/stocks_monthly.yaml"] {
        let args = ["run-once", "--dry-run", "--flow", &repository(flow)];
        let run = place.finaz(&args).exits(0);
        let block = text.split(&format!("run-once --flow {flow}")).nth(1).expect("its block");
        let result = run.out.lines().skip_while(|line| !line.starts_with("result"));
        for line in result.take_while(|line| !line.starts_with("dry run")) {
            assert!(block.contains(&format!("\n{line}\n")), "the README lacks: {line}");
        }
    }
}

#[test]
fn the_parity_it_shows_is_what_comes_out() {
    let place = Place::new();
    let snapshot = repository("fixtures/fixture.snapshot.01.jsonl");
    place.finaz(&["snapshot", "import", &snapshot, "--name", "fixture.snapshot.01"]).exits(0);
    let (flow, faults) = (
        repository("manifests/fixture.01_A_feature.yaml"),
        repository("fixtures/fixture.faults.01.yaml"),
    );
    let run = place.finaz(&["parity", "--flow", &flow, "--faults", &faults, "--offline"]).exits(0);
    assert!(run.out.lines().count() > 3, "{}", run.out);
    for line in run.out.lines() {
        assert!(readme().contains(&format!("\n{line}\n")), "the README lacks: {line}");
    }
}

#[test]
fn every_file_and_target_it_links_to_is_there() {
    let text = readme();
    for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(target.starts_with("http") || Path::new(&repository(target)).exists(), "{target}");
    }
    let makefile = fs::read_to_string(repository("Makefile")).expect("Makefile");
    for target in text.split("make ").skip(1).filter_map(|rest| {
        rest.split(|c: char| !c.is_ascii_lowercase()).next().filter(|word| !word.is_empty())
    }) {
        assert!(makefile.contains(&format!("\n{target}:")), "make {target}");
    }
}
