//! Passes and text: what a graph means before and after, on random graphs and on a training step.

use std::collections::HashSet;

use apprentice_graph::{AnyOp, Array, Builder, Element, Format, Graph, Type, parse, prune, verify};
use apprentice_testkit::case_graph::{Form, case_graph, describe};
use apprentice_testkit::draft::Draft;
use apprentice_testkit::filled::{Filled, same_bits};
use apprentice_testkit::little_model::LittleModel;
use apprentice_testkit::random_graph::{dead_values, random_graph};

const SEED: u64 = 20_260_705;
const GRAPHS: u64 = 200;

/// Graphs of every kind that there is.
fn graphs() -> Vec<(String, Filled)> {
    let mut all: Vec<(String, Filled)> =
        (SEED..SEED + GRAPHS).map(|seed| (format!("seed {seed}"), random_graph(seed, 30))).collect();
    let exact = LittleModel::exact();
    let quantised = LittleModel { format: Format::Q8_0, cache: Element::F16, slack: 3, ..exact };
    for model in [exact, quantised] {
        all.push((format!("forward of {model:?}"), model.forward(SEED)));
        all.push((format!("step of {model:?}"), model.step(SEED).expect("a training step is built")));
    }
    all
}

/// Prints, reads back and compares: the graph, and its text.
fn check_text(graph: &Graph, place: &str) {
    let text = graph.to_string();
    let again = parse(&text).unwrap_or_else(|error| panic!("{place}: {error}\n{text}"));
    assert!(again == *graph, "{place}: another graph was read\n{text}");
    assert_eq!(again.to_string(), text, "{place}");
}

#[test]
fn the_text_of_every_case_is_read_back() {
    for (number, case) in AnyOp::cases().iter().enumerate().filter(|(_, case)| case.refused.is_none()) {
        for form in [Form::Bound, Form::Computed] {
            check_text(&case_graph(case, form, 3, SEED + number as u64).graph, &describe(case));
        }
    }
}

#[test]
fn the_text_of_whole_graphs_is_read_back() {
    for (place, filled) in graphs() {
        check_text(&filled.graph, &place);
        assert_eq!(verify(&filled.graph), Vec::new(), "{place}");
    }
}

#[test]
fn names_of_any_characters_are_read_back() {
    for name in ["", " ", "a\"b\\c;d", "tab\tnew\nline\r", "\0\u{7f}\u{200b}", "é 漢 🦀", "'", "{}", "%0"]
    {
        let builder = Builder::new();
        builder.site(name);
        builder.output(name, builder.data(name, Type::f32([2])).scale(0.1));
        check_text(&builder.finish().unwrap(), &format!("{name:?}"));
    }
}

/// Prunes and compares what every output is, and what every effect writes.
fn check_prune(filled: &Filled, place: &str) -> usize {
    let pruned = prune(&filled.graph);
    assert_eq!(verify(&pruned), Vec::new(), "{place}");
    assert_eq!(dead_values(&pruned), Vec::new(), "{place}: something is left that nothing needs");
    assert_eq!(prune(&pruned), pruned, "{place}: pruned twice");
    let removed = filled.graph.values().len() - pruned.values().len();
    assert_eq!(removed, dead_values(&filled.graph).len(), "{place}: values removed");
    // Bindings are known by their names; those that are gone take their data with them.
    let kept: HashSet<&str> = pruned.bindings().iter().map(|binding| binding.name.as_str()).collect();
    let names = filled.graph.bindings().iter().map(|binding| binding.name.as_str());
    let data = names.zip(&filled.data).filter(|(name, _)| kept.contains(name));
    let data = data.map(|(_, data)| data.clone()).collect();
    let after = Filled { graph: pruned, data, extents: filled.extents };
    let run = |filled: &Filled| {
        let mut interpreter = apprentice_graph::Interpreter::new();
        filled
            .run(&mut interpreter, apprentice_graph::Arena::Serving)
            .expect("the interpreter runs everything")
    };
    let (before, after): (Vec<Array>, Vec<Array>) = (run(filled), run(&after));
    assert_eq!(before.len(), after.len(), "{place}");
    assert!(before.iter().zip(&after).all(|(a, b)| same_bits(a, b)), "{place}: other outputs");
    removed
}

#[test]
fn pruning_changes_no_output_and_no_effect() {
    let removed: usize = graphs().iter().map(|(place, filled)| check_prune(filled, place)).sum();
    assert!(removed > 1000, "only {removed} values were removed");
}

#[test]
fn pruning_to_one_output_keeps_that_output() {
    let step = LittleModel::exact().step(SEED).unwrap();
    for kept in (0..step.graph.outputs().len()).step_by(9) {
        let mut draft = Draft::of(&step.graph);
        draft.outputs = vec![draft.outputs.swap_remove(kept)];
        let alone = Filled { graph: draft.graph().unwrap(), ..step.clone() };
        let removed = check_prune(&alone, &format!("output {kept}"));
        assert!(removed > 0, "output {kept} needs everything");
    }
}
