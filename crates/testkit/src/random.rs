//! Random numbers of tests: a function of the seed alone, the same on every machine.
//!
//! SplitMix64: the state grows by an odd constant, and each number is the state mixed by two multiplications. Source:
//! Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators", section 5.

/// A stream of numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`, which is not 0. The bias is below `count / 2^64`.
    pub fn below(&mut self, count: usize) -> usize {
        assert!(count > 0, "nothing to choose from");
        ((u128::from(self.bits()) * count as u128) >> 64) as usize
    }

    /// One of `items`, which are not empty.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A number in (0, 1), never an end.
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A normal deviate, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// 1 or -1.
    pub fn sign(&mut self) -> f64 {
        if self.bits() >> 63 == 0 { 1.0 } else { -1.0 }
    }

    /// `count` normal deviates times `scale`, each exactly a float32.
    pub fn normals(&mut self, count: usize, scale: f64) -> Vec<f32> {
        (0..count).map(|_| (scale * self.normal()) as f32).collect()
    }

    /// `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).flat_map(|_| self.bits().to_le_bytes());
        words.take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn published_numbers() {
        let mut random = Random::new(1_234_567);
        let found = [(); 3].map(|()| random.bits());
        assert_eq!(found, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn normal_deviates_have_mean_0_and_variance_1() {
        let mut random = Random::new(5);
        let count = 100_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..count {
            let value = random.normal();
            sum += value;
            squares += value * value;
        }
        let (mean, variance) = (sum / f64::from(count), squares / f64::from(count));
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn every_number_below_the_count_comes() {
        let mut random = Random::new(9);
        let mut seen = [false; 7];
        (0..200).for_each(|_| seen[random.below(7)] = true);
        assert_eq!(seen, [true; 7]);
    }
}
