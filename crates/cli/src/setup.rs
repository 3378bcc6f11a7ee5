//! Models, texts and adapters from files, and which rows of a text name an adapter.

use std::path::{Path, PathBuf};

use apprentice_check::{Bench, CheckError, bounds};
use apprentice_engine::{AdapterId, Engine, Named};
use apprentice_gguf::Gguf;
use apprentice_models::adapter_file::{self, ReadOptions};
use apprentice_models::{Adapter, AdapterNaming, AdapterRows, Model, ModelError};
use clap::Args;

use crate::backend::{BackendName, Cache, RunArgs};
use crate::exit::Failure;

/// The model.
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// Model, a GGUF file.
    #[arg(short, long, value_name = "FILE")]
    pub model: PathBuf,
}

impl ModelArgs {
    /// Opens and accepts it.
    pub fn open(&self) -> Result<Model, Failure> {
        Ok(open_model(&self.model)?)
    }
}

/// Opens and accepts a model.
pub fn open_model(path: &Path) -> Result<Model, CheckError> {
    let opened = Gguf::open(path).map_err(ModelError::from).and_then(Model::open);
    opened.map_err(|error| CheckError::model(path, error))
}

/// Reads an adapter for a model.
pub fn read_adapter(
    model: &Model,
    path: &Path,
    alpha: Option<f32>,
    force: bool,
) -> Result<(Adapter, AdapterNaming), Failure> {
    Ok(adapter_file::read(model, path, &ReadOptions { alpha, force })?)
}

/// Positions that `tokens` of something and `more` need; refused where the tokens alone are more than the model has.
pub fn context(model: &Model, what: &str, tokens: usize, more: usize) -> Result<usize, Failure> {
    let limit = model.hyper().context;
    if tokens > limit {
        return Err(Failure::limit(format!("{what}: {tokens} tokens, the context of the model has {limit}")));
    }
    Ok(tokens.saturating_add(more).min(limit).max(1))
}

/// Which rows of `tokens` name an adapter. `reply_from` is the position of a reply's first token, where one is known.
pub fn named(
    rows: &AdapterRows,
    adapter: AdapterId,
    tokens: &[u32],
    reply_from: Option<usize>,
) -> Result<Named, Failure> {
    let first = match (rows, reply_from) {
        (AdapterRows::All, None) => 0,
        (AdapterRows::Invocation(invocation), None) => rows.first_row(tokens).ok_or_else(|| {
            Failure::input(format!("the adapter's invocation tokens {invocation:?} do not occur in the text"))
        })?,
        (AdapterRows::Reply, None) => {
            let message = "the adapter is for the rows of a reply; --reply-from P says where it begins";
            return Err(Failure::input(message));
        }
        (_, Some(0)) => {
            return Err(Failure::input("--reply-from 0: no row predicts the first token of a text"));
        }
        (_, Some(position)) if position > tokens.len() => {
            let count = tokens.len();
            return Err(Failure::input(format!("--reply-from {position}: the text has {count} tokens")));
        }
        (_, Some(position)) => position - 1,
    };
    Ok(Named::From(first, adapter))
}

/// Engines as flags ask for them.
pub struct FlagBench<'a> {
    /// The flags.
    pub args: &'a RunArgs,
}

impl Bench for FlagBench<'_> {
    fn open(&self, path: &Path) -> Result<Model, CheckError> {
        open_model(path)
    }

    fn engine(&self, model: Model, context: usize) -> Result<Engine, CheckError> {
        self.args.exact_engine(model, context, Cache::F32).map_err(|failure| match failure {
            Failure::Refused { kind, message } => CheckError::Bench { kind, message },
            Failure::OutputClosed => unreachable!("an engine writes no output"),
        })
    }

    fn archs_bounds(&self) -> bounds::ArchsBounds {
        match self.args.backend {
            BackendName::Cpu => bounds::ARCHS_F32,
            BackendName::Interpreter => bounds::ARCHS_MEANING,
        }
    }
}
