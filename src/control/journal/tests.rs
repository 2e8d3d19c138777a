//! A journal on a disk: what was kept is loaded, what was touched is not. No database: rows are as it would have them.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

mod crash;

use super::*;
use crate::artifacts::faults;
use crate::ids::Owner;
use crate::stream::{Accepted, Applied, Fate, Identity, Quarantined, Reason, Treatment};

fn identity() -> StreamIdentity {
    StreamIdentity {
        run_id: "run".to_owned(),
        cluster: "cluster".to_owned(),
        topic_id: "id".to_owned(),
        topic: "topic".to_owned(),
        group: "group".to_owned(),
        flow: Hash::of(b"flow"),
        flow_name: "flow".to_owned(),
        partitions: None,
    }
}

/// What commit `n` of a small stream brings.
fn delta(n: u8) -> Delta {
    let time = i64::from(n);
    let (treatment, reason) = (Treatment::Consumed, Reason::None);
    Delta {
        fates: vec![Fate { id: [n; 16], partition: 0, offset: time, treatment, reason }],
        identities: vec![Identity { id: [n; 16], payload: 5 }],
        accepted: vec![Accepted {
            event_time: time,
            instrument: "sim.alpha".into(),
            seq: 1,
            id: [n; 16],
            partition: 0,
            fields: [0.1][..].into(),
        }],
        applied: vec![Applied {
            event_time: time,
            instrument: "sim.alpha".into(),
            values: [f64::NAN][..].into(),
        }],
        quarantined: vec![Quarantined {
            partition: 0,
            offset: time,
            treatment: Treatment::Omitted,
            reason: Reason::Unreadable,
            detail: "no".to_owned(),
            event_id: None,
            key: None,
            value: Some(vec![n]),
            hash: Hash::of(&[n]),
        }],
    }
}

struct Disk {
    folder: Arc<tempfile::TempDir>,
    artifacts: Arc<Artifacts>,
    head: Option<(Hash, Head)>,
}

