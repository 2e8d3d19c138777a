//! The tree itself: who may use whom, what lives where, how long a file may be.
//!
//! It reads text. It sees `crate::x` and refuses what would hide it (`crate::{x, y}`, `super::super`);
//! it takes any second mention of a name in the program as a caller.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// For each room of `src/`, the rooms it may name. Read it as the architecture.
const MAY_USE: &[(&str, &[&str])] = &[
    // nouns and values: pure, no I/O
    ("ids", &[]),
    ("invalid", &[]),
    ("canonical", &["ids", "invalid"]),
    ("manifest", &["canonical", "invalid"]),
    ("nodes", &["canonical", "invalid"]),
    ("rules", &["canonical", "ids", "invalid"]),
    ("points", &[]),
    ("drill", &["points"]),
    // the machine it runs on
    ("config", &["invalid", "points"]),
    ("artifacts", &["canonical", "ids", "invalid", "points"]),
    // what is computed
    ("flow", &["canonical", "ids", "invalid", "manifest", "nodes"]),
    ("replay", &["canonical", "flow", "ids", "invalid", "manifest"]),
    ("snapshot", &["artifacts", "canonical", "ids", "invalid"]),
    ("export", &["canonical", "flow", "ids", "invalid"]),
    ("stream", &["canonical", "flow", "ids", "invalid", "replay"]),
    ("journal", &["canonical", "ids", "invalid", "stream"]),
    // the services: never each other
    ("store", &["config", "drill", "ids", "invalid", "points", "rules"]),
    ("warehouse", &["config", "flow", "ids", "invalid", "points"]),
    ("broker", &["invalid"]),
    // all of it in one thread, its services simulated
    (
        "sim",
        &["canonical", "drill", "flow", "ids", "journal", "replay", "rules", "store", "stream"],
    ),
    // the one that puts them together
    (
        "control",
        &[
            "artifacts",
            "broker",
            "canonical",
            "config",
            "drill",
            "export",
            "flow",
            "ids",
            "invalid",
            "journal",
            "nodes",
            "points",
            "replay",
            "rules",
            "sim",
            "snapshot",
            "store",
            "stream",
            "warehouse",
        ],
    ),
];

/// What a command may name of the library.
const COMMANDS_MAY_USE: &[&str] = &["config", "control", "ids", "invalid"];

/// Each of these crates, and each of these words of the standard library, has its homes.
const HOME: &[(&str, &[&str])] = &[
    ("tokio_postgres::", &["src/store"]),
    ("deadpool_postgres::", &["src/store"]),
    ("tokio_postgres_rustls::", &["src/store"]),
    ("clickhouse::", &["src/warehouse"]),
    ("krafka::", &["src/broker"]),
    ("rskafka::", &["src/broker"]),
    ("url::", &["src/warehouse"]),
    ("hyper_util::", &["src/warehouse"]),
    ("hyper_rustls::", &["src/warehouse"]),
    ("parquet::", &["src/snapshot", "src/export"]),
    ("csv::", &["src/snapshot", "src/export"]),
    ("flate2::", &["src/snapshot"]),
    ("chrono_tz::", &["src/snapshot"]),
    ("rustix::", &["src/artifacts", "src/control/drill", "src/points.rs"]),
    ("ring::digest", &["src/ids.rs", "src/artifacts", "src/replay", "src/snapshot"]),
    ("clap::", &["commands"]),
    ("clap_complete::", &["commands/completions.rs"]),
    ("clap_mangen::", &["commands/man.rs"]),
    ("comfy_table::", &["commands/page.rs"]),
    ("indicatif::", &["commands/ui.rs"]),
    ("terminal_size::", &["commands/ui.rs"]),
    ("tracing_subscriber::", &["commands/logging.rs"]),
    ("anyhow::", &["commands"]),
    ("env::var", &["src/config"]),
    ("env::vars", &["src/config"]),
    ("env::args", &["commands/main.rs"]),
    ("io::stdout", &["commands/ui.rs"]),
    ("io::stderr", &["commands/ui.rs", "commands/logging.rs"]),
    ("process::exit", &[]),
];

/// Words that end where they are, with what to write instead.
const BANNED: &[(&str, &str)] = &[
    ("println!", "return a report; commands/ui.rs prints it"),
    ("eprintln!", "log it, or ui.warn in a command"),
    ("print!(", "return a report; commands/ui.rs prints it"),
    ("dbg!", "remove it"),
    ("todo!", "write it"),
    ("unimplemented!", "write it"),
    ("FIXME", "fix it, or open an issue"),
    ("TODO", "do it, or open an issue"),
    ("#[allow(", "#[expect(lint, reason = \"...\")]"),
    ("#![allow(", "#[expect(lint, reason = \"...\")]"),
    ("super::super", "crate::room, so that this test sees it"),
    ("crate::{", "one `use crate::room` a line, so that this test sees it"),
    ("crate::*", "name what you use"),
    ("finaz::{", "one `use finaz::room` a line, so that this test sees it"),
];

