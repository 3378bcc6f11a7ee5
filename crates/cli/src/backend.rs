//! What a model runs on, chosen by flags: the only place that names a backend.

use apprentice_cpu::{Cpu, CpuOptions, Level};
use apprentice_engine::{Engine, Options, SEGMENT_KEYS};
use apprentice_graph::{Backend, Element, Interpreter};
use apprentice_models::Model;
use clap::{Args, ValueEnum};

use crate::exit::Failure;

/// Parameters that the interpreter takes without being forced.
const INTERPRETER_PARAMETERS_MAX: u64 = 20_000_000;
/// Workers that may be asked for.
const THREADS_MAX: u64 = 1024;

/// How a model runs.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// How products are rounded.
    #[arg(long, value_enum, default_value_t = Numerics::F32, help_heading = "Running")]
    pub numerics: Numerics,
    /// Element of the pages that hold keys and values; f32 for checks and gradients, f16 for everything else, unless given.
    #[arg(long, value_enum, help_heading = "Running")]
    pub cache: Option<Cache>,
    /// Workers; as many as the process may use, unless given. No result depends on it.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX), help_heading = "Running")]
    pub threads: Option<u64>,
    /// The highest instruction set to use. No result depends on it.
    #[arg(long, value_enum, help_heading = "Running")]
    pub cpu_level: Option<CpuLevel>,
    /// What computes: kernels, or the float64 meaning of every operation (slow; for checks).
    #[arg(long, value_enum, default_value_t = BackendName::Cpu, help_heading = "Running")]
    pub backend: BackendName,
    /// Go on where a large model would be run by the interpreter, or an adapter names another base model.
    #[arg(long, help_heading = "Running")]
    pub force: bool,
}

/// How products are rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Numerics {
    /// Float32 throughout.
    F32,
    /// Activations in blocks of eight bits. Not built.
    Q8,
}

/// Element of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Cache {
    /// float32.
    F32,
    /// float16.
    F16,
}

/// Instruction sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CpuLevel {
    /// One element at a time.
    Scalar,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512.
    Avx512,
}

/// What computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum BackendName {
    /// Kernels for the processor.
    Cpu,
    /// The float64 meaning of every operation.
    Interpreter,
}

impl RunArgs {
    /// An engine over `model` with one sequence of `context` positions at a time; `cache` is the element of pages unless one
    /// was asked for.
    pub fn engine(&self, model: Model, context: usize, cache: Cache) -> Result<Engine, Failure> {
        let backend = self.backend(&model)?;
        let cache = match self.cache.unwrap_or(cache) {
            Cache::F32 => Element::F32,
            Cache::F16 => Element::F16,
        };
        Ok(Engine::new(model, backend, Options { cache, context, sequences: 1, segment: SEGMENT_KEYS })?)
    }

    /// Refuses what cannot be run on this machine or by this build, before a file is read.
    pub fn check(&self) -> Result<Option<Level>, Failure> {
        if self.numerics == Numerics::Q8 {
            return Err(Failure::unsupported("--numerics q8: not built; f32 is"));
        }
        Ok(self.cpu_level.map(|level| Level::parse(level.name())).transpose()?)
    }

    fn backend(&self, model: &Model) -> Result<Box<dyn Backend>, Failure> {
        let level = self.check()?;
        match self.backend {
            BackendName::Cpu => {
                let threads = self.threads.map(|threads| threads as usize); // at most THREADS_MAX
                Ok(Box::new(Cpu::new(CpuOptions { threads, level, poison: false })?))
            }
            BackendName::Interpreter => {
                let parameters = model.parameters();
                if parameters > INTERPRETER_PARAMETERS_MAX && !self.force {
                    return Err(Failure::limit(format!(
                        "--backend interpreter: {parameters} parameters, at most {INTERPRETER_PARAMETERS_MAX} without --force"
                    )));
                }
                Ok(Box::new(Interpreter::new()))
            }
        }
    }
}

impl CpuLevel {
    fn name(self) -> &'static str {
        match self {
            CpuLevel::Scalar => "scalar",
            CpuLevel::Avx2 => "avx2",
            CpuLevel::Avx512 => "avx512",
        }
    }
}
