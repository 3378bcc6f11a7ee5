//! `example.json` and `example_reply.json`: the gradient of a real model's example, and ten steps along it.

use std::path::{Path, PathBuf};

use apprentice_engine::{Engine, LearnerOptions};
use apprentice_models::adapter_file::{self, ReadOptions};
use apprentice_models::{Adapter, AdapterNaming, Model, Pair};

use crate::bounds;
use crate::compare::{PairsComparison, compare_pairs, worse};
use crate::error::CheckError;
use crate::example::Example;
use crate::golden::{ADAPTER, EXAMPLE, EXAMPLE_REPLY, FINAL, GRADIENT, GRADIENT_REPLY, not_run, tensor_name};
use crate::rehearsal::Rehearsal;
use crate::report::{Figure, Row, Verdict};

/// What the steps of an example gave.
struct Trained {
    /// Loss before each step, and after the last.
    losses: Vec<f64>,
    /// Before the first step.
    gradient: Vec<Pair>,
    /// After the last.
    adapter: Adapter,
}

/// The parts `gradient`, `losses` and `final`.
pub(super) fn training_rows(
    engine: &mut Engine,
    folder: &Path,
    example: &Example,
) -> Result<Vec<Row>, CheckError> {
    let Some(adapter) = initial(engine.model(), folder, example)? else {
        return Ok(["gradient", "losses", "final"].map(|part| not_run(part, ADAPTER)).to_vec());
    };
    let (gradient, after) = (present(folder, GRADIENT), present(folder, FINAL));
    let steps = if after.is_some() || !example.losses.is_empty() { steps(folder, example)? } else { 0 };
    let trained = train(engine, example, &adapter, steps)?;
    Ok(vec![
        match gradient {
            Some(path) => gradient_row("gradient", engine.model(), &path, &trained.gradient, None)?,
            None => not_run("gradient", GRADIENT),
        },
        match example.losses.is_empty() {
            true => Row::without("losses", Verdict::NotRun, format!("{EXAMPLE} lists none")),
            false => {
                let base = example.base_loss.map(|_| base_loss(engine, example, &adapter)).transpose()?;
                losses_row(example, &trained.losses, base)
            }
        },
        match after {
            Some(path) => final_row(engine.model(), &path, &trained.adapter)?,
            None => not_run("final", FINAL),
        },
    ])
}

/// The part `reply`.
pub(super) fn reply_row(engine: &mut Engine, folder: &Path, example: &Example) -> Result<Row, CheckError> {
    let Some(path) = present(folder, GRADIENT_REPLY) else { return Ok(not_run("reply", GRADIENT_REPLY)) };
    let Some(adapter) = initial(engine.model(), folder, example)? else {
        return Ok(not_run("reply", ADAPTER));
    };
    let Some(expected) = example.losses.first() else {
        return Ok(Row::without("reply", Verdict::NotRun, format!("{EXAMPLE_REPLY} lists no loss")));
    };
    let trained = train(engine, example, &adapter, 0)?;
    let difference = (trained.losses[0] - expected).abs();
    gradient_row("reply", engine.model(), &path, &trained.gradient, Some(difference))
}

/// The adapter that the example begins with.
fn initial(model: &Model, folder: &Path, example: &Example) -> Result<Option<Adapter>, CheckError> {
    let Some(path) = present(folder, ADAPTER) else { return Ok(None) };
    let options = ReadOptions { alpha: example.alpha, ..ReadOptions::default() };
    let (adapter, _) = adapter_file::read(model, &path, &options).map_err(CheckError::adapter)?;
    Ok(Some(adapter))
}

/// How many steps the files are about.
fn steps(folder: &Path, example: &Example) -> Result<usize, CheckError> {
    let listed = example.losses.len();
    match example.steps {
        None => Ok(listed),
        Some(steps) if steps == listed || listed == 0 => Ok(steps),
        Some(steps) => {
            let (expected, found) = (format!("{steps} losses, one a step"), listed.to_string());
            Err(CheckError::Content { path: folder.join(EXAMPLE), expected, found })
        }
    }
}

