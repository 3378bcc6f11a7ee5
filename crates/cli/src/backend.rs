//! What a model runs on, chosen by flags: the only place that names a backend.

use apprentice_cpu::{Cpu, CpuOptions, Level, Times};
use apprentice_engine::{self as engine, Engine, Options, SEGMENT_KEYS, Workload, account};
use apprentice_graph::{Backend, Element, Interpreter};
use apprentice_models::Model;
use clap::{Args, ValueEnum};

use crate::exit::Failure;
use crate::memory;

/// Parameters that the interpreter takes without being forced.
const INTERPRETER_PARAMETERS_MAX: u64 = 20_000_000;
/// Workers that may be asked for.
const THREADS_MAX: u64 = 1024;

/// How a model runs.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// How products are rounded; f32 for logits, gradients and checks, q8 for everything else, unless given.
    #[arg(long, value_enum, help_heading = "Running")]
    pub numerics: Option<Numerics>,
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
    /// The most memory that may be used: bytes, or with K, M, G. What needs more is refused before it begins.
    #[arg(long, value_name = "BYTES", value_parser = memory::bytes, help_heading = "Running")]
    pub memory: Option<u64>,
    /// Go on where a large model would be run by the interpreter, or an adapter names another base model.
    #[arg(long, help_heading = "Running")]
    pub force: bool,
}

/// How products are rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Numerics {
    /// Float32 throughout.
    F32,
    /// Activations in blocks of eight bits, where weights are integers.
    Q8,
}

/// Element of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Cache {
    /// float32.
    F32,
    /// float16.
    F16,
    /// Blocks of 32 elements in eight bits, with a float16 step each.
    #[value(name = "q8_0")]
    Q8_0,
}

/// Instruction sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CpuLevel {
    /// One element at a time.
    Scalar,
    /// AVX2 and FMA.
    Avx2,
    /// The same with AVX-VNNI.
    Avxvnni,
    /// AVX-512.
    Avx512,
    /// The same with VNNI.
    Avx512vnni,
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
    /// An engine over `model` with one sequence of `context` positions at a time, as it serves and learns; `cache` is the
    /// element of pages unless one was asked for.
    pub fn engine(&self, model: Model, context: usize, cache: Cache) -> Result<Engine, Failure> {
        self.engine_with(model, context, cache, Numerics::Q8)
    }

    /// The same, as it is compared with exact numbers: products are not rounded unless that was asked for.
    pub fn exact_engine(&self, model: Model, context: usize, cache: Cache) -> Result<Engine, Failure> {
        self.engine_with(model, context, cache, Numerics::F32)
    }

    fn engine_with(
        &self,
        model: Model,
        context: usize,
        cache: Cache,
        numerics: Numerics,
    ) -> Result<Engine, Failure> {
        let backend = self.backend(&model)?;
        self.engine_on(backend, model, context, cache, numerics)
    }

    /// An engine as [`RunArgs::engine`] makes it; with `timed` also the times of its kernels, where it has kernels.
    pub fn timed_engine(
        &self,
        model: Model,
        context: usize,
        cache: Cache,
        timed: bool,
    ) -> Result<(Engine, Option<Times>), Failure> {
        if !timed || self.backend != BackendName::Cpu {
            return Ok((self.engine(model, context, cache)?, None));
        }
        let mut cpu = self.cpu()?;
        let times = cpu.times();
        Ok((self.engine_on(Box::new(cpu), model, context, cache, Numerics::Q8)?, Some(times)))
    }

    fn engine_on(
        &self,
        backend: Box<dyn Backend>,
        model: Model,
        context: usize,
        cache: Cache,
        numerics: Numerics,
    ) -> Result<Engine, Failure> {
        let options = self.options(context, 1, cache, numerics);
        if self.memory.is_some() {
            let work = Workload { serving: true, ..Workload::default() };
            self.within(&account(&model, &options, &work, backend.as_ref())?)?;
        }
        Ok(Engine::new(model, backend, options)?)
    }

    /// What an engine is made for: `sequences` sequences of `context` positions; the rest as flags ask, or as given.
    pub fn options(&self, context: usize, sequences: usize, cache: Cache, numerics: Numerics) -> Options {
        let cache = match self.cache.unwrap_or(cache) {
            Cache::F32 => Element::F32,
            Cache::F16 => Element::F16,
            Cache::Q8_0 => Element::Q8_0,
        };
        let numerics = match self.numerics.unwrap_or(numerics) {
            Numerics::F32 => engine::Numerics::F32,
            Numerics::Q8 => engine::Numerics::Q8,
        };
        Options { cache, context, sequences, segment: SEGMENT_KEYS, numerics }
    }

    /// Refuses what cannot be run on this machine or by this build, before a file is read.
    pub fn check(&self) -> Result<Option<Level>, Failure> {
        Ok(self.cpu_level.map(|level| Level::parse(level.name())).transpose()?)
    }

    fn cpu(&self) -> Result<Cpu, Failure> {
        let threads = self.threads.map(|threads| threads as usize); // at most THREADS_MAX
        Ok(Cpu::new(CpuOptions { threads, level: self.check()?, poison: false })?)
    }

    /// What computes, holding nothing yet.
    pub fn backend(&self, model: &Model) -> Result<Box<dyn Backend>, Failure> {
        self.check()?;
        match self.backend {
            BackendName::Cpu => Ok(Box::new(self.cpu()?)),
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
            CpuLevel::Avxvnni => "avxvnni",
            CpuLevel::Avx512 => "avx512",
            CpuLevel::Avx512vnni => "avx512vnni",
        }
    }
}
