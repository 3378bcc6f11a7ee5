//! A checkpoint: all that the rest of a run depends on, in one file that is there whole or not at all.
//!
//! A safetensors file. Tensors `NAME`, `NAME.moment` and `NAME.square`, float32, for each trained matrix; one metadata key,
//! [`KEY`], whose JSON holds the number of steps, the powers of the optimiser, what the run has seen, the time that chat
//! templates write, and the settings that a run must have to go on from it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use apprentice_engine::{Engine, LearnerState, MatrixState};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde::{Deserialize, Serialize};

use crate::error::{CheckpointError, TrainError};
use crate::files;
use crate::settings::Settings;
use crate::trainer::{History, Trainer};

/// Settings by name, as a run must have them to go on from a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Identity(pub Vec<(String, String)>);

/// What the rest of a run depends on.
#[derive(Clone, PartialEq, Debug)]
pub struct Checkpoint {
    /// The learner.
    pub state: LearnerState,
    /// What the run has seen.
    pub history: History,
    /// What it must be the same in.
    pub identity: Identity,
    /// The time that a chat template writes, in seconds since 1970-01-01 UTC.
    pub unix_seconds: u64,
}

/// Metadata key of everything but the tensors.
const KEY: &str = "apprentice.checkpoint";
/// Version of the format.
const VERSION: u32 = 1;
/// Largest file that is read, in bytes.
const BYTES_MAX: u64 = 64 << 30;
/// Ends of tensor names, in the order of a matrix's parts.
const PARTS: [&str; 3] = ["", ".moment", ".square"];

/// The JSON of [`KEY`].
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    steps: u64,
    powers: (f64, f64),
    unix_seconds: u64,
    history: History,
    identity: Identity,
}

impl Identity {
    /// Adds a setting.
    pub fn with(mut self, name: &str, value: impl ToString) -> Identity {
        self.0.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds the settings of a run.
    pub fn with_settings(self, settings: &Settings) -> Identity {
        let Settings { objective, epochs, batch, accumulate, warmup, seed, optimizer } = *settings;
        let clip = optimizer.clip_norm.map_or_else(|| "none".to_owned(), |norm| norm.to_string());
        self.with("objective", format!("{objective:?}").to_lowercase())
            .with("epochs", epochs)
            .with("samples a step", batch.saturating_mul(accumulate))
            .with("warmup", warmup.map_or_else(|| "a part".to_owned(), |steps| steps.to_string()))
            .with("seed", seed)
            .with("lr", optimizer.learning_rate)
            .with("betas", format!("{:?}", optimizer.betas))
            .with("eps", optimizer.eps)
            .with("weight-decay", optimizer.weight_decay)
            .with("clip", clip)
    }

    /// Refuses a run that differs in a setting.
    fn check(&self, of_run: &Identity) -> Result<(), CheckpointError> {
        let nothing = (String::new(), "nothing".to_owned());
        for index in 0..self.0.len().max(of_run.0.len()) {
            let expected = self.0.get(index).unwrap_or(&nothing);
            let found = of_run.0.get(index).unwrap_or(&nothing);
            if expected != found {
                let name = if found.0.is_empty() { &expected.0 } else { &found.0 };
                let value = |side: &(String, String)| match side.0 == *name {
                    true => side.1.clone(),
                    false => "nothing".to_owned(),
                };
                let (expected, found) = (value(expected), value(found));
                return Err(CheckpointError::Other { name: name.clone(), expected, found });
            }
        }
        Ok(())
    }
}

impl Checkpoint {
    /// Of a run as it stands.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn take(
        engine: &Engine,
        trainer: &Trainer<'_>,
        identity: Identity,
        unix_seconds: u64,
    ) -> Result<Checkpoint, TrainError> {
        let state = engine.learner_state(trainer.learner())?;
        Ok(Checkpoint { state, history: trainer.history().clone(), identity, unix_seconds })
    }

    /// Refuses a run of other settings than the one that was stopped.
    ///
    /// # Errors
    /// [`CheckpointError::Other`], by the first setting that differs.
    pub fn check(&self, path: &Path, of_run: &Identity) -> Result<(), TrainError> {
        let checked = self.identity.check(of_run);
        checked.map_err(|error| TrainError::Checkpoint { path: path.to_owned(), error })
    }

    /// Writes it in place of what was there.
    ///
    /// # Errors
    /// What the system says; the old file is untouched then.
    pub fn write(&self, path: &Path) -> Result<(), TrainError> {
        let bytes =
            self.to_bytes().map_err(|error| TrainError::Checkpoint { path: path.to_owned(), error })?;
        files::write(path, &bytes).map_err(|error| TrainError::file(path, error))
    }

    /// Reads one.
    ///
    /// # Errors
    /// A file that cannot be read, or is no checkpoint.
    pub fn read(path: &Path) -> Result<Checkpoint, TrainError> {
        let found = fs::metadata(path).map_err(|error| TrainError::file(path, error))?.len();
        if found > BYTES_MAX {
            return Err(TrainError::Size { path: path.to_owned(), found, limit: BYTES_MAX });
        }
        let bytes = fs::read(path).map_err(|error| TrainError::file(path, error))?;
        Checkpoint::from_bytes(&bytes)
            .map_err(|error| TrainError::Checkpoint { path: path.to_owned(), error })
    }

