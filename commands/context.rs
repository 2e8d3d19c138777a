//! What a command is given: the door to the terminal, the library, the signals.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use finaz::control::worker::Stop;
use finaz::control::{Control, Error};
use tokio::sync::watch;

use crate::failure::Failure;
use crate::globals::Globals;
use crate::interrupt::{self, Brake, Signals};
use crate::ui::Ui;

/// How long work may take to end that is to stop at once.
const AT_ONCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) ui: &'a Ui,
    pub(crate) control: Arc<Control>,
    pub(crate) signals: Signals,
    typed: &'a Globals,
}

impl<'a> Context<'a> {
    /// Opens nothing but the ears for signals.
    pub(crate) fn new(ui: &'a Ui, globals: &'a Globals) -> Result<Self, Failure> {
        Ok(Self {
            ui,
            control: Arc::new(Control::new(globals.settings.clone())),
            signals: Signals::catch().map_err(|error| Failure::internal(&error))?,
            typed: globals,
        })
    }

    /// Whether this flag stood on the command line (and not just in the environment).
    pub(crate) fn typed(&self, id: &str) -> bool {
        self.typed.typed(id)
    }

    /// Does work that awaits; a signal drops it where it is.
    pub(crate) async fn awaiting<T>(
        &mut self,
        work: impl AsyncFnOnce(&Control) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let control = Arc::clone(&self.control);
        interrupt::unless_cut(&mut self.signals, async { Ok(work(&control).await?) }).await
    }

    /// Does work that stops in order: the first signal asks it to, the second tells it to stop at once.
    pub(crate) async fn draining<T>(
        &mut self,
        work: impl AsyncFnOnce(&Control, watch::Receiver<Stop>) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let (tell, told) = watch::channel(Stop::No);
        let control = Arc::clone(&self.control);
        let mut work = pin!(work(&control, told));
        let cut = tokio::select! {
            done = &mut work => return Ok(done?),
            cut = self.signals.next() => cut,
        };
        self.ui.warn("stopping in order; a second signal stops at once");
        tell.send_replace(Stop::Drain(cut.number()));
        let cut = tokio::select! {
            done = &mut work => return Ok(done?),
            cut = self.signals.next() => cut,
        };
        tell.send_replace(Stop::Now(cut.number()));
        // Work that waits for a service does not hear of it; whatever it leaves half done is found by the next owner.
        match tokio::time::timeout(AT_ONCE, work).await {
            Ok(done) => Ok(done?),
            Err(_late) => Err(Failure::cut(cut)),
        }
    }

    /// Does work that blocks, on a thread of its own; a signal stops it at its next step.
    pub(crate) async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Control, &Brake) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Failure> {
        let control = Arc::clone(&self.control);
        let done = interrupt::braked(&mut self.signals, move |brake| work(&control, brake));
        Ok(done.await??)
    }
}
