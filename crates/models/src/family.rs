//! A family: its name, its tensor table, how its hyper-parameters are read and how a block reads as a graph.

use apprentice_gguf::Gguf;
use apprentice_graph::Value;
use apprentice_graph::ops::Pairing;

use crate::error::ModelError;
use crate::forward::Forward;
use crate::hyper::Hyper;
use crate::table::TensorRow;

/// A model family.
pub struct Family {
    /// `general.architecture`.
    pub architecture: &'static str,
    /// Every tensor that a file of the family may have.
    pub tensors: &'static [TensorRow],
    /// Which channels of a head rotate together, in the file's row order.
    pub pairing: Pairing,
    /// Reads and checks the hyper-parameters.
    pub hyper: fn(&Gguf) -> Result<Hyper, ModelError>,
    /// Block `layer` of the forward pass: `x [rows, width]` -> `[rows, width]`.
    pub block: for<'g> fn(&Forward<'g>, usize, Value<'g>) -> Value<'g>,
}
