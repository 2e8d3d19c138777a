//! The one door to stdout and stderr: results on stdout, everything else on stderr.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use finaz::config::{self, Settings};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;
use crate::page::{Page, harmless};

/// The width of a table when neither a terminal nor `COLUMNS` says otherwise.
const WIDTH_DEFAULT: u16 = 80;
/// Narrower, and a table is one letter a line.
const WIDTH_MIN: u16 = 40;

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exit {
    Done,
    /// Its own document says what did not hold.
    Refused,
    /// Its own document says what could not be shown.
    Incomplete,
    /// Its own document says which service is away.
    Away,
}

/// What a progress bar counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    Bytes,
    /// Without knowing how many there are.
    Count,
    /// Of a known number.
    Checks,
}

#[derive(Debug)]
pub(crate) struct Ui {
    json: bool,
    quiet: bool,
    log_json: bool,
    lost: Lost,
    /// The bar that is on the screen.
    bar: RefCell<Option<ProgressBar>>,
}

/// The first write to stdout that failed: kept, where a printing macro would panic.
#[derive(Clone, Debug, Default)]
struct Lost(Arc<Mutex<Option<io::Error>>>);

impl Lost {
    fn note<T>(&self, written: io::Result<T>) {
        if let Err(error) = written {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Ui {
    /// Before the settings are known only the wish for JSON is.
    pub(crate) fn new(json: bool) -> Self {
        Self { json, quiet: false, log_json: false, lost: Lost::default(), bar: RefCell::default() }
    }

    pub(crate) fn settle(&mut self, settings: &Settings) {
        self.json = settings.json;
        self.quiet = settings.quiet;
        self.log_json = settings.log_json;
    }

    /// Prints a result: the report itself for programs, the page for people.
    pub(crate) fn report(&self, report: &impl Serialize, page: impl FnOnce(&mut Page)) {
        if self.json {
            self.document(report);
        } else {
            let mut text = Page::new(width());
            page(&mut text);
            self.raw(text.into_text().as_bytes());
        }
    }

    /// Prints bytes as they are: a script, a page of the manual, a help text.
    pub(crate) fn raw(&self, bytes: &[u8]) {
        self.clear();
        let mut stdout = io::stdout().lock();
        self.lost.note(stdout.write_all(bytes).and_then(|()| stdout.flush()));
    }

    /// Stdout for a stream of data; a failed write is remembered for [`Ui::finish`].
    pub(crate) fn stdout(&self) -> Box<dyn Write + Send> {
        Box::new(Stdout { to: io::stdout(), lost: self.lost.clone() })
    }

    fn document(&self, report: &impl Serialize) {
        match serde_json::to_vec(report) {
            Ok(mut line) => {
                line.push(b'\n');
                self.raw(&line);
            }
            Err(error) => self.lost.note::<()>(Err(error.into())),
        }
    }

    /// Shows people a text that is not the result.
    pub(crate) fn aside(&self, text: &str) {
        if !self.json && !self.quiet {
            drop(writeln!(io::stderr().lock(), "{}", text.trim_end()));
        }
    }

    /// Says something to the operator that is not the result.
    pub(crate) fn warn(&self, text: &str) {
        if !self.quiet {
            self.say("warning", "33", text);
        }
    }

    /// A bar on stderr, on a terminal only.
    pub(crate) fn progress(&self, what: &'static str, unit: Unit) -> Progress {
        let hidden = self.quiet || self.json || self.log_json || !io::stderr().is_terminal();
        let bar = ProgressBar::hidden();
        let template = match unit {
            Unit::Bytes => "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            Unit::Checks => "{msg} {wide_bar} {pos}/{len} {elapsed}",
            Unit::Count => "{spinner} {msg} {human_pos} {per_sec}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        if !hidden {
            // Last: before anything is known there is nothing to draw.
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.replace(Some(bar.clone()));
        Progress(bar)
    }

    /// Takes the bar away before anything else is written. Not left to the work that moves it: while
    /// that unwinds, the bar is not drawn and so not cleared either.
    fn clear(&self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Reports how the command ended and picks the exit code.
    pub(crate) fn finish(self, result: &Result<Exit, Failure>) -> ExitCode {
        let code = match result {
            Ok(Exit::Done) => 0,
            Ok(Exit::Refused) => 1,
            Ok(Exit::Incomplete) => 3,
            Ok(Exit::Away) => 75,
            Err(failure) => {
                self.explain(failure);
                failure.exit
            }
        };
        match self.lost.take() {
            // The reader went away, as `| head` does. Not our failure.
            Some(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::from(code),
            Some(error) => {
                self.say("error", "31", &format!("stdout could not be written: {error}"));
                ExitCode::from(4)
            }
            None => ExitCode::from(code),
        }
    }

    fn explain(&self, failure: &Failure) {
        if self.json {
            return self.document(failure);
        }
        self.say("error", "31", &failure.message);
        if !failure.hint.is_empty() && !self.log_json {
            self.say("hint", "36", &failure.hint);
        }
    }

    /// One line to stderr. With stderr gone there is no one left to tell; the exit code still says it.
    fn say(&self, label: &str, colour: &str, text: &str) {
        self.clear();
        let text = config::scrub(text);
        let line = if self.log_json {
            let level = if label == "error" { "ERROR" } else { "WARN" };
            format!("{}\n", json!({"level": level, "fields": {"message": text}}))
        } else if stderr_takes_colour() {
            format!("\u{1b}[1;{colour}m{label}:\u{1b}[0m {}\n", harmless(&text))
        } else {
            format!("{label}: {}\n", harmless(&text))
        };
        drop(io::stderr().lock().write_all(line.as_bytes()));
    }
}

/// Whether people read stdout as it comes.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether somebody is there who can be asked something.
pub(crate) fn is_conversation() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks on stderr, and waits for a line.
pub(crate) async fn ask(question: String) -> Result<String, Failure> {
    let asked = tokio::task::spawn_blocking(move || {
        let mut stderr = io::stderr().lock();
        stderr.write_all(question.as_bytes()).and_then(|()| stderr.flush())?;
        drop(stderr);
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_bytes| line)
    });
    let line = asked.await.map_err(|error| Failure::internal(&error))?;
    line.map_err(|error| Failure::internal(&error))
}

/// Whether stdout takes colour.
pub(crate) fn stdout_takes_colour() -> bool {
    stdout_is_terminal() && config::colour_wanted()
}

/// Whether stderr takes colour.
fn stderr_takes_colour() -> bool {
    io::stderr().is_terminal() && config::colour_wanted()
}

fn width() -> u16 {
    let terminal = || {
        let (width, _) = terminal_size::terminal_size()?;
        stdout_is_terminal().then_some(width.0)
    };
    config::columns().or_else(terminal).unwrap_or(WIDTH_DEFAULT).max(WIDTH_MIN)
}

struct Stdout {
    to: io::Stdout,
    lost: Lost,
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes).inspect_err(|error| self.lost.note::<()>(Err(error.kind().into())))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush().inspect_err(|error| self.lost.note::<()>(Err(error.kind().into())))
    }
}

/// A bar, to be moved by the work.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// So much of so much is done.
    pub(crate) fn at(&self, done: u64, total: u64) {
        self.0.update(|state| {
            state.set_len(total);
            state.set_pos(done);
        });
    }
}
