//! Finding a blob among many packs and in a large one.

use super::super::Artifacts;
use super::super::pack;
use super::{blobs, files, store};
use crate::ids::Hash;

#[test]
fn blobs_are_found_in_many_packs_also_in_those_that_another_process_wrote() {
    let (_folder, store) = store();
    let reader = Artifacts::open(&store.root).unwrap();
    for series in 0..40 {
        let set = blobs(&format!("s{series}"), 101);
        store.put_many(&set).unwrap();
        assert_eq!(reader.get(&Hash::of(&set[50])).unwrap(), set[50]);
    }
    for series in (0..40).rev() {
        for blob in blobs(&format!("s{series}"), 101) {
            assert_eq!(reader.get(&Hash::of(&blob)).unwrap(), blob);
        }
    }
    assert!(!reader.contains(&Hash::of(b"never")).unwrap());
}

#[test]
fn a_blob_is_found_in_a_large_pack_with_and_without_its_index_in_memory() {
    let (_folder, store) = store();
    let set = blobs("large", 20_000);
    store.put_many(&set).unwrap();
    assert_eq!(files(&store.root.join("cas/packs")).len(), 1);
    for blob in set.iter().step_by(61) {
        let fresh = Artifacts::open(&store.root).unwrap();
        let hash = Hash::of(blob);
        assert!(fresh.contains(&hash).unwrap());
        assert_eq!(&fresh.get(&hash).unwrap(), blob);
        assert_eq!(&store.get(&hash).unwrap(), blob);
        let never = Hash::of(hash.as_bytes());
        assert!(!fresh.contains(&never).unwrap() && !store.contains(&never).unwrap());
    }
}

#[test]
fn a_huge_set_is_cut_into_packs_and_equal_blobs_are_one() {
    let (_folder, store) = store();
    let mut set = blobs("huge", pack::BLOBS_MAX + 500);
    set.extend(blobs("huge", 100));
    let hashes = store.put_many(&set).unwrap();
    assert_eq!(hashes.len(), set.len());
    assert_eq!(hashes[0], hashes[pack::BLOBS_MAX + 500]);
    let report = store.verify(&|_, _| {}).unwrap();
    assert_eq!((report.packs, report.packed, report.damages), (2, 66_036, 0));
    let big: Vec<Vec<u8>> = (0..101_u8).map(|n| vec![n; 1 << 20]).collect();
    let hashes = store.put_many(&big).unwrap();
    assert_eq!(files(&store.root.join("cas/packs")).len(), 4);
    assert_eq!(store.get(&hashes[100]).unwrap(), big[100]);
}