impl Disk {
    fn new() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let artifacts = Arc::new(Artifacts::open(folder.path()).unwrap());
        Self { folder, artifacts, head: None }
    }

    /// In memory where that can be had: nobody takes its power away.
    fn in_memory() -> Self {
        let folder = tempfile::TempDir::new_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = Arc::new(folder.unwrap());
        let artifacts = Arc::new(Artifacts::open(folder.path()).unwrap());
        Self { folder, artifacts, head: None }
    }

    /// As another process finds it.
    fn again(&self) -> Self {
        let artifacts = Arc::new(Artifacts::open(self.folder.path()).unwrap());
        Self { folder: Arc::clone(&self.folder), artifacts, head: self.head.clone() }
    }

    /// What the row keeps from `cas gc`.
    fn needs(&self) -> HashSet<Hash> {
        let (hash, head) = self.head.as_ref().unwrap();
        head.needs().into_iter().chain([*hash]).collect()
    }

    /// A commit as [`Journal::commit`] makes it, without the pointer.
    fn commit(&mut self, delta: Delta, drained_before: i64) {
        let written = self.draft(drained_before).write(delta).unwrap();
        assert_eq!(written.due, [], "small merges are made at once");
        self.head = Some((written.hash, written.head));
    }

    fn draft(&self, drained_before: i64) -> Draft {
        let before = self.head.as_ref();
        Draft {
            artifacts: Arc::clone(&self.artifacts),
            head: Head {
                identity: identity(),
                epoch: 1,
                fence: 1,
                seq: before.map_or(1, |(_, head)| head.seq + 1),
                previous: before.map(|(hash, _)| *hash),
                drained_before,
                state: Value::Int(drained_before),
                segments: before.map(|(_, head)| head.segments.clone()).unwrap_or_default(),
            },
            busy: HashSet::new(),
            at_us: 17,
        }
    }

    fn row(&self) -> StreamRow {
        let (hash, head) = self.head.as_ref().unwrap();
        StreamRow {
            name: "stream/run".to_owned(),
            identity: identity(),
            epoch: 1,
            fence: 1,
            seq: head.seq,
            head: Some(*hash),
            status: StreamStatus { state: "FLOWING".to_owned(), reason: None, report: None },
            committed_at: None,
        }
    }

    /// Everything that there is to read: the load, and what is read on demand.
    fn read(&self) -> Result<(Loaded, Vec<Applied>, usize), Error> {
        let (_, head, loaded) = reading::load(&self.artifacts, &self.row())?.unwrap();
        let mut rows = Vec::new();
        let mut count = 0;
        applied(&self.artifacts, &head, &mut |row| rows.push(row))?;
        fates(&self.artifacts, &head, &mut |at, _| count += usize::from(at == 17))?;
        quarantined(&self.artifacts, &head, &mut |at, _| count += usize::from(at == 17))?;
        Ok((loaded, rows, count))
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn what_was_committed_is_loaded_and_the_segments_stay_few() {
    let mut disk = Disk::new();
    for n in 1..=100 {
        disk.commit(delta(n), i64::from(n) - 3);
    }
    let (loaded, applied, count) = disk.read().unwrap();
    assert_eq!((loaded.seq, loaded.state), (100, Value::Int(97)));
    let mut ids: Vec<u8> = loaded.identities.iter().flatten().map(|one| one.id[0]).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=100).collect::<Vec<u8>>());
    let left: Vec<i64> = loaded.accepted.iter().map(|event| event.event_time).collect();
    assert_eq!(left, [97, 98, 99, 100]);
    assert_eq!(applied.len(), 100);
    assert!(applied.is_sorted_by_key(|row| row.event_time));
    assert_eq!(count, 200);
    let (_, head) = disk.head.as_ref().unwrap();
    // 100 is 64 to the base of sixteen.
    for kind in [Kind::Applied, Kind::Fates, Kind::Identities, Kind::Quarantined] {
        assert_eq!(head.segments.of(kind).len(), 6 + 4, "{kind:?}");
    }
    assert_eq!(head.segments.of(Kind::Accepted).len(), 4);
}

#[test]
fn no_byte_of_a_journal_can_be_changed_and_none_cut_off_unseen() {
    let mut disk = Disk::new();
    disk.commit(delta(1), 0);
    disk.commit(delta(2), 0);
    disk.read().unwrap();
    let needed: HashSet<String> = {
        let (hash, head) = disk.head.as_ref().unwrap();
        head.needs().iter().chain([hash]).map(|hash| hash.hex()).collect()
    };
    let blobs = files(&disk.folder.path().join("cas/sha256"));
    let named = |path: &&PathBuf| {
        let [first, rest] =
            [path.parent().unwrap(), path.as_path()].map(|p| p.file_name().unwrap());
        needed.contains(&format!("{}{}", first.to_str().unwrap(), rest.to_str().unwrap()))
    };
    let blobs: Vec<&PathBuf> = blobs.iter().filter(named).collect();
    assert_eq!(blobs.len(), 11, "two of each kind and a head");
    for path in blobs {
        let sound = fs::read(path).unwrap();
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(path, &bytes).unwrap();
            let seen = disk.read().map(|_| ());
            assert!(matches!(seen, Err(Error::Artifacts(_))), "byte {at} of {path:?}: {seen:?}");
        }
        for len in 0..sound.len() {
            fs::write(path, &sound[..len]).unwrap();
            let seen = disk.read().map(|_| ());
            assert!(matches!(seen, Err(Error::Artifacts(_))), "{path:?} cut at {len}: {seen:?}");
        }
        fs::remove_file(path).unwrap();
        let seen = reading::load(&disk.artifacts, &disk.row()).map(|_| ());
        assert!(seen.is_err(), "{path:?} is missing, and it was loaded");
        fs::write(path, &sound).unwrap();
    }
    disk.read().unwrap();
}

