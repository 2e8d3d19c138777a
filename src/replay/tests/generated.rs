//! Schedules drawn from a seed.

use std::collections::{BTreeMap, HashSet};

use super::*;

fn drawn(
    body: &[u8],
    faults: u64,
    seed: u64,
    flow: Option<(&[&str], i64)>,
) -> Result<Schedule, Error> {
    let flow = flow.map(|(names, ns)| {
        let names: HashSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        (names, ns)
    });
    generate(|| Ok::<_, Error>(body), &Hash::of(body), &Wanted { faults, seed, flow })
}

#[test]
fn the_same_seed_gives_the_same_schedule_on_every_machine() {
    let body = long(50_000, 20);
    let schedule = drawn(&body, 200, 7, Some((&["i03"], 5_000_000_000))).unwrap();
    assert_eq!(schedule.faults.len(), 200);
    assert_eq!(
        schedule.hash.to_string(),
        "sha256:a6e225d129ac1cbf7784063551473c8852e898f8f081f5e94ea68e80daf73287"
    );
    let other = drawn(&body, 200, 8, Some((&["i03"], 5_000_000_000))).unwrap();
    assert_ne!(other.hash, schedule.hash);
    // It can be applied, every fault of it, and the log is a frozen one as well.
    let (_, hash, applied) = log(&body, &schedule).unwrap();
    assert_eq!(applied.len(), 200);
    assert_eq!(
        hash.to_string(),
        "sha256:414ad0f3db0b5ccb5e4dfb7b8fe9e83e26bee51394dc2cb1a95a45d31906b9d6"
    );
}

#[test]
fn every_type_comes_and_none_changes_what_the_flow_computes() {
    let body = long(2_000, 4);
    let schedule = drawn(&body, 1_500, 1, Some((&["i01", "i02"], 2_000_000_000))).unwrap();
    let mut types = BTreeMap::new();
    for fault in &schedule.faults {
        *types.entry(fault.kind.name()).or_insert(0) += 1;
        let at: u64 = fault.event_id[1..].parse().unwrap();
        let is_read = at % 4 == 1 || at % 4 == 2;
        match fault.kind {
            Kind::Gap | Kind::Revision { .. } => assert!(!is_read, "{fault:?}"),
            Kind::Delay { delay_ms } => assert!(!is_read || delay_ms <= 2_000, "{fault:?}"),
            Kind::Duplicate
            | Kind::Pause { .. }
            | Kind::Burst { .. }
            | Kind::SourceFailure { .. } => {}
        }
    }
    assert_eq!(types.len(), 7, "{types:?}");
    assert!(types.values().all(|count| *count > 50), "{types:?}");
    // A flow that names no instruments reads all of them.
    let all = drawn(&body, 500, 1, Some((&[], 0))).unwrap();
    for fault in &all.faults {
        let harmless =
            !matches!(fault.kind, Kind::Gap | Kind::Revision { .. } | Kind::Delay { .. });
        assert!(harmless, "{fault:?}");
    }
}

#[test]
fn no_event_gets_two_and_there_are_not_more_than_events() {
    let body = long(300, 3);
    let schedule = drawn(&body, 300, 5, None).unwrap();
    let ids: HashSet<&str> = schedule.faults.iter().map(|fault| fault.event_id.as_str()).collect();
    assert_eq!(ids.len(), 300);
    assert_eq!(log(&body, &schedule).unwrap().2.len(), 300);
    let Err(Error::Invalid(refused)) = drawn(&body, 301, 5, None) else { panic!("301 of 300") };
    assert_eq!((refused.code, refused.place.as_str()), ("FAULTS_MANY", "--generate"));
    assert_eq!(drawn(&body, 0, 5, None).unwrap().faults, []);
}
