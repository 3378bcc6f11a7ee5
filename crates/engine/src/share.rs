//! How the time is shared between serving and learning: while somebody is served, learning gets a tenth of it.
//!
//! The engine has no clock. Each step is told the time, and what has passed since the step before goes to what that did.

use std::time::Duration;

/// Part of the time that learning gets while somebody is served.
const LEARNING: f64 = 0.1;
/// What a step takes where the clock does not move.
const LEAST: Duration = Duration::from_nanos(1);

/// Time since a lesson began to learn.
#[derive(Default)]
pub(crate) struct Share {
    last: Option<Duration>,
    learnt: bool,
    learning: f64,
    all: f64,
}

impl Share {
    /// A lesson begins: nobody owes it anything.
    pub(crate) fn begin(&mut self) {
        (self.learning, self.all) = (0.0, 0.0);
    }

    /// A step begins at `now`.
    pub(crate) fn account(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.last.unwrap_or(now)).max(LEAST).as_secs_f64();
        self.last = Some(now);
        self.all += passed;
        if self.learnt {
            self.learning += passed;
        }
        self.learnt = false;
    }

    /// The step that has begun learns.
    pub(crate) fn learn(&mut self) {
        self.learnt = true;
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
                share.learn();
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
                share.learn();
                learnt += 1;
            }
        }
        assert!((90..=110).contains(&learnt), "{learnt}");
    }
}
