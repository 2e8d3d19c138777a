//! The order of the body, and ids that must differ, also where memory does not hold the source.
//! (Under test a run is 4 KiB and 64 ids, so that small files take every way.)

use super::super::{Error, ImportOptions};
use super::{Bench, plain, some};
use crate::canonical::Value;

/// Rows `(time in seconds, instrument, close)` as a file.
fn csv(rows: &[(i64, &str, usize)]) -> String {
    let mut text = "time,close,name,id\n".to_owned();
    for (time, name, close) in rows {
        text.push_str(&format!("{time},{close},{name},{name}/{close}\n"));
    }
    text
}

fn options() -> ImportOptions {
    ImportOptions {
        instrument: None,
        instrument_column: some("name"),
        time_format: some("epoch-s"),
        ..plain()
    }
}

/// What the body must be, made the plain way.
fn expected(rows: &[(i64, &str, usize)], ids: bool) -> String {
    let mut counts = std::collections::BTreeMap::new();
    let mut events: Vec<(i64, &str, u64, usize)> = rows
        .iter()
        .map(|(time, name, close)| {
            let count: &mut u64 = counts.entry(*name).or_default();
            *count += 1;
            (*time, *name, *count - 1, *close)
        })
        .collect();
    events.sort_unstable();
    let mut body = String::new();
    let (mut last, mut equal) = (None, 0);
    for (time, name, seq, close) in events {
        equal = if last == Some((time, name)) { equal + 1 } else { 0 };
        last = Some((time, name));
        let time = time * 1_000_000_000;
        let id = if ids { format!("{name}/{close}") } else { format!("{name}@{time}#{equal}") };
        body.push_str(&format!(
            "{{\"close\":{close}.0,\"event_id\":\"{id}\",\"event_time\":{time},\"instrument\":\"{name}\",\"seq\":{seq}}}\n"
        ));
    }
    body
}

/// A permutation of rows that looks like none, always the same.
fn shuffle<T>(rows: &mut [T]) {
    let mut state: u64 = 7;
    for at in (1..rows.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let to = usize::try_from((state >> 33) % (u64::try_from(at).unwrap() + 1)).unwrap();
        rows.swap(at, to);
    }
}

#[test]
fn any_order_of_rows_and_any_size_give_the_body_of_the_plain_way() {
    const NAMES: [&str; 4] = ["B", "A", "b", "Ä"];
    for size in [1, 3, 25, 40, 300, 1500] {
        // Twelve rows a second: three events of each instrument with equal times.
        let sorted: Vec<(i64, &str, usize)> =
            (0..size).map(|n| (i64::try_from(n / 12).unwrap(), NAMES[n % 4], n)).collect();
        let mut by_name = sorted.clone();
        by_name.sort_by_key(|row| row.1);
        let mut in_order = sorted.clone();
        in_order.sort_by_key(|row| (row.0, row.1));
        // In order for longer than memory holds, and then not.
        let mut late = in_order.clone();
        late.extend([(i64::MAX / 2_000_000_000, "zz", 9), (0, "a", 8)]);
        let mut shuffled = sorted.clone();
        shuffle(&mut shuffled);
        let mut reversed = sorted.clone();
        reversed.reverse();
        for (rows, sort) in [
            (&sorted, false),
            (&by_name, false),
            (&in_order, false),
            (&late, false),
            (&shuffled, true),
            (&reversed, true),
            (&in_order, true),
        ] {
            let bench = Bench::new();
            let file = bench.file("a.csv", csv(rows).as_bytes());
            let done = bench.import(&file, &ImportOptions { sort, ..options() }).unwrap();
            assert_eq!(bench.body(&done.snapshot), expected(rows, false), "{size} {sort}");
            let with_ids = ImportOptions {
                sort,
                name: Some("ids".to_owned()),
                event_id_column: some("id"),
                ..options()
            };
            let done = bench.import(&file, &with_ids).unwrap();
            assert_eq!(bench.body(&done.snapshot), expected(rows, true), "{size} {sort}");
            let left = bench.files();
            assert!(left.iter().all(|file| file.extension().is_none_or(|ending| ending != "tmp")));
        }
    }
}