const SQL: &[&str] = &[
    "SELECT ",
    "INSERT INTO",
    "UPDATE ",
    "DELETE FROM",
    "CREATE TABLE",
    "ALTER TABLE",
    "TRUNCATE ",
    "FOR UPDATE",
    "NOTIFY ",
];
const SQL_HOME: &[&str] = &["src/store", "src/warehouse"];

const FILE_LINES_MAX: usize = 700;

#[test]
fn a_room_uses_only_what_it_may() {
    let mut errors = Vec::new();
    for (path, text) in sources("src") {
        let Some(room) = room_of(&path) else { continue };
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == room) else {
            errors.push(format!("{}: `{room}` is not in MAY_USE", path.display()));
            continue;
        };
        for (number, line) in code_lines(&text) {
            for used in paths_after(line, "crate::") {
                if used != room && !allowed.contains(&used) {
                    errors.push(format!(
                        "{}:{number}: `{room}` may not use `{used}`",
                        path.display()
                    ));
                }
            }
        }
    }
    report(&errors);
}

#[test]
fn the_table_of_rooms_holds_no_room_that_is_gone_and_no_circle() {
    let mut errors = Vec::new();
    for (at, (room, allowed)) in MAY_USE.iter().enumerate() {
        if !Path::new("src").join(room).exists() && !Path::new(&format!("src/{room}.rs")).exists() {
            errors.push(format!("MAY_USE: there is no room `{room}`"));
        }
        // Each room stands below those it uses, so there can be no circle.
        for used in *allowed {
            if !MAY_USE[..at].iter().any(|(name, _)| name == used) {
                errors.push(format!("MAY_USE: `{room}` uses `{used}`, which is not above it"));
            }
        }
    }
    report(&errors);
}

#[test]
fn a_command_goes_through_control() {
    let mut errors = Vec::new();
    for (path, text) in sources("commands") {
        for (number, line) in code_lines(&text) {
            for used in paths_after(line, "finaz::") {
                if !COMMANDS_MAY_USE.contains(&used) {
                    errors.push(format!(
                        "{}:{number}: a command may not use `{used}`",
                        path.display()
                    ));
                }
            }
        }
    }
    report(&errors);
}

#[test]
fn outside_crates_and_the_environment_stay_home() {
    let mut errors = Vec::new();
    for (path, text) in program() {
        for (number, line) in code_lines(&text) {
            for (name, homes) in HOME {
                if at_home_only(line, name) && !homes.iter().any(|home| path.starts_with(home)) {
                    errors.push(format!(
                        "{}:{number}: `{name}` lives in {}",
                        path.display(),
                        homes.join(", ")
                    ));
                }
            }
        }
    }
    report(&errors);
}

#[test]
fn nothing_banned_is_written() {
    let mut errors = Vec::new();
    for (path, text) in program() {
        for (at, line) in text.lines().enumerate() {
            for (word, instead) in BANNED {
                if names(line, word) {
                    errors.push(format!("{}:{}: `{word}`: {instead}", path.display(), at + 1));
                }
            }
        }
    }
    report(&errors);
}

#[test]
fn sql_stays_in_the_store_and_the_warehouse() {
    let mut errors = Vec::new();
    for (path, text) in program() {
        if SQL_HOME.iter().any(|home| path.starts_with(home)) {
            continue;
        }
        for (number, line) in code_lines(&text) {
            // A statement is text: only what follows a quote, or a line of a longer literal.
            if SQL.iter().any(|word| line.contains(word)) {
                errors.push(format!("{}:{number}: SQL outside src/store", path.display()));
            }
        }
    }
    report(&errors);
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let mut errors = Vec::new();
    let tests = sources("tests").into_iter().chain(sources("benches"));
    for (path, text) in all_sources().into_iter().chain(tests) {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            errors.push(format!("{}: {lines} lines, over {FILE_LINES_MAX}", path.display()));
        }
        if !text.starts_with("//!") {
            errors.push(format!("{}: starts without a `//!` line", path.display()));
        }
        let stem = stem(&path);
        if ["util", "utils", "common", "helpers", "misc", "core", "log"].contains(&stem.as_str()) {
            errors.push(format!("{}: name what is in it", path.display()));
        }
    }
    report(&errors);
}

