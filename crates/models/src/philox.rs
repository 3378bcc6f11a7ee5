//! Philox4x32-10: random numbers that are a function of where they are used, so that nothing depends on who drew before.
//!
//! Ten rounds over a counter `(c0, c1, c2, c3)` with a key `(k0, k1)`:
//! `c0' = high(M1 c2) ^ c1 ^ k0`, `c1' = low(M1 c2)`, `c2' = high(M0 c0) ^ c3 ^ k1`, `c3' = low(M0 c0)`, and between
//! rounds `k0 += W0`, `k1 += W1`. Ours: the key is the seed, the counter is `(position low, position high, draw, stream)`,
//! the number is the first word. Source: Salmon et al. 2011 (Parallel random numbers: as easy as 1, 2, 3).

/// A seed, from which streams of numbers are read at any position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Philox {
    key: [u32; 2],
}

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

impl Philox {
    /// The numbers of `seed`.
    pub fn new(seed: u64) -> Philox {
        Philox { key: [seed as u32, (seed >> 32) as u32] }
    }

    /// The 32 bits at a place.
    pub fn bits(self, stream: u32, position: u64, draw: u32) -> u32 {
        block([position as u32, (position >> 32) as u32, draw, stream], self.key)[0]
    }

    /// The number in [0, 1) at a place: the upper 24 bits times 2^-24.
    pub fn uniform(self, stream: u32, position: u64, draw: u32) -> f32 {
        (self.bits(stream, position, draw) >> 8) as f32 * (1.0 / 16_777_216.0)
    }
}

fn block(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..ROUNDS {
        if round > 0 {
            key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
        }
        let [c0, c1, c2, c3] = counter;
        let (high0, low0) = wide(MULTIPLIERS[0], c0);
        let (high1, low1) = wide(MULTIPLIERS[1], c2);
        counter = [high1 ^ c1 ^ key[0], low1, high0 ^ c3 ^ key[1], low0];
    }
    counter
}

fn wide(a: u32, b: u32) -> (u32, u32) {
    let product = u64::from(a) * u64::from(b);
    ((product >> 32) as u32, product as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_answers() {
        let check =
            |counter, key, expected| assert_eq!(block(counter, key), expected, "{counter:x?} {key:x?}");
        check([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        check([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        check(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        );
    }

    #[test]
    fn every_coordinate_has_its_word() {
        let check = |seed, stream, position, draw, counter, key| {
            assert_eq!(Philox::new(seed).bits(stream, position, draw), block(counter, key)[0]);
        };
        check(0x0000_0002_0000_0001, 6, 0x0000_0004_0000_0003, 5, [3, 4, 5, 6], [1, 2]);
        check(u64::MAX, 0, 7, 0, [7, 0, 0, 0], [u32::MAX; 2]);
    }

    #[test]
    fn uniform_is_the_upper_24_bits() {
        let random = Philox::new(3);
        for position in 0..1000 {
            let number = random.uniform(1, position, 0);
            assert!((0.0..1.0).contains(&number), "{number} at {position}");
            assert_eq!((number * 16_777_216.0) as u32, random.bits(1, position, 0) >> 8);
        }
    }
}
