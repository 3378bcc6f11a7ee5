//! `measure overhead`: what a decode step takes outside of kernels, on one thread.
//!
//! A step is everything from a token to the next: the engine's checks, the arrays of the batch, bindings, the run, the
//! choice. Kernels are timed one call at a time; what is left of the step is the overhead. Each timed call looks twice at
//! the clock, and about one of these looks falls outside of the kernel's time: its cost, measured here too, is taken off.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use apprentice_cpu::{Cpu, CpuOptions};
use apprentice_engine::{Engine, Named, Options, Outputs, Run, SEGMENT_KEYS};
use apprentice_gguf::Gguf;
use apprentice_graph::Element;
use apprentice_models::{Model, Numerics};

/// Steps before those that count.
const WARM: usize = 32;
/// Steps that count.
const STEPS: usize = 512;

/// Prints a line for each of the numerics.
pub fn overhead(model: Option<&str>) -> anyhow::Result<()> {
    let path = match model {
        Some(path) => PathBuf::from(path),
        None => cached("smollm2.gguf")?,
    };
    let look = look_at_the_clock();
    println!(
        "{}, one thread, {STEPS} steps, median; a look at the clock {} ns",
        path.display(),
        look.as_nanos()
    );
    for numerics in [Numerics::Q8, Numerics::F32] {
        let model = Model::open(Gguf::open(&path)?)?;
        let mut cpu = Cpu::new(CpuOptions { threads: Some(1), level: None, poison: false })?;
        let times = cpu.times();
        let options = Options {
            cache: Element::F16,
            context: WARM + STEPS + 1,
            sequences: 1,
            segment: SEGMENT_KEYS,
            numerics,
        };
        let mut engine = Engine::new(model, Box::new(cpu), options)?;
        let sequence = engine.open_sequence();
        let (mut outside, mut all, mut calls) = (Vec::new(), Vec::new(), 0);
        let mut token = 1;
        for step in 0..WARM + STEPS {
            times.take();
            let start = Instant::now();
            let run = Run { sequence, tokens: &[token], named: Named::Nothing, outputs: Outputs::Last };
            token = engine.greedy(&[run])?[0];
            let total = start.elapsed();
            let spent = times.take();
            calls = spent.kinds.iter().map(|kind| kind.calls).sum();
            if step >= WARM {
                all.push(total);
                outside.push(total.saturating_sub(spent.kernels()));
            }
        }
        let (all, raw) = (median(&mut all), median(&mut outside));
        let corrected = raw.saturating_sub(look * calls as u32);
        println!(
            "{numerics:?}: {:.1} us outside of kernels ({:.1} us with the clock, {calls} kernels), of {:.0} us a step",
            micros(corrected),
            micros(raw),
            micros(all),
        );
    }
    Ok(())
}

/// A model that `scripts/models` has fetched.
fn cached(name: &str) -> anyhow::Result<PathBuf> {
    let folder = match std::env::var_os("APPRENTICE_CACHE") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME").context("no home folder")?).join(".cache/apprentice"),
    };
    let path = folder.join(name);
    anyhow::ensure!(path.is_file(), "{}: not there; scripts/models fetches it", path.display());
    Ok(path)
}

/// What one look at the clock takes.
fn look_at_the_clock() -> Duration {
    const LOOKS: u32 = 100_000;
    let start = Instant::now();
    for _ in 1..LOOKS {
        std::hint::black_box(Instant::now());
    }
    start.elapsed() / LOOKS
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
