//! Processes under test: started, watched, stopped, killed, and never left behind.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use uuid::Uuid;

/// How often we look.
const LOOK: Duration = Duration::from_millis(10);

/// A process, killed when the value goes. Its output is in files: a full pipe would stop it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    out: PathBuf,
    err: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    #[track_caller]
    pub(crate) fn start(mut command: Command, folder: &Path) -> Self {
        let name = Uuid::new_v4().simple().to_string();
        let out = folder.join(format!("{name}.out"));
        let err = folder.join(format!("{name}.err"));
        command.stdout(File::create(&out).expect("a file for the output"));
        command.stderr(File::create(&err).expect("a file for the errors"));
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, out, err, ended: None }
    }

    /// Sends a signal; to a process that has ended already it goes nowhere.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if self.is_running() {
            let pid = i32::try_from(self.child.id()).expect("a process number");
            // It may end just now.
            let _gone = kill_process(Pid::from_raw(pid).expect("above zero"), signal);
        }
    }

    /// `kill -9`, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.ended = Some(self.child.wait().expect("a child"));
    }

    pub(crate) fn is_running(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child");
        }
        self.ended.is_none()
    }

    /// What it has said on stderr so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Waits for its end; a process that does not end in time is killed, and the test fails.
    #[must_use = "check how it ended"]
    #[track_caller]
    pub(crate) fn wait(mut self, limit: Duration) -> Run {
        let ended = poll(limit, || (!self.is_running()).then_some(()));
        if ended.is_none() {
            self.kill();
            panic!("still running after {limit:?}: {:?}", self.run());
        }
        self.run()
    }

    fn run(&self) -> Run {
        let ended = self.ended.expect("it has ended");
        Run {
            exit: ended.code(),
            signal: ended.signal(),
            out: fs::read_to_string(&self.out).expect("text on stdout"),
            err: self.said(),
        }
    }
}

impl Drop for Process {
    #[expect(clippy::print_stdout, reason = "what it said explains why the test failed")]
    fn drop(&mut self) {
        if self.is_running() {
            self.kill();
        }
        if std::thread::panicking() {
            println!("process {}, {:?}: {}", self.child.id(), self.ended, self.said());
        }
    }
}

/// Everything an operator can see of a process that has ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) exit: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.exit, Some(code), "{self:?}");
        self
    }

    /// The one document on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The refusal in the one document on stdout, with this code and this exit.
    #[track_caller]
    pub(crate) fn refuses(self, code: i32, name: &str) -> Value {
        let run = self.exits(code);
        let mut document = run.json();
        assert_eq!(document["error"]["code"], name, "{run:?}");
        document["error"].take()
    }
}

/// Looks again and again until there is something to see, or time is up.
#[expect(clippy::disallowed_methods, reason = "a test waits by the wall clock")]
pub(crate) fn poll<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        let seen = look();
        if seen.is_some() || Instant::now() >= end {
            return seen;
        }
        std::thread::sleep(LOOK);
    }
}

/// The same; not seeing it fails the test.
#[track_caller]
pub(crate) fn until<T>(what: &str, limit: Duration, look: impl FnMut() -> Option<T>) -> T {
    poll(limit, look).unwrap_or_else(|| panic!("not within {limit:?}: {what}"))
}

/// How long that took.
pub(crate) fn elapsed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}
