//! Runs: cut, stopped and resumed as may be, they give the same bytes.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::cell::Cell;

use apprentice_engine::{Engine, LearnerShape, Numerics, Objective};
use apprentice_models::AdapterRows;
use apprentice_train::{
    Checkpoint, Dataset, Ending, Evaluation, Identity, Log, Observer, Settings, Step, TrainError, Trainer,
    largest_step, train,
};
use common::{Scratch, adapter, bits, conversations, data, engine, settings};

const SAMPLES: usize = 9;

/// Stops where it is told to, after so many looks at whether to stop, and keeps what it hears.
struct Witness {
    looks: Cell<usize>,
    stop_at: Option<usize>,
    log: Log,
    identity: Identity,
    kept: Option<Checkpoint>,
}

impl Witness {
    fn new(log: Log, stop_at: Option<usize>) -> Witness {
        Witness { looks: Cell::new(0), stop_at, log, identity: Identity::default(), kept: None }
    }
}

impl Observer for Witness {
    fn stop(&self) -> bool {
        self.looks.set(self.looks.get() + 1);
        self.stop_at.is_some_and(|stop_at| self.looks.get() > stop_at)
    }
    fn stepped(&mut self, step: &Step) -> Result<(), TrainError> {
        self.log.step(step, 0.0)
    }
    fn evaluated(&mut self, evaluation: &Evaluation) -> Result<(), TrainError> {
        self.log.evaluation(evaluation, 0.0)
    }
    fn keep(&mut self, engine: &Engine, trainer: &Trainer<'_>) -> Result<(), TrainError> {
        self.kept = Some(Checkpoint::take(engine, trainer, self.identity.clone(), 0)?);
        Ok(())
    }
}

struct Setup {
    objective: Objective,
    numerics: Numerics,
    settings: Settings,
    data: Dataset,
    eval: Dataset,
}

impl Setup {
    fn new(objective: Objective, numerics: Numerics) -> Setup {
        Setup {
            objective,
            numerics,
            settings: settings(objective),
            data: data(conversations(SAMPLES), objective).unwrap(),
            eval: data(conversations(SAMPLES).lines().skip(6).collect::<Vec<_>>().join("\n"), objective)
                .unwrap(),
        }
    }

    fn rows(&self) -> AdapterRows {
        if self.objective == Objective::All { AdapterRows::All } else { AdapterRows::Reply }
    }

    /// Runs to the end, stopped after each of these numbers of looks, in a new engine each time. The adapter's bits, the
    /// log, and how often it was stopped.
    fn run(&self, stops: &[usize]) -> (Vec<u32>, String, usize) {
        let scratch = Scratch::new();
        let (log_path, path) = (scratch.path("log.jsonl"), scratch.path("checkpoint"));
        let mut stopped = 0;
        for stop_at in stops.iter().map(|stop| Some(*stop)).chain([None]) {
            let mut engine = engine(self.numerics, self.settings.batch);
            let adapter = adapter(engine.model(), self.rows());
            let (mut trainer, log) = match path.exists() {
                true => {
                    let kept = Checkpoint::read(&path).unwrap();
                    let trainer = Trainer::resume(&mut engine, &self.data, self.settings, &adapter, &kept);
                    (trainer.unwrap(), Log::resume(&log_path, &kept.history).unwrap())
                }
                false => {
                    let trainer = Trainer::start(&mut engine, &self.data, self.settings, &adapter).unwrap();
                    (trainer, Log::create(&log_path).unwrap())
                }
            };
            let vocab = engine.model().hyper().vocab;
            let shape =
                largest_step([&self.data, &self.eval], &self.settings, &LearnerShape::of(&adapter), vocab);
            trainer.reserve(&mut engine, &shape, true).unwrap();
            let mut witness = Witness::new(log, stop_at);
            let ending = train(&mut engine, &mut trainer, Some(&self.eval), &mut witness).unwrap();
            match ending {
                Ending::Complete => {
                    assert!(trainer.finished());
                    let found = bits(&trainer.adapter(&engine).unwrap());
                    return (found, std::fs::read_to_string(&log_path).unwrap(), stopped);
                }
                Ending::Stopped => {
                    stopped += 1;
                    witness.kept.unwrap().write(&path).unwrap();
                }
            }
        }
        panic!("the last run is not stopped");
    }
}

