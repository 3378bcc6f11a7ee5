//! Comparisons with numbers that independent code computed: golden folders, run through whatever engine the caller builds.
//!
//! - [`golden`] runs a folder of a real model: logits, a training example with its steps, an example of `reply`.
//! - [`archs`] runs a folder of tiny models of many families, [`quants`] one of block formats.
//! - [`Example`] and [`Rehearsal`] are a training example and its spans on an engine, for anyone who has one.
//! - [`Report`] is what came out; [`bounds`] says what is good enough, and nothing else does.
//!
//! Invariants: no backend by name (a [`Bench`] builds engines); a figure that is not a number misses every bound; a
//! reference that is zero or missing is a failure, never a pass.
#![forbid(unsafe_code)]

mod archs;
mod bench;
pub mod bounds;
mod compare;
mod error;
mod example;
mod files;
mod golden;
mod logits;
mod npy;
mod quants;
mod rehearsal;
mod report;

pub use apprentice_engine::Objective;
pub use archs::archs;
pub use bench::Bench;
pub use compare::{Half, PairsComparison, Sums, compare_pairs};
pub use error::CheckError;
pub use example::{Example, ExampleError, Optimizer};
pub use files::sha256;
pub use golden::golden;
pub use logits::logits_at;
pub use npy::{Npy, NpyError, npy_header};
pub use quants::quants;
pub use rehearsal::Rehearsal;
pub use report::{Figure, Report, Row, Side, Verdict};
