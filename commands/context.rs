//! What a command is given: the door to the terminal, the library, the signals.

use std::sync::Arc;

use finaz::control::Control;

use crate::failure::Failure;
use crate::globals::Globals;
use crate::interrupt::{self, Brake, Signals};
use crate::ui::Ui;

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
        work: impl AsyncFnOnce(&Control) -> Result<T, finaz::control::Error>,
    ) -> Result<T, Failure> {
        let control = Arc::clone(&self.control);
        interrupt::unless_cut(&mut self.signals, async { Ok(work(&control).await?) }).await
    }

    /// Does work that blocks, on a thread of its own; a signal stops it at its next step.
    pub(crate) async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Control, &Brake) -> Result<T, finaz::control::Error> + Send + 'static,
    ) -> Result<T, Failure> {
        let control = Arc::clone(&self.control);
        let done = interrupt::braked(&mut self.signals, move |brake| work(&control, brake));
        Ok(done.await??)
    }
}
