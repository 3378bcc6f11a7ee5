//! The engine's bytes are those of a slow plain program: logits, losses, gradients, norms and steps of the optimiser, on
//! every family, however a prompt is cut.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use apprentice_cpu::{Cpu, CpuOptions};
use apprentice_engine::{Engine, LearnerOptions, Named, Options, Outputs, Run};
use apprentice_gguf::Gguf;
use apprentice_graph::{Element, Format};
use apprentice_models::{Adapter, AdapterRows, Model, Pair, list};
use apprentice_testkit::emulator::{Emulator, Numerics, Pages, Span, Trainer};
use apprentice_testkit::random::Random;
use apprentice_testkit::tiny::{self, TinyOptions};

/// Formats whose blocks hold integers.
const INTEGERS: [Format; 10] = [
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::Q2K,
    Format::Q3K,
    Format::Q4K,
    Format::Q5K,
    Format::Q6K,
];

/// Keys of a segment of attention, so that a short sequence has several.
const SEGMENT: u32 = 128;

/// Two spans that begin inside a block, the second over three blocks, in 300 tokens.
const SPANS: [[usize; 2]; 2] = [[41, 110], [133, 290]];

#[derive(Clone, Copy, Debug)]
struct Setup {
    numerics: Numerics,
    pages: Pages,
}

const PLAIN: [Setup; 3] = [
    Setup { numerics: Numerics::F32, pages: Pages::F32 },
    Setup { numerics: Numerics::F32, pages: Pages::F16 },
    Setup { numerics: Numerics::F32, pages: Pages::Q8_0 },
];

fn engine(model: Model, setup: Setup, context: usize) -> Engine {
    let cpu = Cpu::new(CpuOptions { threads: Some(2), level: None, poison: true }).unwrap();
    let cache = match setup.pages {
        Pages::F32 => Element::F32,
        Pages::F16 => Element::F16,
        Pages::Q8_0 => Element::Q8_0,
    };
    let numerics = match setup.numerics {
        Numerics::F32 => apprentice_models::Numerics::F32,
        Numerics::Q8 => apprentice_models::Numerics::Q8,
    };
    let options = Options { numerics, cache, context, sequences: 2, segment: SEGMENT };
    Engine::new(model, Box::new(cpu), options).unwrap()
}

fn emulator(model: &Model, setup: Setup) -> Emulator<'_> {
    Emulator::new(model, setup.numerics, setup.pages, SEGMENT as usize)
}

/// A model that can be opened again and again.
struct Source {
    name: String,
    open: Box<dyn Fn() -> Model>,
}

fn file(path: PathBuf) -> Source {
    let open = {
        let path = path.clone();
        Box::new(move || Model::open(Gguf::open(&path).unwrap()).unwrap())
    };
    Source { name: path.file_stem().unwrap().to_string_lossy().into_owned(), open }
}

/// The golden instances of the families that are built.
fn golden() -> Vec<Source> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/archs");
    let entries = |folder: PathBuf| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries(folder.clone()).chain(entries(folder.join("extra"))).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    paths.sort();
    let all: Vec<Source> = paths.into_iter().map(file).collect();
    assert!(all.len() >= list::FAMILIES.len(), "{} golden models", all.len());
    all
}

/// A tiny model with weights in `format`: widths of 64, or of 256 where its blocks need it.
fn tiny_model(architecture: &str, format: Format, wide: bool) -> Source {
    let options = match wide || format.block_values() == 256 {
        true => TinyOptions { heads: 4, kv_heads: 2, ..TinyOptions::wide(architecture, format, 5) },
        false => TinyOptions::small(architecture, format, 5),
    };
    let bytes = tiny::bytes(&options).unwrap();
    let open = Box::new(move || Model::open(Gguf::from_bytes(bytes.clone()).unwrap()).unwrap());
    Source { name: format!("tiny {architecture} {format} {}", options.width), open }
}

/// A random adapter of rank 3 or 2 on every site, the head too.
fn adapter(model: &Model, seed: u64) -> Adapter {
    let mut random = Random::new(seed);
    let pairs = model.sites().iter().enumerate().map(|(site, place)| {
        let rank = if site % 3 == 1 { 2 } else { 3 };
        let deviation = 0.3 / (place.input as f64).sqrt();
        Pair {
            site,
            rank,
            scale: 1.7,
            a: random.normals(rank * place.input, deviation),
            b: random.normals(rank * place.output, deviation),
        }
    });
    Adapter { pairs: pairs.collect(), rows: AdapterRows::All }
}

fn tokens(model: &Model, seed: u64, count: usize) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.below(model.hyper().vocab) as u32).collect()
}