fn check_resumed(objective: Objective, numerics: Numerics) {
    let setup = Setup::new(objective, numerics);
    let (expected, log, _) = setup.run(&[]);
    let lines: Vec<&str> = log.lines().collect();
    // Nine samples, four a step: three steps an epoch, three epochs, and an evaluation before and after each.
    assert_eq!(lines.iter().filter(|line| line.contains("\"loss\"")).count(), 9);
    assert_eq!(lines.iter().filter(|line| line.contains("\"eval_loss\"")).count(), 4);
    assert!(lines[0].contains("\"eval_loss\"") && lines[4].contains("\"eval_loss\""), "{log}");
    // Before the first evaluation, in the middle of a step, and after an epoch's end, in one life after another.
    let (found, found_log, stopped) = setup.run(&[0, 9, 13]);
    assert_eq!(stopped, 3);
    assert!(found == expected, "{objective:?} {numerics:?}");
    assert_eq!(found_log, log);
    for stop in [4, 5, 6, 7, 11] {
        let (found, found_log, stopped) = setup.run(&[stop]);
        assert_eq!(stopped, 1);
        assert!(found == expected && found_log == log, "stopped after {stop} looks");
    }
}

#[test]
fn a_resumed_run_gives_the_bytes_of_one_that_never_stopped() {
    check_resumed(Objective::All, Numerics::Q8);
    check_resumed(Objective::All, Numerics::F32);
}

#[test]
fn so_does_a_resumed_run_of_replies() {
    check_resumed(Objective::Reply, Numerics::Q8);
}

#[test]
fn a_cut_into_micro_batches_changes_no_byte() {
    for objective in [Objective::All, Objective::Reply] {
        let mut setup = Setup::new(objective, Numerics::Q8);
        let expected = setup.run(&[]);
        for (batch, accumulate) in [(4, 1), (1, 4)] {
            (setup.settings.batch, setup.settings.accumulate) = (batch, accumulate);
            let found = setup.run(&[]);
            assert!(found == expected, "{objective:?} {batch} {accumulate}");
        }
        (setup.settings.batch, setup.settings.accumulate) = (3, 1);
        assert!(setup.run(&[]).0 != expected.0, "other steps, other bytes");
    }
}

#[test]
fn losses_fall_and_settings_matter() {
    let setup = Setup::new(Objective::All, Numerics::Q8);
    let (expected, log, _) = setup.run(&[]);
    let losses: Vec<f64> = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter_map(|entry| entry["eval_loss"].as_f64())
        .collect();
    assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "{losses:?}");
    let mut other = Setup::new(Objective::All, Numerics::Q8);
    other.settings.seed += 1;
    assert!(other.run(&[]).0 != expected);
    let mut other = Setup::new(Objective::All, Numerics::F32);
    other.settings = setup.settings;
    assert!(other.run(&[]).0 != expected, "no product was rounded");
}

#[test]
fn checkpoints_of_other_learners_are_refused() {
    let setup = Setup::new(Objective::All, Numerics::Q8);
    let mut engine = engine(Numerics::Q8, 1);
    let whole = adapter(engine.model(), AdapterRows::All);
    let trainer = Trainer::start(&mut engine, &setup.data, setup.settings, &whole).unwrap();
    let kept = Checkpoint::take(&engine, &trainer, Identity::default(), 0).unwrap();
    trainer.end(&mut engine);
    let mut fewer = whole.clone();
    fewer.pairs.pop();
    assert!(Trainer::resume(&mut engine, &setup.data, setup.settings, &fewer, &kept).is_err());
    let mut ahead = kept.clone();
    ahead.state.steps = 3;
    assert!(Trainer::resume(&mut engine, &setup.data, setup.settings, &whole, &ahead).is_err());
    assert!(Trainer::resume(&mut engine, &setup.data, setup.settings, &whole, &kept).is_ok());
}

#[test]
fn settings_that_cannot_be() {
    let data = data(conversations(3), Objective::All).unwrap();
    let check = |change: &dyn Fn(&mut Settings), expected: &str| {
        let mut settings = settings(Objective::All);
        change(&mut settings);
        assert_eq!(settings.steps(&data).unwrap_err().to_string(), expected);
    };
    check(&|settings| settings.epochs = 0, "epochs: expected at least 1, found 0");
    check(&|settings| settings.epochs = u32::MAX, "epochs: expected less than 2^31, found 4294967295");
    check(&|settings| settings.batch = 0, "batch: expected at least 1, found 0");
    check(&|settings| settings.accumulate = 0, "accumulate: expected at least 1, found 0");
    check(&|settings| settings.warmup = Some(9), "warmup: expected at most the 3 steps of the run, found 9");
    check(&|settings| settings.optimizer.learning_rate = 0.0, "lr: expected a number above 0, found 0");
    check(
        &|settings| settings.optimizer.learning_rate = f64::NAN,
        "lr: expected a number above 0, found NaN",
    );
    check(&|settings| settings.optimizer.clip_norm = Some(0.0), "clip: expected a number above 0, found 0");
    check(
        &|settings| settings.optimizer.weight_decay = -1.0,
        "weight-decay: expected a number of at least 0, found -1",
    );
    let mut huge = settings(Objective::All);
    (huge.batch, huge.accumulate) = (usize::MAX, usize::MAX);
    assert_eq!(huge.steps(&data).unwrap().an_epoch, 1);
}
