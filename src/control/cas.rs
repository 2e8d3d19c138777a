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

/// Removes blobs that no label names and that nothing has touched for `min_age`.
pub fn gc(control: &Control, min_age: Duration, dry_run: bool) -> Result<GcReport, Error> {
    let Some(artifacts) = control.existing_artifacts()? else {
        return Ok(GcReport { dry_run, ..GcReport::default() });
    };
    let mut keep = HashSet::new();
    for kind in [Kind::Snapshot, Kind::Flow] {
        keep.extend(artifacts.labels(kind)?.iter().map(|(_, label)| label.hash));
    }
    Ok(artifacts.gc(&keep, min_age, dry_run)?)
}