fn train(
    engine: &mut Engine,
    example: &Example,
    adapter: &Adapter,
    steps: usize,
) -> Result<Trained, CheckError> {
    let options = example.learner_options(LearnerOptions { clip_norm: None, ..LearnerOptions::default() });
    let mut learner = engine.start_learner(adapter, options)?;
    let rehearsal = Rehearsal::new(engine, example)?;
    let spans = rehearsal.spans();
    let mut losses = vec![engine.gradients(&mut learner, &spans)?.loss];
    let gradient = engine.read_gradients(&learner)?;
    for _ in 0..steps {
        engine.update(&mut learner)?;
        losses.push(engine.gradients(&mut learner, &spans)?.loss);
    }
    let adapter = engine.learnt(&learner)?;
    engine.end_learner(learner);
    rehearsal.end(engine)?;
    Ok(Trained { losses, gradient, adapter })
}

/// The loss with an adapter that adds nothing.
fn base_loss(engine: &mut Engine, example: &Example, adapter: &Adapter) -> Result<f64, CheckError> {
    let mut nothing = adapter.clone();
    for pair in &mut nothing.pairs {
        pair.b.fill(0.0);
    }
    Ok(train(engine, example, &nothing, 0)?.losses[0])
}

fn gradient_row(
    part: &str,
    model: &Model,
    path: &Path,
    own: &[Pair],
    loss: Option<f64>,
) -> Result<Row, CheckError> {
    let found = compare(model, path, own)?;
    let mut figures: Vec<Figure> =
        loss.map(|loss| Figure::at_most("loss", loss, bounds::LOSS)).into_iter().collect();
    figures.push(Figure::at_most("worst tensor", found.relative.0, bounds::GRADIENT));
    figures.push(Figure::at_most("absent or zero", found.absent.len() as f64, bounds::ABSENT));
    Ok(Row::measured(part, figures, note(&found, &found.relative.1)))
}

fn losses_row(example: &Example, found: &[f64], base: Option<f64>) -> Row {
    let listed = example.losses.iter().chain(&example.loss_after).zip(found);
    let base = example.base_loss.iter().zip(&base);
    let differences = listed.chain(base).map(|(listed, found)| (listed - found).abs());
    let largest = differences.fold(0.0, |largest, found| if worse(found, largest) { found } else { largest });
    let last = found.last().copied().unwrap_or(f64::NAN);
    let note = format!("{} steps, from {:.6} to {last:.6}", found.len() - 1, found[0]);
    Row::measured("losses", vec![Figure::at_most("largest difference", largest, bounds::LOSS)], note)
}

fn final_row(model: &Model, path: &Path, adapter: &Adapter) -> Result<Row, CheckError> {
    let found = compare(model, path, &adapter.pairs)?;
    let figures = vec![
        Figure::at_least("worst cosine", found.cosine.0, bounds::FINAL_COSINE),
        Figure::at_most("absent or zero", found.absent.len() as f64, bounds::ABSENT),
    ];
    Ok(Row::measured("final", figures, note(&found, &found.cosine.1)))
}

/// Our matrices against those of a file, which are read as an adapter is: by names, shapes and row order.
fn compare(model: &Model, path: &Path, own: &[Pair]) -> Result<PairsComparison, CheckError> {
    // A scale is no part of what is compared.
    let options = ReadOptions { alpha: Some(1.0), ..ReadOptions::default() };
    let (reference, naming): (Adapter, AdapterNaming) =
        adapter_file::read(model, path, &options).map_err(CheckError::adapter)?;
    Ok(compare_pairs(own, &reference.pairs, &[], |site, half| tensor_name(&naming, site, half)))
}

fn note(found: &PairsComparison, worst: &str) -> String {
    match found.absent.first() {
        Some(first) => format!("absent or zero: {first}"),
        None => format!("{} tensors, worst {worst}", found.tensors),
    }
}

fn present(folder: &Path, name: &str) -> Option<PathBuf> {
    Some(folder.join(name)).filter(|path| path.exists())
}
