//! Why a graph could not be built or differentiated.

use apprentice_quant::ErrorKind;

use crate::ids::NodeId;
use crate::op::Refusal;
use crate::types::ShapeError;
use crate::verify::Violation;

/// Why a graph was refused.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum GraphError {
    /// An op refused its inputs.
    #[error("{node} {op} at {site:?}: {reason}")]
    Shape {
        /// The node that would have been added.
        node: NodeId,
        /// Name of its op.
        op: &'static str,
        /// Where in the model.
        site: String,
        /// Why.
        reason: ShapeError,
    },
    /// A binding or output has a name that is taken, with another type.
    #[error("{name:?}: declared twice, as {first} and as {second}")]
    Declared {
        /// The name.
        name: String,
        /// The earlier type.
        first: String,
        /// The later type.
        second: String,
    },
    /// A gradient was asked for through an op that has none.
    #[error("{node} {op} at {site:?}: no gradient: {reason}")]
    NoVjp {
        /// The node.
        node: NodeId,
        /// Name of its op.
        op: &'static str,
        /// Where in the model.
        site: String,
        /// Why.
        reason: Refusal,
    },
    /// A target that no gradient reaches.
    #[error("target {target:?}: no gradient reaches it")]
    Unreached {
        /// Name of the target's binding.
        target: String,
    },
    /// A sum so far that cannot be gone on with.
    #[error("target {target:?}: its sum so far is taken by {readers} ops, expected one")]
    Sum {
        /// Name of the target's binding.
        target: String,
        /// Nodes that begin with it.
        readers: usize,
    },
    /// A sum over rows whose rows have no block table.
    #[error("node at {site:?}: values {ty} have no block table to be summed with")]
    NoBlocks {
        /// Where in the model.
        site: String,
        /// The type of the value.
        ty: String,
    },
    /// The finished graph breaks rules of [`crate::verify()`].
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Violation>),
}

impl GraphError {
    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            GraphError::Shape { .. } | GraphError::Declared { .. } | GraphError::Invalid(_) => {
                ErrorKind::Input
            }
            GraphError::NoVjp { .. } | GraphError::NoBlocks { .. } | GraphError::Sum { .. } => {
                ErrorKind::Unsupported
            }
            GraphError::Unreached { .. } => ErrorKind::Missing,
        }
    }
}
