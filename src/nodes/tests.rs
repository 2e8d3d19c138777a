//! What every registered node must pass, and what is particular to some.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use self::seeded::{fingerprint, prices};
use super::*;
use crate::canonical;

#[path = "../../tests/data/seeded.rs"]
mod seeded;

/// A fixed sequence of 64-bit numbers (SplitMix64), the same on every machine.
fn random(seed: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |n: u64| {
        let mut z = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}

/// Series that are meant to hurt: gaps, infinities, overflow, both zeros, subnormals, ties.
fn hostile(seed: u64, count: usize) -> Vec<f64> {
    const ODD: [f64; 13] = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e308,
        -1e308,
        f64::MAX,
        f64::MIN,
        0.0,
        -0.0,
        5e-324,
        -5e-324,
        f64::MIN_POSITIVE,
        1e154,
    ];
    let odd_one_in = [2, 5, 40, u64::MAX][usize::try_from(seed % 4).expect("0 to 3")];
    let value = |bits: u64| {
        if bits.is_multiple_of(odd_one_in) {
            ODD[usize::try_from(bits / odd_one_in % 13).expect("0 to 12")]
        } else if seed.is_multiple_of(3) {
            // Few distinct values: ties.
            f64::from(i8::try_from(bits >> 8 & 3).expect("2 bits") - 1) * 0.0
        } else {
            f64::from(u32::try_from(bits >> 40).expect("24 bits")) / 1000.0 - 3000.0
        }
    };
    random(seed).take(count).map(value).collect()
}

/// Every node with its smallest period and two more.
fn all() -> impl Iterator<Item = (&'static Definition, u32)> {
    NODES.iter().flat_map(|node| [*node.periods.start(), 3, 20].map(|period| (node, period)))
}

fn batch(node: &Definition, period: u32, inputs: &[f64]) -> Vec<f64> {
    let mut out = Vec::new();
    (node.make)(period).extend(inputs, &mut out);
    out
}

fn bits(values: &[f64]) -> Vec<Option<u64>> {
    values.iter().map(|x| if x.is_nan() { None } else { Some(x.to_bits()) }).collect()
}

fn bytes(node: &dyn Node) -> Vec<u8> {
    node.state().to_bytes().expect("a state is finite")
}

fn values_hash(values: &[f64]) -> String {
    let value = |&x: &f64| if x.is_nan() { Value::Null } else { Value::Float(x) };
    Value::List(values.iter().map(value).collect()).hash().expect("finite or null").to_string()
}

#[test]
fn each_file_of_a_node_is_registered_and_by_its_own_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/nodes");
    let parts = ["mod", "extreme", "state", "tests", "window"];
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("a readable folder")
        .map(|entry| entry.expect("an entry").path())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .filter(|stem| !parts.contains(&stem.as_str()))
        .collect();
    let registered: Vec<String> = names().map(str::to_owned).collect();
    assert_eq!(files.into_iter().collect::<Vec<_>>(), registered);
    assert!(registered.len() >= 10);
}

#[test]
fn batch_one_by_one_and_resumed_at_every_index_give_the_same_bits() {
    for (node, period) in all() {
        for seed in 0..12 {
            let inputs = hostile(seed, 90);
            let whole = bits(&batch(node, period, &inputs));
            let mut single = (node.make)(period);
            let mut values = Vec::new();
            for (index, &x) in inputs.iter().enumerate() {
                let state = bytes(&*single);
                let read = canonical::parse(&state, "state").expect("canonical");
                let mut resumed = (node.make)(period);
                resumed.restore(&read).expect("a state of its own");
                assert_eq!(bytes(&*resumed), state, "{}({period}) at {index}", node.name);
                let mut split = values.clone();
                resumed.extend(&inputs[index..], &mut split);
                assert_eq!(bits(&split), whole, "{}({period}), {seed}, {index}", node.name);
                values.push(single.push(x));
            }
            assert_eq!(bits(&values), whole, "{}({period}), seed {seed}", node.name);
        }
    }
}

