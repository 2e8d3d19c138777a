//! Servers of a test's own, which it may stop, kill and starve without harm to anybody else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// One instance of `scripts/stack` in a folder of its own; ended and removed with the value.
#[derive(Debug)]
pub(crate) struct Instance(TempDir);

impl Instance {
    /// Nothing is started yet. `None`, with a line, where live tests were not asked for.
    #[expect(clippy::print_stdout, reason = "the line that says a test was skipped")]
    pub(crate) fn new() -> Option<Self> {
        if std::env::var_os("FINAZ_LIVE").is_none() {
            println!("skipped: needs real servers, see `make test`");
            return None;
        }
        Some(Self(TempDir::new().expect("a temporary folder")))
    }

    pub(crate) fn state(&self) -> &Path {
        self.0.path()
    }

    /// A script of `scripts/stack`, for this instance.
    pub(crate) fn script(&self, name: &str) -> Command {
        let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts/stack");
        let mut command = Command::new(scripts.join(name));
        command.env("STACK_STATE", self.state()).stdin(Stdio::null());
        command
    }

    /// Runs it and returns what it said; it must succeed.
    #[track_caller]
    pub(crate) fn run(&self, name: &str) -> String {
        let output = self.script(name).output().expect("a script that can be started");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "{name}: {said}");
        said
    }

    /// The process of `postgres`, `kafka` or `clickhouse`.
    #[track_caller]
    pub(crate) fn pid(&self, part: &str) -> u32 {
        let text = fs::read_to_string(self.state().join(part).join("pid")).expect("a pid file");
        text.trim().parse().expect("a process number")
    }

    /// A value of `make env`, such as `FINAZ_PG_URL`.
    #[track_caller]
    pub(crate) fn setting(&self, name: &str) -> String {
        let all = self.run("env");
        let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {name} in {all}")).to_owned()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let ended = self.script("down").output();
        assert!(ended.is_ok_and(|output| output.status.success()) || std::thread::panicking());
    }
}

/// `kill -9`.
#[track_caller]
pub(crate) fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.expect("kill can be started").success(), "kill -9 {pid}");
}
