//! Values of a LoRA adapter, in the row order of the model's file: `y = W x + scale * B (A x)` at each of its sites.
//!
//! Source: Hu et al. 2021 (LoRA); for `rows`, Greenewald et al. 2025 (activated LoRA).

use crate::error::ModelError;
use crate::model::Model;
use crate::philox::Philox;

/// An adapter.
#[derive(Clone, PartialEq, Debug)]
pub struct Adapter {
    /// One pair a site, ascending by site.
    pub pairs: Vec<Pair>,
    /// On which rows it is trained and used.
    pub rows: AdapterRows,
}

/// The two matrices at a site.
#[derive(Clone, PartialEq, Debug)]
pub struct Pair {
    /// Index into [`crate::Model::sites`].
    pub site: usize,
    /// Rank, at least 1.
    pub rank: usize,
    /// Factor on what the pair adds: `alpha / rank` as a rule.
    pub scale: f32,
    /// A, `[rank, in]`.
    pub a: Vec<f32>,
    /// B transposed, `[rank, out]`: a rank's column of B is contiguous.
    pub b: Vec<f32>,
}

/// On which rows an adapter is trained and used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdapterRows {
    /// On every row.
    All,
    /// From the last token of the generation prompt of a reply onwards, in that reply only.
    Reply,
    /// From the first token of the last occurrence of these tokens onwards (activated LoRA of the field).
    Invocation(Vec<u32>),
}

impl AdapterRows {
    /// The first row that names the adapter where `prompt` is followed by a reply; `None` where no row does, because the
    /// invocation does not occur.
    pub fn first_row(&self, prompt: &[u32]) -> Option<usize> {
        match self {
            AdapterRows::All => Some(0),
            AdapterRows::Reply => prompt.len().checked_sub(1),
            AdapterRows::Invocation(invocation) => last_occurrence(prompt, invocation),
        }
    }
}

/// Where `wanted` begins in `tokens` for the last time.
fn last_occurrence(tokens: &[u32], wanted: &[u32]) -> Option<usize> {
    match wanted.len() {
        0 => None,
        count => tokens.windows(count).rposition(|window| window == wanted),
    }
}

/// Largest rank of a new adapter.
const RANK_MAX: usize = 1 << 16;

impl Adapter {
    /// A new adapter at `sites` (indices into [`Model::sites`], any order, repeats count once) that adds nothing yet:
    /// A uniform in ±`in^(-1/2)`, B zero, scale `alpha / rank`.
    ///
    /// The same seed gives the same bytes: element `i` of A at site `s` is number `i` of stream `s`. The bound is what
    /// PEFT's initialisation (He et al. 2015 with slope `sqrt(5)`) comes to.
    ///
    /// # Errors
    /// [`ModelError::Setting`] for a rank of 0 or beyond 65,536, an alpha that is 0 or not finite, or no sites.
    ///
    /// # Panics
    /// If a site is not one of the model's.
    pub fn fresh(
        model: &Model,
        sites: &[usize],
        rank: usize,
        alpha: f32,
        rows: AdapterRows,
        seed: u64,
    ) -> Result<Adapter, ModelError> {
        let wrong = |name, expected: &str, found: String| {
            Err(ModelError::Setting { name, expected: expected.to_owned(), found })
        };
        if !(1..=RANK_MAX).contains(&rank) {
            return wrong("rank", &format!("1 to {RANK_MAX}"), rank.to_string());
        }
        if alpha == 0.0 || !alpha.is_finite() {
            return wrong("alpha", "a finite number other than 0", alpha.to_string());
        }
        if sites.is_empty() {
            return wrong("targets", "at least one", "none".to_owned());
        }
        let random = Philox::new(seed);
        let scale = (f64::from(alpha) / rank as f64) as f32;
        let mut sites = sites.to_vec();
        sites.sort_unstable();
        sites.dedup();
        let pairs = sites.into_iter().map(|index| {
            let site = &model.sites()[index];
            let bound = (1.0 / (site.input as f64).sqrt()) as f32;
            let number = |element| (2.0 * random.uniform(index as u32, element, 0) - 1.0) * bound;
            let a = (0..(rank * site.input) as u64).map(number).collect();
            Pair { site: index, rank, scale, a, b: vec![0.0; rank * site.output] }
        });
        Ok(Adapter { pairs: pairs.collect(), rows })
    }

    /// The largest rank of its pairs.
    pub fn rank(&self) -> usize {
        self.pairs.iter().map(|pair| pair.rank).max().unwrap_or(0)
    }

    /// The sites of its pairs, ascending.
    pub fn sites(&self) -> Vec<usize> {
        self.pairs.iter().map(|pair| pair.site).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_before_a_reply() {
        let check = |rows: AdapterRows, prompt: &[u32], expected| {
            assert_eq!(rows.first_row(prompt), expected, "{rows:?} {prompt:?}");
        };
        check(AdapterRows::All, &[1, 2, 3], Some(0));
        check(AdapterRows::Reply, &[1, 2, 3], Some(2));
        check(AdapterRows::Reply, &[], None);
        let invocation = |tokens: &[u32]| AdapterRows::Invocation(tokens.to_vec());
        check(invocation(&[1, 2]), &[1, 2, 3, 1, 2], Some(3));
        check(invocation(&[1, 1]), &[1, 1, 1], Some(1));
        check(invocation(&[2, 1]), &[1, 2], None);
        check(invocation(&[1, 2]), &[1], None);
        check(invocation(&[]), &[1], None);
    }
}
