//! Every event that was seen, by identity: 24 bytes each in open addressing, never more than 32.
//!
//! Shards grow by an eighth and one at a time, so that neither the share of empty places nor a moment of
//! growth costs much memory. Nothing is ever forgotten: an identity lives as long as its run.

use super::Identity;

/// As many as the first ten bits of an identity tell apart.
const SHARDS: usize = 1 << 10;
const ENTRY_MIN: usize = 8;
/// A shard grows when it is fuller than this, in 64ths: by an eighth, so it is never emptier than 0.76.
const FULL_64THS: usize = 55;

/// The set of identities.
#[derive(Debug)]
pub(super) struct Identities {
    shards: Vec<Shard>,
    count: usize,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    /// (high and low half of the identity, payload); an empty place has zeros in both halves.
    places: Vec<(u64, u64, u64)>,
    used: usize,
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
        let entry = size_of::<(u64, u64, u64)>();
        self.shards.iter().map(|shard| shard.places.capacity() * entry).sum()
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
        let places = &self.shards[shard_of(high)].places;
        if places.is_empty() {
            return Seen::New;
        }
        let (seen_high, seen_low, payload) = places[find(places, (high, low, 0))];
        said((seen_high, seen_low), payload == identity.payload)
    }

    /// Notes an event, unless it is known; says what was known of it.
    pub(super) fn note(&mut self, identity: Identity) -> Seen {
        let (high, low) = halves(identity.id);
        let seen = self.shards[shard_of(high)].note((high, low, identity.payload));
        self.count += usize::from(seen == Seen::New);
        seen
    }
}

fn shard_of(high: u64) -> usize {
    usize::try_from(high >> 54).expect("ten bits")
}

fn said(place: (u64, u64), same: bool) -> Seen {
    match (place, same) {
        ((0, 0), _) => Seen::New,
        (_, true) => Seen::Before,
        (_, false) => Seen::Otherwise,
    }
}

/// The halves of an identity, which never are both zero: that would be an empty place.
fn halves(id: [u8; 16]) -> (u64, u64) {
    let whole = u128::from_be_bytes(id);
    let high = u64::try_from(whole >> 64).expect("the upper half");
    let low = u64::try_from(whole & u128::from(u64::MAX)).expect("the lower half");
    if (high, low) == (0, 0) { (0, 1) } else { (high, low) }
}

impl Shard {
    fn note(&mut self, entry: (u64, u64, u64)) -> Seen {
        if self.used * 64 >= self.places.len() * FULL_64THS {
            self.grow();
        }
        let place = find(&self.places, entry);
        let (high, low, payload) = self.places[place];
        let seen = said((high, low), payload == entry.2);
        if seen == Seen::New {
            self.places[place] = entry;
            self.used += 1;
        }
        seen
    }

    #[cold]
    fn grow(&mut self) {
        self.grow_to(self.places.len() + self.places.len() / 8);
    }

    /// At least so many places, of which one at least stays empty: else a search would have no end.
    fn grow_to(&mut self, size: usize) {
        let size = size.max(ENTRY_MIN);
        if size <= self.places.len() {
            return;
        }
        let mut places = Vec::new();
        places.reserve_exact(size);
        places.resize(size, (0, 0, 0));
        for entry in self.places.iter().filter(|entry| (entry.0, entry.1) != (0, 0)) {
            let place = find(&places, *entry);
            places[place] = *entry;
        }
        self.places = places;
    }
}

/// The place of an identity, or the empty one where it belongs.
fn find(places: &[(u64, u64, u64)], (high, low, _): (u64, u64, u64)) -> usize {
    // The upper half of a product spreads the low bits over any number of places, powers of two or not.
    let spread = (u128::from(low) * places.len() as u128) >> 64;
    let mut at = usize::try_from(spread).expect("below the number of places");
    loop {
        let seen = (places[at].0, places[at].1);
        if seen == (0, 0) || seen == (high, low) {
            return at;
        }
        at = if at + 1 == places.len() { 0 } else { at + 1 };
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