/// rustc cannot see this: in a library every `pub` item counts as used.
#[test]
fn every_pub_fn_has_a_caller() {
    let program = program();
    let words: Vec<&str> = program
        .iter()
        .flat_map(|(_, text)| code_lines(text))
        .flat_map(|(_, line)| line.split(|c: char| !is_word(c)))
        .collect();
    let mut errors = Vec::new();
    for (path, text) in &program {
        for (number, line) in code_lines(text) {
            let Some(name) = pub_fn(line) else { continue };
            if words.iter().filter(|word| **word == name).count() < 2 {
                errors.push(format!("{}:{number}: nothing calls `{name}`", path.display()));
            }
        }
    }
    report(&errors);
}

#[test]
fn no_test_file_is_forgotten() {
    let mut errors = Vec::new();
    for folder in ["tests/it", "tests/live"] {
        let main = fs::read_to_string(format!("{folder}/main.rs")).expect("a main.rs");
        for (path, _) in sources(folder) {
            // A file in a folder below is the business of that folder's own mod.rs.
            let known = path.parent() != Some(Path::new(folder))
                || stem(&path) == "main"
                || main.lines().any(|line| line == format!("mod {};", stem(&path)));
            if !known {
                errors.push(format!("{} is in no `mod` line of {folder}", path.display()));
            }
        }
    }
    let manifest = fs::read_to_string("Cargo.toml").expect("Cargo.toml");
    for entry in fs::read_dir("tests").expect("tests") {
        let path = entry.expect("a readable entry").path();
        let is_target = path.extension().is_some_and(|extension| extension == "rs");
        if is_target && !manifest.contains(&format!("path = \"{}\"", path.display())) {
            errors.push(format!("{} is no target of Cargo.toml", path.display()));
        }
    }
    report(&errors);
}

/// Cases of a stream that `tests/cases.md` must have, the number of each alone or in a list.
const CASES: &[&str] = &[
    "48", "49", "50", "51", "52", "53", "54", "55", "56", "57", "58", "59", "60", "61", "62", "63",
    "64", "65", "66", "67", "68", "69", "70", "78", "s1", "s4", "s5", "s6", "s7", "s8", "s13",
    "s14", "s15", "s16", "s17", "s20", "s24",
];

#[test]
fn every_case_has_tests_and_every_test_of_a_case_is_there() {
    let mut errors = Vec::new();
    let table = fs::read_to_string("tests/cases.md").expect("tests/cases.md");
    let sources: String =
        ["src", "tests"].iter().flat_map(|root| sources(root)).map(|(_, text)| text).collect();
    let mut cases = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [case, _, tests] = cells[..] else {
            errors.push(format!("tests/cases.md: not three cells: {row}"));
            continue;
        };
        cases.extend(case.split(", "));
        let mut named = tests.split('`').skip(1).step_by(2).peekable();
        if named.peek().is_none() {
            errors.push(format!("tests/cases.md: {case} has no test"));
        }
        for test in named.filter(|test| !sources.contains(&format!("fn {test}("))) {
            errors.push(format!("tests/cases.md: {case}: there is no test `{test}`"));
        }
    }
    for missing in CASES.iter().filter(|case| !cases.contains(case)) {
        errors.push(format!("tests/cases.md: nothing about {missing}"));
    }
    report(&errors);
}

#[test]
fn every_guarantee_names_tests_that_are_there() {
    let mut errors = Vec::new();
    let page = fs::read_to_string("docs/guarantees.md").expect("docs/guarantees.md");
    let sources: String =
        ["src", "tests"].iter().flat_map(|root| sources(root)).map(|(_, text)| text).collect();
    for row in page.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let tests = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        let mut named = tests.split('`').skip(1).step_by(2).peekable();
        if named.peek().is_none() {
            errors.push(format!("docs/guarantees.md: no test in: {row}"));
        }
        for test in named.filter(|test| !sources.contains(&format!("fn {test}("))) {
            errors.push(format!("docs/guarantees.md: there is no test `{test}`"));
        }
    }
    report(&errors);
}

