//! Rounded activations and pages, and what follows from them: on the processor near the meaning of the same graph in which
//! every rounding is the processor's own, so that nothing but float32 lies between them.

use apprentice_cpu::{Cpu, CpuOptions};
use apprentice_gguf::Gguf;
use apprentice_graph::{Arena, Array, Backend, Element, Format, Interpreter, parse};
use apprentice_models::{Model, Numerics, Want, list};
use apprentice_testkit::filled::{Data, Filled};
use apprentice_testkit::model_batch::model_batch;
use apprentice_testkit::tiny::{self, TinyOptions};

const SEED: u64 = 20_261_201;
const FORMATS: [Format; 5] = [Format::Q4_0, Format::Q4_1, Format::Q8_0, Format::Q4K, Format::Q6K];
/// Error of an output relative to its norm.
const BOUND: f64 = 1e-3;
/// Ops that round.
const ROUNDINGS: [&str; 3] = ["quantise_q8", "round_f16", "round_q8_0"];

fn tiny_model(architecture: &str, format: Format) -> Model {
    let options = match format.block_values() {
        256 => TinyOptions::wide(architecture, format, SEED),
        _ => TinyOptions::small(architecture, format, SEED),
    };
    let bytes = tiny::bytes(&options).unwrap_or_else(|error| panic!("{options:?}: {error}"));
    Model::open(Gguf::from_bytes(bytes).expect("a file that can be read")).expect("a model")
}

/// The graph with the results of every rounding as outputs more, and the same graph with data in their place.
fn without_roundings(filled: &Filled) -> (Filled, String) {
    let text = filled.graph.to_string();
    let (mut shown, mut replaced) = (text.clone(), text);
    let end = shown.rfind('}').expect("the end of a graph");
    shown.truncate(end);
    for node in filled.graph.nodes().iter().filter(|node| ROUNDINGS.contains(&node.op.name())) {
        let ids: Vec<String> = node.outputs.iter().map(ToString::to_string).collect();
        let start = replaced.find(&format!("\n  {} = ", ids.join(", "))).expect("a line for each node") + 1;
        let end = start + replaced[start..].find('\n').expect("the end of a line");
        let line = |output| format!("  {output} = data \"rounded {output}\" : {}", filled.graph.ty(output));
        let lines: Vec<String> = node.outputs.iter().map(|output| line(*output)).collect();
        replaced.replace_range(start..end, &lines.join("\n"));
        for output in &node.outputs {
            shown.push_str(&format!("  return \"rounded {output}\" {output}\n"));
        }
    }
    shown.push_str("}\n");
    let shown = parse(&shown).unwrap_or_else(|error| panic!("{error}\n{shown}"));
    (Filled { graph: shown, ..filled.clone() }, replaced)
}

/// `filled` with the roundings that a run found.
fn with_roundings(filled: &Filled, shown: &Filled, replaced: &str, found: &[Array]) -> Filled {
    let graph = parse(replaced).unwrap_or_else(|error| panic!("{error}\n{replaced}"));
    let data = graph.bindings().iter().map(|binding| {
        let own = filled.graph.bindings().iter().position(|own| own.name == binding.name);
        if let Some(own) = own {
            return filled.data[own].clone();
        }
        let output = shown.graph.outputs().iter().position(|output| output.name == binding.name);
        let values = &found[output.expect("a rounding that was shown")].data;
        match graph.ty(binding.value).element {
            Element::I8 => Data::I8(values.iter().map(|value| *value as i8).collect()),
            Element::I32 => Data::I32(values.iter().map(|value| *value as i32).collect()),
            _ => Data::F32(values.iter().map(|value| *value as f32).collect()),
        }
    });
    Filled { data: data.collect(), extents: filled.extents, graph: graph.clone() }
}

/// Returns the worst error of an output, relative to its norm.
fn check(model: &Model, want: Want, cache: Element, place: &str) -> f64 {
    let filled = model_batch(model, want, cache, Numerics::Q8, SEED);
    let count = |name: &str| filled.graph.nodes().iter().filter(|node| node.op.name() == name).count();
    let rounded = model.rounded_products(Numerics::Q8);
    assert!(
        rounded > 0 && count("linear_q8") == rounded && count("linear") == 0,
        "{place}: no product rounds"
    );
    assert!(count("quantise_q8") < rounded, "{place}: a rounding for each product, and none is shared");

    let mut cpu = Cpu::new(CpuOptions { level: None, threads: Some(2), poison: true }).expect("a level");
    let run = |backend: &mut dyn Backend, filled: &Filled| {
        filled.run(backend, Arena::Learning).unwrap_or_else(|error| panic!("{place}: {error}"))
    };
    let (shown, replaced) = without_roundings(&filled);
    let found = run(&mut cpu, &shown);
    let expected = run(&mut Interpreter::new(), &with_roundings(&filled, &shown, &replaced, &found));
    let mut worst = 0.0f64;
    let outputs = filled.graph.outputs();
    assert!(outputs.len() > if want == Want::Loss { 10 } else { 0 }, "{place}: {} outputs", outputs.len());
    for ((output, expected), found) in outputs.iter().zip(&expected).zip(&found) {
        let norm = expected.data.iter().map(|v| v * v).sum::<f64>().sqrt();
        let errors = expected.data.iter().zip(&found.data).map(|(a, b)| (a - b) * (a - b));
        let error = errors.sum::<f64>().sqrt();
        assert!(norm > 0.0, "{place}, {}: a zero reference", output.name);
        let near = error <= BOUND * norm; // false for a NaN
        assert!(near, "{place}, {}: off by {:.1e}", output.name, error / norm);
        worst = worst.max(error / norm);
    }
    worst
}

#[test]
fn logits_and_gradients_are_near_the_meaning_of_the_same_roundings() {
    for family in list::FAMILIES {
        for format in FORMATS {
            let model = tiny_model(family.architecture, format);
            for (want, cache) in
                [(Want::Logits, Element::F32), (Want::Loss, Element::F16), (Want::Loss, Element::Q8_0)]
            {
                let place = format!("{} {format} {want:?} {cache}", family.architecture);
                let worst = check(&model, want, cache, &place);
                println!("{place}: {worst:.1e}");
            }
        }
    }
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn real_gradients_are_near_the_meaning_of_the_same_roundings() {
    let home = || std::path::PathBuf::from(std::env::var("HOME").expect("a home")).join(".cache/apprentice");
    let folder = std::env::var("APPRENTICE_CACHE").map_or_else(|_| home(), Into::into);
    let file = Gguf::open(&folder.join("smollm2.gguf")).expect("the model");
    let worst = check(&Model::open(file).expect("a model"), Want::Loss, Element::F16, "smollm2");
    println!("smollm2: {worst:.1e}");
}
