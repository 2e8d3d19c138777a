//! The artifact store as a whole: read all of it, and remove what nobody needs.

use std::collections::HashSet;
use std::time::Duration;

use super::{Control, Error};
use crate::artifacts::{GcReport, Kind, VerifyReport};

/// Reads every blob and label and holds it against its hash; `progress` is told the blobs read so far.
pub fn verify(control: &Control, progress: &dyn Fn(u64)) -> Result<VerifyReport, Error> {
    let Some(artifacts) = control.existing_artifacts()? else {
        return Ok(VerifyReport::default());
    };
    Ok(artifacts.verify(&|blobs, _bytes| progress(blobs))?)
}

/// Removes blobs that nobody names, no label and no run of the database, and that nothing has touched for `min_age`.
/// A store that serves a database must not be cleaned without asking it; `labels_only` says that it serves none.
///
/// # Errors
/// [`Error::StoreOfAnother`] where another database than the one that is asked names blobs of this store.
pub async fn gc(
    control: &Control,
    min_age: Duration,
    dry_run: bool,
    labels_only: bool,
) -> Result<GcReport, Error> {
    let Some(artifacts) = control.existing_artifacts()? else {
        return Ok(GcReport { dry_run, ..GcReport::default() });
    };
    let mut keep = HashSet::new();
    if !labels_only {
        // Before the labels are read: a blob that a run names later is younger than `min_age`.
        let store = control.ready_store().await?;
        let mut others = artifacts.databases()?;
        let asked = store.birth().await?;
        others.remove(&asked);
        if let Some(other) = others.into_iter().next() {
            let place = artifacts.root().display().to_string();
            return Err(Error::StoreOfAnother { place, asked, other });
        }
        keep.extend(store.named_blobs().await?);
    }
    for kind in Kind::ALL {
        keep.extend(artifacts.labels(kind)?.iter().map(|(_, label)| label.hash));
    }
    Ok(artifacts.gc(&keep, min_age, dry_run)?)
}
