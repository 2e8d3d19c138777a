//! The store as its callers see it, and as a hostile disk does.

mod damage;
mod faults;
mod gc;
mod names;
mod order;
mod packs;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::{Artifacts, Error};
use crate::ids::Hash;

/// A folder; in memory where that can be had, since none of these tests takes the power away.
fn folder() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

fn store() -> (TempDir, Artifacts) {
    let folder = folder();
    let store = Artifacts::open(&folder.path().join("artifacts")).unwrap();
    (folder, store)
}

/// `count` different small blobs.
fn blobs(series: &str, count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| format!("{series} {n} {}", "x".repeat(n % 97)).into_bytes()).collect()
}

/// Every file below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Lets every blob and pack, and what is being written, look an hour old.
fn age(store: &Artifacts) {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    for path in files(&store.root.join("cas")).into_iter().chain(files(&store.tmp)) {
        fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    }
}

fn no_rubbish(store: &Artifacts) {
    assert_eq!(files(&store.tmp), Vec::<PathBuf>::new());
}

fn sound(store: &Artifacts) {
    let report = store.verify(&|_, _| {}).unwrap();
    assert_eq!(report.damaged, []);
}

#[test]
fn what_was_put_is_read_back_whatever_its_size() {
    let (_folder, store) = store();
    for size in [0, 1, 500, 256 << 10, (1 << 20) + 7] {
        let blob = vec![7; size];
        let hash = store.put(&blob).unwrap();
        assert_eq!(hash, Hash::of(&blob));
        assert_eq!(store.get(&hash).unwrap(), blob);
        let mut read = Vec::new();
        let mut reader = store.reader(&hash).unwrap();
        std::io::Read::read_to_end(&mut reader, &mut read).unwrap();
        reader.finish().unwrap();
        assert_eq!(read, blob);
        assert!(store.contains(&hash).unwrap());
    }
    sound(&store);
    no_rubbish(&store);
}

#[test]
fn a_blob_lies_where_the_layout_says() {
    let (_folder, store) = store();
    let hash = store.put(b"finaz").unwrap().hex();
    assert!(store.root.join("cas/sha256").join(&hash[..2]).join(&hash[2..]).is_file());
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    use std::io::Write as _;
    let (_folder, store) = store();
    let before = files(&store.root);
    let mut writer = store.writer().unwrap();
    writer.write_all(&vec![1; 1 << 20]).unwrap();
    drop(writer);
    assert_eq!(files(&store.root), before);
    let mut writer = store.writer().unwrap();
    writer.write_all(b"half").unwrap();
    writer.write_all(&vec![1; 1 << 20]).unwrap();
    assert_eq!(writer.hash(), Hash::of(&[b"half".as_slice(), &vec![1; 1 << 20]].concat()));
    let (hash, present) = writer.finish().unwrap();
    assert!(!present);
    assert_eq!(store.get(&hash).unwrap().len(), 4 + (1 << 20));
    let mut again = store.writer().unwrap();
    again.write_all(&store.get(&hash).unwrap()).unwrap();
    assert_eq!(again.finish().unwrap(), (hash, true));
    no_rubbish(&store);
}

#[test]
fn a_missing_blob_is_named() {
    let (_folder, store) = store();
    store.put_many(&blobs("a", 200)).unwrap();
    let hash = Hash::of(b"never put");
    assert!(!store.contains(&hash).unwrap());
    for error in [store.get(&hash).unwrap_err(), store.reader(&hash).unwrap_err()] {
        assert!(matches!(&error, Error::Missing { hash: named, .. } if *named == hash), "{error}");
    }
}

#[test]
fn the_store_of_another_version_is_refused() {
    let (_folder, store) = store();
    fs::write(store.root.join("layout"), "finaz artifacts 2\n").unwrap();
    let error = Artifacts::open(&store.root).unwrap_err();
    assert!(matches!(error, Error::Layout { .. }), "{error}");
}

#[test]
fn threads_and_stores_that_put_the_same_blobs_do_not_disturb_each_other() {
    let (_folder, store) = store();
    let other = Artifacts::open(&store.root).unwrap();
    let set = blobs("same", 130);
    std::thread::scope(|scope| {
        for store in [&store, &other, &store, &other] {
            scope.spawn(|| {
                for blob in &set[..20] {
                    store.put(blob).unwrap();
                }
                store.put_many(&set[..60]).unwrap();
                store.put_many(&set).unwrap();
            });
        }
    });
    for blob in &set {
        assert_eq!(&other.get(&Hash::of(blob)).unwrap(), blob);
    }
    assert_eq!(store.verify(&|_, _| {}).unwrap().packs, 1);
    sound(&store);
    no_rubbish(&store);
}

/// Runs this very test in a process of its own, whose umask takes every bit away.
#[test]
fn files_are_for_the_owner_alone_under_any_umask() {
    use std::os::unix::fs::PermissionsExt as _;
    const NAME: &str = "artifacts::tests::files_are_for_the_owner_alone_under_any_umask";
    if let Some(root) = std::env::var_os("FINAZ_TEST_UMASK_ROOT") {
        let store = Artifacts::open(Path::new(&root)).unwrap();
        store.put(b"loose").unwrap();
        store.put_many(&blobs("packed", 101)).unwrap();
        let label = super::Label { hash: Hash::of(b"loose"), golden: None };
        store.set_label(super::Kind::Flow, "name", &label, false).unwrap();
        store.raise_fence_high_water("stream/a", 1, 1).unwrap();
        return;
    }
    for umask in ["0000", "0777"] {
        let folder = TempDir::new().unwrap();
        let root = folder.path().join("new/artifacts");
        let done = std::process::Command::new("sh")
            .arg("-c")
            .arg(format!("umask {umask}; exec \"$0\" --exact {NAME}"))
            .arg(std::env::current_exe().unwrap())
            .env("FINAZ_TEST_UMASK_ROOT", &root)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let all = files(&folder.path().join("new"));
        assert!(all.len() > 4);
        let folders: HashSet<&Path> = all.iter().filter_map(|file| file.parent()).collect();
        assert!(all.iter().all(|file| mode(file) == 0o600), "{umask}");
        assert!(folders.iter().all(|folder| mode(folder) == 0o700), "{umask}");
        assert_eq!(mode(&folder.path().join("new")), 0o700);
    }
}