#[test]
fn a_process_that_dies_at_any_call_of_a_commit_leaves_the_last_one_whole_and_the_next_one_possible()
{
    for at in 0.. {
        let mut disk = Disk::new();
        (1..16).for_each(|n| disk.commit(delta(n), 0));
        // The sixteenth merges all that was before it.
        let draft = disk.draft(0);
        let (written, came) = faults::dead(at, || draft.write(delta(16)));
        assert_eq!(written.is_err(), came, "call {at}");
        disk.artifacts = Arc::new(Artifacts::open(disk.folder.path()).unwrap());
        assert_eq!(disk.read().unwrap().0.seq, 15, "call {at}");
        disk.commit(delta(16), 0);
        let (loaded, applied, count) = disk.read().unwrap();
        assert_eq!((loaded.seq, applied.len(), count), (16, 16, 32), "call {at}");
        if !came {
            assert!(at > 10, "a commit of {at} calls");
            return;
        }
    }
}

#[test]
fn a_row_that_names_the_head_of_another_moment_is_refused() {
    let mut disk = Disk::new();
    disk.commit(delta(1), 0);
    let good = disk.row();
    let other = StreamIdentity { group: "other".to_owned(), ..identity() };
    for row in [
        StreamRow { seq: 2, ..good.clone() },
        StreamRow { fence: 2, ..good.clone() },
        StreamRow { epoch: 2, ..good.clone() },
        StreamRow { identity: other, ..good },
    ] {
        let seen = head(&disk.artifacts, &row);
        assert!(matches!(seen, Err(Error::Journal(_))), "{row:?}: {seen:?}");
    }
}

#[test]
fn an_export_holds_all_of_a_journal_and_nothing_that_was_changed_is_taken_in() {
    let mut disk = Disk::new();
    for n in 1..=20 {
        disk.commit(delta(n), i64::from(n) - 3);
    }
    let mut bytes = Vec::new();
    assert!(export(&disk.artifacts, &disk.row(), &mut bytes).unwrap());
    let document = Document::read(&bytes, "file").unwrap();
    assert_eq!(document.name, "stream/run");
    let (hash, head) = disk.head.as_ref().unwrap();
    assert_eq!(&document.head, head);
    // Into an empty store.
    let other = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::open(other.path()).unwrap();
    let needs = head.needs();
    let (_, kept) = moving::keep(&artifacts, document.head, document.segments).unwrap();
    assert_eq!(kept, *hash);
    for blob in needs {
        assert_eq!(artifacts.get(&blob).unwrap(), disk.artifacts.get(&blob).unwrap());
    }
    let text = String::from_utf8(bytes).unwrap();
    let before = format!("0@7 consumed - {}", "07".repeat(16));
    let after = format!("0@8 consumed - {}", "07".repeat(16));
    let header = ["\"at\":[[16,17]]", "\"at\":[[16,18]]"];
    for (from, to) in [(before.as_str(), after.as_str()), ("0.1", "0.2"), (header[0], header[1])] {
        assert!(text.contains(from), "{from} is not in {text}");
        let changed = text.replacen(from, to, 1);
        let seen = Document::read(changed.as_bytes(), "file").map(|_| ());
        assert!(matches!(seen, Err(Error::JournalFile(_))), "{to}: {seen:?}");
    }
    for len in [0, 1, text.len() / 2, text.len() - 1] {
        assert!(Document::read(&text.as_bytes()[..len], "file").is_err(), "cut at {len}");
    }
}

#[test]
fn who_lost_a_lease_is_told_to_whom() {
    let yours = Owner::from_token("a/1");
    let lease = StreamLease { name: "stream/run".to_owned(), owner: yours, epoch: 1, fence: 1 };
    let said = |owner: Option<&str>, fence| {
        let owner = owner.map(Owner::from_token);
        fenced(&lease, StreamRefusal { owner, fence }).to_string()
    };
    assert!(said(Some("b/2"), Some(2)).ends_with("b/2 has fence 2"));
    assert!(said(Some("a/1"), Some(1)).ends_with("its lease expired"));
    assert!(said(None, None).ends_with("there is no such lease"));
}
