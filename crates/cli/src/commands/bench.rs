//! `apprentice bench`: how many tokens a second a model reads and writes on this machine.

use std::time::{Duration, Instant};

use apprentice_cpu::times::Spent;
use apprentice_engine::{Engine, Named, Outputs, Run, SequenceId};
use clap::Args;
use serde_json::json;

use crate::backend::{Cache, RunArgs};
use crate::exit::{Failure, Outcome};
use crate::setup::ModelArgs;

/// Tokens that stand before the first one that is written.
const START: usize = 4;

/// Measure how many tokens a second a model reads and writes.
#[derive(Args)]
pub struct BenchCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens of the prompt; 0 for no such test.
    #[arg(short = 'p', long, value_name = "TOKENS", default_value_t = 512)]
    prompt: usize,
    /// Tokens that are written one by one, the likeliest each time; 0 for no such test.
    #[arg(short = 'n', long, value_name = "TOKENS", default_value_t = 128)]
    predict: usize,
    /// Positions that are filled before either test begins.
    #[arg(short = 'd', long, value_name = "TOKENS", default_value_t = 0)]
    depth: usize,
    /// Measurements of each test, after one that does not count.
    #[arg(short = 'r', long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repetitions: u32,
    /// Add a table of where the time went, by kind of step.
    #[arg(long)]
    times: bool,
    /// Write JSON, a line a test, in place of the table.
    #[arg(long, conflicts_with = "times")]
    json: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// A test: so many tokens, read at once or written one by one.
#[derive(Clone, Copy)]
enum Test {
    Prompt(usize),
    Predict(usize),
}

impl BenchCommand {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Failure> {
        self.run.check()?;
        let tests = [Test::Prompt(self.prompt), Test::Predict(self.predict)];
        let tests: Vec<Test> = tests.into_iter().filter(|test| test.tokens() > 0).collect();
        if tests.is_empty() {
            return Err(Failure::input("-p 0 and -n 0: nothing to measure"));
        }
        let model = self.model.open()?;
        let longest = self.prompt.max(self.predict.saturating_add(START));
        let (positions, limit) = (self.depth.saturating_add(longest), model.hyper().context);
        if positions > limit {
            return Err(Failure::limit(format!(
                "{positions} positions, the context of the model has {limit}"
            )));
        }
        let (mut engine, times) = self.run.timed_engine(model, positions, Cache::F16, self.times)?;
        if !self.json {
            println!("{:>8}  {:>20}", "test", "tokens/s");
        }
        for test in tests {
            test.measure(&mut engine, self.depth)?;
            times.as_ref().map(apprentice_cpu::Times::take);
            let mut rates = Vec::new();
            for _ in 0..self.repetitions {
                let time = test.measure(&mut engine, self.depth)?;
                rates.push(test.tokens() as f64 / time.as_secs_f64());
            }
            let (mean, deviation) = mean_and_deviation(&rates);
            if self.json {
                println!("{}", json!({"test": test.name(), "rates": rates}));
                continue;
            }
            println!("{:>8}  {:>20}", test.name(), format!("{mean:.2} ± {deviation:.2}"));
            if let Some(times) = &times {
                print_times(&times.take());
            }
        }
        Ok(Outcome::Done)
    }
}

impl Test {
    fn tokens(self) -> usize {
        match self {
            Test::Prompt(tokens) | Test::Predict(tokens) => tokens,
        }
    }

    fn name(self) -> String {
        match self {
            Test::Prompt(tokens) => format!("pp{tokens}"),
            Test::Predict(tokens) => format!("tg{tokens}"),
        }
    }

    /// The time that it takes behind `depth` positions of a sequence of its own.
    fn measure(self, engine: &mut Engine, depth: usize) -> Result<Duration, Failure> {
        let sequence = engine.open_sequence();
        let vocab = engine.model().hyper().vocab;
        let tokens = arbitrary_tokens(vocab, depth + START.max(self.tokens()));
        if depth > 0 {
            read(engine, sequence, &tokens[..depth])?;
        }
        let tokens = &tokens[depth..];
        let time = match self {
            Test::Prompt(count) => {
                let start = Instant::now();
                read(engine, sequence, &tokens[..count])?;
                start.elapsed()
            }
            Test::Predict(count) => {
                let mut next = read(engine, sequence, &tokens[..START])?;
                let start = Instant::now();
                for _ in 0..count {
                    next = read(engine, sequence, &[next])?;
                }
                start.elapsed()
            }
        };
        engine.close_sequence(sequence)?;
        Ok(time)
    }
}

/// Reads tokens, and tells the likeliest one behind them.
fn read(engine: &mut Engine, sequence: SequenceId, tokens: &[u32]) -> Result<u32, Failure> {
    let run = Run { sequence, tokens, named: Named::Nothing, outputs: Outputs::Last };
    Ok(engine.greedy(&[run])?[0])
}

/// Tokens all over the vocabulary, the same every time.
fn arbitrary_tokens(vocab: usize, count: usize) -> Vec<u32> {
    let mut state = 1u64;
    let token = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % vocab as u64) as u32
    };
    (0..count).map(token).collect()
}

/// The mean, and the standard deviation of a sample (0 for one measurement).
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (values.len() as f64 - 1.0).max(1.0)).sqrt())
}

fn print_times(spent: &Spent) {
    let runs = spent.runs.max(1) as f64;
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / runs;
    let mut kinds: Vec<_> = spent.kinds.iter().filter(|kind| kind.calls > 0).collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.time));
    println!("{:>14}  {:>8}  kernels, each run on average ({} runs)", "microseconds", "calls", spent.runs);
    for kind in kinds {
        println!("{:>14.1}  {:>8.1}  {}", micros(kind.time), kind.calls as f64 / runs, kind.name);
    }
    println!("{:>14.1}  {:>8}  all kernels, summed over workers", micros(spent.kernels()), "");
    println!("{:>14.1}  {:>8}  the run", micros(spent.total), "");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_of_a_sample() {
        assert_eq!(mean_and_deviation(&[2.0, 4.0, 6.0]), (4.0, 2.0));
        assert_eq!(mean_and_deviation(&[3.0]), (3.0, 0.0));
    }

    #[test]
    fn tokens_lie_in_the_vocabulary_and_differ() {
        let tokens = arbitrary_tokens(100, 1000);
        assert!(tokens.iter().all(|token| *token < 100));
        assert!(tokens.windows(2).filter(|pair| pair[0] != pair[1]).count() > 900);
    }
}
