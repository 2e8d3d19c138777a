//! The nouns, one newtype each, so that no two can be confused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// A SHA-256, written `sha256:` and 64 hex digits.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The hash of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_digest(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
            .expect("SHA-256 has 32 bytes")
    }

    /// Takes 32 bytes as they are; `None` for any other length.
    #[must_use]
    pub fn from_digest(digest: &[u8]) -> Option<Self> {
        digest.try_into().ok().map(Self)
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hex digits without the prefix.
    #[must_use]
    pub fn hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        text
    }
}

/// Bytes with their hash, which is computed once.
#[derive(Clone, Debug)]
pub struct Hashed {
    hash: Hash,
    bytes: Vec<u8>,
}

impl Hashed {
    #[must_use]
    pub fn of(bytes: Vec<u8>) -> Self {
        Self { hash: Hash::of(&bytes), bytes }
    }

    #[must_use]
    pub fn hash(&self) -> Hash {
        self.hash
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Not `sha256:` and 64 lowercase hex digits.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a hash: `sha256:` and 64 lowercase hex digits")]
pub struct NotAHash;

impl FromStr for Hash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let hex = text.strip_prefix("sha256:").ok_or(NotAHash)?.as_bytes();
        if hex.len() != 64 {
            return Err(NotAHash);
        }
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(NotAHash),
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Who holds a lease: a name for people and a UUID of this very process, `name/uuid`.
/// Two processes with one name are two owners.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Owner(String);

impl Owner {
    /// A new owner for this process under `name`.
    #[must_use]
    pub fn of_process(name: &str) -> Self {
        Self(format!("{name}/{}", Uuid::new_v4()))
    }

    /// An owner token as `lease acquire` printed it.
    #[must_use]
    pub fn from_token(token: &str) -> Self {
        Self(token.to_owned())
    }

    #[must_use]
    pub fn token(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a stream's journal belongs to, from its first record on. Any other is refused.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StreamIdentity {
    pub run_id: String,
    /// The broker cluster's own id.
    pub cluster: String,
    /// The topic's own id: one made anew under the same name has another.
    pub topic_id: String,
    pub topic: String,
    pub group: String,
    pub flow: Hash,
    pub flow_name: String,
    /// Sorted; `None`: all that the topic has.
    pub partitions: Option<Vec<i32>>,
}

impl StreamIdentity {
    /// The first field in which `offered` is another: its name, what is held, what is offered.
    #[must_use]
    pub fn difference(&self, offered: &Self) -> Option<(&'static str, String, String)> {
        self.fields()
            .into_iter()
            .zip(offered.fields())
            .find(|(held, offered)| held != offered)
            .map(|((field, held), (_, offered))| (field, held, offered))
    }

    /// The name of its lease and of its row: `stream/<run id>`, in a split run `stream/<run id>/<partition>`.
    #[must_use]
    pub fn lease_name(&self) -> String {
        match &self.partitions {
            None => format!("stream/{}", self.run_id),
            Some(some) => {
                let some: Vec<String> = some.iter().map(i32::to_string).collect();
                format!("stream/{}/{}", self.run_id, some.join(","))
            }
        }
    }

    /// What a person can act on first.
    fn fields(&self) -> [(&'static str, String); 8] {
        let partitions = match &self.partitions {
            None => "all".to_owned(),
            Some(some) => some.iter().map(i32::to_string).collect::<Vec<_>>().join(","),
        };
        [
            ("run_id", self.run_id.clone()),
            ("cluster", self.cluster.clone()),
            ("topic", self.topic.clone()),
            ("topic_id", self.topic_id.clone()),
            ("group", self.group.clone()),
            ("flow_name", self.flow_name.clone()),
            ("flow", self.flow.to_string()),
            ("partitions", partitions),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_reads_back_and_nothing_else_does() {
        let hash = Hash::of(b"finaz");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for bad in ["", "sha256:", &hash.hex(), &hash.to_string().to_uppercase()] {
            assert_eq!(bad.parse::<Hash>(), Err(NotAHash), "{bad}");
        }
    }

    #[test]
    fn a_stream_differs_by_the_field_that_differs() {
        let held = StreamIdentity {
            run_id: "r".to_owned(),
            cluster: "c".to_owned(),
            topic_id: "i".to_owned(),
            topic: "t".to_owned(),
            group: "g".to_owned(),
            flow: Hash::of(b"f"),
            flow_name: "f".to_owned(),
            partitions: None,
        };
        assert_eq!(held.difference(&held), None);
        let offered = StreamIdentity { partitions: Some(vec![0, 3]), ..held.clone() };
        let seen = ("partitions", "all".to_owned(), "0,3".to_owned());
        assert_eq!(held.difference(&offered), Some(seen));
        assert_eq!(held.lease_name(), "stream/r");
        let one = StreamIdentity { partitions: Some(vec![3]), ..held.clone() };
        assert_eq!(one.lease_name(), "stream/r/3");
        let anew = StreamIdentity { topic_id: "j".to_owned(), ..held.clone() };
        assert_eq!(held.difference(&anew).map(|(field, ..)| field), Some("topic_id"));
    }

    #[test]
    fn two_processes_with_one_name_are_two_owners() {
        assert_ne!(Owner::of_process("w"), Owner::of_process("w"));
    }
}
