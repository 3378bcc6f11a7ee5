//! What every kernel's tests share: seeded numbers, references in plain arithmetic, and a run of a kernel at all levels
//! with poisoned outputs, poisoned scratch, units in a shuffled order and guards behind every output.

use std::fmt::Debug;

use crate::disjoint::Disjoint;
use crate::isa::{Isa, Level};
use crate::kernels::{Kernel, run_unit};

/// Pseudo-random numbers from a seed (xorshift).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// 32 random bits.
    pub(crate) fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 24) as u32
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.bits() as usize % count
    }

    /// About normal, standard deviation 1.
    pub(crate) fn normal(&mut self, count: usize) -> Vec<f32> {
        let mut one =
            || (0..4).map(|_| self.bits() as f32 * (2.0 / 4_294_967_296.0) - 1.0).sum::<f32>() * 0.87;
        (0..count).map(|_| one()).collect()
    }

    /// Ordinary numbers with NaN, infinities, zeros of both signs, denormals and extremes among them.
    pub(crate) fn hard(&mut self, count: usize) -> Vec<f32> {
        const HARD: [f32; 12] = [
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            0.0,
            -0.0,
            1e-45,
            -1e-41,
            f32::MAX,
            f32::MIN,
            f32::MIN_POSITIVE,
            1e-30,
            -1e-30,
        ];
        let mut values = self.normal(count);
        for value in &mut values {
            match self.below(4) {
                0 => *value = HARD[self.below(HARD.len())],
                1 => *value *= 30.0,
                _ => {}
            }
        }
        values
    }
}

/// An element of an output: how it is poisoned, and its bits with every NaN as one value.
pub(crate) trait Element: Copy + Debug + PartialEq {
    const POISON: Self;
    fn canonical(self) -> u64;
}

impl Element for f32 {
    const POISON: f32 = f32::NAN;
    fn canonical(self) -> u64 {
        if self.is_nan() { u64::MAX } else { u64::from(self.to_bits()) }
    }
}

impl Element for f64 {
    const POISON: f64 = f64::NAN;
    fn canonical(self) -> u64 {
        if self.is_nan() { u64::MAX } else { self.to_bits() }
    }
}

impl Element for i32 {
    const POISON: i32 = i32::MIN;
    fn canonical(self) -> u64 {
        u64::from(self.cast_unsigned())
    }
}

impl Element for u8 {
    const POISON: u8 = 0xa5;
    fn canonical(self) -> u64 {
        u64::from(self)
    }
}

/// An output: what it should hold, and what it holds before.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a, T> {
    expected: &'a [T],
    before: Option<&'a [T]>,
}

impl<'a, T> Wanted<'a, T> {
    /// Poisoned before.
    pub(crate) fn new(expected: &'a [T]) -> Self {
        Wanted { expected, before: None }
    }

    /// Holds `before` before.
    pub(crate) fn in_place(expected: &'a [T], before: &'a [T]) -> Self {
        assert_eq!(expected.len(), before.len());
        Wanted { expected, before: Some(before) }
    }
}

/// Runs kernels in a test.
pub(crate) struct Run {
    level: Level,
    seed: u64,
}

impl Run {
    /// All units in a shuffled order, each with scratch of the exact size, full of NaN.
    pub(crate) fn all<K: Kernel>(&self, kernel: &K) {
        let mut order: Vec<usize> = (0..kernel.units()).collect();
        let mut numbers = Numbers::new(self.seed ^ 0x5eed);
        for end in (1..order.len()).rev() {
            order.swap(end, numbers.below(end + 1));
        }
        for unit in order {
            let mut scratch = vec![f32::NAN; kernel.scratch()];
            run_unit(self.level, kernel, unit, &mut scratch);
        }
    }
}

/// Elements behind each output that must keep their poison.
const GUARD: usize = 33;

/// Runs `work` at every level and compares every output with what is wanted, to the bit.
#[track_caller]
pub(crate) fn check<T: Element>(seed: u64, wanted: &[Wanted<T>], work: impl Fn(&[Disjoint<T>], &Run)) {
    for level in Level::all() {
        let mut buffers: Vec<Vec<T>> = Vec::new();
        for wanted in wanted {
            let mut buffer = vec![T::POISON; wanted.expected.len() + GUARD];
            if let Some(before) = wanted.before {
                buffer[..before.len()].copy_from_slice(before);
            }
            buffers.push(buffer);
        }
        {
            let outs: Vec<Disjoint<T>> = buffers
                .iter_mut()
                .map(|buffer| {
                    let count = buffer.len() - GUARD;
                    Disjoint::new(&mut buffer[..count])
                })
                .collect();
            work(&outs, &Run { level, seed });
        }
        for (output, (buffer, wanted)) in buffers.iter().zip(wanted).enumerate() {
            let (found, guard) = buffer.split_at(wanted.expected.len());
            let wrong = found
                .iter()
                .zip(wanted.expected)
                .position(|(found, wanted)| found.canonical() != wanted.canonical());
            assert_eq!(
                wrong.map(|at| (at, found[at], wanted.expected[at])),
                None,
                "seed {seed}, {level}: output {output} (element, found, expected)"
            );
            assert!(
                guard.iter().all(|value| value.canonical() == T::POISON.canonical()),
                "seed {seed}, {level}: output {output} was written behind its end"
            );
        }
    }
}

/// A function of sixteen lanes as a function of one number, by the scalar level.
pub(crate) fn scalar(function: impl Fn(crate::isa::Scalar, [f32; 16]) -> [f32; 16], x: f32) -> f32 {
    let isa = crate::isa::Scalar::detect();
    function(isa, isa.splat(x))[0]
}

/// `e^x`.
pub(crate) fn exp(x: f32) -> f32 {
    scalar(crate::math::exp, x)
}

/// `ln x`.
pub(crate) fn log(x: f32) -> f32 {
    scalar(crate::math::log, x)
}

/// The tree: lanes `i` and `i + 8`, `i + 4`, `i + 2`, `i + 1`.
pub(crate) fn tree(mut lanes: [f32; 16]) -> f32 {
    let mut half = 8;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// dot16, an element at a time.
pub(crate) fn dot16(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let mut lanes = [0.0f32; 16];
    for at in 0..a.len() {
        lanes[at % 16] = fma(a[at], b[at], lanes[at % 16]);
    }
    tree(lanes)
}

/// `a * b + c`, rounded once.
pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// Whether the bits are equal, every NaN being one value.
pub(crate) fn same(a: f32, b: f32) -> bool {
    a.canonical() == b.canonical()
}
