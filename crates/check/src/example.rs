//! A training example in a JSON file: tokens, labels, objective, and what an optimiser is to do with them.
//!
//! `tokens`; `labels` as long, `labels[i]` the token to be predicted at position `i`, or -1; `objective` `all` (the default)
//! or `reply`; `reply_runs`, the `[p0, p1)` of each reply's tokens; `optimizer` `{name, lr, betas, eps, weight_decay}`,
//! `clip_norm`, `steps`; and what an implementation found: `losses` (before each step), `loss_after`, `base_loss`.
//! Files are hostile: everything is checked before anything is run.

use std::ops::Range;
use std::path::Path;

use apprentice_engine::{LearnerOptions, Objective};
use apprentice_graph::ErrorKind;
use serde::Deserialize;

use crate::error::CheckError;
use crate::files;

/// A training example whose lists belong together.
#[derive(Clone, PartialEq, Debug)]
pub struct Example {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// For each token what follows it, or -1.
    pub labels: Vec<i32>,
    /// Which gradient is asked for.
    pub objective: Objective,
    /// Runs of the replies, ascending: given, or the maximal runs of labelled rows moved by one.
    pub replies: Vec<Range<usize>>,
    /// SHA-256 of the model that the numbers belong to.
    pub model_sha256: Option<String>,
    /// Alpha of the adapter.
    pub alpha: Option<f32>,
    /// The optimiser; AdamW.
    pub optimizer: Option<Optimizer>,
    /// Norm that gradients are clipped to.
    pub clip_norm: Option<f64>,
    /// Steps.
    pub steps: Option<usize>,
    /// Loss before each step.
    pub losses: Vec<f64>,
    /// Loss after the last step.
    pub loss_after: Option<f64>,
    /// Loss without any adapter.
    pub base_loss: Option<f64>,
}

/// Settings of AdamW.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Optimizer {
    /// `adamw`.
    pub name: String,
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the moments.
    pub betas: Option<(f64, f64)>,
    /// Added to the root of the second moment.
    pub eps: Option<f64>,
    /// Decoupled weight decay.
    pub weight_decay: Option<f64>,
}

/// Why an example was refused.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ExampleError {
    /// No tokens.
    #[error("tokens: expected at least one, found none")]
    NoTokens,
    /// Lists that must have one entry a token.
    #[error("labels: expected {expected}, one a token, found {found}")]
    Length {
        /// Number of tokens.
        expected: usize,
        /// Number of labels.
        found: usize,
    },
    /// Nothing to learn from.
    #[error("labels: all {count} are -1, so there is nothing to learn from")]
    NoLabels {
        /// Number of labels.
        count: usize,
    },
    /// An id that cannot be.
    #[error("{list}[{index}]: expected {expected}, found {found}")]
    Id {
        /// `tokens` or `labels`.
        list: &'static str,
        /// Where.
        index: usize,
        /// What would be accepted.
        expected: String,
        /// What stands there.
        found: i64,
    },
    /// A run of a reply that cannot be.
    #[error("reply_runs[{index}]: expected {expected}, found [{start}, {end}]")]
    Run {
        /// Which.
        index: usize,
        /// What would be accepted.
        expected: String,
        /// Its first token.
        start: i64,
        /// One past its last token.
        end: i64,
    },
    /// A labelled row that no reply holds.
    #[error("labels[{row}]: its row lies in no reply, whose rows are those from p0-1 to p1-2")]
    Outside {
        /// The row.
        row: usize,
    },
    /// A reply without anything before it.
    #[error("labels: a reply that begins at position 0 has no row that predicts its first token")]
    AtStart,
    /// A setting that cannot be.
    #[error("{name}: expected {expected}, found {found}")]
    Setting {
        /// Its key.
        name: &'static str,
        /// What would be accepted.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
}

impl ExampleError {
    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ExampleError::Setting { name: "optimizer.name", .. } => ErrorKind::Unsupported,
            _ => ErrorKind::Input,
        }
    }
}

/// An objective as it is written.
#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum RawObjective {
    #[default]
    All,
    Reply,
}

impl From<RawObjective> for Objective {
    fn from(raw: RawObjective) -> Objective {
        match raw {
            RawObjective::All => Objective::All,
            RawObjective::Reply => Objective::Reply,
        }
    }
}

/// The file as it is written.
#[derive(Deserialize)]
struct Raw {
    tokens: Vec<i64>,
    labels: Vec<i64>,
    #[serde(default)]
    objective: RawObjective,
    reply_runs: Option<Vec<(i64, i64)>>,
    model_sha256: Option<String>,
    alpha: Option<f32>,
    lora: Option<RawLora>,
    optimizer: Option<Optimizer>,
    clip_norm: Option<f64>,
    steps: Option<usize>,
    #[serde(default)]
    losses: Vec<f64>,
    loss_after: Option<f64>,
    base_loss: Option<f64>,
}

#[derive(Deserialize)]
struct RawLora {
    alpha: Option<f32>,
}

impl Example {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Example, CheckError> {
        let raw: Raw = files::json(path)?;
        Example::check(raw).map_err(|error| CheckError::Example { path: path.to_owned(), error })
    }

