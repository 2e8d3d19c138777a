//! Where a key goes, as the partitioner of the Java client decides it, so that other producers agree.

/// The partition of `key` among `count`: `(murmur2(key) & 0x7fffffff) % count`.
///
/// # Panics
/// A topic without partitions does not exist.
#[must_use]
pub fn partition(key: &[u8], count: u32) -> u32 {
    assert!(count > 0, "a topic has at least one partition");
    (murmur2(key) & 0x7fff_ffff) % count
}

/// Austin Appleby's MurmurHash2 with the seed of `org.apache.kafka.common.utils.Utils.murmur2`.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    // Java's length is an int: a key of 4 GiB is no key.
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut hash = SEED ^ length;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let word: [u8; 4] = word.try_into().expect("chunks of four");
        let mut k = u32::from_le_bytes(word).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pairs of Apache Kafka's own `UtilsTest.testMurmur2`.
    #[test]
    fn the_hash_is_that_of_the_java_client() {
        for (key, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
    }

    #[test]
    fn the_fixture_lies_in_two_of_four_partitions() {
        let partitions = ["sim.alpha", "sim.beta", "sim.gamma"]
            .map(|instrument| partition(instrument.as_bytes(), 4));
        assert_eq!(partitions, [3, 0, 3]);
        assert_eq!(partition(b"", 1), 0);
    }
}
