//! The vectors of CPython, and what the vectors leave out.

use super::*;

const VECTORS: &str = include_str!("../../tests/data/vectors/finaz_json_v1.jsonl");
const REJECT: &str = include_str!("../../tests/data/vectors/finaz_json_v1_reject.jsonl");

fn field<'a>(value: &'a Value, key: &str) -> &'a str {
    let Value::Map(map) = value else { panic!("{value:?} is no object") };
    let Value::Text(text) = &map[key] else { panic!("{key} is no text") };
    text
}

fn refused(text: &[u8]) -> Invalid {
    parse(text, "t").expect_err("must be refused")
}

/// A fixed sequence of 64-bit numbers (SplitMix64), the same on every machine.
fn random(seed: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |n: u64| {
        let mut z = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}

#[test]
fn every_vector_of_cpython_has_the_same_bytes_and_hash() {
    let mut count = 0;
    for line in VECTORS.lines() {
        let vector = parse(line.as_bytes(), "vectors").expect("a vector is JSON itself");
        let name = field(&vector, "name");
        let value = parse(field(&vector, "input").as_bytes(), name).expect(name);
        let bytes = value.to_bytes().expect(name);
        assert_eq!(String::from_utf8_lossy(&bytes), field(&vector, "canonical"), "{name}");
        let hash = value.hash().expect(name);
        assert_eq!(hash.hex(), field(&vector, "sha256"), "{name}");
        assert_eq!(parse(&bytes, name).expect(name).to_bytes().expect(name), bytes, "{name}");
        count += 1;
    }
    assert_eq!(count, 335);
}

#[test]
fn every_vector_that_must_be_refused_is_refused_with_a_place() {
    // Kept as text: one of the inputs is a lone surrogate, which only its own escape can carry.
    let mut count = 0;
    for line in REJECT.lines() {
        let vector = parse(line.as_bytes(), "reject").expect("a vector is JSON itself");
        let name = field(&vector, "name");
        let error = refused(field(&vector, "input").as_bytes());
        assert!(error.place.starts_with("t:1:"), "{name}: {error}");
        assert!(error.code.starts_with("JSON_") && !error.hint.is_empty(), "{name}");
        count += 1;
    }
    assert_eq!(count, 15);
}

#[test]
fn an_error_names_its_line_and_column_in_characters() {
    for (text, place, code) in [
        ("{\n \"ñ\": 1,\n \"ñ\": 2}", "t:3:2", "JSON_DUPLICATE_KEY"),
        ("[\"ñandú\", nul]", "t:1:11", "JSON_SYNTAX"),
        ("[1,\n\n1e999]", "t:3:1", "JSON_NUMBER"),
        ("{\"a\":\n\"never closed\n", "t:2:14", "JSON_TEXT"),
        ("{\"a\":\n \"never closed", "t:2:2", "JSON_SYNTAX"),
        ("[\"\\x\"]", "t:1:3", "JSON_TEXT"),
    ] {
        let error = refused(text.as_bytes());
        assert_eq!((error.place.as_str(), error.code), (place, code), "{text}");
    }
    let error = parse_line(b"[1,]", "f.jsonl", 17).expect_err("a last comma");
    assert_eq!(error.place, "f.jsonl:17:4");
    assert_eq!(refused(b"[\"a\xff\"]").place, "t:1:4");
}

#[test]
fn what_is_not_json_is_refused() {
    for text in [
        "",
        " ",
        "nul",
        "truefalse",
        "[1 2]",
        "{\"a\" 1}",
        "{a:1}",
        "{\"a\":1,}",
        "[,]",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "--1",
        "0x10",
        "1_000",
        "\"\\u12g4\"",
        "\"\\u12",
        "\"\\ud800\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud83dx\"",
        "\"a\nb\"",
        "\"a\u{0}\"",
        "\u{a0}1",
        "1\u{b}",
        "[1]]",
        "// c\n1",
        "-Infinity",
        "NaN",
        "[nan]",
        "inf",
        "-01",
        "1e309",
        "-1e309",
        "{\"a\":1,\"\\u0061\":2}",
        "99999999999999999999999999999999999999999999999",
    ] {
        let error = refused(text.as_bytes());
        assert!(error.place.starts_with("t:"), "{text}: {error}");
    }
}

#[test]
fn hostile_nesting_is_an_error_and_not_a_stack_overflow() {
    for open in ["[", "{\"a\":"] {
        assert_eq!(refused(open.repeat(500_000).as_bytes()).code, "JSON_DEPTH");
    }
    let deepest = format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
    let value = parse(deepest.as_bytes(), "t").expect("the limit itself");
    assert_eq!(value.to_bytes().expect("as read"), deepest.as_bytes());
    let deeper = Value::List(vec![value]);
    assert_eq!(deeper.to_bytes().expect_err("too deep").code, "JSON_DEPTH");
}

#[test]
fn integers_stay_integers_to_both_ends() {
    for text in ["9223372036854775807", "-9223372036854775808", "18446744073709551615"] {
        assert_eq!(parse(text.as_bytes(), "t").and_then(|v| v.to_bytes()), Ok(text.into()));
    }
    assert_eq!(parse(b"9223372036854775808", "t"), Ok(Value::Uint(1 << 63)));
    assert_eq!(parse(b"7", "t"), Ok(Value::Int(7)));
}

#[test]
fn nan_cannot_be_written_and_the_error_says_where() {
    let bad = Value::List(vec![Value::Float(1.0), Value::Float(f64::NAN)]);
    let map = Value::Map([("x".to_owned(), bad)].into());
    let error = Value::List(vec![map]).to_bytes().expect_err("NaN");
    assert_eq!((error.code, error.place.as_str()), ("JSON_NUMBER", "[0].x[1]"));
}

/// `serde_json` is what other formats are read with (JSON lines, settings). Without its feature
/// `float_roundtrip` about one price in ten reads back one bit off.
#[test]
fn a_million_floats_come_back_through_serde_json_bit_for_bit() {
    let mut text = Vec::new();
    let mut wrong = 0_u32;
    for bits in random(7).take(1_000_000) {
        let any = f64::from_bits(bits);
        let x = if any.is_finite() { any } else { 1e-300 };
        text.clear();
        write_f64(x, &mut text);
        let back: f64 = serde_json::from_slice(&text).expect("canonical floats are JSON");
        wrong += u32::from(back.to_bits() != x.to_bits());
        let own = std::str::from_utf8(&text).expect("ASCII").parse::<f64>().expect("a float");
        assert_eq!(own.to_bits(), x.to_bits());
    }
    assert_eq!(wrong, 0, "serde_json has lost its feature `float_roundtrip`");
}

#[test]
fn the_layout_changes_at_the_same_powers_of_ten_as_in_cpython() {
    for (x, text) in [
        (0.0001, "0.0001"),
        (0.000_123_4, "0.0001234"),
        (0.000_01, "1e-05"),
        (-0.000_012_34, "-1.234e-05"),
        (0.000_099_999, "9.9999e-05"),
        (1e15, "1000000000000000.0"),
        (9_999_999_999_999_998.0, "9999999999999998.0"),
        (1e16, "1e+16"),
        (-1.5e16, "-1.5e+16"),
        (1e100, "1e+100"),
        (5e-324, "5e-324"),
        (-0.0, "-0.0"),
    ] {
        let mut out = Vec::new();
        write_f64(x, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), text);
    }
}

#[test]
fn a_path_leads_to_the_line_of_its_value_or_key() {
    let text = b"{\"a\": [1,\n  {\"b\": 2, \"c\":\n 3}]}";
    use Step::{Field, Item, Key};
    assert_eq!(locate(text, &[]), (1, 1));
    assert_eq!(locate(text, &[Field("a"), Item(0)]), (1, 8));
    assert_eq!(locate(text, &[Field("a"), Item(1), Key("c")]), (2, 12));
    assert_eq!(locate(text, &[Field("a"), Item(1), Field("c")]), (3, 2));
    assert_eq!(locate(text, &[Field("a"), Item(1), Field("missing")]), (2, 3));
}
