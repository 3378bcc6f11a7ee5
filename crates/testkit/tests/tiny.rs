//! Tiny files of every family and format: accepted, the same from the same seed, and on the processor near their meaning
//! and of the same bytes at every level and number of threads.

use apprentice_cpu::{Cpu, CpuOptions, Level};
use apprentice_gguf::Gguf;
use apprentice_graph::{Arena, Array, Backend, Element, Format, Interpreter};
use apprentice_models::{Model, Numerics, Want, list};
use apprentice_testkit::filled::{Filled, same_bits};
use apprentice_testkit::model_batch::model_batch;
use apprentice_testkit::tiny::{self, TinyError, TinyOptions};

const SEED: u64 = 20_260_706;
const FORMATS: &[Format] =
    &[Format::F32, Format::F16, Format::Q8_0, Format::Q4_0, Format::Q4_1, Format::Q4K, Format::Q6K];

fn options(architecture: &str, format: Format) -> TinyOptions {
    if format.block_values() == 256 {
        TinyOptions::wide(architecture, format, SEED)
    } else {
        TinyOptions::small(architecture, format, SEED)
    }
}

fn model(options: &TinyOptions) -> Model {
    let bytes = tiny::bytes(options).unwrap_or_else(|error| panic!("{options:?}: {error}"));
    Model::open(Gguf::from_bytes(bytes).expect("a file that can be read"))
        .unwrap_or_else(|error| panic!("{options:?}: {error}"))
}

fn each(mut check: impl FnMut(&str, Format, Model)) {
    for family in list::FAMILIES {
        for format in FORMATS {
            check(family.architecture, *format, model(&options(family.architecture, *format)));
        }
    }
}

fn run(backend: &mut dyn Backend, filled: &Filled, place: &str) -> Vec<Array> {
    filled.run(backend, Arena::Learning).unwrap_or_else(|error| panic!("{place}: {error}"))
}

fn cpu(level: Level, threads: usize) -> Cpu {
    Cpu::new(CpuOptions { level: Some(level), threads: Some(threads), poison: true })
        .expect("a level of this machine")
}

#[test]
fn the_same_seed_gives_the_same_file_and_another_another() {
    let options = options(list::FAMILIES[0].architecture, Format::Q8_0);
    let bytes = tiny::bytes(&options).unwrap();
    assert_eq!(tiny::bytes(&options).unwrap(), bytes);
    assert_ne!(tiny::bytes(&TinyOptions { seed: SEED + 1, ..options.clone() }).unwrap(), bytes);
    let path = std::env::temp_dir().join(format!("apprentice-tiny-{}.gguf", std::process::id()));
    tiny::write(&path, &options).unwrap();
    let written = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(written, bytes);
}

#[test]
fn what_cannot_be_is_refused() {
    let check = |options: TinyOptions, expected: &str| {
        let found = tiny::bytes(&options).map_err(|error| error.to_string()).err();
        assert!(found.as_deref().is_some_and(|found| found.contains(expected)), "{found:?}: {expected}");
    };
    let good = options(list::FAMILIES[0].architecture, Format::Q8_0);
    check(TinyOptions { architecture: "none".into(), ..good.clone() }, "architecture \"none\"");
    check(TinyOptions { width: 65, ..good.clone() }, "tensor \"token_embd.weight\"");
    check(TinyOptions { kv_heads: 3, ..good.clone() }, "attention.head_count_kv");
    assert!(matches!(
        tiny::bytes(&TinyOptions { format: Format::Q4K, ..good }),
        Err(TinyError::Tensor { reason: apprentice_quant::QuantError::PartialBlock { .. }, .. })
    ));
}

#[test]
fn a_file_without_optional_tensors_is_accepted() {
    for family in list::FAMILIES {
        let options = TinyOptions { optional: false, ..options(family.architecture, Format::Q8_0) };
        let bare = model(&options);
        assert!(bare.gguf().tensor("output.weight").is_none());
        let filled = model_batch(&bare, Want::Logits, Element::F16, Numerics::F32, SEED);
        let found = run(&mut cpu(Level::all()[0], 1), &filled, family.architecture);
        assert!(found[0].data.iter().all(|logit| logit.is_finite()));
    }
}

#[test]
fn every_family_and_format_is_near_its_meaning() {
    // float32 through two layers, or keys and values that round to another float16, or to another level of q8_0.
    let bound = |cache| match cache {
        Element::F32 => 3e-5,
        Element::Q8_0 => 1e-2,
        _ => 2e-3,
    };
    let mut cpu = cpu(Level::all()[0], 2);
    each(|architecture, format, model| {
        let kinds = [
            (Want::Logits, Element::F16),
            (Want::Loss, Element::F32),
            (Want::Logits, Element::Q8_0),
            (Want::Loss, Element::Q8_0),
        ];
        for (want, cache) in kinds {
            let place = format!("{architecture} {format} {want:?} {cache}");
            let filled = model_batch(&model, want, cache, Numerics::F32, SEED);
            let expected = run(&mut Interpreter::new(), &filled, &place);
            let found = run(&mut cpu, &filled, &place);
            assert_eq!(expected.len(), found.len(), "{place}");
            for (output, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let norm = expected.data.iter().map(|v| v * v).sum::<f64>().sqrt();
                let errors = expected.data.iter().zip(&found.data).map(|(a, b)| (a - b) * (a - b));
                let error = errors.sum::<f64>().sqrt();
                assert!(norm > 0.0, "{place}, output {output}: a zero reference");
                let near = error <= bound(cache) * norm; // false for a NaN
                assert!(near, "{place}, output {output}: off by {:.1e}", error / norm);
            }
        }
    });
}

#[test]
fn every_family_and_format_gives_the_same_bytes_at_all_levels_and_threads() {
    let mut all: Vec<(String, Filled)> = Vec::new();
    each(|architecture, format, model| {
        let kinds = [(Want::Logits, Element::F16), (Want::Loss, Element::F16), (Want::Logits, Element::Q8_0)];
        for (want, cache) in kinds {
            let place = format!("{architecture} {format} {want:?} {cache}");
            all.push((place, model_batch(&model, want, cache, Numerics::F32, SEED)));
        }
    });
    let mut first: Vec<Vec<Array>> = Vec::new();
    for level in Level::all() {
        for threads in [1, 2, 3, 8] {
            let mut cpu = cpu(level, threads);
            for (index, (place, filled)) in all.iter().enumerate() {
                let found = run(&mut cpu, filled, place);
                let Some(expected) = first.get(index) else {
                    first.push(found);
                    continue;
                };
                let same = expected.iter().zip(&found).all(|(a, b)| same_bits(a, b));
                assert!(same, "{place} at {} with {threads} threads: other bytes", level.name());
            }
        }
    }
}
