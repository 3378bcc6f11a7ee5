//! What the tests of the engine share: golden models at work on a backend, tokens, adapters.
#![allow(clippy::unwrap_used, reason = "a helper of a test may fail as the test does")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};

use apprentice_cpu::{Cpu, CpuOptions, Level};
use apprentice_engine::{
    Engine, Learner, LearnerOptions, Named, Numerics, Options, Outputs, Run, SequenceId, Span,
};
use apprentice_gguf::Gguf;
use apprentice_graph::{Backend, Element, Format, Interpreter};
use apprentice_models::adapter_file::{self, ReadOptions};
use apprentice_models::{Adapter, Model};
use apprentice_testkit::tiny::TinyOptions;

/// The golden instances: five tiny models of four families.
pub const INSTANCES: [&str; 5] = ["llama", "qwen2", "qwen3", "gemma3", "extra/llamabias"];

/// A backend and a cache type to run a test with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub threads: usize,
    pub level: Level,
    pub poison: bool,
    pub cache: Element,
    pub numerics: Numerics,
}

/// Two threads at the machine's best level, arenas poisoned, float16 pages, products that are not rounded.
pub fn usual() -> Setup {
    let level = Level::detect().unwrap();
    Setup { threads: 2, level, poison: true, cache: Element::F16, numerics: Numerics::F32 }
}

/// The same with products that are rounded to eight bits.
pub fn rounded() -> Setup {
    Setup { numerics: Numerics::Q8, ..usual() }
}

/// The levels, thread counts and poisons that must not change a byte of what `base` gives.
pub fn others(base: Setup) -> Vec<Setup> {
    let threads = [1, 3, 8].map(|threads| Setup { threads, ..base });
    let levels = Level::all().into_iter().map(|level| Setup { level, ..base });
    threads.into_iter().chain(levels).chain([Setup { poison: false, ..base }]).collect()
}

/// A file of the golden instances.
pub fn golden(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/archs").join(file)
}

/// A golden model.
pub fn tiny(name: &str) -> Model {
    Model::open(Gguf::open(&golden(&format!("{name}.gguf"))).unwrap()).unwrap()
}

/// Formats of the models whose products round: blocks of 32 in a model 64 wide, blocks of 256 in one of 256.
pub const ROUNDED: [Format; 4] = [Format::Q4_0, Format::Q8_0, Format::Q4K, Format::Q6K];

/// A tiny model with weights in blocks of integers.
pub fn tiny_in(format: Format) -> Model {
    let options = match format.block_values() {
        256 => TinyOptions::wide("llama", format, 31),
        _ => TinyOptions::small("llama", format, 32),
    };
    let bytes = apprentice_testkit::tiny::bytes(&TinyOptions { vocab: 128, ..options }).unwrap();
    let model = Model::open(Gguf::from_bytes(bytes).unwrap()).unwrap();
    // Seven linears a layer, and the head.
    assert_eq!(model.rounded_products(Numerics::Q8), 15, "{format}: products that round");
    model
}

/// A real model of the cache folder that `scripts/models` fills.
pub fn real(name: &str) -> Model {
    let home = || PathBuf::from(std::env::var("HOME").unwrap()).join(".cache/apprentice");
    let folder = std::env::var("APPRENTICE_CACHE").map_or_else(|_| home(), PathBuf::from);
    Model::open(Gguf::open(&folder.join(format!("{name}.gguf"))).unwrap()).unwrap()
}

/// The golden adapter of a golden model, or one that is random and not zero for any other model.
pub fn adapter(model: &Model, name: &str) -> Adapter {
    let path = golden(&format!("{name}.adapter.safetensors"));
    if path.exists() {
        return adapter_file::read(model, &path, &ReadOptions { alpha: Some(4.0), force: false }).unwrap().0;
    }
    let sites: Vec<usize> = (0..model.sites().len()).filter(|site| !model.sites()[*site].head).collect();
    let rank = 3;
    let pairs = sites.iter().map(|site| {
        let place = &model.sites()[*site];
        let values = |count: usize, stream: usize| {
            let scale = 0.3 / (place.input as f32).sqrt();
            (0..count).map(|index| noise(*site, stream, index) * scale).collect()
        };
        let (a, b) = (values(rank * place.input, 0), values(rank * place.output, 1));
        apprentice_models::Pair { site: *site, rank, scale: 2.0, a, b }
    });
    Adapter { pairs: pairs.collect(), rows: apprentice_models::AdapterRows::All }
}

