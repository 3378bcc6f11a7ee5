//! A slow plain program for the bytes of the engine: one number at a time, in the orders of `docs/numerics.md`, which it
//! is written from. It shares no arithmetic with the kernels, with the meaning of the ops or with the decoders of blocks;
//! what a file says (sizes, tensors, adapters) it takes from `models` as data.
//!
//! A row never looks at another but through keys and values, so here a prompt is never cut and there are no neighbours:
//! whatever batches an engine makes, its bytes are these. Where the file has norms after attention and feed-forward, the
//! gate is GELU, else SiLU.

mod attention;
mod backward;
pub mod format;
mod forward;
mod learning;
pub mod q8;
mod rows;
pub mod scalar;
mod weights;
pub mod wide;

use apprentice_models::{Adapter, Model};

pub use learning::{Gradients, Span, Trainer};
use rows::Rows;
use weights::Weights;

/// What products take activations as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numerics {
    /// As they are.
    F32,
    /// Rounded to eight bits, where the weight is in blocks of integers.
    Q8,
}

/// What pages keep of keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// Everything.
    F32,
    /// The nearest float16.
    F16,
    /// Eight bits a number, with a float16 scale for 32.
    Q8_0,
}

/// A model that is emulated.
pub struct Emulator<'m> {
    model: &'m Model,
    weights: Weights<'m>,
    pages: Pages,
    segment: usize,
    frequencies: Vec<Vec<f64>>,
}

/// The keys and values of a sequence, as pages keep them: for each layer `[positions, kv_heads * dim]`.
#[derive(Clone, Debug)]
pub struct Sequence {
    keys: Vec<Rows>,
    values: Vec<Rows>,
    positions: usize,
}

impl<'m> Emulator<'m> {
    /// `segment`: keys that attention folds into one running sum.
    pub fn new(model: &'m Model, numerics: Numerics, pages: Pages, segment: usize) -> Emulator<'m> {
        let weights = Weights::new(model, numerics);
        let hyper = model.hyper();
        let divisors = weights.vector("rope_freqs.weight");
        let frequency = |base: f64, divisor: f64, pair: usize| {
            let power = wide::pow(base, -2.0 * pair as f64 / hyper.rope_dims as f64);
            power / divisor / divisors.as_ref().map_or(1.0, |divisors| f64::from(divisors[pair]))
        };
        let table = |rope: &apprentice_models::Rope| {
            (0..hyper.rope_dims / 2).map(|pair| frequency(rope.base, rope.divisor, pair)).collect()
        };
        let frequencies = hyper.ropes.iter().map(table).collect();
        Emulator { model, weights, pages, segment, frequencies }
    }

    /// A sequence without positions.
    pub fn sequence(&self) -> Sequence {
        let hyper = self.model.hyper();
        let empty = |dim: usize| vec![Rows { width: hyper.kv_heads * dim, values: Vec::new() }; hyper.layers];
        Sequence { keys: empty(hyper.head_dim), values: empty(hyper.value_dim), positions: 0 }
    }

    /// Logits `[tokens, vocab]` of more tokens of a sequence; positions from the given one on name the adapter.
    pub fn logits(
        &self,
        sequence: &mut Sequence,
        tokens: &[u32],
        named: Option<(&Adapter, usize)>,
    ) -> Vec<f32> {
        let first = sequence.positions;
        let name = |position: usize| named.filter(|(_, from)| position >= *from).map(|(adapter, _)| adapter);
        let named: Vec<Option<&Adapter>> = (first..first + tokens.len()).map(name).collect();
        let (x, _) = self.blocks(sequence, tokens, &named);
        self.head(&x, &named).1.values
    }

    /// Rows of activations that products took rounded so far. A comparison under [`Numerics::Q8`] where there were none
    /// compares nothing.
    pub fn rounded_rows(&self) -> u64 {
        self.weights.rounded_rows()
    }
}