    /// The settings of the example, `defaults` where it has none.
    pub fn learner_options(&self, defaults: LearnerOptions) -> LearnerOptions {
        let optimizer = self.optimizer.as_ref();
        LearnerOptions {
            learning_rate: optimizer.map_or(defaults.learning_rate, |optimizer| optimizer.lr),
            betas: optimizer.and_then(|optimizer| optimizer.betas).unwrap_or(defaults.betas),
            eps: optimizer.and_then(|optimizer| optimizer.eps).unwrap_or(defaults.eps),
            weight_decay: optimizer
                .and_then(|optimizer| optimizer.weight_decay)
                .unwrap_or(defaults.weight_decay),
            clip_norm: self.clip_norm.or(defaults.clip_norm),
        }
    }

    fn check(raw: Raw) -> Result<Example, ExampleError> {
        let (tokens, labels) = lists(&raw)?;
        let replies = match &raw.reply_runs {
            Some(runs) => given_runs(runs, tokens.len())?,
            None => labelled_runs(&labels),
        };
        check_settings(&raw)?;
        let objective = Objective::from(raw.objective);
        if objective == Objective::Reply {
            check_replies(&replies, &labels)?;
        }
        Ok(Example {
            tokens,
            labels,
            objective,
            replies,
            model_sha256: raw.model_sha256,
            alpha: raw.alpha.or(raw.lora.and_then(|lora| lora.alpha)),
            optimizer: raw.optimizer,
            clip_norm: raw.clip_norm,
            steps: raw.steps,
            losses: raw.losses,
            loss_after: raw.loss_after,
            base_loss: raw.base_loss,
        })
    }
}

fn lists(raw: &Raw) -> Result<(Vec<u32>, Vec<i32>), ExampleError> {
    if raw.tokens.is_empty() {
        return Err(ExampleError::NoTokens);
    }
    if raw.labels.len() != raw.tokens.len() {
        return Err(ExampleError::Length { expected: raw.tokens.len(), found: raw.labels.len() });
    }
    let tokens = raw.tokens.iter().enumerate().map(|(index, id)| match u32::try_from(*id) {
        Ok(token) => Ok(token),
        Err(_) => {
            Err(ExampleError::Id { list: "tokens", index, expected: "a token id".to_owned(), found: *id })
        }
    });
    let labels = raw.labels.iter().enumerate().map(|(index, id)| match i32::try_from(*id) {
        Ok(label) if label >= -1 => Ok(label),
        _ => Err(ExampleError::Id {
            list: "labels",
            index,
            expected: "a token id or -1".to_owned(),
            found: *id,
        }),
    });
    let (tokens, labels) = (tokens.collect::<Result<_, _>>()?, labels.collect::<Result<Vec<_>, _>>()?);
    if labels.iter().all(|label| *label == -1) {
        return Err(ExampleError::NoLabels { count: labels.len() });
    }
    Ok((tokens, labels))
}

fn given_runs(runs: &[(i64, i64)], tokens: usize) -> Result<Vec<Range<usize>>, ExampleError> {
    let mut least = 1;
    let mut checked = Vec::with_capacity(runs.len());
    for (index, (start, end)) in runs.iter().enumerate() {
        let run = usize::try_from(*start).ok().zip(usize::try_from(*end).ok());
        match run.filter(|(start, end)| *start >= least && start < end && *end <= tokens) {
            Some((start, end)) => {
                checked.push(start..end);
                least = end;
            }
            None => {
                let expected = format!("a start of at least {least} before an end of at most {tokens}");
                return Err(ExampleError::Run { index, expected, start: *start, end: *end });
            }
        }
    }
    Ok(checked)
}

/// Maximal runs of labelled rows: rows `i..j` predict the tokens `i+1..j+1`.
fn labelled_runs(labels: &[i32]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for row in (0..labels.len()).filter(|row| labels[*row] >= 0) {
        match runs.last_mut() {
            Some(run) if run.end == row + 1 => run.end = row + 2,
            _ => runs.push(row + 1..row + 2),
        }
    }
    runs
}

fn check_replies(replies: &[Range<usize>], labels: &[i32]) -> Result<(), ExampleError> {
    if replies.iter().any(|run| run.start == 0) {
        return Err(ExampleError::AtStart);
    }
    let inside = |row: usize| replies.iter().any(|run| (run.start - 1..run.end - 1).contains(&row));
    match (0..labels.len()).find(|row| labels[*row] >= 0 && !inside(*row)) {
        Some(row) => Err(ExampleError::Outside { row }),
        None => Ok(()),
    }
}

