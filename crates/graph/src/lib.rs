//! The graph: what a model computes, as plain data, and everything that is said about it without running a kernel:
//! shapes, gradients, checks, text, a memory plan, and the float64 meaning of every op.
//!
//! Invariants: nothing here knows a model family or a backend; outside `oracle` functions and the interpreter nothing
//! computes with numbers; a finished [`Graph`] is plain data, `Send + Sync`, and has passed [`verify`].
#![forbid(unsafe_code)]

mod array;
mod backend;
mod build;
mod error;
mod graph;
mod ids;
mod interpret;
mod op;
pub mod ops;
mod parse;
mod plan;
mod print;
mod prune;
pub mod real;
mod types;
mod verify;
mod vjp;

pub use apprentice_quant::{ErrorKind, Format};
pub use array::Array;
pub use backend::{
    Arena, Backend, BackendError, Bound, Bytes, Need, ProgramId, Resident, StoreId, Support, Weight, WeightId,
};
pub use build::{Builder, Value};
pub use error::GraphError;
pub use graph::{Binding, BindingKind, Effect, Graph, Node, Origin, Output, ValueData};
pub use ids::{NodeId, ValueId};
pub use interpret::{Interpreter, evaluate};
pub use op::{AnyCase, Case, Cost, Fill, Given, Input, Op, Refusal, Storage, Tolerance, Vjp};
pub use ops::AnyOp;
pub use parse::{ParseError, parse};
pub use plan::{Plan, plan};
pub use prune::prune;
pub use types::{Element, Extent, Extents, LAYER_GROUPS_MAX, PAGE_BLOCK, Shape, ShapeError, Type};
pub use verify::{Violation, verify};
pub use vjp::{Gradient, Target, differentiate, differentiate_onto};
