//! Random numbers from a seed, the same on every machine.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `count - 1`. The bias of the remainder is below anything that a fault could show.
    pub(super) fn below(&mut self, count: u64) -> u64 {
        self.next() % count.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first values for seed 1234567, as the reference implementation prints them.
    #[test]
    fn the_numbers_are_those_of_the_reference() {
        let mut draw = Draw::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| draw.next()).collect();
        assert_eq!(
            drawn,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
