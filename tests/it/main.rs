//! The binary, driven from outside; no server. One test binary, one module per concern.

mod bad_input;
mod drill_sim;
mod exits;
mod help;
mod offline;
mod readme;
mod replay;
mod settings;
mod stream;
mod terminal;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder of its own for each test: its files, its artifact store, its home.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file into the folder and returns its path.
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).expect("a written file");
        path.to_str().expect("a UTF-8 path").to_owned()
    }

    /// `finaz` with a clean environment, so that a developer's settings cannot leak in.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_finaz"));
        command
            .env_clear()
            .env("COLUMNS", "80")
            .env("HOME", self.0.path())
            .env("FINAZ_ARTIFACTS", self.path("artifacts"))
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .args(args);
        command
    }

    #[must_use = "check how it ended"]
    fn finaz(&self, args: &[&str]) -> Run {
        Run::of(self.command(args))
    }

    #[must_use = "check how it ended"]
    fn finaz_with(&self, environment: &[(&str, &str)], args: &[&str]) -> Run {
        let mut command = self.command(args);
        command.envs(environment.iter().copied());
        Run::of(command)
    }
}

/// Everything an operator can see of one run.
#[derive(Debug)]
struct Run {
    exit: Option<i32>,
    out: String,
    err: String,
}

impl Run {
    fn of(mut command: Command) -> Self {
        let Output { status, stdout, stderr } = command.output().expect("finaz can be started");
        Self {
            exit: status.code(),
            out: String::from_utf8(stdout).expect("text on stdout"),
            err: String::from_utf8(stderr).expect("text on stderr"),
        }
    }

    #[track_caller]
    fn exits(self, code: i32) -> Self {
        assert_eq!(self.exit, Some(code), "{self:?}");
        self
    }

    /// The one document on stdout.
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of the refusal in the one document on stdout; every refusal has a message and a hint.
    #[track_caller]
    fn refusal(&self) -> String {
        let document = self.json();
        let error = &document["error"];
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        assert!(error["hint"].is_string(), "{self:?}");
        error["code"].as_str().expect("a code").to_owned()
    }
}

/// A file of the repository.
fn repository(path: &str) -> String {
    format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// What is below a folder, by relative path: to see that nothing was left behind.
fn tree(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut queue = vec![root.to_owned()];
    while let Some(folder) = queue.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                queue.push(path);
            } else {
                found.push(path.strip_prefix(root).expect("below").display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// What an artifact store holds beside what an empty one has.
fn left_in_store(place: &Place) -> Vec<String> {
    let mut left = tree(&place.path("artifacts"));
    left.retain(|name| name != "layout" && !name.ends_with("lock"));
    left
}