fn check_settings(raw: &Raw) -> Result<(), ExampleError> {
    let wrong = |name, expected, found: String| Err(ExampleError::Setting { name, expected, found });
    let at_least_zero = |value: f64| value.is_finite() && value >= 0.0;
    if let Some(optimizer) = &raw.optimizer {
        if optimizer.name != "adamw" {
            return wrong("optimizer.name", "\"adamw\"", format!("{:?}", optimizer.name));
        }
        if !at_least_zero(optimizer.lr) {
            return wrong("optimizer.lr", "a number of at least 0", optimizer.lr.to_string());
        }
        if let Some((b1, b2)) =
            optimizer.betas.filter(|(b1, b2)| ![b1, b2].iter().all(|b| (0.0..1.0).contains(*b)))
        {
            return wrong("optimizer.betas", "numbers of at least 0 and below 1", format!("[{b1}, {b2}]"));
        }
        if let Some(eps) = optimizer.eps.filter(|eps| !at_least_zero(*eps)) {
            return wrong("optimizer.eps", "a number of at least 0", eps.to_string());
        }
        if let Some(decay) = optimizer.weight_decay.filter(|decay| !at_least_zero(*decay)) {
            return wrong("optimizer.weight_decay", "a number of at least 0", decay.to_string());
        }
    }
    match raw.clip_norm.filter(|norm| !(norm.is_finite() && *norm > 0.0)) {
        Some(norm) => wrong("clip_norm", "a number above 0", norm.to_string()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Example, String> {
        let raw: Raw = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Example::check(raw).map_err(|error| error.to_string())
    }

    fn refused(text: &str, expected: &str) {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }

    #[test]
    fn lists_that_do_not_belong_together() {
        refused(r#"{"tokens": [], "labels": []}"#, "tokens: expected at least one");
        refused(r#"{"tokens": [1, 2], "labels": [2]}"#, "labels: expected 2, one a token, found 1");
        refused(r#"{"tokens": [1, 2], "labels": [-1, -1]}"#, "labels: all 2 are -1");
        refused(r#"{"tokens": [1, -2], "labels": [2, -1]}"#, "tokens[1]: expected a token id, found -2");
        refused(r#"{"tokens": [1, 2], "labels": [2, -2]}"#, "labels[1]: expected a token id or -1, found -2");
        refused(r#"{"tokens": [1, 4294967296], "labels": [2, -1]}"#, "tokens[1]");
    }

    #[test]
    fn values_of_another_type() {
        refused(r#"{"tokens": [1, 2.5], "labels": [2, -1]}"#, "2.5");
        refused(r#"{"tokens": [1, NaN], "labels": [2, -1]}"#, "line 1");
        refused(r#"{"tokens": "1 2", "labels": [2, -1]}"#, "invalid type: string");
        refused(r#"{"labels": [2, -1]}"#, "missing field `tokens`");
        refused(r#"{"tokens": [1, 2], "labels": [2, -1], "objective": "some"}"#, "unknown variant `some`");
        refused(r#"{"tokens": [1, 2], "labels": [2, -1], "clip_norm": 1e999}"#, "out of range");
    }

    #[test]
    fn runs_that_cannot_be() {
        let text = |runs: &str| {
            format!(
                r#"{{"tokens": [1, 2, 3, 4], "labels": [2, -1, 4, -1], "objective": "reply", "reply_runs": {runs}}}"#
            )
        };
        refused(&text("[[0, 2]]"), "reply_runs[0]: expected a start of at least 1");
        refused(&text("[[1, 2], [1, 4]]"), "reply_runs[1]: expected a start of at least 2");
        refused(&text("[[3, 3]]"), "found [3, 3]");
        refused(&text("[[3, 5]]"), "an end of at most 4, found [3, 5]");
        refused(&text("[[-1, 2]]"), "found [-1, 2]");
        refused(&text("[[3, 4]]"), "labels[0]: its row lies in no reply");
        assert_eq!(parse(&text("[[1, 2], [3, 4]]")).unwrap().replies, [1..2, 3..4]);
    }

    #[test]
    fn without_runs_they_are_those_of_the_labels() {
        let check = |labels: &[i32], expected: &[Range<usize>]| {
            assert_eq!(labelled_runs(labels), expected, "{labels:?}")
        };
        check(&[-1, 5, 6, -1, 7, -1], &[2..4, 5..6]);
        check(&[5, -1, -1, 6], &[1..2, 4..5]);
        check(&[-1, 5, -1, 6, -1], &[2..3, 4..5]);
    }

    #[test]
    fn settings_that_cannot_be() {
        let text = |rest: &str| format!(r#"{{"tokens": [1, 2], "labels": [2, -1], {rest}}}"#);
        refused(
            &text(r#""optimizer": {"name": "sgd", "lr": 1}"#),
            "optimizer.name: expected \"adamw\", found \"sgd\"",
        );
        refused(&text(r#""optimizer": {"name": "adamw", "lr": -1}"#), "optimizer.lr");
        refused(&text(r#""optimizer": {"name": "adamw", "lr": 1, "betas": [0.9, 1.0]}"#), "optimizer.betas");
        refused(&text(r#""clip_norm": 0"#), "clip_norm: expected a number above 0, found 0");
        let example =
            parse(&text(r#""optimizer": {"name": "adamw", "lr": 0.5, "betas": [0.1, 0.2]}, "clip_norm": 3"#));
        let options = example.unwrap().learner_options(LearnerOptions::default());
        assert_eq!((options.learning_rate, options.betas, options.clip_norm), (0.5, (0.1, 0.2), Some(3.0)));
        assert_eq!(options.eps, LearnerOptions::default().eps);
    }
}
