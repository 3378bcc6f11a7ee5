//! `logits.json`: the largest logits of each row of a text, held to an absolute difference and to the same first place, or,
//! where products round their activations, to a divergence of distributions.

use std::path::Path;

use apprentice_engine::{Engine, Named, Numerics};
use serde::Deserialize;

use crate::bounds;
use crate::compare::worse;
use crate::error::CheckError;
use crate::files;
use crate::golden::divergence::divergence;
use crate::logits::logits_at;
use crate::report::{Figure, Row};

/// The file: `top` of each of `rows`, or of every row.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub(super) struct TopLogits {
    pub(super) model_sha256: String,
    pub(super) tokens: Vec<u32>,
    rows: Option<Vec<usize>>,
    top: Vec<Top>,
}

/// The largest logits of a row, descending.
#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Top {
    ids: Vec<u32>,
    logits: Vec<f64>,
    /// Log-sum-exp of the whole row.
    lse: Option<f64>,
}

/// How far rows are from what is listed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Differences {
    largest: f64,
    /// Row and id of the largest.
    at: (usize, u32),
    other_top: usize,
}

impl TopLogits {
    /// Reads and checks a file.
    pub(super) fn read(path: &Path) -> Result<TopLogits, CheckError> {
        let found: TopLogits = files::json(path)?;
        let wrong = |expected: String, found: String| {
            Err(CheckError::Content { path: path.to_owned(), expected, found })
        };
        let rows = found.rows();
        if rows.is_empty() || rows.len() != found.top.len() {
            return wrong(format!("top of {} rows, at least one", rows.len()), found.top.len().to_string());
        }
        let ascending = rows.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || rows.last().is_some_and(|last| *last >= found.tokens.len()) {
            return wrong(format!("rows that ascend below {}", found.tokens.len()), format!("{rows:?}"));
        }
        match found.top.iter().position(|top| top.ids.is_empty() || top.ids.len() != top.logits.len()) {
            Some(index) => wrong("as many logits as ids".to_owned(), format!("others in top[{index}]")),
            None => Ok(found),
        }
    }

    /// The part `logits`.
    pub(super) fn row(&self, engine: &mut Engine, path: &Path, sha256: &str) -> Result<Row, CheckError> {
        let vocab = engine.model().hyper().vocab;
        if let Some(id) = self.top.iter().flat_map(|top| &top.ids).find(|id| **id as usize >= vocab) {
            let (expected, found) = (format!("ids below {vocab}"), id.to_string());
            return Err(CheckError::Content { path: path.to_owned(), expected, found });
        }
        if engine.options().numerics == Numerics::Q8 {
            return self.divergence_row(engine, path);
        }
        let rows = self.rows();
        let mut differences = Differences::default();
        logits_at(engine, &self.tokens, Named::Nothing, &rows, |index, logits| {
            differences.add(rows[index], &self.top[index], logits);
        })?;
        let Differences { largest, at: (row, id), other_top } = differences;
        let figures = vec![
            Figure::at_most("largest difference", largest, bounds::logit(sha256)),
            Figure::at_most("other top tokens", other_top as f64, bounds::OTHER_TOP),
        ];
        Ok(Row::measured("logits", figures, format!("{} rows, worst at row {row}, token {id}", rows.len())))
    }

    fn divergence_row(&self, engine: &mut Engine, path: &Path) -> Result<Row, CheckError> {
        let rows = self.rows();
        let log_sums: Option<Vec<f64>> = self.top.iter().map(|top| top.lse).collect();
        let log_sums = log_sums.ok_or_else(|| {
            let (expected, found) = ("lse of every row".to_owned(), "a row without".to_owned());
            CheckError::Content { path: path.to_owned(), expected, found }
        })?;
        let rounded = engine.model().rounded_products(engine.options().numerics);
        let (mut sum, mut largest, mut at) = (0.0, 0.0, 0);
        logits_at(engine, &self.tokens, Named::Nothing, &rows, |index, logits| {
            let top = &self.top[index];
            let found = divergence(&top.ids, &top.logits, log_sums[index], logits);
            sum += found;
            if worse(found, largest) {
                (largest, at) = (found, rows[index]);
            }
        })?;
        let figures = vec![
            Figure::at_most("mean divergence", sum / rows.len() as f64, bounds::DIVERGENCE),
            Figure::at_least("rounded products", rounded as f64, bounds::ROUNDED),
        ];
        let note = format!("{} rows, nats; the largest {largest:.2e} at row {at}", rows.len());
        Ok(Row::measured("logits", figures, note))
    }

    fn rows(&self) -> Vec<usize> {
        self.rows.clone().unwrap_or_else(|| (0..self.tokens.len()).collect())
    }
}

impl Differences {
    fn add(&mut self, row: usize, top: &Top, logits: &[f32]) {
        for (id, reference) in top.ids.iter().zip(&top.logits) {
            let difference = (f64::from(logits[*id as usize]) - reference).abs();
            if worse(difference, self.largest) {
                (self.largest, self.at) = (difference, (row, *id));
            }
        }
        if first_largest(logits) != top.ids[0] as usize {
            self.other_top += 1;
        }
    }
}

/// Index of the largest element, the first of equals.
fn first_largest(values: &[f32]) -> usize {
    (1..values.len()).fold(0, |best, index| if values[index] > values[best] { index } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(logits: &[f32], largest: f64, other_top: usize) {
        let top = Top { ids: vec![2, 0], logits: vec![3.0, 1.0], lse: None };
        let mut found = Differences::default();
        found.add(0, &top, logits);
        let same = found.largest == largest || found.largest.is_nan() && largest.is_nan();
        assert!(same && found.other_top == other_top, "{logits:?}: {found:?}");
    }

    #[test]
    fn listed_logits_and_the_first_place_count() {
        check(&[1.0, -5.0, 3.0], 0.0, 0);
        check(&[1.0, 2.0, 3.5], 0.5, 0);
        check(&[1.0, 4.0, 3.0], 0.0, 1);
        check(&[f32::NAN, 0.0, 3.0], f64::NAN, 1);
    }
}
