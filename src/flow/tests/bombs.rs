//! Manifests that are meant to take all memory, all time or the whole stack.

use super::*;

fn refused(text: &str) -> Invalid {
    Flow::parse(text.as_bytes(), "f.yaml").expect_err("a bomb")
}

#[test]
fn aliases_of_aliases_are_given_up_early() {
    let mut text = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (one, before) in "bcdefghijklmnop".chars().zip("abcdefghijklmno".chars()) {
        text.push_str(&format!("{one}: &{one} [{}]\n", vec![format!("*{before}"); 9].join(", ")));
    }
    assert_eq!(refused(&text).code, "FLOW_TOO_COMPLEX");
    // Few values, long texts.
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(400_000), vec!["*a"; 100_000].join(","));
    assert_eq!(refused(&long).code, "FLOW_TOO_COMPLEX");
    // One anchor that is its own part.
    assert!(refused("a: &a [*a]\n").code.starts_with("FLOW_"));
    assert!(refused("&a [*a, *a]").code.starts_with("FLOW_"));
}

#[test]
fn an_honest_alias_works() {
    let text = FIXTURE
        .replace("instruments: [sim.alpha]", "instruments: [&one sim.alpha]")
        .replace("dataset: features", "dataset: *one");
    assert_eq!(
        Flow::parse(text.as_bytes(), "f.yaml").map(|flow| flow.dataset),
        Ok("sim.alpha".to_owned())
    );
}

#[test]
fn nesting_is_bounded() {
    for open in ["[", "{a: ", "[a: ", "- ", "? ", "!x [", "&a [", "[\n", "- -\n"] {
        let deep = open.repeat((1 << 20) / open.len());
        assert!(refused(&deep).code.starts_with("FLOW_"), "{open}");
        let deep = open.repeat(400);
        assert!(refused(&deep).code.starts_with("FLOW_"), "{open}");
    }
    let tags: String = (0..60_000).map(|i| format!("%TAG !{i}! x\n")).collect();
    assert_eq!(refused(&tags).code, "FLOW_TOO_COMPLEX");
    let deep = "[".repeat(1 << 20);
    let error = Flow::parse(deep.as_bytes(), "f.json").expect_err("deep");
    assert_eq!(error.code, "FLOW_TOO_COMPLEX");
}

#[test]
fn size_is_bounded() {
    let large = format!("{FIXTURE}#{}", "x".repeat(1 << 20));
    assert_eq!(refused(&large).code, "FLOW_TOO_LARGE");
    assert!(refused(&format!("{}\n", "x".repeat(1_000_000))).code.starts_with("FLOW_"));
    let key = format!("{FIXTURE}{}: 1\n", "k".repeat(1000));
    assert!(refused(&key).message.len() < 400);
    let keys: String = (0..60_000).map(|i| format!("k{i}: {i}\n")).collect();
    assert!(refused(&keys).code.starts_with("FLOW_"));
    let name = FIXTURE.replace("sim.alpha", &"x".repeat(201));
    assert_eq!(refused(&name).code, "FLOW_NAME");
}