#[test]
fn a_gap_is_null_and_as_if_it_had_never_come() {
    for (node, period) in all() {
        for seed in 0..40 {
            let mut running = (node.make)(period);
            let mut kept = Vec::new();
            let mut values = Vec::new();
            for x in hostile(seed, 200) {
                let before = bytes(&*running);
                let value = running.push(x);
                assert!(value.is_finite() || value.is_nan(), "{}({period})", node.name);
                // Every node remembers each value it takes, by a count, a sum or a window; a node
                // that is fed one value for ever may stand still, but never says null again.
                if value.is_nan() && bytes(&*running) == before {
                    continue;
                }
                assert!(x.is_finite(), "{}({period}) took in {x}", node.name);
                kept.push(x);
                values.push(value);
            }
            let clean = batch(node, period, &kept);
            assert_eq!(bits(&values), bits(&clean), "{}({period}), seed {seed}", node.name);
            let first = clean.iter().position(|x| !x.is_nan()).unwrap_or(clean.len());
            assert!(clean[first..].iter().all(|x| !x.is_nan()), "{}({period})", node.name);
        }
    }
}

#[test]
fn an_overflow_is_a_gap_and_the_node_lives_on() {
    for (name, before, over) in [
        ("ema", [1.0, 2.0, -1e308].as_slice(), 1.7e308),
        ("sma", &[1.0, 1e308], 1.7e308),
        ("wma", &[1.0, 2.0], 1.7e308),
        ("dema", &[1.0, 2.0, 1e308], 1.7e308),
        ("rsi", &[1.0, 2.0, -1e308], 1.7e308),
        ("roc", &[5e-324, 5e-324], 1.0),
        ("mom", &[-1e308, -1e308], 1e308),
        ("stddev", &[1.0, 2.0], 1e155),
    ] {
        let mut node = (find(name).expect(name).make)(2);
        before.iter().for_each(|&x| assert!(!node.push(x).is_infinite()));
        let state = bytes(&*node);
        assert!(node.push(over).is_nan(), "{name}");
        assert_eq!(bytes(&*node), state, "{name} took in the overflow");
        let mut untouched = (find(name).expect(name).make)(2);
        before.iter().for_each(|&x| assert!(!untouched.push(x).is_infinite()));
        assert_eq!(bits(&[node.push(3.0)]), bits(&[untouched.push(3.0)]), "{name}");
    }
}

#[test]
fn damaged_state_is_refused_and_changes_nothing() {
    for (node, period) in all() {
        let mut donor = (node.make)(period);
        prices(50).iter().for_each(|&x| assert!(!donor.push(x).is_infinite()));
        let Value::Map(good) = donor.state() else { panic!("a state is an object") };
        let mut damaged = vec![Value::Null, Value::Map(good.clone().into_iter().skip(1).collect())];
        for (field, value) in &good {
            let mut without = good.clone();
            without.remove(field);
            damaged.push(Value::Map(without));
            let endless = if let Value::List(items) = value {
                Value::List(items.iter().cycle().take(100).cloned().collect())
            } else {
                Value::Int(i64::MAX)
            };
            for wrong in [
                Value::Null,
                Value::Int(-1),
                Value::Float(f64::NAN),
                Value::Float(f64::INFINITY),
                Value::Text("x".to_owned()),
                Value::List(vec![Value::Null]),
                Value::List(vec![Value::List(vec![Value::Int(-1), Value::Float(0.0)])]),
                endless,
            ] {
                let mut with = good.clone();
                with.insert(field.clone(), wrong);
                damaged.push(Value::Map(with));
            }
        }
        let mut more = good.clone();
        more.insert("zeal".to_owned(), Value::Int(1));
        damaged.push(Value::Map(more));
        let mut target = (node.make)(period);
        let empty = bytes(&*target);
        for state in damaged {
            let error = target.restore(&state).expect_err(&format!("{}: {state:?}", node.name));
            assert_eq!(error.code, "NODE_STATE");
            assert_eq!(bytes(&*target), empty, "{} after {state:?}", node.name);
        }
        let mut other = (node.make)(period + 1);
        assert!(other.restore(&donor.state()).is_err(), "{}: another period", node.name);
        target.restore(&Value::Map(good)).expect("the undamaged one");
    }
}

