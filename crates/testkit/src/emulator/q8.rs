//! Products with activations rounded to eight bits, and pages of eight bits, `docs/numerics.md` section 2.

use super::format::Block;
use super::scalar::{fma, round_half};

/// Thirty-two activations.
#[derive(Clone, Debug)]
pub struct Activations {
    /// What an integer stands for.
    pub d: f32,
    /// -127 to 127.
    pub q: [i32; 32],
}

/// A row of activations, 32 at a time.
pub fn quantise(row: &[f32]) -> Vec<Activations> {
    row.chunks_exact(32).map(quantise_block).collect()
}

fn quantise_block(x: &[f32]) -> Activations {
    let (amax, q) = match integers(x) {
        None => return Activations { d: f32::NAN, q: [0; 32] },
        Some(found) => found,
    };
    Activations { d: amax / 127.0, q: std::array::from_fn(|i| q[i]) }
}

/// What a page of eight bits keeps of a head's row.
pub fn kept(head: &[f32]) -> Vec<f32> {
    let block = |x: &[f32]| match integers(x) {
        None => vec![f32::NAN; x.len()],
        Some((amax, q)) => {
            let d = round_half(amax / 127.0);
            q.iter().map(|q| d * *q as f32).collect()
        }
    };
    head.chunks(32).flat_map(block).collect()
}

/// The largest magnitude of a block and its integers; zeros for a tiny block, `None` where a number is not finite.
fn integers(x: &[f32]) -> Option<(f32, Vec<i32>)> {
    if x.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let mut amax = 0.0;
    for value in x {
        if value.abs() > amax {
            amax = value.abs();
        }
    }
    if amax < 2f32.powi(-100) {
        return Some((0.0, vec![0; x.len()]));
    }
    let inverse = 127.0 / amax;
    Some((amax, x.iter().map(|x| (x * inverse).round_ties_even() as i32).collect()))
}

/// Whether rounding changed one of the activations.
pub fn is_rounded(row: &[f32], quantised: &[Activations]) -> bool {
    let stands_for = quantised.iter().flat_map(|block| block.q.map(|q| q as f32 * block.d));
    row.iter().zip(stands_for).any(|(exact, rounded)| *exact != rounded)
}

/// A row of weights times a row of activations.
pub fn product(weights: &[Block], x: &[Activations]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(x) {
        let (mut products, mut minima) = (0, 0);
        for group in 0..2 {
            let mine = 16 * group..16 * group + 16;
            products += w.scales[group] * mine.clone().map(|i| w.codes[i] * x.q[i]).sum::<i32>();
            minima += w.minima[group] * mine.map(|i| x.q[i]).sum::<i32>();
        }
        assert!(products.abs() < 1 << 24 && minima.abs() < 1 << 24, "exact as float32: {products} {minima}");
        sum = fma(w.scale * x.d, products as f32, sum);
        if let Some(minimum) = w.minimum {
            sum = fma(minimum * x.d, minima as f32, sum);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_the_range() {
        let mut x = [0.0; 32];
        (x[0], x[1], x[2]) = (-1.0, 0.5 / 127.0, 1.5 / 127.0);
        let block = quantise_block(&x);
        assert_eq!((block.d, &block.q[..3]), (1.0 / 127.0, &[-127, 0, 2][..]));
        x[5] = f32::INFINITY;
        assert!(quantise_block(&x).d.is_nan() && quantise_block(&x).q == [0; 32]);
        assert_eq!(quantise_block(&[1e-31; 32]).q, [0; 32]);
        assert_eq!(quantise_block(&[f32::MAX; 32]).q, [127; 32]);
    }
}
