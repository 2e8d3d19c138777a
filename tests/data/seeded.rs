//! Where the bits of all nodes are compared: in the library's tests and in `bits.rs` beside this.

use super::{find, names};

/// A seeded walk of prices, some of them repeated, the same on every machine.
pub(crate) fn prices(count: usize) -> Vec<f64> {
    let mut bits = 42_u64;
    let mut price = 100.0;
    let mut next = || {
        // xorshift64*: integers only, so that nothing here depends on how floats are compiled.
        bits ^= bits >> 12;
        bits ^= bits << 25;
        bits ^= bits >> 27;
        bits.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40
    };
    let mut step = || {
        let draw = i32::try_from(next()).expect("24 bits");
        if draw % 8 != 0 {
            price *= 1.0 + f64::from(draw - (1 << 23)) * 1e-9;
        }
        price
    };
    (0..count).map(|_| step()).collect()
}

/// A hash (FNV-1a) of every bit of every node over `prices`.
pub(crate) fn fingerprint(prices: &[f64]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for name in names() {
        let node = find(name).expect("it was named");
        for period in [*node.periods.start(), 3, 20, 1000] {
            let mut values = Vec::new();
            (node.make)(period).extend(prices, &mut values);
            for byte in values.iter().flat_map(|value| {
                // All NaN are one null.
                if value.is_nan() { [0xff; 8] } else { value.to_le_bytes() }
            }) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    hash
}
