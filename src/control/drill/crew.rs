//! The processes of a drill: started from the same binary, watched, stopped, killed, and never left behind.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use serde_json::Value;

use super::wait::{unable, until};
use crate::drill::Broke;

/// How processes are started.
#[derive(Debug)]
pub(super) struct Crew {
    pub(super) binary: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) environment: Vec<(String, String)>,
}

impl Crew {
    /// Starts `finaz` with these words. `who` names its output; `more` goes before the environment of all.
    pub(super) fn start(
        &self,
        who: &str,
        args: &[&str],
        more: &[(&str, &str)],
    ) -> Result<Actor, Broke> {
        self.start_by(&[], who, args, more)
    }

    /// The same by way of another program, which is to become `finaz`.
    pub(super) fn start_by(
        &self,
        way: &[&str],
        who: &str,
        args: &[&str],
        more: &[(&str, &str)],
    ) -> Result<Actor, Broke> {
        // It asks to be killed when this process dies, and only then becomes what it is to be: see `become_child`. The
        // system takes the thread that started it for the process: scenarios run on the one that lives to the end.
        let mut command = Command::new(&self.binary);
        command.args(["drill", "child", "--parent"]).arg(std::process::id().to_string()).arg("--");
        command.args(way).arg(&self.binary).args(args);
        command
            .env_clear()
            .env("HOME", &self.folder)
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(more.iter().copied())
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        let name = format!("{who}.{}", uuid::Uuid::new_v4().simple());
        let out = self.folder.join(format!("{name}.out"));
        let err = self.folder.join(format!("{name}.err"));
        // Files: a full pipe would stop it.
        let file =
            |path: &Path| File::create(path).map_err(|error| unable(&path.display(), &error));
        command.stdout(file(&out)?).stderr(file(&err)?);
        let child = command.spawn().map_err(|error| unable(&self.binary.display(), &error))?;
        Ok(Actor { who: who.to_owned(), child, out, err, ended: None })
    }
}

/// A process; killed when the value goes.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) who: String,
    child: Child,
    out: PathBuf,
    err: PathBuf,
    ended: Option<ExitStatus>,
}

impl Actor {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn is_running(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_none()
    }

    /// To a process that has ended already it goes nowhere: its number may be another's by now.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.is_running() {
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            let _gone = pid.map(|pid| kill_process(pid, signal));
        }
    }

    /// SIGSTOP; it is stopped when this returns.
    pub(super) async fn pause(&mut self) -> Result<(), Broke> {
        self.signal(Signal::STOP);
        let what = format!("{} is stopped", self.who);
        until(
            &what,
            Duration::from_secs(10),
            async || Ok((self.state() == Some('T')).then_some(())),
        )
        .await
    }

    pub(super) fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// The letter of its state in /proc.
    pub(super) fn state(&self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // The name of the program may hold anything, a parenthesis as well.
        stat.rsplit_once(") ")?.1.chars().next()
    }

    /// Waits for its end; not ending in time has failed.
    pub(super) async fn end(&mut self, limit: Duration) -> Result<Run, Broke> {
        let what = format!("{} ends", self.who);
        until(&what, limit, async || Ok((!self.is_running()).then_some(()))).await?;
        let ended = self.ended.expect("it has ended");
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        Ok(Run {
            exit: ended.code(),
            signal: ended.signal(),
            json: serde_json::from_str(&read(&self.out)).unwrap_or(Value::Null),
            err: read(&self.err),
        })
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if self.is_running() {
            let _gone = self.child.kill();
            let _reaped = self.child.wait();
        }
    }
}

/// A process that has ended, and the document that it printed.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) exit: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) json: Value,
    pub(super) err: String,
}

impl Run {
    /// The code of its refusal, else nothing.
    pub(super) fn code(&self) -> &str {
        self.json["error"]["code"].as_str().unwrap_or_default()
    }

    /// `exit 1 STREAM_LEASE_OCUPADO`, `exit 0`, `signal 9`.
    pub(super) fn ending(&self) -> String {
        let code = self.code();
        match (self.exit, self.signal) {
            (Some(exit), _) if code.is_empty() => format!("exit {exit}"),
            (Some(exit), _) => format!("exit {exit} {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        }
    }

    /// A process that only had to do what it was asked for.
    pub(super) fn done(self, what: &str) -> Result<Value, Broke> {
        if self.exit == Some(0) {
            return Ok(self.json);
        }
        let last = self.err.trim_end().lines().last().unwrap_or_default().to_owned();
        let message = self.json["error"]["message"].as_str().unwrap_or(&last);
        Err(Broke::Unable(format!("{what}: {}: {message}", self.ending())))
    }
}

/// Makes this process die with `parent`, and becomes the program of these words. Comes back with an error only.
///
/// The wish outlives the change of program; it does not outlive the one who has it, so a grandchild is not covered.
pub fn become_child(parent: u32, words: &[String]) -> std::io::Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // It may have died before it was asked about.
    let lives = getppid().map(Pid::as_raw_nonzero).map(std::num::NonZero::get);
    if lives != i32::try_from(parent).ok() {
        return std::io::Error::other("whoever started this is gone");
    }
    let Some((program, args)) = words.split_first() else {
        return std::io::Error::other("there is nothing to become");
    };
    Command::new(program).args(args).exec()
}
