//! Alpha of a pair from its scale: the plainest number whose `alpha / rank`, rounded to float32, is that scale again.

/// Alpha as float64; exact, since a scale has 24 bits.
pub(crate) fn alpha_of(scale: f32, rank: usize) -> f64 {
    let exact = f64::from(scale) * rank as f64;
    let short = candidates(scale, rank).into_iter().find(|alpha| gives(f64::from(*alpha), rank, scale));
    // The shortest decimal of a float32 is another float64 than the float32 itself.
    let decimal = short.and_then(|alpha| alpha.to_string().parse().ok());
    decimal.filter(|alpha| gives(*alpha, rank, scale)).unwrap_or(exact)
}

/// The float32 alpha that gives every pair its scale, if there is one.
pub(crate) fn common_alpha(pairs: impl Iterator<Item = (f32, usize)> + Clone) -> Option<f32> {
    let fits = |alpha: &f32| pairs.clone().all(|(scale, rank)| gives(f64::from(*alpha), rank, scale));
    pairs.clone().flat_map(|(scale, rank)| candidates(scale, rank)).find(fits)
}

/// The nearest whole number, the nearest float32 and its neighbours.
fn candidates(scale: f32, rank: usize) -> [f32; 4] {
    let nearest = (f64::from(scale) * rank as f64) as f32;
    [nearest.round(), nearest, nearest.next_down(), nearest.next_up()]
}

fn gives(alpha: f64, rank: usize, scale: f32) -> bool {
    (alpha / rank as f64) as f32 == scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alpha_that_was_meant_comes_back() {
        for rank in [1usize, 2, 3, 7, 8, 12, 48, 64, 1000] {
            for alpha in [1.0f32, 4.0, 16.0, 0.1, 31.5, 128.0, -2.0] {
                let scale = (f64::from(alpha) / rank as f64) as f32;
                let found = alpha_of(scale, rank);
                assert_eq!((found / rank as f64) as f32, scale, "alpha {alpha}, rank {rank}");
                assert_eq!(common_alpha([(scale, rank)].into_iter()), Some(found as f32));
                if alpha.fract() == 0.0 {
                    assert_eq!(found, f64::from(alpha), "rank {rank}");
                }
            }
        }
    }

    #[test]
    fn any_scale_has_an_exact_alpha() {
        let mut scale = 1.0f32;
        for rank in 1..500 {
            scale = scale.next_up();
            assert_eq!((alpha_of(scale, rank) / rank as f64) as f32, scale, "rank {rank}");
        }
    }

    #[test]
    fn one_alpha_for_all_or_none() {
        let check =
            |pairs: &[(f32, usize)], expected| assert_eq!(common_alpha(pairs.iter().copied()), expected);
        check(&[(2.0, 2), (0.5, 8), (4.0, 1)], Some(4.0));
        check(&[(2.0, 2), (2.0, 4)], None);
        check(&[(1.0 / 3.0, 3), (0.1, 10)], Some(1.0));
        check(&[], None);
    }
}
