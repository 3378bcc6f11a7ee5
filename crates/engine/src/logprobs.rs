//! Log probabilities of tokens: `x_i - max - ln(sum_j exp(x_j - max))` over the plain logits, in float64, `j` ascending.

use std::cmp::Ordering;

use apprentice_graph::real;

use crate::job::Logprobs;

/// Of token `chosen` and of the `count` most likely ones. The logits are finite.
pub(crate) fn logprobs(logits: &[f32], chosen: u32, count: usize) -> Logprobs {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a }));
    let sum: f64 = logits.iter().map(|logit| real::exp(f64::from(*logit) - max)).sum();
    let shift = max + real::ln(sum);
    let of = |token: u32| {
        logits.get(token as usize).map_or(f32::NEG_INFINITY, |logit| (f64::from(*logit) - shift) as f32)
    };
    let descending = |a: &u32, b: &u32| {
        let (x, y) = (logits[*a as usize] + 0.0, logits[*b as usize] + 0.0);
        y.partial_cmp(&x).unwrap_or(Ordering::Equal).then(a.cmp(b))
    };
    let mut tokens: Vec<u32> = (0..logits.len() as u32).collect();
    if count < tokens.len() {
        tokens.select_nth_unstable_by(count, descending);
        tokens.truncate(count);
    }
    tokens.sort_unstable_by(descending);
    Logprobs { chosen: of(chosen), top: tokens.into_iter().map(|token| (token, of(token))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_likely_first_and_ties_by_lower_id() {
        let logits = [1.0, 3.0, 2.0, 3.0, -1.0];
        let found = logprobs(&logits, 2, 3);
        assert_eq!(found.top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 3, 2]);
        let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        for (token, found) in found.top.iter().chain([&(2, found.chosen)]) {
            let expected = (f64::from(logits[*token as usize]).exp() / total).ln();
            assert!((f64::from(*found) - expected).abs() < 1e-6, "{token}: {found}, {expected}");
        }
    }

    #[test]
    fn none_and_all() {
        assert!(logprobs(&[0.5, 0.5], 1, 0).top.is_empty());
        assert_eq!(logprobs(&[0.0, -0.0, 1.0], 1, 20).top.len(), 3);
        assert_eq!(logprobs(&[-0.0, 0.0], 0, 2).top[0].0, 0, "zeros are equal");
    }
}
