//! Which samples a step takes, and at what rate.
//!
//! Rate of step `s` of `n`, counted from 0, with `w` steps of warm-up and the peak `r`: `r (s + 1) / w` while `s < w`, then
//! half a cosine, `r (1 + cos(pi (s - w) / (n - w))) / 2`, which begins at `r` and ends above 0. Computed in float64 by
//! functions of our own, so that it has the same bits on every machine.
//!
//! Order of an epoch: Fisher and Yates's shuffle from the last place to the first, place `i` drawn from `0..=i` by number `i`
//! of the epoch's stream of Philox.

use apprentice_engine::real;
use apprentice_models::Philox;

/// Learning rates of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Schedule {
    /// The largest rate.
    pub peak: f64,
    /// Steps of warm-up.
    pub warmup: u64,
    /// Steps in all.
    pub steps: u64,
}

/// Streams from here on are epochs: those before are the sites of a new adapter's matrices.
const FIRST_STREAM: u32 = 1 << 31;

impl Schedule {
    /// The rate of a step, counted from 0.
    pub fn rate(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.peak * ((step + 1) as f64 / self.warmup as f64);
        }
        let rest = self.steps.saturating_sub(self.warmup).max(1);
        let progress = (step - self.warmup).min(rest) as f64 / rest as f64;
        let (_, cosine) = real::sin_cos(std::f64::consts::PI * progress);
        self.peak * (0.5 * (1.0 + cosine))
    }
}

/// The indices `0..count` in the order of an epoch, counted from 0.
pub fn shuffled(seed: u64, epoch: u32, count: usize) -> Vec<usize> {
    let random = Philox::new(seed);
    let stream = FIRST_STREAM | epoch;
    let mut order: Vec<usize> = (0..count).collect();
    for place in (1..count).rev() {
        // The upper half of a product: every index as often as any other, to one part in 2^32 / count.
        let drawn = (u64::from(random.bits(stream, place as u64, 0)) * (place as u64 + 1)) >> 32;
        order.swap(place, drawn as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schedule: Schedule, expected: &[f64]) {
        let found: Vec<f64> = (0..schedule.steps).map(|step| schedule.rate(step)).collect();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
    }

    #[test]
    fn warmup_then_half_a_cosine() {
        let half = 0.5f64.sqrt();
        let cosine = [2.0, 1.0 + half, 1.0, 1.0 - half];
        check(Schedule { peak: 2.0, warmup: 2, steps: 6 }, &[&[1.0, 2.0], &cosine[..]].concat());
        check(Schedule { peak: 2.0, warmup: 0, steps: 4 }, &cosine);
        check(Schedule { peak: 1.0, warmup: 4, steps: 4 }, &[0.25, 0.5, 0.75, 1.0]);
        check(Schedule { peak: 1.0, warmup: 0, steps: 1 }, &[1.0]);
        check(Schedule { peak: 1.0, warmup: 8, steps: 2 }, &[0.125, 0.25]);
    }

    #[test]
    fn rates_fall_from_the_peak_and_stay_above_zero() {
        for (warmup, steps) in [(0, 65), (3, 65), (4, 5), (65, 65), (1000, 100_000)] {
            let schedule = Schedule { peak: 2e-4, warmup, steps };
            let rates: Vec<f64> = (0..steps).map(|step| schedule.rate(step)).collect();
            let (rising, falling) = rates.split_at(warmup as usize);
            assert!(rising.windows(2).all(|pair| pair[0] < pair[1]), "{schedule:?}");
            assert!(falling.windows(2).all(|pair| pair[0] > pair[1]), "{schedule:?}");
            assert!(rates.iter().all(|rate| *rate > 0.0 && *rate <= 2e-4), "{schedule:?}");
            assert_eq!(rates[(warmup as usize).min(rates.len() - 1)].to_bits(), 2e-4f64.to_bits());
        }
    }

    #[test]
    fn an_epoch_has_every_sample_once_in_an_order_of_its_own() {
        for count in [0, 1, 2, 3, 50, 1000] {
            let mut orders = Vec::new();
            for epoch in 0..3 {
                let order = shuffled(7, epoch, count);
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..count));
                orders.push(order);
            }
            if count >= 50 {
                assert!(orders[0] != orders[1] && orders[1] != orders[2]);
                assert_ne!(shuffled(8, 0, count), orders[0]);
                assert_eq!(shuffled(7, 0, count), orders[0]);
            }
        }
    }

    #[test]
    fn every_place_is_drawn_about_as_often() {
        let mut counts = [0usize; 5];
        for epoch in 0..10_000 {
            counts[shuffled(3, epoch, 5)[0]] += 1;
        }
        // A count has a standard deviation of 40.
        assert!(counts.iter().all(|count| count.abs_diff(2000) < 200), "{counts:?}");
    }
}
