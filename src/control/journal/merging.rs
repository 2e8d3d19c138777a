//! Large merges, made beside the work: a commit takes in what is finished and waits for nothing.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::artifacts::Artifacts;
use crate::control::Error;
use crate::journal::{Kind, Merge, SegmentRef, merged};

/// A result that was not taken in by then is made anew: `cas gc` could have taken it for nobody's
/// (`Store::named_blobs`).
const ADOPTED_WITHIN: Duration = Duration::from_secs(20);

type Made = Result<(Option<SegmentRef>, Instant), Error>;

/// Merges under way, at most one a kind.
#[derive(Debug)]
pub(super) struct Merging {
    artifacts: Arc<Artifacts>,
    tasks: Vec<(Merge, JoinHandle<Made>)>,
}

impl Merging {
    pub(super) fn new(artifacts: Arc<Artifacts>) -> Self {
        Self { artifacts, tasks: Vec::new() }
    }

    /// Kinds of which segments are being merged.
    pub(super) fn kinds(&self) -> HashSet<Kind> {
        self.tasks.iter().map(|(merge, _)| merge.kind).collect()
    }

    /// Begins a merge. What has been applied at this moment is left out of accepted events.
    pub(super) fn start(&mut self, merge: Merge, drained_before: i64) {
        let artifacts = Arc::clone(&self.artifacts);
        let inputs = merge.clone();
        let task = tokio::task::spawn_blocking(move || {
            let read = |hash: &_| super::bytes(&artifacts, hash);
            let Some(made) = merged(&inputs, drained_before, &read)? else {
                return Ok((None, Instant::now()));
            };
            let began = Instant::now();
            artifacts.put_hashed(&[made.blob])?;
            Ok((Some(made.named), began))
        });
        self.tasks.push((merge, task));
    }

    /// Those that are finished, with what became of them.
    ///
    /// # Errors
    /// What a merge met: an input that is damaged, a full disk. The journal could not be read or written either.
    pub(super) async fn finished(&mut self) -> Result<Vec<(Merge, Option<SegmentRef>)>, Error> {
        let (done, running) = std::mem::take(&mut self.tasks)
            .into_iter()
            .partition(|(_, task): &(Merge, JoinHandle<Made>)| task.is_finished());
        self.tasks = running;
        let mut finished = Vec::new();
        for (merge, task) in done {
            let made = task.await;
            let (result, at) = made.map_err(|e| Error::Panicked { what: e.to_string() })??;
            if at.elapsed() < ADOPTED_WITHIN {
                finished.push((merge, result));
            }
        }
        Ok(finished)
    }
}
