//! An artifact store on a disk that is full.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::process::until;
use crate::stage::Stage;

const SOON: Duration = Duration::from_secs(60);

/// A disk of four megabytes in memory, unmounted with the value.
pub(crate) struct Disk(pub(crate) PathBuf);

impl Disk {
    /// `None`, with a line, where nothing may be mounted.
    #[expect(clippy::print_stdout, reason = "the line that says a test was skipped")]
    pub(crate) fn new(stage: &Stage) -> Option<Self> {
        let folder = stage.path("disk");
        fs::create_dir(&folder).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs"]).arg(&folder);
        let done = mount.output().expect("mount can be started");
        if !done.status.success() {
            println!("skipped: {}", String::from_utf8_lossy(&done.stderr).trim());
            return None;
        }
        Some(Self(folder))
    }

    /// Leaves no byte free.
    fn fill(&self) -> PathBuf {
        let ballast = self.0.join("ballast");
        let mut file = File::create(&ballast).expect("a file");
        for size in [1 << 16, 1 << 12, 1 << 8, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        ballast
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(done.is_ok_and(|done| done.success()) || std::thread::panicking());
    }
}

/// Every file below a folder of blobs.
fn blobs(artifacts: &Path) -> usize {
    let mut count = 0;
    let mut queue = vec![artifacts.join("cas")];
    while let Some(folder) = queue.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { queue.push(path) } else { count += 1 }
        }
    }
    count
}

#[test]
fn runs_wait_for_space_and_leave_no_half_blob() {
    let Some(mut stage) = Stage::new() else { return };
    let Some(disk) = Disk::new(&stage) else { return };
    let artifacts = disk.0.join("artifacts");
    stage.set("FINAZ_ARTIFACTS", artifacts.to_str().expect("a UTF-8 path"));
    stage.set("FINAZ_WORKER_POLL_SEC", "0.1");
    stage.snapshot("load", 1_000);
    stage.admit("a", 20, "load");
    let flow = stage.flow("alone", "load");
    // Known to the store before the disk is full.
    stage.finaz(&["admit", "--flow", &flow]).exits(0);
    let before = blobs(&artifacts);
    let ballast = disk.fill();
    stage.finaz(&["run-once", "--flow", &flow]).refuses(75, "DISK_FULL");
    let mut worker = stage.start(&["worker"]);
    until("the runs are given back", SOON, || {
        let given = "SELECT count(*) FROM finaz.run_history
                     WHERE starts_with(what, 'given back') AND what LIKE '%full%'";
        (stage.count(given) > 20).then_some(())
    });
    assert_eq!(
        stage.count("SELECT count(*) FROM finaz.publications"),
        0,
        "results that are nowhere"
    );
    assert!(worker.is_running(), "it gave up");
    let verified = stage.json(&["cas", "verify"]);
    assert_eq!(verified["damages"], 0, "half a blob: {verified}");
    assert_eq!(blobs(&artifacts), before, "something was left under a final name");
    fs::remove_file(ballast).expect("space is made");
    until("all succeed", SOON, || (stage.runs("SUCCEEDED") == 21).then_some(()));
    let ends = "SELECT DISTINCT run_revision, attempts, error FROM finaz.api_runs";
    assert_eq!(stage.sql(ends), [["1", "0", ""]], "revision, attempts, error");
    let found = stage.json(&["reconcile", "--dry-run"]);
    assert_eq!((&found["checked"], &found["mismatches"]), (&21.into(), &json!([])), "{found}");
}
