//! The choice of a token from logits: penalties and bias, then top-k, top-p, min-p and temperature, in that order.
//!
//! Everything is float64 with this project's own exponential, candidates in descending order of logit (ties by lower id,
//! NaN as the smallest), sums ascending; the random number depends on (seed, stream, position) alone. So a choice depends
//! on the logits, the tokens before and the settings, and on nothing else. Sources: Fan et al. 2018 (top-k), Holtzman et
//! al. 2020 (top-p, the nucleus), Keskar et al. 2019 (repetition penalty), Nguyen et al. 2024 (min-p); presence and
//! frequency penalties as OpenAI's API describes them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use apprentice_graph::real;
use apprentice_models::Philox;

use crate::error::EngineError;

/// How a token is chosen. [`Sampling::greedy`] takes the most likely one.
#[derive(Clone, PartialEq, Debug)]
pub struct Sampling {
    /// Divides the logits of the candidates that are left; 0 takes the most likely one.
    pub temperature: f32,
    /// Keeps so many of the most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the most likely tokens up to this share of the probability, the one that reaches it included; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens with at least this share of the most likely one's probability; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens; 1 for none.
    pub repetition_penalty: f32,
    /// Taken from the logit of every recent token.
    pub presence_penalty: f32,
    /// Taken from the logit of every recent token, once for each time it occurs.
    pub frequency_penalty: f32,
    /// How many of the last tokens are recent.
    pub recent: usize,
    /// Added to the logits of tokens, by id. Minus infinity forbids a token.
    pub bias: Vec<(u32, f32)>,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Index of the sequence within its request.
    pub stream: u32,
}

/// Penalties look at so many tokens unless told otherwise.
const RECENT: usize = 64;

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling::greedy()
    }
}

impl Sampling {
    /// The most likely token, always.
    pub fn greedy() -> Sampling {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            recent: RECENT,
            bias: Vec::new(),
            seed: 0,
            stream: 0,
        }
    }

    /// Whether the most likely token of the plain logits is taken.
    pub fn is_plain_greedy(&self) -> bool {
        self.temperature == 0.0 && self.bias.is_empty() && !self.penalises()
    }

    /// Refuses settings that mean nothing.
    ///
    /// # Errors
    /// The first setting that is out of its range, by name.
    pub fn check(&self, vocab: usize) -> Result<(), EngineError> {
        let settings = [
            ("temperature", self.temperature, 0.0, f32::MAX, "a number from 0 on"),
            ("top_p", self.top_p, f32::MIN_POSITIVE, 1.0, "a number above 0, up to 1"),
            ("min_p", self.min_p, 0.0, 1.0, "a number from 0 to 1"),
            ("repetition_penalty", self.repetition_penalty, f32::MIN_POSITIVE, f32::MAX, "a number above 0"),
            ("presence_penalty", self.presence_penalty, f32::MIN, f32::MAX, "a finite number"),
            ("frequency_penalty", self.frequency_penalty, f32::MIN, f32::MAX, "a finite number"),
        ];
        for (setting, found, least, most, expected) in settings {
            if !(least..=most).contains(&found) {
                return Err(EngineError::Setting { setting, expected, found: found.to_string() });
            }
        }
        for (index, (token, bias)) in self.bias.iter().enumerate() {
            if *token as usize >= vocab {
                return Err(EngineError::Token { token: i64::from(*token), index, vocab });
            }
            if bias.is_nan() || *bias == f32::INFINITY {
                let expected = "a finite number, or minus infinity";
                return Err(EngineError::Setting { setting: "bias", expected, found: bias.to_string() });
            }
        }
        Ok(())
    }

    /// The token after `history`, from the logits of its last row, one a token of the vocabulary.
    ///
    /// # Panics
    /// Without any logit.
    pub fn choose(&self, logits: &[f32], history: &[u32]) -> u32 {
        assert!(!logits.is_empty(), "a vocabulary has tokens");
        let mut candidates = self.adjusted(logits, history);
        if self.temperature == 0.0 {
            return candidates.iter().copied().min_by(descending).map_or(0, |candidate| candidate.1);
        }
        if self.top_k > 0 && self.top_k < candidates.len() {
            candidates.select_nth_unstable_by(self.top_k - 1, descending);
            candidates.truncate(self.top_k);
        }
        candidates.sort_unstable_by(descending);
        let largest = candidates[0].0;
        let shares: Vec<f64> = candidates.iter().map(|candidate| share(candidate.0 - largest)).collect();
        candidates.truncate(kept(&shares, f64::from(self.top_p), f64::from(self.min_p)));
        let temperature = f64::from(self.temperature);
        let weights: Vec<f64> =
            candidates.iter().map(|candidate| share((candidate.0 - largest) / temperature)).collect();
        let total: f64 = weights.iter().sum();
        let random = f64::from(Philox::new(self.seed).uniform(self.stream, history.len() as u64, 0));
        pick(&weights, random * total).map_or(candidates[0].1, |index| candidates[index].1)
    }

    fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// Every token with its logit after penalties and bias.
    fn adjusted(&self, logits: &[f32], history: &[u32]) -> Vec<(f64, u32)> {
        let mut candidates: Vec<(f64, u32)> =
            logits.iter().zip(0..).map(|(logit, token)| (f64::from(*logit), token)).collect();
        if self.penalises() {
            let mut counts: BTreeMap<u32, f64> = BTreeMap::new();
            for token in &history[history.len().saturating_sub(self.recent)..] {
                *counts.entry(*token).or_default() += 1.0;
            }
            for (token, count) in counts {
                let Some((logit, _)) = candidates.get_mut(token as usize) else { continue };
                let penalty = f64::from(self.repetition_penalty);
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
                *logit -= f64::from(self.presence_penalty) + count * f64::from(self.frequency_penalty);
            }
        }
        for (token, bias) in &self.bias {
            if let Some((logit, _)) = candidates.get_mut(*token as usize) {
                *logit += f64::from(*bias);
            }
        }
        candidates
    }
}

