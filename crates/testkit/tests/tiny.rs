//! Tiny files of every family and format: accepted, the same from the same seed, and on the processor near their meaning
//! and of the same bytes at every level and number of threads.

use apprentice_cpu::{Cpu, CpuOptions, Level};
use apprentice_gguf::Gguf;
use apprentice_graph::{
    Arena, Array, Backend, Builder, Element, Extent, Extents, Format, Graph, Interpreter, ValueId,
    differentiate, prune,
};
use apprentice_models::{Model, Numerics, Request, Want, list, names};
use apprentice_testkit::filled::{Data, Filled, same_bits};
use apprentice_testkit::random::Random;
use apprentice_testkit::tiny::{self, TinyError, TinyOptions};

const SEED: u64 = 20_260_706;
const FORMATS: &[Format] =
    &[Format::F32, Format::F16, Format::Q8_0, Format::Q4_0, Format::Q4_1, Format::Q4K, Format::Q6K];

/// Rows of the batch: 9 from the start of one sequence, 6 of another that crosses a border of pages.
const SEQUENCES: [(usize, usize); 2] = [(9, 0), (6, 60)];
const ROWS: usize = 15;
const LABELLED: [i32; 4] = [2, 8, 10, 14];

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

/// What a model returns for the batch: logits of some rows, or their losses and the gradients of an adapter on every site
/// but the head. Every sequence has a page of its own for each 64 positions.
fn filled(model: &Model, want: Want, cache: Element, seed: u64) -> Filled {
    let sites: Vec<usize> = match want {
        Want::Loss => (0..model.sites().len()).filter(|site| !model.sites()[*site].head).collect(),
        Want::Logits | Want::Greedy => Vec::new(),
    };
    let (rank_rows, cells) = (4, 64 * 4);
    let request = Request {
        want,
        rows: ROWS + 2,
        head_rows: LABELLED.len() + 1,
        sequences: SEQUENCES.len() + 1,
        page_entries: 4,
        cells: vec![cells; model.groups().len()],
        cache,
        sites,
        rank_rows,
        adapters: 2,
        segment: 128,
        numerics: Numerics::F32,
    };
    let graph = model.graph(&request).expect("a model's graph builds");
    let graph = if want == Want::Loss { with_gradients(graph) } else { graph };
    let mut random = Random::new(seed);
    let extents = Extents::default()
        .with(Extent::Rows, ROWS)
        .with(Extent::Outputs, LABELLED.len())
        .with(Extent::Labelled, LABELLED.len())
        .with(Extent::Sequences, SEQUENCES.len())
        .with(Extent::Adapters, 1)
        .with(Extent::RowBlocks, 3);
    let extents =
        (0..model.groups().len() as u8).fold(extents, |all, group| all.with(Extent::Pages(group), 3));
    let mut filled = Filled { graph, data: Vec::new(), extents };
    for binding in filled.graph.bindings() {
        let ty = filled.graph.ty(binding.value);
        let count: usize = filled.sizes(ty).iter().product();
        let tokens =
            |random: &mut Random| (0..count).map(|_| random.below(model.hyper().vocab) as i32).collect();
        let data = match (binding.name.as_str(), ty.element) {
            (name, _) if model.weight(name).is_some() => {
                let weight = model.weight(name).expect("just found");
                Data::Weight((*weight.bytes).as_ref().to_vec())
            }
            (names::TOKENS | names::LABELS, _) => Data::I32(tokens(&mut random)),
            (names::POSITIONS, _) => {
                let positions = SEQUENCES.iter().flat_map(|(rows, first)| *first..first + rows);
                Data::I32(positions.map(|position| position as i32).collect())
            }
            (names::SEQUENCES, _) => Data::I32(vec![0, 9, 0, 0, 9, 6, 60, 1]),
            (names::OUTPUTS | names::LABELLED, _) => Data::I32(LABELLED.to_vec()),
            (names::NAMED | names::NAMED_HEAD, _) => {
                Data::I32((0..count as i32).map(|row| if row % 4 == 1 { -1 } else { 0 }).collect())
            }
            ("blocks.rows" | "blocks.row_blocks", _) => Data::I32(vec![0, 9, 13, 2, 9, 4]),
            (name, _) if name.starts_with("pages.") => Data::I32(vec![2, 0, 3]),
            // Cell 64 * page + position % 64 of pages 2, then 0 and 3.
            (name, _) if name.starts_with("cells.") => {
                Data::I32((128..137).chain(60..64).chain(192..194).collect())
            }
            (name, Element::I32) if name.ends_with(".table") => Data::I32(vec![1, 3]),
            (name, _) if name.ends_with(".scales") => Data::F32(vec![0.5]),
            (_, Element::F16) => Data::Store(random.normals(count, 1.0)),
            (name, _) if name.ends_with("lora_a") || name.ends_with("lora_b") => {
                Data::Store(random.normals(count, 0.2))
            }
            (name, _) if name.ends_with(".keys") || name.ends_with(".values") => {
                Data::Store(random.normals(count, 1.0))
            }
            (names::FACTORS, _) => Data::F32(random.normals(count, 0.5)),
            (name, element) => panic!("{name:?}: nothing to fill {element} with"),
        };
        filled.data.push(data);
    }
    filled
}

/// The gradients of the weighted losses to the adapters, as outputs.
fn with_gradients(graph: Graph) -> Graph {
    let loss = graph.output(names::LOSS).expect("a graph of losses").1;
    let factors = graph.binding(names::FACTORS).expect("factors of the losses").value;
    let adapters = graph.bindings().iter().filter(|b| b.name.contains(".lora_"));
    let targets: Vec<ValueId> = adapters.map(|binding| binding.value).collect();
    assert!(!targets.is_empty(), "no adapter to be trained");
    let (graph, gradients) =
        differentiate(graph, &[(loss, factors)], &targets).expect("every op has its gradient");
    let builder = Builder::reopen(graph);
    for gradient in gradients {
        builder.output(&format!("gradient {}", gradient.target), builder.value(gradient.gradient));
    }
    prune(&builder.finish().expect("outputs more"))
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
        let filled = filled(&bare, Want::Logits, Element::F16, SEED);
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
            let filled = filled(&model, want, cache, SEED);
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
            all.push((place, filled(&model, want, cache, SEED)));
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
