//! How far the distribution of a row is from a listed one: `KL(listed || found)` in nats, over the listed tokens and one bucket
//! for all others.

/// Divergence of the row `logits [vocab]` from the listed `logits` of `ids` in a row with this log-sum-exp.
pub(super) fn divergence(ids: &[u32], listed: &[f64], log_sum: f64, logits: &[f32]) -> f64 {
    let largest = logits.iter().fold(f64::NEG_INFINITY, |largest, logit| f64::from(*logit).max(largest));
    let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - largest).exp()).sum();
    let found_log_sum = largest + sum.ln();
    let (mut rest, mut found_rest, mut total) = (1.0, 1.0, 0.0);
    for (id, listed) in ids.iter().zip(listed) {
        let (log_p, log_q) = (listed - log_sum, f64::from(logits[*id as usize]) - found_log_sum);
        total += log_p.exp() * (log_p - log_q);
        rest -= log_p.exp();
        found_rest -= log_q.exp();
    }
    // What is left of 1 after the listed tokens may be less than their rounding.
    if rest > REST_MIN { total + rest * (rest / found_rest.max(REST_MIN)).ln() } else { total }
}

/// Probability of all other tokens from which on they count; listed numbers have seven digits.
const REST_MIN: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::divergence;

    fn check(ids: &[u32], listed: &[f64], logits: &[f32], expected: f64) {
        let found = divergence(ids, listed, 4f64.ln(), logits);
        assert!(
            (found - expected).abs() < 1e-6 || found.is_nan() && expected.is_nan(),
            "{found}, {expected}"
        );
    }

    #[test]
    fn of_four_tokens() {
        // All four are as likely, and the last two share a bucket.
        check(&[0, 1], &[0.0, 0.0], &[0.0; 4], 0.0);
        check(&[0, 1], &[0.0, 0.0], &[7.0; 4], 0.0);
        // Of which the first has now 1/2, the others 1/6 each.
        let (half, sixth) = (0.5f64, 1.0_f64 / 6.0);
        let expected = 0.25 * (0.25_f64 / half).ln()
            + 0.25 * (0.25_f64 / sixth).ln()
            + 0.5 * (0.5_f64 / (2.0 * sixth)).ln();
        check(&[0, 1], &[0.0, 0.0], &[3f32.ln(), 0.0, 0.0, 0.0], expected);
        // The bucket does not see who is in it.
        check(&[0, 1], &[0.0, 0.0], &[0.0, 0.0, 1.5f32.ln(), 0.5f32.ln()], 0.0);
        check(&[0, 1], &[0.0, 0.0], &[f32::NAN, 0.0, 0.0, 0.0], f64::NAN);
    }

    #[test]
    fn without_a_rest_the_listed_tokens_are_all() {
        check(&[0, 1, 2, 3], &[0.0; 4], &[0.0; 4], 0.0);
    }
}
