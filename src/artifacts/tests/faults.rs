//! Every call that changes the disk fails once, and dies once.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;

use super::super::disk::{Op, faults};
use super::super::{Artifacts, Error, Kind, Label};
use super::{age, blobs, files, no_rubbish, sound, store};
use crate::ids::Hash;

/// What a caller may ask for, each with the blobs it should leave.
type Work = (&'static str, fn(&Artifacts) -> Result<(), Error>, Vec<Vec<u8>>);

fn works() -> Vec<Work> {
    let label = |store: &Artifacts| {
        let label = Label { hash: store.put(b"x")?, golden: Some(Hash::of(b"y")) };
        store.set_label(Kind::Snapshot, "name", &label, false)
    };
    let written = |store: &Artifacts| {
        let mut writer = store.writer()?;
        writer.write_all(&[5; 300_000]).map_err(|e| Error::io(&store.tmp, e))?;
        writer.finish().map(drop)
    };
    vec![
        ("one", |store| store.put(b"one").map(drop), vec![b"one".to_vec()]),
        ("few", |store| store.put_many(&blobs("few", 5)).map(drop), blobs("few", 5)),
        ("pack", |store| store.put_many(&blobs("pack", 130)).map(drop), blobs("pack", 130)),
        ("stream", written, vec![vec![5; 300_000]]),
        ("label", label, vec![b"x".to_vec()]),
        ("fence", |store| store.raise_fence_high_water("stream/a", 2, 3), Vec::new()),
    ]
}

fn is_sync(op: Op) -> bool {
    [Op::SyncFile, Op::SyncFolder, Op::SyncAll].contains(&op)
}

#[test]
fn a_full_disk_at_any_call_is_said_and_leaves_nothing() {
    for (name, work, blobs) in works() {
        let mut seen = HashSet::new();
        for at in 0.. {
            let (_folder, store) = store();
            let before: Vec<PathBuf> = files(&store.root);
            let (done, hit) = faults::fail(at, Errno::NOSPC, || work(&store));
            let Some(op) = hit else {
                done.unwrap();
                break;
            };
            seen.insert(format!("{op:?}"));
            if op == Op::Unlink {
                continue;
            }
            no_rubbish(&store);
            sound(&Artifacts::open(&store.root).unwrap());
            if is_sync(op) {
                assert!(matches!(done, Err(Error::FsyncFailed { .. })), "{name} {at} {op:?}");
                let after = work(&store);
                assert!(matches!(after, Err(Error::FsyncFailed { .. })), "retried: {name} {at}");
            } else {
                assert!(
                    matches!(done, Err(Error::DiskFull { .. })),
                    "{name} {at} {op:?}: {done:?}"
                );
                if name != "few" && name != "label" {
                    assert_eq!(files(&store.root), before, "{name} {at} {op:?}");
                }
                work(&store).unwrap();
                for blob in &blobs {
                    assert_eq!(&store.get(&Hash::of(blob)).unwrap(), blob);
                }
            }
        }
        assert!(seen.contains("Create") && seen.contains("Write") && seen.len() >= 4, "{seen:?}");
    }
}

#[test]
fn death_at_any_call_leaves_whole_blobs_or_none() {
    for (name, work, blobs) in works() {
        for at in 0.. {
            let (_folder, store) = store();
            let (done, hit) = faults::crash(at, || work(&store));
            let root = store.root.clone();
            drop(store);
            let next = Artifacts::open(&root).unwrap();
            sound(&next);
            let Some(op) = hit else {
                done.unwrap();
                break;
            };
            assert!(done.is_err() || op == Op::Unlink, "acknowledged: {name} {at} {op:?}");
            work(&next).unwrap();
            for blob in &blobs {
                assert_eq!(&next.get(&Hash::of(blob)).unwrap(), blob);
            }
            age(&next);
            let keep: HashSet<Hash> = blobs.iter().map(|blob| Hash::of(blob)).collect();
            next.gc(&keep, Duration::from_hours(1), false).unwrap();
            no_rubbish(&next);
            sound(&next);
        }
    }
}

#[test]
fn death_while_a_store_is_made_leaves_one_that_can_be_made() {
    for at in (0..).step_by(7) {
        let folder = super::folder();
        let (made, hit) = faults::crash(at, || Artifacts::open(folder.path()));
        if hit.is_none() {
            made.unwrap();
            break;
        }
        assert!(made.is_err(), "{at}");
        let store = Artifacts::open(folder.path()).unwrap();
        store.put(b"x").unwrap();
        sound(&store);
    }
}

#[test]
fn a_folder_that_vanished_is_made_again() {
    let (_folder, store) = store();
    for first in 0..=u8::MAX {
        std::fs::remove_dir(store.root.join(format!("cas/sha256/{first:02x}"))).unwrap();
    }
    let hash = store.put(b"x").unwrap();
    assert_eq!(store.get(&hash).unwrap(), b"x");
}