/// Fails with the first place where the bytes differ.
fn check_bits(place: &str, found: &[f32], emulated: &[f32]) {
    assert_eq!(found.len(), emulated.len(), "{place}");
    assert!(emulated.iter().any(|value| *value != 0.0), "{place}: zeros compare nothing");
    assert!(emulated.iter().all(|value| value.is_finite()), "{place}: not finite");
    let differs = |index: &usize| found[*index].to_bits() != emulated[*index].to_bits();
    let wrong: Vec<usize> = (0..found.len()).filter(differs).collect();
    if let Some(first) = wrong.first() {
        let (found, emulated) = (found[*first], emulated[*first]);
        panic!("{place}: {} differ, first {first}: engine {found:e}, emulator {emulated:e}", wrong.len());
    }
}

/// Logits of a prompt, whole and cut, without an adapter and with one that rows name from the middle of a block on.
fn check_logits(source: &Source, setup: Setup, count: usize, cuts: &[&[usize]], names_from: Option<usize>) {
    let model = (source.open)();
    let emulator = emulator(&model, setup);
    let tokens = tokens(&model, 11, count);
    let mut engine = engine((source.open)(), setup, count);
    let adapter = adapter(&model, 12);
    let id = engine.load_adapter(Arc::new(adapter.clone())).unwrap();
    for from in [None].into_iter().chain(names_from.map(Some)) {
        let place = format!("{} {setup:?}, adapter from {from:?}", source.name);
        let emulated = emulator.logits(&mut emulator.sequence(), &tokens, from.map(|from| (&adapter, from)));
        for cut in cuts {
            let sequence = engine.open_sequence();
            let borders: Vec<usize> =
                [0].into_iter().chain(cut.iter().copied()).chain([tokens.len()]).collect();
            let mut found = Vec::new();
            for part in borders.windows(2) {
                let named = from.map_or(Named::Nothing, |from| Named::From(from, id));
                let tokens = &tokens[part[0]..part[1]];
                found.extend(
                    engine.logits(&[Run { sequence, tokens, named, outputs: Outputs::All }]).unwrap(),
                );
            }
            engine.close_sequence(sequence).unwrap();
            check_bits(&format!("{place}, cut at {cut:?}"), &found, &emulated);
        }
    }
    check_rounding(source, setup, &emulator);
}

/// Loss, norm and gradients of two spans in their context, and the adapter after each of two steps: the first in one
/// piece, the second in two and with weights.
fn check_learning(source: &Source, setup: Setup, places: [[usize; 2]; 2]) {
    let model = (source.open)();
    let emulator = emulator(&model, setup);
    let count = places[1][1];
    let tokens = tokens(&model, 21, count);
    let mut engine = engine((source.open)(), setup, count);
    let mut adapter = adapter(&model, 22);
    let label = |row: usize| tokens.get(row + 1).filter(|_| row % 5 != 3).map_or(-1, |token| *token as i32);
    let labels: Vec<i32> = (0..count).map(label).collect();
    let weights: Vec<f32> = (0..count).map(|row| [1.0, 0.0, 0.7][row % 3]).collect();

    let sequence = engine.open_sequence();
    engine
        .logits(&[Run { sequence, tokens: &tokens, named: Named::Nothing, outputs: Outputs::Last }])
        .unwrap();
    let mut context = emulator.sequence();
    emulator.logits(&mut context, &tokens, None);

    let options = LearnerOptions { clip_norm: Some(0.1), ..LearnerOptions::default() };
    let mut trainer = Trainer::new(
        options.learning_rate,
        options.betas,
        options.eps,
        options.weight_decay,
        options.clip_norm,
    );
    let mut learner = engine.start_learner(&adapter, options).unwrap();
    for step in 0..2 {
        let place = format!("{} {setup:?}, step {step}", source.name);
        let spans = places.map(|[from, to]| apprentice_engine::Span {
            context: Some(sequence),
            first_position: from,
            tokens: &tokens[from..to],
            labels: &labels[from..to],
            weights: (step == 1).then_some(&weights[from..to]),
        });
        let found = match step {
            0 => engine.gradients(&mut learner, &spans).unwrap(),
            _ => {
                let labelled = spans.iter().flat_map(|span| span.labels).filter(|label| **label >= 0);
                engine.begin(&mut learner, labelled.count()).unwrap();
                engine.accumulate(&mut learner, &spans[..1]).unwrap();
                engine.accumulate(&mut learner, &spans[1..]).unwrap()
            }
        };
        let emulated = emulator.gradients(
            &adapter,
            &spans.map(|span| Span {
                context: &context,
                first_position: span.first_position,
                tokens: span.tokens,
                labels: span.labels,
                weights: span.weights,
            }),
        );
        for (found, (site, a, b)) in engine.read_gradients(&learner).unwrap().iter().zip(&emulated.pairs) {
            assert_eq!(found.site, *site);
            let site = &model.sites()[*site].name;
            check_bits(&format!("{place}, gradient of A at {site}"), &found.a, a);
            check_bits(&format!("{place}, gradient of B at {site}"), &found.b, b);
        }
        assert_eq!(found.loss.to_bits(), emulated.loss.to_bits(), "{place}: loss");
        assert_eq!(found.norm.to_bits(), emulated.norm.to_bits(), "{place}: norm");
        assert!(found.norm > 0.1, "{place}: a norm of {} is not clipped", found.norm);
        engine.update(&mut learner).unwrap();
        trainer.step(&mut adapter, &emulated);
        for (found, pair) in engine.learnt(&learner).unwrap().pairs.iter().zip(&adapter.pairs) {
            check_bits(&format!("{place}, A after it"), &found.a, &pair.a);
            check_bits(&format!("{place}, B after it"), &found.b, &pair.b);
        }
    }
    engine.end_learner(learner);
    check_rounding(source, setup, &emulator);
}

