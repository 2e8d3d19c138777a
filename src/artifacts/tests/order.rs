//! The write order, call by call.

use std::path::{Path, PathBuf};

use super::super::disk::{Op, faults::watch};
use super::super::{Kind, Label};
use super::{blobs, store};
use crate::ids::Hash;

fn ops(calls: &[(Op, PathBuf)]) -> Vec<Op> {
    calls.iter().map(|(op, _)| *op).collect()
}

#[test]
fn a_blob_is_synced_before_it_has_a_name_and_the_name_before_it_is_acknowledged() {
    let (_folder, store) = store();
    let (hash, calls) = watch(|| store.put(b"a blob").unwrap());
    assert_eq!(ops(&calls), [Op::Create, Op::Write, Op::SyncFile, Op::Rename, Op::SyncFolder]);
    let target = store.loose(&hash);
    assert_eq!(
        (calls[2].1.as_path(), calls[3].1.as_path()),
        (calls[0].1.as_path(), target.as_path())
    );
    assert_eq!(Some(calls[4].1.as_path()), target.parent());
}

#[test]
fn a_present_blob_is_not_written_again_but_made_to_last() {
    let (_folder, store) = store();
    store.put(b"a blob").unwrap();
    store.put_many(&blobs("packed", 150)).unwrap();
    let ((), calls) = watch(|| store.put(b"a blob").map(drop).unwrap());
    assert_eq!(ops(&calls), [Op::SyncFile, Op::SyncFolder]);
    let ((), calls) = watch(|| store.put(&blobs("packed", 150)[3]).map(drop).unwrap());
    assert_eq!(ops(&calls), [Op::SyncFile, Op::SyncFolder]);
    let ((), calls) = watch(|| drop(store.put_many(&blobs("packed", 150)).unwrap()));
    assert_eq!(ops(&calls), [Op::SyncFile, Op::SyncFolder]);
    let ((), calls) = watch(|| drop(store.put_many(&blobs("packed", 7)).unwrap()));
    assert_eq!(ops(&calls), [Op::SyncFile, Op::SyncFolder].repeat(7));
}

#[test]
fn a_set_shares_one_sync_between_the_last_write_and_the_first_name() {
    let (_folder, store) = store();
    let (hashes, calls) = watch(|| store.put_many(&blobs("few", 40)).unwrap());
    let ops = ops(&calls);
    assert_eq!(ops[..80], [Op::Create, Op::Write].repeat(40));
    assert_eq!(ops[80], Op::SyncAll);
    assert_eq!(ops[81..121], [Op::Rename; 40]);
    let mut touched: Vec<PathBuf> =
        hashes.iter().map(|hash| store.loose(hash).parent().unwrap().to_owned()).collect();
    touched.sort();
    touched.dedup();
    let mut synced: Vec<PathBuf> = calls[121..].iter().map(|(_, path)| path.clone()).collect();
    synced.sort();
    assert!(ops[121..].iter().all(|op| *op == Op::SyncFolder));
    assert_eq!(synced, touched);
}

#[test]
fn a_large_set_is_one_file_and_two_fsyncs() {
    let (_folder, store) = store();
    let (hashes, calls) = watch(|| store.put_many(&blobs("many", 500)).unwrap());
    assert_eq!(ops(&calls), [Op::Create, Op::Write, Op::SyncFile, Op::Rename, Op::SyncFolder]);
    assert_eq!(hashes.len(), 500);
    for (hash, blob) in hashes.iter().zip(blobs("many", 500)) {
        assert_eq!(*hash, Hash::of(&blob));
        assert_eq!(store.get(hash).unwrap(), blob);
    }
}

#[test]
fn labels_and_fence_marks_keep_the_order_too() {
    let (_folder, store) = store();
    let label = Label { hash: Hash::of(b"x"), golden: None };
    let ((), calls) = watch(|| store.set_label(Kind::Flow, "name", &label, false).unwrap());
    let order = [Op::Create, Op::Write, Op::SyncFile, Op::Link, Op::SyncFolder];
    let written: Vec<Op> = ops(&calls).into_iter().filter(|op| *op != Op::Unlink).collect();
    assert_eq!(written, order);
    let ((), calls) = watch(|| store.raise_fence_high_water("stream/a", 1, 1).unwrap());
    let order = [Op::Create, Op::Write, Op::SyncFile, Op::Rename, Op::SyncFolder];
    assert_eq!(ops(&calls), order);
    assert_eq!(calls[4].1, Path::new(&store.root.join("fences")));
}
