//! Labels and fence marks.

use super::super::{Artifacts, Error, Kind, Label};
use super::store;
use crate::ids::Hash;

fn label(text: &str) -> Label {
    Label { hash: Hash::of(text.as_bytes()), golden: None }
}

#[test]
fn a_name_that_is_taken_is_refused_with_both_hashes_unless_replaced() {
    let (_folder, store) = store();
    assert_eq!(store.label(Kind::Flow, "name").unwrap(), None);
    store.set_label(Kind::Flow, "name", &label("a"), false).unwrap();
    store.set_label(Kind::Flow, "name", &label("a"), false).unwrap();
    assert_eq!(store.label(Kind::Snapshot, "name").unwrap(), None);
    let error = store.set_label(Kind::Flow, "name", &label("b"), false).unwrap_err();
    assert!(matches!(error, Error::LabelTaken { .. }));
    for held in [label("a"), label("b")] {
        assert!(error.to_string().contains(&held.hash.to_string()), "{error}");
    }
    assert_eq!(store.label(Kind::Flow, "name").unwrap(), Some(label("a")));
    let golden = Label { golden: Some(Hash::of(b"g")), ..label("a") };
    assert!(store.set_label(Kind::Flow, "name", &golden, false).is_err());
    store.set_label(Kind::Flow, "name", &golden, true).unwrap();
    assert_eq!(store.label(Kind::Flow, "name").unwrap(), Some(golden));
}

#[test]
fn names_that_look_alike_are_names_of_their_own_and_come_back_in_order() {
    let (_folder, store) = store();
    let names =
        ["A", "a", "a__b", "a_b", "..", "É", "é", "e\u{301}", &"x".repeat(200), "a b", "%2e"];
    for name in names {
        store.set_label(Kind::Snapshot, name, &label(name), false).unwrap();
    }
    let listed = Artifacts::open(&store.root).unwrap().labels(Kind::Snapshot).unwrap();
    let mut expected: Vec<(String, Label)> =
        names.iter().map(|name| ((*name).to_owned(), label(name))).collect();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(listed, expected);
    for name in ["../x", "a/b", "a\0b", "", "x.csv"] {
        let error = store.set_label(Kind::Snapshot, name, &label("x"), true).unwrap_err();
        assert!(matches!(error, Error::Name(_)), "{name}");
        assert!(matches!(store.label(Kind::Snapshot, name), Err(Error::Name(_))), "{name}");
    }
}

#[test]
fn of_many_who_give_a_name_at_once_one_wins_and_the_others_are_told() {
    let (_folder, store) = store();
    let won: usize = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8)
            .map(|n| {
                let store = &store;
                scope.spawn(move || {
                    let label = label(&format!("{n}"));
                    usize::from(store.set_label(Kind::Flow, "name", &label, false).is_ok())
                })
            })
            .collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).sum()
    });
    assert_eq!(won, 1);
}

#[test]
fn a_copied_label_file_is_not_believed() {
    let (_folder, store) = store();
    store.set_label(Kind::Flow, "old", &label("a"), false).unwrap();
    let folder = store.root.join("labels/flow");
    std::fs::copy(folder.join("old"), folder.join("new")).unwrap();
    assert!(matches!(store.label(Kind::Flow, "new"), Err(Error::RecordCorrupt { .. })));
}

#[test]
fn a_fence_mark_rises_and_never_falls() {
    let (_folder, store) = store();
    assert_eq!(store.fence_high_water("stream/a").unwrap(), None);
    for (epoch, fence) in [(1, 1), (1, 1), (1, 2), (2, 1)] {
        store.raise_fence_high_water("stream/a", epoch, fence).unwrap();
        assert_eq!(store.fence_high_water("stream/a").unwrap(), Some((epoch, fence)));
    }
    for (epoch, fence) in [(1, 9), (2, 0)] {
        let error = store.raise_fence_high_water("stream/a", epoch, fence).unwrap_err();
        assert!(matches!(error, Error::FenceRegression { held: (2, 1), .. }), "{error}");
    }
    assert_eq!(
        Artifacts::open(&store.root).unwrap().fence_high_water("stream/a").unwrap(),
        Some((2, 1))
    );
    assert_eq!(store.fence_high_water("stream/A").unwrap(), None);
    assert_eq!(store.fence_high_water("stream/a/0").unwrap(), None);
}

/// Stopped anywhere in here, as a drill does it, another one must get past.
#[test]
fn a_fence_mark_that_is_half_made_is_in_nobody_s_way_and_replaces_nothing() {
    let (_folder, store) = store();
    store.raise_fence_high_water("stream/a", 1, 1).unwrap();
    let stale = store.root.join("fences/stream%2fa@1-1.mark");
    let kept = std::fs::read(&stale).unwrap();
    store.raise_fence_high_water("stream/a", 1, 2).unwrap();
    assert!(!stale.exists(), "what is lower is removed");
    // The one that was stopped before its rename goes on.
    std::fs::write(&stale, kept).unwrap();
    assert_eq!(store.fence_high_water("stream/a").unwrap(), Some((1, 2)));
    let error = store.raise_fence_high_water("stream/a", 1, 1).unwrap_err();
    assert!(matches!(error, Error::FenceRegression { held: (1, 2), .. }), "{error}");
    // A mark under another's name is damage.
    std::fs::copy(&stale, store.root.join("fences/stream%2fa@1-9.mark")).unwrap();
    assert!(matches!(store.fence_high_water("stream/a"), Err(Error::RecordCorrupt { .. })));
}

#[test]
fn a_fence_mark_of_an_older_store_counts_until_it_is_overtaken() {
    let (_folder, store) = store();
    store.raise_fence_high_water("stream/a", 1, 7).unwrap();
    let old = store.root.join("fences/stream%2fa.mark");
    std::fs::rename(store.root.join("fences/stream%2fa@1-7.mark"), &old).unwrap();
    assert_eq!(store.fence_high_water("stream/a").unwrap(), Some((1, 7)));
    assert!(store.raise_fence_high_water("stream/a", 1, 6).is_err());
    store.raise_fence_high_water("stream/a", 1, 8).unwrap();
    assert_eq!(store.fence_high_water("stream/a").unwrap(), Some((1, 8)));
    assert!(!old.exists());
}

#[test]
fn of_many_who_raise_a_fence_at_once_the_highest_stays() {
    let (_folder, store) = store();
    std::thread::scope(|scope| {
        for fence in 0..16 {
            let store = &store;
            // Those that come after a higher one are refused, which is what they must be.
            scope.spawn(move || drop(store.raise_fence_high_water("stream/a", 1, fence)));
        }
    });
    assert_eq!(store.fence_high_water("stream/a").unwrap(), Some((1, 15)));
}

#[test]
fn databases_are_noted_once_and_what_cannot_be_read_is_not_taken_for_none() {
    let (_folder, store) = store();
    assert!(store.databases().unwrap().is_empty());
    for birth in ["2026-11-30T21:00:00.000001Z", "../x", "2026-11-30T21:00:00.000001Z"] {
        store.note_database(birth).unwrap();
    }
    let noted: Vec<String> = store.databases().unwrap().into_iter().collect();
    assert_eq!(noted, ["../x", "2026-11-30T21:00:00.000001Z"]);
    let folder = store.root.join("databases");
    let mark = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&mark, "{}\n").unwrap();
    assert!(matches!(store.databases().unwrap_err(), Error::RecordCorrupt { .. }));
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "").unwrap();
    assert!(matches!(store.databases().unwrap_err(), Error::Io { .. }));
}
