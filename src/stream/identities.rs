//! Every event that was seen, by identity: 24 bytes each and one to find it by, never more than 32 together.
//!
//! Open addressing by buckets of eight. A word beside each bucket has a byte of each of its identities, so that a search
//! for one that is new touches that word and hardly ever an identity ("Swiss tables", <https://abseil.io/about/design/swisstables>).
//! Shards grow by an eighth and one at a time, so that neither the share of empty places nor a moment of
//! growth costs much memory. Nothing is ever forgotten: an identity lives as long as its run.

use super::Identity;

/// As many as the first ten bits of an identity tell apart.
const SHARDS: usize = 1 << 10;
/// Places in a bucket: as many bytes as its word has.
const BUCKET: usize = 8;
/// A shard grows when it is fuller than this, in 64ths: by an eighth, so it is hardly ever emptier than 0.82.
const FULL_64THS: usize = 59;

/// Halves of the identity, payload.
type Entry = (u64, u64, u64);

/// The set of identities.
#[derive(Debug)]
pub(super) struct Identities {
    shards: Vec<Shard>,
    count: usize,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    /// A word for each bucket: from its low byte on, a byte that is not zero for each place that is taken. Places are taken
    /// in order.
    words: Vec<u64>,
    /// The places of all buckets; those not taken hold anything.
    places: Vec<Entry>,
    used: usize,
}

/// Where an identity is, or belongs.
enum Place {
    Taken(usize),
    Empty(usize),
}

/// What the set says of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Seen {
    /// Never; now it is.
    New,
    /// With the same payload.
    Before,
    /// With another payload.
    Otherwise,
}

impl Default for Identities {
    fn default() -> Self {
        Self { shards: vec![Shard::default(); SHARDS], count: 0 }
    }
}

impl Identities {
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Bytes that the places take.
    #[must_use]
    pub(super) fn bytes(&self) -> usize {
        let of = |shard: &Shard| {
            shard.places.capacity() * size_of::<Entry>() + shard.words.capacity() * size_of::<u64>()
        };
        self.shards.iter().map(of).sum()
    }

    /// Makes room for as many more, so that nothing has to grow while they are noted.
    pub(super) fn reserve(&mut self, more: usize) {
        // Hashes spread evenly, to a few in a hundred; a shard that gets more grows as ever.
        let each = (self.count + more).div_ceil(SHARDS);
        let size = (each + each / 50) * 64 / FULL_64THS + 1;
        self.shards.iter_mut().for_each(|shard| shard.grow_to(size));
    }

    /// What is known of an event.
    #[must_use]
    pub(super) fn look(&self, identity: Identity) -> Seen {
        let (high, low) = halves(identity.id);
        let shard = &self.shards[shard_of(high)];
        if shard.words.is_empty() {
            return Seen::New;
        }
        match shard.find(high, low) {
            Place::Taken(place) => said(shard.places[place], identity),
            Place::Empty(_) => Seen::New,
        }
    }

    /// Notes an event, unless it is known; says what was known of it.
    pub(super) fn note(&mut self, identity: Identity) -> Seen {
        let (high, low) = halves(identity.id);
        let shard = &mut self.shards[shard_of(high)];
        if shard.used * 64 >= shard.places.len() * FULL_64THS {
            shard.grow();
        }
        match shard.find(high, low) {
            Place::Taken(place) => said(shard.places[place], identity),
            Place::Empty(place) => {
                shard.put(place, (high, low, identity.payload));
                shard.used += 1;
                self.count += 1;
                Seen::New
            }
        }
    }
}

fn shard_of(high: u64) -> usize {
    usize::try_from(high >> 54).expect("ten bits")
}

/// A byte of an identity by which it is told from others of its bucket; zero is an empty place.
fn byte_of(high: u64) -> u64 {
    (high & 0xff).max(1)
}

fn said(held: Entry, identity: Identity) -> Seen {
    if held.2 == identity.payload { Seen::Before } else { Seen::Otherwise }
}

fn halves(id: [u8; 16]) -> (u64, u64) {
    let whole = u128::from_be_bytes(id);
    let high = u64::try_from(whole >> 64).expect("the upper half");
    let low = u64::try_from(whole & u128::from(u64::MAX)).expect("the lower half");
    (high, low)
}

/// The bytes of a word that are zero, each by its highest bit, and no others: no carry leaves a byte.
fn zeros(word: u64) -> u64 {
    let low = LOWEST * 0x7f;
    !(((word & low) + low) | word | low)
}

/// The lowest bit of each byte.
const LOWEST: u64 = u64::from_ne_bytes([1; 8]);

