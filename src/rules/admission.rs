//! Who a request is: its scope, its body and the run id that follows from both (SPEC part 4).

use std::collections::BTreeMap;

use crate::canonical::Value;
use crate::ids::Hash;
use crate::invalid::Invalid;

/// Bytes of a principal, an operation or a key; a longer one is refused, not cut.
const PART_BYTES_MAX: usize = 512;

/// A request to run one flow over one snapshot under an idempotency key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    pub principal: String,
    pub operation: String,
    pub key: String,
    pub flow: Hash,
    pub snapshot: Hash,
    /// SHA-256 of the FINAZ_JSON_V1 of `{"flow":…,"snapshot":…}`.
    pub body_hash: Hash,
    /// SHA-256 of `principal \0 operation \0 key`.
    pub scope: Hash,
    /// `run_` and the hex SHA-256 of `principal \0 operation \0 key \0 body_hash`.
    pub run_id: String,
}

impl Request {
    /// Names a request. Without a key the body's hash is the key, so the same work is the same run.
    pub fn new(
        principal: &str,
        operation: &str,
        key: Option<&str>,
        flow: Hash,
        snapshot: Hash,
    ) -> Result<Self, Invalid> {
        let body_hash = body_hash(flow, snapshot);
        let own_key = body_hash.to_string();
        let key = key.unwrap_or(&own_key);
        for (flag, part) in [("--principal", principal), ("--operation", operation), ("--key", key)]
        {
            check_part(flag, part)?;
        }
        let mut text = format!("{principal}\0{operation}\0{key}");
        let scope = Hash::of(text.as_bytes());
        text.push('\0');
        text.push_str(&own_key);
        let run_id = format!("run_{}", Hash::of(text.as_bytes()).hex());
        Ok(Self {
            principal: principal.to_owned(),
            operation: operation.to_owned(),
            key: key.to_owned(),
            flow,
            snapshot,
            body_hash,
            scope,
            run_id,
        })
    }
}

fn body_hash(flow: Hash, snapshot: Hash) -> Hash {
    let body = Value::Map(BTreeMap::from([
        ("flow".to_owned(), Value::Text(flow.to_string())),
        ("snapshot".to_owned(), Value::Text(snapshot.to_string())),
    ]));
    body.hash().expect("a map of two texts is canonical")
}

fn check_part(flag: &str, part: &str) -> Result<(), Invalid> {
    let refuse = |what: String| {
        Err(Invalid::new(
            "ADMISSION_KEY_INVALID",
            flag,
            what,
            format!("give 1 to {PART_BYTES_MAX} bytes of text without control characters"),
        ))
    };
    if part.is_empty() {
        return refuse("is empty".to_owned());
    }
    if part.len() > PART_BYTES_MAX {
        return refuse(format!("has {} bytes, more than {PART_BYTES_MAX}", part.len()));
    }
    if let Some(position) = part.chars().position(char::is_control) {
        return refuse(format!("has a control character at position {}", position + 1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: Option<&str>) -> Result<Request, Invalid> {
        Request::new("local", "flow.run", key, Hash::of(b"flow"), Hash::of(b"snapshot"))
    }

    #[test]
    fn a_run_id_follows_from_scope_and_body_alone() {
        let body = format!(
            "{{\"flow\":\"{}\",\"snapshot\":\"{}\"}}",
            Hash::of(b"flow"),
            Hash::of(b"snapshot")
        );
        let body_hash = Hash::of(body.as_bytes());
        let named = request(Some("k")).expect("a legal key");
        assert_eq!(named.body_hash, body_hash);
        let text = format!("local\0flow.run\0k\0{body_hash}");
        assert_eq!(named.run_id, format!("run_{}", Hash::of(text.as_bytes()).hex()));
        assert_eq!(request(None).expect("no key").key, body_hash.to_string());
    }

    #[test]
    fn a_key_with_nul_or_of_two_megabytes_is_refused() {
        for key in ["a\0b", "", "\n", &"k".repeat(2 << 20)] {
            assert_eq!(
                request(Some(key)).expect_err("refused").code,
                "ADMISSION_KEY_INVALID",
                "{}",
                key.len()
            );
        }
    }
}
