//! `finaz drill sim`: no server, and a seed is the same again.

use crate::Place;

#[test]
fn a_seed_gives_the_same_trace_again_and_says_what_it_held_it_against() {
    let place = Place::new();
    let play = || place.finaz(&["drill", "sim", "--seed", "7", "--json"]).exits(0).json();
    let (one, two) = (play(), play());
    assert_eq!(one["verdict"], "PASS");
    assert_eq!(one["trace_hash"], two["trace_hash"]);
    assert!(one["trace_hash"].as_str().is_some_and(|hash| hash.starts_with("sha256:")));
    let checks = one["checks"].as_array().expect("checks");
    assert!(checks.len() >= 12 && checks.iter().all(|check| check["pass"] == true), "{one}");
    assert_eq!(one["options"]["ttl_ms"], two["options"]["ttl_ms"]);
    let other = place.finaz(&["drill", "sim", "--seed", "8", "--json"]).exits(0).json();
    assert_ne!(one["trace_hash"], other["trace_hash"]);
}

#[test]
fn every_step_of_a_seed_is_printed_when_it_is_asked_for() {
    let place = Place::new();
    let run = place.finaz(&["drill", "sim", "--seed", "7", "--trace"]).exits(0);
    assert!(run.out.contains("worker1/1 starts") && run.out.contains("the faults stop"), "{run:?}");
    assert!(run.out.lines().last().is_some_and(|line| line.starts_with("PASS: seed 7")));
}

#[test]
fn no_seeds_and_what_is_no_seed_are_usage() {
    let place = Place::new();
    for args in [["--seeds", "0"], ["--seeds", "-1"], ["--seed", "x"], ["--seed", "1.5"]] {
        let all = [&["drill", "sim"][..], &args].concat();
        place.finaz(&all).exits(2);
    }
}
