//! What `gc` removes, and above all what it does not.

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::{Artifacts, disk};
use super::{age, blobs, files, no_rubbish, sound, store};
use crate::ids::Hash;

const HOUR: Duration = Duration::from_hours(1);

fn keep(blobs: &[Vec<u8>]) -> HashSet<Hash> {
    blobs.iter().map(|blob| Hash::of(blob)).collect()
}

#[test]
fn old_blobs_that_nobody_keeps_go_and_nothing_else_does() {
    let (_folder, store) = store();
    let (loose, packed) = (blobs("loose", 20), blobs("packed", 150));
    store.put_many(&loose).unwrap();
    store.put_many(&packed).unwrap();
    let young = store.gc(&HashSet::new(), HOUR, false).unwrap();
    assert_eq!((young.removed, young.young), (0, 170));
    age(&store);
    let kept = keep(&[&loose[..5], &packed[..60]].concat());
    let before = files(&store.root);
    let dry = store.gc(&kept, HOUR, true).unwrap();
    assert_eq!(files(&store.root), before);
    let done = store.gc(&kept, HOUR, false).unwrap();
    assert_eq!((done.removed, done.kept, done.packs_removed, done.packs_written), (105, 65, 1, 1));
    assert_eq!((dry.removed, dry.removed_bytes), (done.removed, done.removed_bytes));
    for blob in loose.iter().chain(&packed) {
        assert_eq!(store.get(&Hash::of(blob)).is_ok(), kept.contains(&Hash::of(blob)));
    }
    sound(&store);
    no_rubbish(&store);
    age(&store);
    assert_eq!(store.gc(&HashSet::new(), HOUR, false).unwrap().removed, 65);
    assert_eq!(files(&store.root.join("cas")), [store.root.join("cas/lock")]);
}

#[test]
fn a_blob_that_was_found_present_counts_as_young() {
    let (_folder, store) = store();
    let (loose, packed) = (blobs("loose", 3), blobs("packed", 150));
    store.put_many(&loose).unwrap();
    store.put_many(&packed).unwrap();
    age(&store);
    store.put(&loose[0]).unwrap();
    store.put(&packed[7]).unwrap();
    let done = store.gc(&keep(&packed[..20]), HOUR, false).unwrap();
    assert_eq!((done.removed, done.packs_removed), (2, 0));
    assert_eq!(store.get(&Hash::of(&packed[7])).unwrap(), packed[7]);
    assert_eq!(store.get(&Hash::of(&loose[0])).unwrap(), loose[0]);
}

#[test]
fn small_packs_become_one_and_an_open_reader_goes_on() {
    use std::io::Read as _;
    let (_folder, store) = store();
    let other = Artifacts::open(&store.root).unwrap();
    let mut all = Vec::new();
    for series in 0..12 {
        let set = blobs(&format!("s{series}"), 110);
        store.put_many(&set).unwrap();
        all.extend(set);
    }
    for blob in &all {
        assert_eq!(&other.get(&Hash::of(blob)).unwrap(), blob);
    }
    let mut reader = other.reader(&Hash::of(&all[0])).unwrap();
    age(&store);
    let done = store.gc(&keep(&all), HOUR, false).unwrap();
    assert_eq!((done.packs_written, done.packs_removed, done.removed), (1, 12, 0));
    assert_eq!(files(&store.root.join("cas/packs")).len(), 1);
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap();
    reader.finish().unwrap();
    assert_eq!(read, all[0]);
    for blob in &all {
        assert_eq!(&other.get(&Hash::of(blob)).unwrap(), blob);
    }
    age(&store);
    let again = store.gc(&keep(&all), HOUR, false).unwrap();
    assert_eq!((again.packs_written, again.packs_removed), (0, 0), "it would never end");
}

#[test]
fn death_at_any_call_of_a_merge_loses_nothing_that_is_kept() {
    for at in 0.. {
        let (_folder, store) = store();
        let (a, b) = (blobs("a", 120), blobs("b", 120));
        store.put_many(&a).unwrap();
        store.put_many(&b).unwrap();
        age(&store);
        let kept = keep(&[&a[..80], &b[..]].concat());
        let (done, hit) = disk::faults::crash(at, || store.gc(&kept, HOUR, false));
        let next = Artifacts::open(&store.root).unwrap();
        sound(&next);
        for hash in &kept {
            next.get(hash).unwrap();
        }
        if hit.is_none() {
            assert_eq!(done.unwrap().removed, 40);
            break;
        }
    }
}

#[test]
fn a_damaged_pack_is_left_alone_and_named() {
    let (_folder, store) = store();
    let (a, b) = (blobs("a", 120), blobs("b", 120));
    store.put_many(&a).unwrap();
    let path = files(&store.root.join("cas/packs")).pop().unwrap();
    store.put_many(&b).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[16] ^= 1;
    fs::write(&path, bytes).unwrap();
    age(&store);
    let done = store.gc(&keep(&[a, b].concat()), HOUR, false).unwrap();
    assert_eq!((done.packs_removed, done.damaged.len()), (0, 1));
    assert!(path.is_file());
}

#[test]
fn what_is_being_written_stays_and_what_a_crash_left_goes() {
    use std::io::Write as _;
    let (_folder, store) = store();
    let mut writer = store.writer().unwrap();
    writer.write_all(b"slow").unwrap();
    fs::write(store.tmp.join("left.tmp"), "half").unwrap();
    age(&store);
    assert_eq!(store.gc(&HashSet::new(), Duration::ZERO, false).unwrap().temporary_removed, 1);
    assert!(writer.finish().is_ok());
    no_rubbish(&store);
}

/// Writes packs that `gc` may merge or remove at any moment, for nobody keeps them, and reads what is kept.
fn work(store: &Artifacts, fixed: &[Vec<u8>], series: &str) {
    store.put_many(&blobs(series, 101)).unwrap();
    for blob in fixed.iter().step_by(37) {
        store.put(blob).unwrap();
        assert_eq!(&store.get(&Hash::of(blob)).unwrap(), blob);
    }
}

#[test]
fn readers_and_writers_do_not_notice_a_gc() {
    let (_folder, store) = store();
    let fixed = blobs("fixed", 300);
    for some in fixed.chunks(150) {
        store.put_many(some).unwrap();
    }
    age(&store);
    let kept = keep(&fixed);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for series in 0..2 {
            let (stop, store, fixed) = (&stop, &store, &fixed);
            scope.spawn(move || {
                let mine = Artifacts::open(&store.root).unwrap();
                for round in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    work(&mine, fixed, &format!("{series} {round}"));
                }
            });
        }
        for _ in 0..25 {
            // Only what no writer counts on is old at once.
            for path in files(&store.root.join("cas/packs")) {
                let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
                if let Ok(file) = fs::File::options().write(true).open(path) {
                    drop(file.set_modified(old));
                }
            }
            store.gc(&kept, HOUR, false).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    for blob in &fixed {
        assert_eq!(&store.get(&Hash::of(blob)).unwrap(), blob);
    }
}
