//! `apprentice logits`: the logits of every token of a text, float32 `[rows, vocabulary]`, as a NumPy array.
//!
//! A piece of rows at a time goes from the engine to the file, so memory does not grow with the text.

use std::path::PathBuf;
use std::sync::Arc;

use apprentice_check::npy_header;
use apprentice_engine::{Engine, Named, Outputs, Run, SequenceId};
use clap::Args;

use crate::backend::{Cache, RunArgs};
use crate::commands::prompt::PromptArgs;
use crate::exit::{Failure, Outcome};
use crate::files::{NewFile, apart};
use crate::setup::{ModelArgs, context, named, read_adapter};

/// Rows whose logits are held at a time.
const ROWS_HELD: usize = 64;

/// Write the logits of every token of a text.
#[derive(Args)]
pub struct LogitsCommand {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Adapter: a PEFT folder, a GGUF file, or safetensors.
    #[arg(long, value_name = "FILE|DIR")]
    adapter: Option<PathBuf>,
    /// Alpha of the adapter, in place of what its file says.
    #[arg(long, requires = "adapter")]
    alpha: Option<f32>,
    /// Position of a reply's first token: rows from the one before it onwards name the adapter.
    #[arg(long, value_name = "P", requires = "adapter")]
    reply_from: Option<usize>,
    /// Positions at which the text is cut into batches. No byte depends on it.
    #[arg(long, value_delimiter = ',', value_name = "POSITIONS")]
    cut: Vec<usize>,
    /// The array, a file of NumPy's format.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    run: RunArgs,
}

impl LogitsCommand {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Failure> {
        self.run.check()?;
        apart(&[("--model", &self.model.model)], &[("--out", &self.out)])?;
        let model = self.model.open()?;
        let tokens = self.prompt.ids(model.gguf(), &self.model.model)?;
        let positions = context(&model, "the prompt", tokens.len(), 0)?;
        let batches = batches(&self.cut, tokens.len())?;
        let adapter = match &self.adapter {
            Some(path) => Some(read_adapter(&model, path, self.alpha, self.run.force)?.0),
            None => None,
        };
        let mut engine = self.run.exact_engine(model, positions, Cache::F16)?;
        let rows = match adapter {
            Some(adapter) => {
                let adapter = Arc::new(adapter);
                let id = engine.load_adapter(adapter.clone())?;
                named(&adapter.rows, id, &tokens, self.reply_from)?
            }
            None => Named::Nothing,
        };
        check_ids(&engine, &tokens)?;
        let mut file = NewFile::create(&self.out)?;
        file.write(&npy_header(&[tokens.len(), engine.model().hyper().vocab]))?;
        let sequence = engine.open_sequence();
        for batch in batches {
            write_batch(&mut engine, sequence, &tokens[batch], rows, &mut file)?;
        }
        file.finish()?;
        Ok(Outcome::Done)
    }
}

/// A batch goes through in pieces that the head would be cut into anyway.
fn write_batch(
    engine: &mut Engine,
    sequence: SequenceId,
    tokens: &[u32],
    named: Named,
    file: &mut NewFile,
) -> Result<(), Failure> {
    for tokens in tokens.chunks(ROWS_HELD) {
        let logits = engine.logits(&[Run { sequence, tokens, named, outputs: Outputs::All }])?;
        let bytes: Vec<u8> = logits.into_iter().flat_map(f32::to_le_bytes).collect();
        file.write(&bytes)?;
    }
    Ok(())
}

/// Refuses an id outside the vocabulary before a file is begun.
fn check_ids(engine: &Engine, tokens: &[u32]) -> Result<(), Failure> {
    let vocab = engine.model().hyper().vocab;
    match tokens.iter().position(|id| *id as usize >= vocab) {
        Some(index) => {
            let id = tokens[index];
            Err(Failure::input(format!("token {index}: expected an id below {vocab}, found {id}")))
        }
        None => Ok(()),
    }
}

/// `7,20` of 30 tokens: `[0, 7)`, `[7, 20)`, `[20, 30)`.
fn batches(cut: &[usize], tokens: usize) -> Result<Vec<std::ops::Range<usize>>, Failure> {
    if tokens == 0 {
        return Err(Failure::input("the prompt has no tokens"));
    }
    let (mut batches, mut start) = (Vec::new(), 0);
    for position in cut {
        if *position <= start || *position >= tokens {
            let message = format!("--cut {position}: expected positions that ascend between 0 and {tokens}");
            return Err(Failure::input(message));
        }
        batches.push(start..*position);
        start = *position;
    }
    batches.push(start..tokens);
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_borders_of_batches() {
        assert_eq!(batches(&[7, 20], 30).unwrap(), [0..7, 7..20, 20..30]);
        assert_eq!(batches(&[], 3).unwrap(), [Range { start: 0, end: 3 }]);
        for (cut, tokens) in [(&[0][..], 3), (&[3], 3), (&[2, 1], 5), (&[2, 2], 5), (&[], 0)] {
            assert!(batches(cut, tokens).is_err(), "{cut:?} of {tokens}");
        }
    }

    use std::ops::Range;
}