/// The largest of a row's logits: the lowest id among equals (+0 and -0 are equal), never a NaN; `None` where nothing is a
/// number. What the op `argmax` answers, but for rows of NaN alone.
pub(crate) fn most_likely(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(f32, u32)> = None;
    for (logit, token) in logits.iter().zip(0..) {
        if !logit.is_nan() && best.is_none_or(|(largest, _)| *logit > largest) {
            best = Some((*logit, token));
        }
    }
    best.map(|(_, token)| token)
}

/// The larger logit first, then the lower id, +0 and -0 being equal; NaN last.
fn descending(a: &(f64, u32), b: &(f64, u32)) -> Ordering {
    let number = |logit: f64| if logit.is_nan() { f64::NEG_INFINITY } else { logit + 0.0 };
    number(b.0).total_cmp(&number(a.0)).then(a.1.cmp(&b.1))
}

/// `exp` of a difference to the largest logit: 1 for the largest itself, infinite or not, and 0 for what is no number.
fn share(difference: f64) -> f64 {
    if difference == 0.0 {
        1.0
    } else if difference < 0.0 {
        real::exp(difference)
    } else {
        0.0
    }
}

/// How many of the candidates, by descending share, top-p and then min-p keep; at least one.
fn kept(shares: &[f64], top_p: f64, min_p: f64) -> usize {
    let mut count = shares.len();
    if top_p < 1.0 {
        let wanted = top_p * shares.iter().sum::<f64>();
        let mut sum = 0.0;
        let reached = shares.iter().position(|share| {
            sum += share;
            sum >= wanted
        });
        count = reached.map_or(count, |index| index + 1);
    }
    let likely = shares[..count].iter().take_while(|share| **share >= min_p * shares[0]).count();
    likely.max(1)
}

