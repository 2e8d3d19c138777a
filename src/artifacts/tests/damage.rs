//! Flipped bits, cut files and lost ones: each is found, named, and mended by putting the blob again.

use std::fs;
use std::io::Read as _;

use super::super::{Artifacts, Error, Kind, Label};
use super::{blobs, files, sound, store};
use crate::ids::Hash;

fn pack_of(store: &Artifacts) -> std::path::PathBuf {
    files(&store.root.join("cas/packs")).pop().unwrap()
}

fn stream(store: &Artifacts, hash: &Hash) -> Result<(), Error> {
    let mut reader = store.reader(hash)?;
    // Damage must not be hidden from one who reads a part only.
    drop(reader.read(&mut [0; 3]));
    reader.finish()
}

#[test]
fn a_damaged_loose_blob_is_found_on_every_read_and_healed_by_a_put() {
    for damage in ["flip", "cut", "longer", "empty"] {
        let (_folder, store) = store();
        let blob = vec![9; 300_000];
        let hash = store.put(&blob).unwrap();
        let path = store.loose(&hash);
        let mut bytes = fs::read(&path).unwrap();
        match damage {
            "flip" => bytes[299_999] ^= 4,
            "cut" => bytes.truncate(1000),
            "longer" => bytes.push(9),
            _ => bytes.clear(),
        }
        fs::write(&path, bytes).unwrap();
        for error in [store.get(&hash).unwrap_err(), stream(&store, &hash).unwrap_err()] {
            assert!(
                matches!(&error, Error::Corrupt { hash: named, .. } if *named == hash),
                "{error}"
            );
            assert!(error.to_string().contains(&path.display().to_string()));
        }
        let report = store.verify(&|_, _| {}).unwrap();
        assert_eq!(report.damaged.len(), 1);
        assert_eq!(report.damaged[0].hash, Some(hash));
        store.put(&blob).unwrap();
        assert_eq!(store.get(&hash).unwrap(), blob);
        sound(&store);
    }
}

#[test]
fn a_damaged_blob_in_a_pack_is_named_and_healed_by_either_put() {
    for again in 0..3 {
        let (_folder, store) = store();
        let set = blobs("p", 150);
        let hashes = store.put_many(&set).unwrap();
        let path = pack_of(&store);
        let mut bytes = fs::read(&path).unwrap();
        // The blobs lie in the order of their hashes.
        let first = *hashes.iter().min().unwrap();
        bytes[16] ^= 1;
        fs::write(&path, bytes).unwrap();
        for error in [store.get(&first).unwrap_err(), stream(&store, &first).unwrap_err()] {
            assert!(matches!(&error, Error::Corrupt { hash, .. } if *hash == first), "{error}");
        }
        assert_eq!(store.verify(&|_, _| {}).unwrap().damaged[0].hash, Some(first));
        assert_eq!(hashes.iter().filter(|hash| store.get(hash).is_ok()).count(), 149);
        let blob = &set[hashes.iter().position(|hash| *hash == first).unwrap()];
        match again {
            0 => drop(store.put(blob).unwrap()),
            1 => drop(store.put_many(&set).unwrap()),
            _ => drop(store.put_many(&[set.clone(), blobs("q", 9)].concat()).unwrap()),
        }
        assert_eq!(&store.get(&first).unwrap(), blob);
        if again == 1 {
            sound(&store);
        }
    }
}

#[test]
fn a_pack_cut_anywhere_is_an_error_that_names_it_and_never_a_missing_blob() {
    let (_folder, store) = store();
    let hashes = store.put_many(&blobs("p", 120)).unwrap();
    let path = pack_of(&store);
    let whole = fs::read(&path).unwrap();
    for len in (0..whole.len()).step_by(311).chain([whole.len() - 1]) {
        fs::write(&path, &whole[..len]).unwrap();
        for store in [&store, &Artifacts::open(&store.root).unwrap()] {
            for hash in &hashes[..3] {
                let error = store.get(hash).unwrap_err();
                let (Error::PackCorrupt { place, .. } | Error::Corrupt { place, .. }) = &error
                else {
                    panic!("{len}: {error}")
                };
                assert_eq!(*place, path.display().to_string());
            }
        }
        assert_eq!(store.verify(&|_, _| {}).unwrap().damages, 1, "{len}");
    }
    fs::write(&path, &whole).unwrap();
    assert!(store.get(&hashes[0]).is_ok());
}

#[test]
fn any_flipped_bit_of_a_pack_is_found_by_verify_and_gives_no_wrong_blob() {
    let (_folder, store) = store();
    let set = blobs("p", 101);
    let hashes = store.put_many(&set).unwrap();
    let path = pack_of(&store);
    let whole = fs::read(&path).unwrap();
    for at in (16..whole.len()).step_by(83) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        let fresh = Artifacts::open(&store.root).unwrap();
        assert!(fresh.verify(&|_, _| {}).unwrap().damages > 0, "{at}");
        for (hash, blob) in hashes.iter().zip(&set) {
            let read = fresh.get(hash);
            let damaged = matches!(read, Err(Error::Corrupt { .. } | Error::PackCorrupt { .. }));
            assert!(damaged || read.as_ref().is_ok_and(|read| read == blob), "{at}: {read:?}");
        }
    }
}

#[test]
fn a_damaged_label_or_fence_mark_is_not_taken_for_none() {
    let (_folder, store) = store();
    let hash = store.put(b"x").unwrap();
    store.set_label(Kind::Flow, "name", &Label { hash, golden: None }, false).unwrap();
    store.raise_fence_high_water("stream/a", 1, 7).unwrap();
    let before = store.verify(&|_, _| {}).unwrap();
    assert_eq!((before.labels, before.damages), (1, 0));
    for folder in ["labels/flow", "fences"] {
        let path = files(&store.root.join(folder)).into_iter().find(|path| !path.ends_with("lock"));
        let path = path.unwrap();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            let read = if folder == "fences" {
                store.fence_high_water("stream/a").map(drop)
            } else {
                store.label(Kind::Flow, "name").map(drop)
            };
            assert!(matches!(read, Err(Error::RecordCorrupt { .. })), "{at} {read:?}");
        }
        assert_eq!(store.verify(&|_, _| {}).unwrap().damages, 1);
        fs::write(&path, whole).unwrap();
    }
    fs::remove_file(store.loose(&hash)).unwrap();
    assert_eq!(store.verify(&|_, _| {}).unwrap().damaged[0].hash, Some(hash));
}