#[test]
fn a_time_that_goes_back_is_refused_per_instrument_and_equal_times_are_not() {
    let bench = Bench::new();
    let fine = csv(&[(5, "a", 1), (1, "b", 2), (5, "a", 3), (1, "b", 4), (6, "a", 5)]);
    bench.import(&bench.file("fine.csv", fine.as_bytes()), &options()).unwrap();
    let back = csv(&[(5, "a", 1), (1, "b", 2), (6, "a", 3), (0, "b", 4)]);
    let refused = bench.refused(&bench.file("back.csv", back.as_bytes()), &options());
    assert_eq!(refused.code, "TIME_ORDER");
    assert!(
        refused.place.ends_with("back.csv:5") && refused.message.contains("`b`"),
        "{refused:?}"
    );
    assert!(refused.hint.contains("--sort"));
    let long: Vec<(i64, &str, usize)> = (0..2000).map(|n| (i64::from(n), "a", 1)).collect();
    let text = csv(&[long, vec![(3, "a", 1)]].concat());
    let refused = bench.refused(&bench.file("long.csv", text.as_bytes()), &options());
    assert!(refused.place.ends_with("long.csv:2002"), "{refused:?}");
}

#[test]
fn the_first_id_that_comes_twice_is_named_with_both_lines() {
    for size in [10, 500] {
        let bench = Bench::new();
        let mut rows: Vec<(i64, &str, usize)> =
            (0..size).map(|n| (i64::try_from(n).unwrap(), "a", n)).collect();
        rows.push((9999, "a", 3));
        rows.push((9999, "a", 2));
        let options = ImportOptions { event_id_column: some("id"), ..options() };
        let refused = bench.refused(&bench.file("a.csv", csv(&rows).as_bytes()), &options);
        assert_eq!(refused.code, "EVENT_ID_DUPLICATE");
        assert!(refused.place.ends_with(&format!("a.csv:{}", size + 2)), "{refused:?}");
        assert!(
            refused.message.contains("`a/3`") && refused.message.contains("line 5"),
            "{refused:?}"
        );
    }
}

#[test]
fn a_disk_that_is_full_is_said_at_whatever_point_and_leaves_nothing() {
    use crate::artifacts::Error as Store;
    use crate::artifacts::faults;
    let mut rows: Vec<(i64, &str, usize)> = (0..300).map(|n| (i64::from(n), "a", 1)).collect();
    shuffle(&mut rows);
    for at in 0.. {
        let bench = Bench::new();
        let file = bench.file("a.csv", csv(&rows).as_bytes());
        let before = bench.files();
        let options = ImportOptions { sort: true, ..options() };
        let (done, hit) = faults::full(at, || bench.import(&file, &options));
        if !hit {
            assert_eq!(done.unwrap().events, 300);
            assert!(at > 6, "{at}");
            break;
        }
        let Err(error) = done else { continue };
        let full =
            matches!(&error, Error::Artifacts(Store::DiskFull { .. } | Store::FsyncFailed { .. }));
        assert!(full, "{at}: {error:?}");
        let label = bench.artifacts.label(crate::artifacts::Kind::Snapshot, "prices").unwrap();
        // Only a name that was given and could not be made to last may be seen.
        assert!(
            label.is_none() || !matches!(error, Error::Artifacts(Store::DiskFull { .. })),
            "{at}"
        );
        // A whole blob may be there when it is the name that found no room; never a part of one.
        let report = bench.artifacts.verify(&|_, _| {}).unwrap();
        assert_eq!(report.damages, 0);
        assert!(bench.files().len() <= before.len() + 2, "{at}");
    }
}

#[test]
fn times_at_the_ends_of_64_bits_are_ordered_and_written() {
    let bench = Bench::new();
    let text = format!("time,close\n{},1\n-1,2\n{},3\n", i64::MIN, i64::MAX);
    let options = ImportOptions { time_format: some("epoch-ns"), ..plain() };
    let done = bench.import(&bench.file("a.csv", text.as_bytes()), &options).unwrap();
    let times: Vec<Value> =
        bench.events(&done.snapshot).into_iter().map(|event| event["event_time"].clone()).collect();
    assert_eq!(times, [i64::MIN, -1, i64::MAX].map(Value::Int));
}
