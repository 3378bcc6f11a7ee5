//! Folders of tiny families: `NAME.gguf` with `NAME.json`, `NAME.logits.npy`, `NAME.adapter.safetensors` and
//! `NAME.grads.safetensors`. A row a family: logits without the adapter, loss and gradient with it.

use std::path::{Path, PathBuf};

use apprentice_engine::{Engine, LearnerOptions, Named};
use apprentice_graph::ErrorKind;
use apprentice_models::Model;
use apprentice_models::adapter_file::{self, ReadOptions};
use serde::Deserialize;

use crate::bench::Bench;
use crate::bounds::{self, ArchsBounds};
use crate::compare::{PairsComparison, Sums, compare_pairs};
use crate::error::CheckError;
use crate::example::Example;
use crate::files;
use crate::golden::{check_context, tensor_name};
use crate::logits::logits_at;
use crate::npy::Npy;
use crate::rehearsal::Rehearsal;
use crate::report::{Figure, Report, Row, Verdict};

/// Runs every model of `folder` and of its folder `extra`. A family that is not built is listed as such.
///
/// # Errors
/// A folder without models; files that are missing or not what they should be.
pub fn archs(bench: &dyn Bench, folder: &Path) -> Result<Report, CheckError> {
    let mut paths = files::with_extension(folder, "gguf")?;
    paths.extend(files::with_extension(&folder.join("extra"), "gguf")?);
    if paths.is_empty() {
        return Err(CheckError::Nothing {
            path: folder.to_owned(),
            expected: "models NAME.gguf with NAME.json",
        });
    }
    let rows = paths.iter().map(|path| family_row(bench, path)).collect::<Result<Vec<_>, _>>()?;
    Ok(Report { rows })
}

/// What `NAME.json` says beside the training example.
#[derive(Deserialize)]
struct Notes {
    rows: Vec<usize>,
    loss: f64,
    #[serde(default)]
    zero_gradient: Vec<String>,
}

fn family_row(bench: &dyn Bench, path: &Path) -> Result<Row, CheckError> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let model = match bench.open(path) {
        Err(CheckError::Model { error, .. }) if error.kind() == ErrorKind::Unsupported => {
            return Ok(Row::without(name, Verdict::NotBuilt, error.to_string()));
        }
        model => model?,
    };
    let json = path.with_extension("json");
    let (example, notes) = (Example::read(&json)?, files::json::<Notes>(&json)?);
    check_context(&json, &model, example.tokens.len())?;
    let mut engine = bench.engine(model, example.tokens.len())?;
    let logits = compare_logits(&mut engine, path, &json, &example, &notes)?;
    let (loss, gradient) = compare_gradient(&mut engine, path, &json, &example, &notes)?;
    Ok(Row::measured(
        name,
        figures(&bench.archs_bounds(), &logits, loss - notes.loss, &gradient),
        note(&gradient),
    ))
}

fn figures(bounds: &ArchsBounds, logits: &Sums, loss: f64, gradient: &PairsComparison) -> Vec<Figure> {
    vec![
        Figure::at_most("logits", logits.nmse(), bounds.logits),
        Figure::at_most("loss", loss.abs(), bounds::LOSS),
        Figure::at_most("gradient", gradient.nmse, bounds.gradient),
        Figure::at_most("worst tensor", gradient.relative.0, bounds.tensor),
        Figure::at_most("absent or zero", gradient.absent.len() as f64, bounds::ABSENT),
    ]
}

fn note(gradient: &PairsComparison) -> String {
    match gradient.absent.first() {
        Some(first) => format!("absent or zero: {first}"),
        None => format!("{} tensors, worst {}", gradient.tensors, gradient.relative.1),
    }
}

fn compare_logits(
    engine: &mut Engine,
    path: &Path,
    json: &Path,
    example: &Example,
    notes: &Notes,
) -> Result<Sums, CheckError> {
    let array = beside(path, "logits.npy");
    let reference =
        Npy::parse(&files::bytes(&array)?).map_err(|error| CheckError::Npy { path: array.clone(), error })?;
    let vocab = engine.model().hyper().vocab;
    let ascending = notes.rows.windows(2).all(|pair| pair[0] < pair[1]);
    if !ascending || notes.rows.last().is_none_or(|last| *last >= example.tokens.len()) {
        let expected = format!("rows that ascend below {}", example.tokens.len());
        return Err(CheckError::Content {
            path: json.to_owned(),
            expected,
            found: format!("{:?}", notes.rows),
        });
    }
    if reference.shape != [notes.rows.len(), vocab] {
        let (expected, found) =
            (format!("{:?}", [notes.rows.len(), vocab]), format!("{:?}", reference.shape));
        return Err(CheckError::Content { path: array, expected, found });
    }
    let mut sums = Sums::default();
    logits_at(engine, &example.tokens, Named::Nothing, &notes.rows, |index, logits| {
        sums = sums.with(Sums::of(logits, &reference.values[index * vocab..(index + 1) * vocab]));
    })?;
    Ok(sums)
}

/// The loss, and the gradients against the file's.
fn compare_gradient(
    engine: &mut Engine,
    path: &Path,
    json: &Path,
    example: &Example,
    notes: &Notes,
) -> Result<(f64, PairsComparison), CheckError> {
    let Some(alpha) = example.alpha else {
        let (expected, found) = ("lora.alpha".to_owned(), "none".to_owned());
        return Err(CheckError::Content { path: json.to_owned(), expected, found });
    };
    let read = |model: &Model, end: &str| {
        let options = ReadOptions { alpha: Some(alpha), ..ReadOptions::default() };
        adapter_file::read(model, &beside(path, end), &options).map_err(CheckError::adapter)
    };
    let (adapter, _) = read(engine.model(), "adapter.safetensors")?;
    let (reference, naming) = read(engine.model(), "grads.safetensors")?;
    let mut learner = engine.start_learner(&adapter, LearnerOptions::default())?;
    let rehearsal = Rehearsal::new(engine, example)?;
    let found = engine.gradients(&mut learner, &rehearsal.spans())?;
    let own = engine.read_gradients(&learner)?;
    engine.end_learner(learner);
    rehearsal.end(engine)?;
    let name = |site, half| tensor_name(&naming, site, half);
    Ok((found.loss, compare_pairs(&own, &reference.pairs, &notes.zero_gradient, name)))
}

/// `NAME.gguf` with another end.
fn beside(path: &Path, end: &str) -> PathBuf {
    path.with_extension(end)
}