/// A comparison under q8 in which no product took rounded activations compares nothing.
fn check_rounding(source: &Source, setup: Setup, emulator: &Emulator<'_>) {
    let rounded = emulator.rounded_rows();
    let place = format!("{} {setup:?}: {rounded} rows were rounded", source.name);
    assert_eq!(rounded > 0, setup.numerics == Numerics::Q8, "{place}");
}

#[test]
fn logits_of_golden_models() {
    for source in golden() {
        for setup in PLAIN {
            check_logits(&source, setup, 200, &[&[], &[1, 65, 66, 130]], Some(70));
        }
    }
}

#[test]
fn learning_on_golden_models() {
    for source in golden() {
        for setup in PLAIN {
            check_learning(&source, setup, SPANS);
        }
    }
}

#[test]
fn tiny_models_of_every_format() {
    for family in list::FAMILIES {
        for format in Format::ALL {
            let source = tiny_model(family.architecture, *format, false);
            check_logits(&source, PLAIN[1], 12, &[&[7]], Some(5));
        }
        for format in [Format::F16, Format::Q4_1, Format::Q4K] {
            let source = tiny_model(family.architecture, format, false);
            check_learning(&source, PLAIN[1], [[3, 9], [12, 20]]);
        }
    }
}

const ROUNDED: Setup = Setup { numerics: Numerics::Q8, pages: Pages::F16 };

#[test]
fn logits_under_q8() {
    for family in list::FAMILIES {
        for format in INTEGERS {
            check_logits(
                &tiny_model(family.architecture, format, false),
                ROUNDED,
                12,
                &[&[], &[1, 7]],
                Some(5),
            );
        }
    }
    for format in INTEGERS {
        let wide = tiny_model(list::FAMILIES[0].architecture, format, true);
        check_logits(&wide, ROUNDED, 20, &[&[], &[3]], Some(5));
    }
    let family = list::FAMILIES[1].architecture;
    check_logits(
        &tiny_model(family, Format::Q4_0, false),
        Setup { pages: Pages::Q8_0, ..ROUNDED },
        200,
        &[&[], &[1, 65, 130]],
        Some(70),
    );
}

#[test]
fn learning_under_q8() {
    for family in list::FAMILIES {
        for format in [Format::Q8_0, Format::Q5_1] {
            check_learning(&tiny_model(family.architecture, format, false), ROUNDED, [[3, 9], [12, 20]]);
        }
    }
    for format in INTEGERS {
        let wide = tiny_model(list::FAMILIES[0].architecture, format, true);
        check_learning(&wide, ROUNDED, [[3, 7], [62, 67]]);
    }
}

/// A real model of the cache folder that `scripts/models` fills.
fn real(name: &str) -> Source {
    let home = || PathBuf::from(std::env::var("HOME").unwrap()).join(".cache/apprentice");
    let folder = std::env::var("APPRENTICE_CACHE").map_or_else(|_| home(), PathBuf::from);
    file(folder.join(format!("{name}.gguf")))
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn logits_of_real_models() {
    check_logits(&real("smollm2"), PLAIN[1], 6, &[&[2]], None);
    check_logits(&real("smollm2"), ROUNDED, 6, &[&[2]], None);
    check_logits(&real("gemma3"), ROUNDED, 3, &[&[1]], None);
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn learning_on_a_real_model() {
    check_learning(&real("smollm2"), ROUNDED, [[1, 3], [4, 7]]);
}
