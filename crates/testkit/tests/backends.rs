//! Backends against the meaning of every op, on the op's own cases, and levels and threads against each other.
//!
//! The processor's arena is poisoned with NaN before each run, and capacities are larger than counts: a kernel that reads
//! a row too many gives a NaN.

use std::collections::BTreeMap;

use apprentice_cpu::{Cpu, CpuOptions, Level};
use apprentice_graph::{AnyCase, AnyOp, Arena, Array, Backend, Element, Format, Graph, Interpreter, Storage};
use apprentice_testkit::bound::within;
use apprentice_testkit::case_graph::{Form, case_graph, describe};
use apprentice_testkit::filled::{Filled, same_bits};
use apprentice_testkit::little_model::LittleModel;
use apprentice_testkit::random_graph::random_graph;

const SEED: u64 = 20_260_703;
/// Rows of capacity beyond the count.
const SLACK: usize = 5;

fn cpu(level: Level, threads: usize) -> Cpu {
    let options = CpuOptions { level: Some(level), threads: Some(threads), poison: true };
    Cpu::new(options).expect("a level of this machine")
}

fn cases() -> Vec<(AnyCase, u64)> {
    let cases = AnyOp::cases().into_iter().enumerate().filter(|(_, case)| case.refused.is_none());
    cases.map(|(number, case)| (case, SEED + number as u64)).collect()
}

/// The graphs of a case: inputs as bindings, and inputs in the arena. A view of a binding has no bytes of its own to be
/// returned from.
fn graphs(case: &AnyCase, seed: u64) -> Vec<Filled> {
    let forms = match case.op.storage() {
        Storage::View => vec![Form::Computed],
        Storage::Fresh | Storage::InPlace(_) => vec![Form::Bound, Form::Computed],
    };
    forms.into_iter().map(|form| case_graph(case, form, SLACK, seed)).collect()
}

fn run(backend: &mut dyn Backend, filled: &Filled, place: &str) -> Vec<Array> {
    filled.run(backend, Arena::Serving).unwrap_or_else(|error| panic!("{place}: {error}"))
}

/// Arrays of the node's inputs, the copies before it left out.
fn inputs_of(filled: &Filled) -> Vec<Array> {
    let node = filled.graph.nodes().last().expect("a case has a node");
    let copied = |value| {
        let copy = filled.graph.nodes().iter().find(|copy| copy.outputs.contains(&value));
        copy.and_then(|copy| copy.inputs[0]).unwrap_or(value)
    };
    node.inputs
        .iter()
        .map(|input| input.map_or_else(Array::absent, |value| filled.array(copied(value))))
        .collect()
}

#[test]
fn the_interpreter_gives_the_oracle() {
    for (case, seed) in cases() {
        for filled in graphs(&case, seed) {
            let expected = filled.meaning();
            let found = run(&mut Interpreter::new(), &filled, &describe(&case));
            assert_eq!(expected.len(), found.len());
            for (expected, found) in expected.iter().zip(&found) {
                assert!(same_bits(expected, found), "{}", describe(&case));
            }
        }
    }
}

#[test]
fn the_processor_is_within_the_bound_of_the_meaning() {
    for level in Level::all() {
        let mut cpu = cpu(level, 1);
        let mut failed = Vec::new();
        let mut worst: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for (case, seed) in cases() {
            for filled in graphs(&case, seed) {
                let place = format!("{} at {}", describe(&case), level.name());
                let inputs = inputs_of(&filled);
                let inputs: Vec<&Array> = inputs.iter().collect();
                let found = run(&mut cpu, &filled, &place);
                for (output, (expected, found)) in filled.meaning().iter().zip(&found).enumerate() {
                    let name = case.op.outputs()[output];
                    match within(&case.op, &inputs, output, expected, found) {
                        Ok(part) => {
                            let worst = worst.entry((case.op.name(), name)).or_default();
                            *worst = worst.max(part);
                        }
                        Err(reason) => failed.push(format!("{place}, {name}: {reason}")),
                    }
                }
            }
        }
        for ((op, output), part) in worst {
            println!("{op} {output} at {}: {part:.3} of the bound", level.name());
        }
        assert!(failed.is_empty(), "seed {SEED}:\n{}", failed.join("\n"));
    }
}

#[test]
fn levels_threads_and_places_give_the_same_bytes() {
    let graphs: Vec<(String, Vec<Filled>)> =
        cases().iter().map(|(case, seed)| (describe(case), graphs(case, *seed))).collect();
    let mut first: Vec<Vec<Array>> = Vec::new();
    for level in Level::all() {
        for threads in [1, 2, 3, 8] {
            let mut cpu = cpu(level, threads);
            for (index, (place, forms)) in graphs.iter().enumerate() {
                for filled in forms {
                    let place = format!("{place} at {} with {threads} threads", level.name());
                    let found = run(&mut cpu, filled, &place);
                    let Some(expected) = first.get(index) else {
                        first.push(found);
                        continue;
                    };
                    let same = expected.iter().zip(&found).all(|(a, b)| same_bits(a, b));
                    assert!(same, "{place}: other bytes (seed {SEED})");
                }
            }
        }
    }
}