/// The first index at which the running sum of weights passes `random`.
fn pick(weights: &[f64], random: f64) -> Option<usize> {
    let mut sum = 0.0;
    weights.iter().position(|weight| {
        sum += weight;
        sum > random
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 5] = [1.0, 3.0, 2.0, 3.0, -1.0];

    fn sampled() -> Sampling {
        Sampling { temperature: 1.0, ..Sampling::greedy() }
    }

    /// How often each token is chosen over many seeds.
    fn counts(sampling: &Sampling, logits: &[f32], history: &[u32]) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        for seed in 0..4000 {
            counts[Sampling { seed, ..sampling.clone() }.choose(logits, history) as usize] += 1;
        }
        counts
    }

    fn chosen(sampling: &Sampling, logits: &[f32], history: &[u32]) -> Vec<usize> {
        let counts = counts(sampling, logits, history);
        (0..counts.len()).filter(|token| counts[*token] > 0).collect()
    }

    #[test]
    fn greedy_takes_the_lower_id_of_a_tie_and_never_a_nan() {
        let greedy = Sampling::greedy();
        assert_eq!(greedy.choose(&LOGITS, &[]), 1);
        assert_eq!(greedy.choose(&[f32::NAN, -5.0, f32::NAN], &[]), 1);
        assert_eq!(greedy.choose(&[0.0, f32::INFINITY], &[]), 1);
        assert_eq!(greedy.choose(&[-0.0, 0.0], &[]), 0);
        assert_eq!(most_likely(&[f32::NAN, -0.0, 0.0, -1.0]), Some(1));
        assert_eq!(most_likely(&[f32::NEG_INFINITY, f32::NEG_INFINITY]), Some(0));
        assert_eq!(most_likely(&[f32::NAN, f32::NAN]), None);
    }

    #[test]
    fn shares_are_those_of_the_softmax() {
        let logits = [0.0f32, 1.0, 2.0];
        let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        for temperature in [1.0f32, 0.5] {
            let weight = |logit: f32| (f64::from(logit) / f64::from(temperature)).exp();
            let total: f64 = if temperature == 1.0 { total } else { logits.iter().map(|l| weight(*l)).sum() };
            let found = counts(&Sampling { temperature, ..sampled() }, &logits, &[]);
            for (token, count) in found.iter().enumerate() {
                let expected = 4000.0 * weight(logits[token]) / total;
                // Four standard deviations of a binomial count.
                assert!(
                    (*count as f64 - expected).abs() < 4.0 * expected.sqrt() + 1.0,
                    "{token}: {count}, {expected}"
                );
            }
        }
    }

    #[test]
    fn filters_keep_what_they_say() {
        assert_eq!(chosen(&sampled(), &LOGITS, &[]), [0, 1, 2, 3, 4]);
        assert_eq!(chosen(&Sampling { top_k: 2, ..sampled() }, &LOGITS, &[]), [1, 3]);
        assert_eq!(chosen(&Sampling { top_k: 1, ..sampled() }, &LOGITS, &[]), [1]);
        // Shares: 0.40, 0.40, 0.15, 0.05, 0.007.
        assert_eq!(chosen(&Sampling { top_p: 0.3, ..sampled() }, &LOGITS, &[]), [1]);
        assert_eq!(chosen(&Sampling { top_p: 0.9, ..sampled() }, &LOGITS, &[]), [1, 2, 3]);
        assert_eq!(chosen(&Sampling { min_p: 0.3, ..sampled() }, &LOGITS, &[]), [1, 2, 3]);
        assert_eq!(chosen(&Sampling { min_p: 1.0, ..sampled() }, &LOGITS, &[]), [1, 3]);
    }

    #[test]
    fn penalties_and_bias_move_logits() {
        let greedy = Sampling::greedy();
        assert_eq!(Sampling { repetition_penalty: 2.0, ..greedy.clone() }.choose(&LOGITS, &[1]), 3);
        assert_eq!(Sampling { presence_penalty: 1.5, ..greedy.clone() }.choose(&LOGITS, &[1, 3, 3]), 2);
        assert_eq!(Sampling { frequency_penalty: 0.6, ..greedy.clone() }.choose(&LOGITS, &[1, 1, 3]), 3);
        assert_eq!(
            Sampling { frequency_penalty: 0.6, recent: 1, ..greedy.clone() }.choose(&LOGITS, &[3, 3, 1]),
            3
        );
        assert_eq!(Sampling { bias: vec![(4, 10.0)], ..greedy.clone() }.choose(&LOGITS, &[]), 4);
        let forbidden = vec![(1, f32::NEG_INFINITY), (3, f32::NEG_INFINITY)];
        assert_eq!(Sampling { bias: forbidden, ..greedy }.choose(&LOGITS, &[]), 2);
    }

    #[test]
    fn a_choice_depends_on_seed_stream_and_position_alone() {
        let logits = vec![0.0f32; 1000];
        let one = Sampling { seed: 7, stream: 2, ..sampled() };
        let token = one.choose(&logits, &[1, 2, 3]);
        assert_eq!(one.choose(&logits, &[9, 9, 9]), token);
        assert_ne!(one.choose(&logits, &[1, 2]), token);
        assert_ne!(Sampling { stream: 3, ..one.clone() }.choose(&logits, &[1, 2, 3]), token);
        assert_ne!(Sampling { seed: 8, ..one }.choose(&logits, &[1, 2, 3]), token);
    }

    #[test]
    fn settings_that_mean_nothing_are_refused() {
        let check = |sampling: Sampling, message: &str| {
            assert_eq!(sampling.check(10).unwrap_err().to_string(), message);
        };
        check(
            Sampling { temperature: -1.0, ..sampled() },
            "temperature: expected a number from 0 on, found -1",
        );
        check(
            Sampling { temperature: f32::NAN, ..sampled() },
            "temperature: expected a number from 0 on, found NaN",
        );
        check(Sampling { top_p: 0.0, ..sampled() }, "top_p: expected a number above 0, up to 1, found 0");
        check(Sampling { min_p: 1.5, ..sampled() }, "min_p: expected a number from 0 to 1, found 1.5");
        check(Sampling { bias: vec![(10, 1.0)], ..sampled() }, "token 10 at index 0: the vocabulary has 10");
        assert!(sampled().check(10).is_ok());
    }
}
