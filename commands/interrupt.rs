//! SIGINT and SIGTERM: a one-shot command stops cleanly and says so by its exit code.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// How long work may take to notice that it is to stop.
const GRACE: Duration = Duration::from_secs(3);

/// Which signal came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cut {
    Interrupt,
    Terminate,
}

impl Cut {
    /// The number of the signal.
    pub(crate) fn number(self) -> i32 {
        match self {
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }
}

/// Both signals, caught from the moment this is made.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Takes the signals from the system; a runtime must be there.
    pub(crate) fn catch() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Cut {
        tokio::select! {
            _ = self.interrupt.recv() => Cut::Interrupt,
            _ = self.terminate.recv() => Cut::Terminate,
        }
    }
}

/// Whether work that cannot await is to stop. Cloned into the work, asked at every step of progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brake(Arc<AtomicBool>);

/// What unwinds through work that was stopped.
struct Stopped;

impl Brake {
    fn pull(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Leaves the work if it is to stop, by unwinding: all that it holds half-done (temporary files,
    /// open blobs) is dropped on the way, which is the clean stop.
    pub(crate) fn check(&self) {
        if self.0.load(Ordering::Relaxed) {
            resume_unwind(Box::new(Stopped));
        }
    }
}

/// Runs blocking work; a signal pulls the brake and the command ends as cut short.
pub(crate) async fn braked<T: Send + 'static>(
    signals: &mut Signals,
    work: impl FnOnce(&Brake) -> T + Send + 'static,
) -> Result<T, Failure> {
    let brake = Brake::default();
    let given = brake.clone();
    let mut task = tokio::task::spawn_blocking(move || work(&given));
    let (outcome, cut) = tokio::select! {
        outcome = &mut task => (outcome, None),
        cut = signals.next() => {
            brake.pull();
            let outcome = tokio::select! {
                outcome = &mut task => outcome,
                // It sits in a system call, or the operator does not want to wait for it.
                () = tokio::time::sleep(GRACE) => return Err(Failure::cut(cut)),
                again = signals.next() => return Err(Failure::cut(again)),
            };
            (outcome, Some(cut))
        }
    };
    match (outcome, cut) {
        // Finished before it noticed: done is done.
        (Ok(value), _) => Ok(value),
        (Err(_), Some(cut)) => Err(Failure::cut(cut)),
        (Err(error), None) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(error) => Err(Failure::internal(&error)),
        },
    }
}

/// Runs work that awaits; a signal drops it where it is.
pub(crate) async fn unless_cut<T>(
    signals: &mut Signals,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        outcome = work => outcome,
        cut = signals.next() => Err(Failure::cut(cut)),
    }
}