/// Whole graphs: random ones, and training steps of a little model in several formats.
fn whole_graphs() -> Vec<(String, Filled)> {
    let random = (SEED..SEED + 120).map(|seed| (format!("random graph {seed}"), random_graph(seed, 25)));
    let exact = LittleModel::exact();
    let models = [
        exact,
        LittleModel { slack: 3, ..exact },
        LittleModel { format: Format::Q8_0, cache: Element::F16, slack: 1, ..exact },
        LittleModel { format: Format::Q4_1, layers: 1, ..exact },
        LittleModel { cache: Element::Q8_0, slack: 1, ..exact },
    ];
    let steps = models.into_iter().flat_map(|model| {
        let step = model.step(SEED).expect("a training step is built");
        [(format!("forward of {model:?}"), model.forward(SEED)), (format!("step of {model:?}"), step)]
    });
    random.chain(steps).collect()
}

#[test]
fn whole_graphs_on_the_processor_are_near_their_meaning() {
    // Error of an output relative to its norm. Roundings of a deep graph are magnified by its products and quotients, and
    // a rounding to float16, or to a level of q8_0, may fall to the other side.
    let levels = |graph: &Graph| {
        graph.bindings().iter().any(|binding| graph.ty(binding.value).element == Element::Q8_0)
    };
    let bound = |graph: &Graph| if levels(graph) { 1e-2 } else { 1e-3 };
    let mut cpu = cpu(Level::all()[0], 1);
    let mut sum_of_worst = 0.0;
    let graphs = whole_graphs();
    for (place, filled) in &graphs {
        let expected = run(&mut Interpreter::new(), filled, place);
        let found = run(&mut cpu, filled, place);
        assert_eq!(expected.len(), found.len(), "{place}");
        let mut worst = 0.0f64;
        for (index, (expected, found)) in expected.iter().zip(&found).enumerate() {
            let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
            let norm = squares(&mut expected.data.iter().copied());
            let error = squares(&mut expected.data.iter().zip(&found.data).map(|(a, b)| a - b));
            let near = error <= bound(&filled.graph) * norm; // false for a NaN
            assert!(near, "{place}, output {index}: off by {error:e} of {norm:e}\n{}", filled.graph);
            worst = worst.max(if norm > 0.0 { error / norm } else { 0.0 });
        }
        sum_of_worst += worst;
    }
    println!("mean of the worst errors {:.1e}", sum_of_worst / graphs.len() as f64);
}

#[test]
fn whole_graphs_give_the_same_bytes_at_all_levels_and_threads() {
    let graphs = whole_graphs();
    let mut first: Vec<Vec<Array>> = Vec::new();
    for level in Level::all() {
        for threads in [1, 2, 3, 8] {
            let mut cpu = cpu(level, threads);
            for (index, (place, filled)) in graphs.iter().enumerate() {
                let place = format!("{place} at {} with {threads} threads", level.name());
                let found = run(&mut cpu, filled, &place);
                let Some(expected) = first.get(index) else {
                    first.push(found);
                    continue;
                };
                let same = expected.iter().zip(&found).all(|(a, b)| same_bits(a, b));
                assert!(same, "{place}: other bytes");
            }
        }
    }
}

#[test]
fn capacity_changes_no_byte() {
    let mut cpu = cpu(Level::all()[0], 2);
    let kinds = [(Format::F32, Element::F32), (Format::Q8_0, Element::F16), (Format::Q8_0, Element::Q8_0)];
    for (format, cache) in kinds {
        let [tight, roomy] = [0, 7].map(|slack| {
            let model = LittleModel { layers: 2, format, cache, slack };
            run(&mut cpu, &model.step(SEED).expect("a training step is built"), "a training step")
        });
        assert!(tight.iter().zip(&roomy).all(|(a, b)| same_bits(a, b)), "{format}, {cache}");
    }
}

#[test]
fn a_run_twice_gives_the_same_and_programs_share_an_arena() {
    let mut cpu = cpu(Level::all()[0], 2);
    let step = LittleModel::exact().step(SEED).expect("a training step is built");
    let other =
        LittleModel { format: Format::Q8_0, ..LittleModel::exact() }.step(SEED + 1).expect("the same");
    let first = run(&mut cpu, &step, "a step");
    run(&mut cpu, &other, "another step in the same arena");
    let again = run(&mut cpu, &step, "the step again");
    assert!(first.iter().zip(&again).all(|(a, b)| same_bits(a, b)));
}