/// Which byte the lowest bit is in.
fn byte_at(bits: u64) -> usize {
    (bits.trailing_zeros() / 8) as usize
}

impl Shard {
    /// The place of an identity, or the empty one where it belongs.
    #[inline]
    fn find(&self, high: u64, low: u64) -> Place {
        // The upper half of a product spreads the low bits over any number of buckets, powers of two or not.
        let spread = (u128::from(low) * self.words.len() as u128) >> 64;
        let mut bucket = usize::try_from(spread).expect("below the number of buckets");
        let byte = byte_of(high) * LOWEST;
        loop {
            let word = self.words[bucket];
            let mut alike = zeros(word ^ byte);
            while alike != 0 {
                let place = bucket * BUCKET + byte_at(alike);
                let held = self.places[place];
                if (held.0, held.1) == (high, low) {
                    return Place::Taken(place);
                }
                alike &= alike - 1;
            }
            let empty = zeros(word);
            if empty != 0 {
                return Place::Empty(bucket * BUCKET + byte_at(empty));
            }
            bucket = if bucket + 1 == self.words.len() { 0 } else { bucket + 1 };
        }
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.words[place / BUCKET] |= byte_of(entry.0) << (place % BUCKET * 8);
        self.places[place] = entry;
    }

    #[cold]
    fn grow(&mut self) {
        self.grow_to(self.places.len() + self.places.len() / 8);
    }

    /// At least so many places, in whole buckets. One place at least stays empty: else a search would have no end.
    fn grow_to(&mut self, size: usize) {
        let buckets = size.div_ceil(BUCKET).max(1);
        if buckets <= self.words.len() {
            return;
        }
        let mut grown = Self { words: Vec::new(), places: Vec::new(), used: self.used };
        grown.words.reserve_exact(buckets);
        grown.words.resize(buckets, 0);
        grown.places.reserve_exact(buckets * BUCKET);
        grown.places.resize(buckets * BUCKET, (0, 0, 0));
        for (bucket, word) in self.words.iter().enumerate() {
            let taken = if zeros(*word) == 0 { BUCKET } else { byte_at(zeros(*word)) };
            for entry in &self.places[bucket * BUCKET..bucket * BUCKET + taken] {
                let (Place::Taken(place) | Place::Empty(place)) = grown.find(entry.0, entry.1);
                grown.put(place, *entry);
            }
        }
        *self = grown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::identity_of;
    use std::collections::HashMap;

    fn identity(n: u64, payload: u64) -> Identity {
        Identity { id: identity_of(&format!("event {n}")), payload }
    }

    #[test]
    fn what_was_seen_is_known_with_its_payload_and_nothing_else_is() {
        let mut set = Identities::default();
        let mut model: HashMap<[u8; 16], u64> = HashMap::new();
        let mut draw = 7_u64;
        for _ in 0..200_000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let one = identity(draw >> 47, (draw >> 33) & 1);
            let expected = match model.get(&one.id) {
                None => Seen::New,
                Some(payload) if *payload == one.payload => Seen::Before,
                Some(_) => Seen::Otherwise,
            };
            model.entry(one.id).or_insert(one.payload);
            assert_eq!(set.note(one), expected);
        }
        assert_eq!(set.len(), model.len());
    }

    #[test]
    fn an_identity_costs_at_most_32_bytes_once_there_are_many() {
        let mut set = Identities::default();
        for n in 0..600_000 {
            set.note(identity(n, n));
            if n > 100_000 && n % 9_973 == 0 {
                assert!(set.bytes() <= 32 * set.len(), "{} for {}", set.bytes(), set.len());
            }
        }
    }

    #[test]
    fn room_that_was_made_beforehand_forgets_nothing_and_costs_no_more() {
        let mut set = Identities::default();
        for n in 0..600_000 {
            if n % 200_000 == 0 {
                set.reserve(200_000);
            }
            assert_eq!(set.note(identity(n, n)), Seen::New);
        }
        assert!((0..600_000).all(|n| set.look(identity(n, n)) == Seen::Before));
        assert!(set.bytes() <= 32 * set.len(), "{} for {}", set.bytes(), set.len());
    }

    #[test]
    fn an_identity_of_zeros_is_one_like_any_other() {
        let mut set = Identities::default();
        let zeros = Identity { id: [0; 16], payload: 3 };
        assert_eq!(set.note(zeros), Seen::New);
        assert_eq!(set.note(zeros), Seen::Before);
        assert_eq!(set.len(), 1);
    }
}
