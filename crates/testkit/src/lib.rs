//! What the tests of the workspace are made with: graphs from the cases of ops, differences, bounds, mutants, random
//! graphs and tiny model files.
//!
//! Invariants: nothing here ships; every random thing comes from a seed that a failure prints.

pub mod blocks;
pub mod case_graph;
pub mod difference;
pub mod filled;
pub mod random;