    /// The file's bytes. The same checkpoint gives the same.
    ///
    /// # Errors
    /// A bug in the format's writer.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CheckpointError> {
        let header = Header {
            version: VERSION,
            steps: self.state.steps,
            powers: self.state.powers,
            unix_seconds: self.unix_seconds,
            history: self.history.clone(),
            identity: self.identity.clone(),
        };
        let header = serde_json::to_string(&header).map_err(format)?;
        let mut laid: Vec<(String, Vec<u8>)> = Vec::with_capacity(3 * self.state.matrices.len());
        for matrix in &self.state.matrices {
            for (end, values) in PARTS.iter().zip([&matrix.parameter, &matrix.moment, &matrix.square]) {
                let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                laid.push((format!("{}{end}", matrix.name), bytes));
            }
        }
        let views = laid.iter().map(|(name, bytes)| {
            Ok((
                name,
                TensorView::new(Dtype::F32, vec![bytes.len() / size_of::<f32>()], bytes).map_err(format)?,
            ))
        });
        let views = views.collect::<Result<Vec<_>, CheckpointError>>()?;
        serialize(views, Some(HashMap::from([(KEY.to_owned(), header)]))).map_err(format)
    }

    /// A checkpoint of a file's bytes.
    ///
    /// # Errors
    /// [`CheckpointError::Format`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Checkpoint, CheckpointError> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(format)?;
        let header = metadata.metadata().as_ref().and_then(|entries| entries.get(KEY));
        let header = header.ok_or_else(|| format(format!("the metadata has no {KEY}")))?;
        let header: Header = serde_json::from_str(header).map_err(format)?;
        if header.version != VERSION {
            return Err(format(format!("version {}, expected {VERSION}", header.version)));
        }
        let parsed = SafeTensors::deserialize(bytes).map_err(format)?;
        let mut names: Vec<String> = parsed
            .names()
            .into_iter()
            .filter(|name| !PARTS[1..].iter().any(|end| name.ends_with(end)))
            .map(ToString::to_string)
            .collect();
        names.sort_unstable();
        let values = |name: &str| {
            let view = parsed.tensor(name).map_err(format)?;
            if view.dtype() != Dtype::F32 {
                return Err(format(format!("tensor {name:?}: expected float32, found {:?}", view.dtype())));
            }
            let (floats, _) = view.data().as_chunks::<4>();
            Ok(floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect::<Vec<f32>>())
        };
        let matrices = names.into_iter().map(|name| {
            let [parameter, moment, square] = PARTS.map(|end| values(&format!("{name}{end}")));
            Ok(MatrixState { parameter: parameter?, moment: moment?, square: square?, name })
        });
        let state = LearnerState {
            matrices: matrices.collect::<Result<Vec<_>, CheckpointError>>()?,
            steps: header.steps,
            powers: header.powers,
        };
        let (history, identity) = (header.history, header.identity);
        Ok(Checkpoint { state, history, identity, unix_seconds: header.unix_seconds })
    }
}

fn format(reason: impl ToString) -> CheckpointError {
    CheckpointError::Format { reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        let matrix = |name: &str, first: f32| MatrixState {
            name: name.to_owned(),
            parameter: vec![first, -0.0, f32::MIN_POSITIVE / 4.0],
            moment: vec![0.1, 0.2, 0.3],
            square: vec![1e-38, 3e38, 0.0],
        };
        Checkpoint {
            state: LearnerState {
                matrices: vec![matrix("blk.0.x.lora_a", 1.5), matrix("blk.0.x.lora_b", -2.5)],
                steps: 2,
                powers: (0.9 * 0.9, 0.999 * 0.999),
            },
            history: History { losses: vec![1.0 / 3.0, 0.1 + 0.2], evaluations: vec![(0, 2.0f64.sqrt())] },
            identity: Identity::default().with("lr", 2e-4).with("seed", 1),
            unix_seconds: 1_700_000_000,
        }
    }

    #[test]
    fn what_was_written_is_read_to_the_bit() {
        let expected = checkpoint();
        let bytes = expected.to_bytes().unwrap();
        let found = Checkpoint::from_bytes(&bytes).unwrap();
        assert_eq!(found, expected);
        assert!(found.state.matrices[0].parameter[1].is_sign_negative());
        assert_eq!(found.to_bytes().unwrap(), bytes);
    }

    #[test]
    fn files_that_are_no_checkpoints() {
        let bytes = checkpoint().to_bytes().unwrap();
        for length in (0..bytes.len()).step_by(7) {
            assert!(Checkpoint::from_bytes(&bytes[..length]).is_err(), "{length} bytes");
        }
        let other = bytes.iter().map(|byte| if *byte == b'v' { b'w' } else { *byte }).collect::<Vec<_>>();
        assert!(Checkpoint::from_bytes(&other).is_err(), "other keys");
        let plain = serialize(Vec::<(&str, TensorView<'_>)>::new(), None).unwrap();
        let error = Checkpoint::from_bytes(&plain).unwrap_err().to_string();
        assert_eq!(error, "no checkpoint: the metadata has no apprentice.checkpoint");
    }

    #[test]
    fn a_run_of_other_settings_is_named() {
        let path = Path::new("c");
        let check = |identity: Identity, expected: Option<&str>| {
            let found = checkpoint().check(path, &identity).err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), expected);
        };
        let plain = || Identity::default().with("lr", 2e-4);
        check(plain().with("seed", 1), None);
        check(plain().with("seed", 2), Some("c: seed: the run that was stopped has 1, this one 2"));
        check(plain(), Some("c: seed: the run that was stopped has 1, this one nothing"));
        let more = plain().with("seed", 1).with("rank", 8);
        check(more, Some("c: rank: the run that was stopped has nothing, this one 8"));
    }
}
