//! What a check asks of its caller: models and engines. The caller chooses backend, numerics and cache type.

use std::path::Path;

use apprentice_engine::Engine;
use apprentice_models::Model;

use crate::bounds::ArchsBounds;
use crate::error::CheckError;

/// Builds what is checked.
pub trait Bench {
    /// Opens a model file.
    fn open(&self, path: &Path) -> Result<Model, CheckError>;
    /// An engine with one sequence of `context` positions over a model.
    fn engine(&self, model: Model, context: usize) -> Result<Engine, CheckError>;
    /// What the tiny families must hold on these engines.
    fn archs_bounds(&self) -> ArchsBounds;
}
