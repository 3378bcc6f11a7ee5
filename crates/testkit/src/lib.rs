//! What the tests of the workspace are made with: graphs from the cases of ops, differences, bounds, mutants, random
//! graphs, tiny model files, and an emulator that gives the engine's bytes one number at a time.
//!
//! Invariants: nothing here ships; every random thing comes from a seed that a failure prints.

pub mod blocks;
pub mod bound;
pub mod case_graph;
pub mod difference;
pub mod draft;
pub mod emulator;
pub mod filled;
pub mod little_model;
pub mod model_batch;
pub mod mutate;
pub mod random;
pub mod random_graph;
pub mod tiny;
