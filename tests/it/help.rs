//! The help of every command, found by walking the tree of commands as a user would.

use crate::Place;

/// Every command with its own help text.
fn commands(place: &Place) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut queue = vec![Vec::<String>::new()];
    while let Some(path) = queue.pop() {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let run = place.finaz(&args).exits(0);
        assert_eq!(run.err, "", "{path:?}");
        for name in subcommands(&run.out) {
            queue.push(path.iter().cloned().chain([name]).collect());
        }
        found.push((path.join(" "), run.out));
    }
    found.sort();
    found
}

/// The names under `Commands:`, `help` apart.
fn subcommands(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with(' '))
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_of_the_surface_is_there() {
    let found: Vec<String> =
        commands(&Place::new()).into_iter().map(|(command, _)| command).collect();
    for expected in [
        "admit",
        "cas gc",
        "cas verify",
        "completions",
        "checkpoint commit",
        "checkpoint diff",
        "checkpoint drop",
        "checkpoint list",
        "checkpoint restore",
        "checkpoint show",
        "checkpoint verify",
        "db migrate",
        "db status",
        "doctor",
        "drill 2owners",
        "drill chaos",
        "drill kill-matrix",
        "drill sim",
        "flow list",
        "flow show",
        "flow validate",
        "lease acquire",
        "lease list",
        "lease new-epoch",
        "lease release",
        "lease renew",
        "lease show",
        "man",
        "outbox list",
        "reconcile",
        "refused list",
        "replay",
        "run-once",
        "runs cancel",
        "runs export",
        "runs list",
        "runs show",
        "runs trace",
        "runs wait",
        "snapshot import",
        "snapshot list",
        "snapshot show",
        "worker",
    ] {
        assert!(found.iter().any(|command| command == expected), "no `{expected}` in {found:?}");
    }
}

#[test]
fn every_flag_names_its_variable() {
    for (command, help) in commands(&Place::new()) {
        // A flag's text runs to the next flag or heading.
        let flags = help.split("\n      --").skip(1);
        for flag in flags {
            let name = flag.split([' ', '\n']).next().unwrap_or_default();
            let variable = match name {
                // The one name that is not made from the flag's.
                "run-id" => "FINAZ_STREAM_RUN_ID".to_owned(),
                name => format!("FINAZ_{}", name.replace('-', "_").to_uppercase()),
            };
            let text: String = flag.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(&format!("[env: {variable}]")), "{command} --{name}: {text}");
            // Taken: the tests' own, which is set while they run finaz.
            assert_ne!(variable, "FINAZ_LIVE", "{command}");
        }
    }
}

#[test]
fn every_command_says_in_one_line_what_it_does() {
    for (command, help) in commands(&Place::new()) {
        let line = help.lines().next().unwrap_or_default();
        assert!(line.len() <= 80 && !line.ends_with('.'), "{command}: {line}");
        assert!(line.starts_with(char::is_uppercase), "{command}: {line}");
    }
}

#[test]
fn help_fits_its_width() {
    for (command, help) in commands(&Place::new()) {
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{command}: {line}");
        }
    }
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let place = Place::new();
    for (command, _) in commands(&place) {
        let args = ["man"].into_iter().chain(command.split_whitespace());
        let run = place.finaz(&args.collect::<Vec<_>>()).exits(0);
        assert!(run.out.contains(".TH "), "{command}: {run:?}");
    }
    assert_eq!(place.finaz(&["man", "no-such", "--json"]).exits(2).refusal(), "USAGE");
}

#[test]
fn completions_know_the_commands() {
    let place = Place::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = place.finaz(&["completions", shell]).exits(0);
        for word in ["snapshot", "run-once", "new-epoch", "pg-url"] {
            assert!(run.out.contains(word), "{shell} does not know {word}");
        }
    }
}