/// A number between -1 and 1 that depends on its place alone.
fn noise(site: usize, stream: usize, index: usize) -> f32 {
    let mut state = (site as u64) << 40 ^ (stream as u64) << 32 ^ index as u64 ^ 0x9e37_79b9_7f4a_7c15;
    for _ in 0..3 {
        state ^= state >> 30;
        state = state.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 27;
    }
    (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// An engine on `cpu`.
pub fn engine(model: Model, setup: Setup) -> Engine {
    let options = CpuOptions { threads: Some(setup.threads), level: Some(setup.level), poison: setup.poison };
    on(model, Box::new(Cpu::new(options).unwrap()), setup.cache, setup.numerics)
}

/// An engine on the interpreter.
pub fn meaning(model: Model, cache: Element) -> Engine {
    on(model, Box::new(Interpreter::new()), cache, Numerics::F32)
}

fn on(model: Model, backend: Box<dyn Backend>, cache: Element, numerics: Numerics) -> Engine {
    Engine::new(model, backend, Options { cache, context: 320, sequences: 6, segment: 128, numerics })
        .unwrap()
}

/// `count` tokens that depend on `seed` alone, below 128.
pub fn tokens(seed: u32, count: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8 & 127
    };
    (0..count).map(next).collect()
}

/// The bits of floats: equal bytes, with every NaN read as one value.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }).collect()
}

/// Logits of all `tokens` in a new sequence.
pub fn all_logits(engine: &mut Engine, tokens: &[u32], named: Named) -> (SequenceId, Vec<u32>) {
    let sequence = engine.open_sequence();
    let run = Run { sequence, tokens, named, outputs: Outputs::All };
    let logits = engine.logits(&[run]).unwrap();
    assert!(logits.iter().all(|logit| logit.is_finite()), "logits of a sound model are finite");
    (sequence, bits(&logits))
}

/// Where two spans lie that begin inside a block, the second with three blocks, in 300 tokens.
pub const SPANS: [[usize; 2]; 2] = [[41, 110], [133, 290]];

/// Spans over the pages of `context`: labels are the next tokens.
pub fn spans<'a>(
    context: SequenceId,
    tokens: &'a [u32],
    labels: &'a [i32],
    places: [[usize; 2]; 2],
) -> [Span<'a>; 2] {
    places.map(|[from, to]| Span {
        context: Some(context),
        first_position: from,
        tokens: &tokens[from..to],
        labels: &labels[from..to],
        weights: None,
    })
}

/// The next tokens, the last row unlabelled and every fifth too.
pub fn next_tokens(tokens: &[u32]) -> Vec<i32> {
    let next =
        |row: usize| tokens.get(row + 1).filter(|_| !row.is_multiple_of(5)).map_or(-1, |token| *token as i32);
    (0..tokens.len()).map(next).collect()
}

/// Everything that learning gives, as bits: loss, norm, gradients, and the adapter after a step and one more gradient.
pub fn learning_bits(engine: &mut Engine, adapter: &Adapter, spans: &[Span<'_>]) -> Vec<u64> {
    let mut learner = engine.start_learner(adapter, LearnerOptions::default()).unwrap();
    let first = engine.gradients(&mut learner, spans).unwrap();
    let mut all = vec![first.loss.to_bits(), first.norm.to_bits()];
    push_pairs(&mut all, &engine.read_gradients(&learner).unwrap());
    engine.update(&mut learner).unwrap();
    let second = engine.gradients(&mut learner, spans).unwrap();
    all.extend([second.loss.to_bits(), second.norm.to_bits()]);
    push_pairs(&mut all, &learnt(engine, &learner).pairs);
    engine.end_learner(learner);
    all
}

/// The adapter as it stands.
pub fn learnt(engine: &Engine, learner: &Learner) -> Adapter {
    engine.learnt(learner).unwrap()
}

fn push_pairs(all: &mut Vec<u64>, pairs: &[apprentice_models::Pair]) {
    for pair in pairs {
        assert!(pair.a.iter().any(|value| *value != 0.0), "a matrix that is all zero compares nothing");
        all.extend(pair.a.iter().chain(&pair.b).map(|value| u64::from(value.to_bits())));
    }
}