#[test]
fn memory_does_not_grow_with_the_series() {
    for (node, period) in all() {
        let mut running = (node.make)(period);
        // The worst case of the queue of `max` and `min`: nothing better ever comes.
        for _ in 0..10_000 {
            assert!(!running.push(1.5).is_infinite());
        }
        let most = usize::try_from(period).expect("small") * 16 + 200;
        let size = bytes(&*running).len();
        assert!(size < most, "{}({period}) holds {size} bytes", node.name);
    }
}

#[test]
fn the_bits_are_those_of_ta_lib_on_real_prices() {
    let vectors = include_bytes!("../../tests/data/vectors/talib.json");
    let prices = include_str!("../../fixtures/stocks_monthly.csv");
    let vectors: serde_json::Value = serde_json::from_slice(vectors).expect("JSON");
    for symbol in ["MSFT", "GOOG"] {
        let series: Vec<f64> = prices
            .lines()
            .filter_map(|line| line.strip_prefix(symbol)?.rsplit(',').next()?.parse().ok())
            .collect();
        let expected = &vectors["series"][format!("stocks_monthly.csv:price[{symbol}]")];
        assert_eq!(expected["n"], series.len());
        for (node, period) in NODES.iter().flat_map(|node| [(node, 3), (node, 20)]) {
            let hash = values_hash(&batch(node, period, &series));
            let key = format!("{}({period})", node.name);
            assert_eq!(expected[&key], hash, "{symbol} {key}");
        }
    }
}

/// TA-Lib's own loop, whose window is scanned anew when its best value leaves.
fn extreme_by_scan(x: &[f64], n: usize, better: fn(f64, f64) -> bool) -> Vec<f64> {
    let mut held: Option<usize> = None;
    let mut out = vec![f64::NAN; (n - 1).min(x.len())];
    for today in n - 1..x.len() {
        let trailing = today + 1 - n;
        held = match held.filter(|&at| at >= trailing) {
            Some(at) if better(x[at], x[today]) => Some(at),
            Some(_) => Some(today),
            None => (trailing..=today).reduce(|at, i| if better(x[i], x[at]) { i } else { at }),
        };
        out.push(x[held.expect("a window is never empty")]);
    }
    out
}

#[test]
fn max_and_min_break_ties_of_the_two_zeros_as_ta_lib_does() {
    for seed in 0..200 {
        let series: Vec<f64> = hostile(seed, 150).into_iter().filter(|x| x.is_finite()).collect();
        for n in [2, 3, 7, 20] {
            let period = u32::try_from(n).expect("small");
            let highest = batch(find("max").expect("max"), period, &series);
            assert_eq!(bits(&highest), bits(&extreme_by_scan(&series, n, |a, b| a > b)));
            let lowest = batch(find("min").expect("min"), period, &series);
            assert_eq!(bits(&lowest), bits(&extreme_by_scan(&series, n, |a, b| a < b)));
        }
    }
}

#[test]
fn the_largest_period_works() {
    let series = prices(100_200);
    for node in NODES {
        let last = *batch(node, *node.periods.end(), &series).last().expect("as many as inputs");
        assert_eq!(last.is_nan(), node.name == "dema", "{} says {last}", node.name);
    }
}

/// Debug, release and `target-cpu=native` builds: were one of them to fuse a multiplication with an
/// addition, or to regroup a sum, the number would differ. It is the one TA-Lib 0.6.8 gives as well.
#[test]
fn every_kind_of_build_gives_the_same_bits() {
    const EXPECTED: &str = "5afb4c376f72a79d";
    assert_eq!(format!("{:016x}", fingerprint(&prices(20_000))), EXPECTED);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder of its own");
    for (index, flags) in [
        ["-Copt-level=0", "-Ctarget-cpu=generic"],
        ["-Copt-level=3", "-Ctarget-cpu=generic"],
        ["-Copt-level=3", "-Ctarget-cpu=native"],
    ]
    .iter()
    .enumerate()
    {
        let program = folder.path().join(format!("bits{index}"));
        let compiled = Command::new("rustc")
            .args(["--edition=2024", "--cap-lints=allow", "-o"])
            .arg(&program)
            .args(flags)
            .arg(root.join("tests/data/bits.rs"))
            .output()
            .expect("rustc is on the path");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let ran = Command::new(&program).output().expect("it was just compiled");
        assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), EXPECTED, "{flags:?}");
    }
}