#[test]
fn every_planted_mistake_fits_the_tree_and_names_a_test_that_is_there() {
    let tests: String =
        ["src", "tests"].iter().flat_map(|root| sources(root)).map(|(_, text)| text).collect();
    let mut errors = Vec::new();
    let mut seen = 0;
    for path in files(Path::new("tests/mutants")) {
        let (text, place) = (fs::read_to_string(&path).expect("text"), path.display());
        let caught_by = text.lines().find_map(|line| line.strip_prefix("caught-by: "));
        let test = caught_by.and_then(|by| by.split(' ').next_back()).expect("a line caught-by");
        if !tests.contains(&format!("fn {test}")) {
            errors.push(format!("{place}: there is no test {test}"));
        }
        let fits = Command::new("git").args(["apply", "--check"]).arg(&path).output();
        let fits = fits.expect("git, which made the patches");
        if !fits.status.success() {
            errors.push(format!("{place}: {}", String::from_utf8_lossy(&fits.stderr)));
        }
        seen += 1;
    }
    assert!(seen >= 15, "only {seen} planted mistakes");
    report(&errors);
}

#[test]
fn every_room_and_every_fixture_is_spoken_of() {
    let mut errors = Vec::new();
    let architecture = fs::read_to_string("ARCHITECTURE.md").expect("ARCHITECTURE.md");
    let library = fs::read_to_string("src/lib.rs").expect("src/lib.rs");
    for (at, (room, allowed)) in MAY_USE.iter().enumerate() {
        let all = at == MAY_USE.len() - 1;
        let may_use = if all { "all of them".to_owned() } else { allowed.join(", ") };
        let row = architecture.lines().find(|line| line.starts_with(&format!("| `{room}` |")));
        let told = row.and_then(|row| row.trim_end_matches('|').rsplit('|').next()).map(str::trim);
        if told != Some(&*may_use) {
            errors.push(format!("ARCHITECTURE.md: `{room}` may use {may_use}, not {told:?}"));
        }
        if !library.contains(&format!("pub mod {room};")) {
            errors.push(format!("src/lib.rs has no `{room}`"));
        }
    }
    let mut readers = String::new();
    for root in ["tests", "src", "scripts", "benches", "README.md", "Makefile"] {
        for path in files(Path::new(root)) {
            readers.push_str(&String::from_utf8_lossy(&fs::read(path).expect("a readable file")));
        }
    }
    for path in files(Path::new("fixtures")).into_iter().chain(files(Path::new("manifests"))) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !readers.contains(&name) {
            errors.push(format!("{}: nothing uses it", path.display()));
        }
    }
    report(&errors);
}

fn report(errors: &[String]) {
    assert!(errors.is_empty(), "\n{}\n", errors.join("\n"));
}

fn pub_fn(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let rest = rest.trim_start_matches("const ").trim_start_matches("async ");
    rest.strip_prefix("fn ")?.split(|c: char| !is_word(c)).next()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `word` stands in the line and is not the end of a longer word.
fn names(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(is_word))
}

/// As [`names`]; a crate's name counts only where a path begins: `x::ring::y` is no `ring`.
fn at_home_only(line: &str, word: &str) -> bool {
    let crate_name = word.ends_with("::");
    line.match_indices(word)
        .map(|(at, _)| &line[..at])
        .any(|before| !(before.ends_with(is_word) || crate_name && before.ends_with(':')))
}

/// The first path segment under `src/`, unless it is `lib.rs`.
fn room_of(path: &Path) -> Option<&str> {
    let first = path.strip_prefix("src").ok()?.components().next()?.as_os_str().to_str()?;
    let room = first.strip_suffix(".rs").unwrap_or(first);
    (room != "lib").then_some(room)
}

/// Every `x` in a `crate::x` of this line.
fn paths_after<'a>(line: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(prefix)
        .filter(|(at, _)| !line[..*at].ends_with(is_word))
        .map(|(at, _)| &line[at + prefix.len()..])
        .map(|rest| rest.split(|c: char| !is_word(c)).next().unwrap_or_default())
}

fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn all_sources() -> Vec<(PathBuf, String)> {
    sources("src").into_iter().chain(sources("commands")).collect()
}

/// The program without its unit tests, which stand at the end of a file or in a `tests.rs`.
fn program() -> Vec<(PathBuf, String)> {
    let mut program = all_sources();
    program.retain(|(path, _)| {
        stem(path) != "tests" && !path.components().any(|part| part.as_os_str() == "tests")
    });
    for (_, text) in &mut program {
        if let Some(at) = text.find("\n#[cfg(test)]\nmod ") {
            text.truncate(at + 1);
        }
    }
    program
}

fn sources(root: &str) -> Vec<(PathBuf, String)> {
    files(Path::new(root))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a readable file");
            (path, text)
        })
        .collect()
}

/// The file, or all files below the folder.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut queue = vec![root.to_owned()];
    while let Some(path) = queue.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a readable folder");
            queue.extend(entries.map(|entry| entry.expect("a readable entry").path()));
        } else if path.exists() {
            found.push(path);
        }
    }
    found.sort();
    found
}
