//! Reading a snapshot for a flow.

use super::*;

fn close() -> Flow {
    flow_of("", &["id: m, type: mom, period: 1, input: close"])
}

fn column(projection: &Projection, instrument: usize, field: &str) -> Vec<Option<f64>> {
    let values = &projection.instruments[instrument].fields[field];
    values.iter().map(|x| if x.is_nan() { None } else { Some(*x) }).collect()
}

#[test]
fn only_what_the_flow_reads_is_kept_in_its_order() {
    let flow = flow_of(
        "[b, a]",
        &[
            "id: x, type: mom, period: 1, input: close",
            "id: y, type: mom, period: 1, input: volume",
        ],
    );
    let body = body(&[
        (-5, "a", 0, r#""close":1.5,"volume":10"#),
        (1, "b", 0, r#""close":null,"note":"not read","volume":2.5e-05"#),
        (1, "c", 0, r#""close":9.0"#),
        (1, "c", 1, r#""close":"not even a number""#),
        (2, "b", 1, r#""close":-0.0,"nested":{"x":[1,{}]},"volume":null"#),
        (3, "b", 7, r#""close":1e+16"#),
    ]);
    let projection = projected(&flow, &body).expect("good");
    assert_eq!(projection.instruments.len(), 2);
    let [b, a] = &projection.instruments[..] else { panic!("two") };
    assert_eq!((b.name.as_str(), &b.event_time[..]), ("b", &[1, 2, 3][..]));
    assert_eq!((a.name.as_str(), &a.event_time[..]), ("a", &[-5][..]));
    assert_eq!(column(&projection, 0, "close"), [None, Some(-0.0), Some(1e16)]);
    assert!(b.fields["close"][1].is_sign_negative());
    assert_eq!(column(&projection, 0, "volume"), [Some(2.5e-5), None, None]);
    assert_eq!(column(&projection, 1, "volume"), [Some(10.0)]);
    assert_eq!(b.fields.len(), 2);
}

#[test]
fn without_a_list_all_instruments_are_kept_sorted_with_names_of_any_kind() {
    let body = body(&[
        (1, "ñandú", 0, r#""close":1.0"#),
        (2, r#"quote \" back \\ tab \t"#, 0, r#""close":2.0"#),
        (3, "\u{1f600}", 0, r#""close":3.0"#),
        (4, "a", 0, r#""close":4.0"#),
    ]);
    let projection = projected(&close(), &body).expect("good");
    let names: Vec<&str> = projection.instruments.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["a", "quote \" back \\ tab \t", "ñandú", "\u{1f600}"]);
    assert_eq!(column(&projection, 1, "close"), [Some(2.0)]);
}

#[test]
fn every_price_comes_back_bit_for_bit() {
    let mut text = Vec::new();
    let mut bits = 9_u64;
    let mut written = Vec::new();
    for time in 0..20_000 {
        bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let any = f64::from_bits(bits ^ bits >> 29);
        let x = if any.is_finite() { any } else { 0.1 };
        text.extend_from_slice(br#"{"close":"#);
        crate::canonical::write_f64(x, &mut text);
        text.extend_from_slice(
            format!(
                "{},\"instrument\":\"i\",\"seq\":{time}}}\n",
                format_args!(",\"event_id\":\"e{time}\",\"event_time\":{time}")
            )
            .as_bytes(),
        );
        written.push(x.to_bits());
    }
    let projection = projected(&close(), &text).expect("good");
    let read: Vec<u64> =
        projection.instruments[0].fields["close"].iter().map(|x| x.to_bits()).collect();
    assert_eq!(read, written);
}

#[test]
fn what_is_missing_is_named_with_what_is_near() {
    let body = body(&[
        (1, "sim.alpha", 0, r#""close":1.0,"volume":1"#),
        (1, "sim.beta", 0, r#""close":1.0"#),
        (2, "sim.beta", 1, r#""close":1.0"#),
    ]);
    for (instruments, input, code, says, hint) in [
        (
            "[sim.beta, sim.alfa]",
            "close",
            "INSTRUMENT_UNKNOWN",
            "\"sim.alfa\"",
            "did you mean \"sim.alpha\"?",
        ),
        ("[EURUSD]", "close", "INSTRUMENT_UNKNOWN", "\"EURUSD\"", "\"sim.alpha\", \"sim.beta\""),
        (
            "[sim.beta]",
            "clos",
            "FIELD_UNKNOWN",
            "\"clos\", the input of \"m\"",
            "did you mean \"close\"?",
        ),
        ("[sim.beta]", "m2", "FIELD_UNKNOWN", "\"m2\"", "did you mean \"m\"?"),
        (
            "[sim.beta]",
            "volume",
            "FIELD_UNKNOWN",
            "\"sim.beta\" has a field \"volume\"",
            "fields and nodes",
        ),
    ] {
        let flow = flow_of(instruments, &[&format!("id: m, type: mom, period: 1, input: {input}")]);
        let error = projected(&flow, &body).expect_err(input);
        assert_eq!((error.code, error.place.as_str()), (code, "snap"), "{error}");
        assert!(error.message.contains(says) && error.hint.contains(hint), "{error:?}");
    }
    assert_eq!(projected(&close(), b"").expect_err("no events").code, "SNAPSHOT_EMPTY");
}

#[test]
fn a_field_that_is_no_number_is_refused_with_its_line() {
    for (value, kind) in [
        ("\"1.5\"", "a text"),
        ("true", "a truth value"),
        ("[1]", "a list"),
        ("\"a\\n\"", "a text"),
    ] {
        let body =
            body(&[(1, "a", 0, r#""close":1.0"#), (2, "a", 1, &format!(r#""close":{value}"#))]);
        let error = projected(&close(), &body).expect_err(value);
        assert_eq!((error.code, error.place.as_str()), ("FIELD_NOT_NUMERIC", "snap:2"), "{error}");
        assert!(error.message.contains(kind), "{error}");
    }
}

#[test]
fn a_blob_that_is_no_snapshot_is_refused_at_its_line() {
    let good = r#"{"close":1.0,"event_id":"e","event_time":1,"instrument":"a","seq":0}"#;
    for line in [
        r#"{"close":1.0,"event_id":"e","event_time":1,"instrument":"a","seq":0}"#,
        r#"{"close":1.0,"event_id":"e","event_time":0,"instrument":"a","seq":1}"#,
        r#"{"close":1.0,"event_id":"e","event_time":1,"instrument":"A","seq":5}"#,
        r#"{"close":1.0,"event_id":"e","event_time":2,"instrument":"a","seq":-1}"#,
        r#"{"close":1.0,"event_id":"e","event_time":2.0,"instrument":"a","seq":1}"#,
        r#"{"close":1.0,"event_id":"e","event_time":2,"instrument":7,"seq":1}"#,
        r#"{"close":1.0,"event_id":"e","event_time":2,"instrument":"a"}"#,
        r#"{"close":1.0,"event_id":"e","event_time":99999999999999999999,"instrument":"a","seq":1}"#,
        r#"{"event_id":"e","close":1.0,"event_time":2,"instrument":"a","seq":1}"#,
        r#"{"close":1.0,"close":1.0,"event_id":"e","event_time":2,"instrument":"a","seq":1}"#,
        r#"{"close":01.0,"event_id":"e","event_time":2,"instrument":"a","seq":1}"#,
        r#"{"close":1e400,"event_id":"e\\","event_time":2,"instrument":"a","seq":1}"#,
        r#"{"close":NaN,"event_id":"e","event_time":2,"instrument":"a","seq":1}"#,
        r#"{"close":1.0,"event_id":"e","event_time":2,"instrument":"a","seq":1} "#,
        r#"{"close": 1.0,"event_id":"e","event_time":2,"instrument":"a","seq":1}"#,
        r#"{"close":1.0,"event_id":"e","event_time":2,"instrument":"a","seq":1"#,
        r#"{"close":1.0,"event_id":"\u0061","event_time":2,"instrument":"a","seq":1}"#,
        "{}",
        "[]",
        "",
        "\u{1f}ELF",
    ] {
        let error = projected(&close(), format!("{good}\n{line}\n").as_bytes()).expect_err(line);
        assert_eq!(error.code, "SNAPSHOT_DAMAGED", "{line}: {error}");
        assert!(error.place.starts_with("snap:2"), "{line}: {error}");
    }
    let cut = projected(&close(), good.as_bytes()).expect_err("no end of line");
    assert_eq!((cut.code, cut.place.as_str()), ("SNAPSHOT_DAMAGED", "snap:1"));
    let bytes = [b"\xff\xfe".as_slice(), b"\n"].concat();
    assert_eq!(projected(&close(), &bytes).expect_err("no UTF-8").code, "SNAPSHOT_DAMAGED");
}

#[test]
fn an_endless_line_and_a_failing_disk_are_told_apart() {
    use std::io::{self, BufReader, Read};

    struct Endless;
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b'x');
            Ok(buffer.len())
        }
    }
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("input/output error"))
        }
    }
    let error = project(&close(), &mut BufReader::new(Endless), "snap").expect_err("endless");
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    let error = project(&close(), &mut BufReader::new(Failing), "snap").expect_err("failing");
    assert!(matches!(error, Error::Io { .. }), "{error}");
}
