//! How the time is shared between serving and learning: while somebody is served, learning gets a tenth of it.
//!
//! The engine has no clock. Each step is told the time, and what has passed since the step before goes to what that did.

use std::time::Duration;

/// Part of the time that learning gets while somebody is served.
const LEARNING: f64 = 0.1;
/// What a step takes where the clock does not move.
const LEAST: Duration = Duration::from_nanos(1);
/// Seconds of a slice of learning that somebody waits for.
const SLICE_SERVING: f64 = 0.02;
/// Seconds of a slice that nobody waits for yet.
const SLICE_IDLE: f64 = 0.1;
/// FLOPs a second until it is known better.
const PACE: f64 = 1e10;
/// The least and the most FLOPs a second that a slice is cut for.
const PACES: (f64, f64) = (1e7, 1e13);

/// Time since a lesson began to learn.
pub(crate) struct Share {
    last: Option<Duration>,
    /// If the last step learnt: the FLOPs of its slice, and whether it took them all.
    learnt: Option<(u64, bool)>,
    learning: f64,
    all: f64,
    /// FLOPs a second.
    pace: f64,
}

impl Default for Share {
    fn default() -> Share {
        Share { last: None, learnt: None, learning: 0.0, all: 0.0, pace: PACE }
    }
}

impl Share {
    /// A lesson begins: nobody owes it anything.
    pub(crate) fn begin(&mut self) {
        (self.learning, self.all) = (0.0, 0.0);
    }

    /// A step begins at `now`.
    pub(crate) fn account(&mut self, now: Duration) {
        let moved = now.saturating_sub(self.last.unwrap_or(now));
        let passed = moved.max(LEAST).as_secs_f64();
        self.last = Some(now);
        self.all += passed;
        if let Some((flops, full)) = self.learnt.take() {
            self.learning += passed;
            let pace = flops as f64 / passed;
            // A slice that was not spent says only when it took too long.
            if !moved.is_zero() && (full || pace < self.pace) {
                // Steps differ in their FLOPs a second: half of what is known stays.
                self.pace = (0.5 * (self.pace + pace)).clamp(PACES.0, PACES.1);
            }
        }
    }

    /// FLOPs of a slice, `served` if somebody waits for its end.
    pub(crate) fn slice(&self, served: bool) -> u64 {
        (self.pace * if served { SLICE_SERVING } else { SLICE_IDLE }) as u64
    }

    /// The step that has begun learns: a slice of so many FLOPs, and whether it took them all.
    pub(crate) fn learnt(&mut self, flops: u64, full: bool) {
        self.learnt = Some((flops, full));
    }

    /// Whether learning has had less than its part.
    pub(crate) fn is_due(&self) -> bool {
        self.learning < LEARNING * self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part that learning gets where its steps and those of serving take so many milliseconds.
    fn part(learning_ms: u64, serving_ms: u64) -> f64 {
        let (mut share, mut now) = (Share::default(), Duration::ZERO);
        share.begin();
        let mut learning = 0;
        for _ in 0..100_000 {
            share.account(now);
            let step = if share.is_due() {
                share.learnt(0, false);
                learning += learning_ms;
                learning_ms
            } else {
                serving_ms
            };
            now += Duration::from_millis(step);
        }
        learning as f64 / now.as_millis() as f64
    }

    #[test]
    fn learning_gets_a_tenth_whatever_steps_take() {
        for (learning_ms, serving_ms) in [(10, 10), (500, 3), (1, 400)] {
            let part = part(learning_ms, serving_ms);
            assert!((part - LEARNING).abs() < 0.005, "{learning_ms} ms, {serving_ms} ms: {part}");
        }
    }

    #[test]
    fn a_clock_that_stands_counts_steps() {
        let mut share = Share::default();
        let mut learnt = 0;
        for _ in 0..1000 {
            share.account(Duration::ZERO);
            if share.is_due() {
                share.learnt(0, false);
                learnt += 1;
            }
        }
        assert!((90..=110).contains(&learnt), "{learnt}");
    }

    #[test]
    fn slices_take_the_time_that_they_should() {
        let (mut share, mut now) = (Share::default(), Duration::ZERO);
        for _ in 0..20 {
            share.account(now);
            let flops = share.slice(true);
            share.learnt(flops, true);
            now += Duration::from_secs_f64(flops as f64 / 3e11);
        }
        assert!((share.slice(true) as f64 / 3e11 / SLICE_SERVING - 1.0).abs() < 0.01);
    }
}
