//! Graphs as files beside this one, with what is expected of them in comments:
//!
//! - `; error: TEXT` a rule that the graph breaks, as the verifier words it. All of a graph's, and no others.
//! - `; count EXTENT N`, `; given BINDING [numbers]`, `; gives OUTPUT [numbers]` a run by the float64 meaning.
//! - `; peak N` the bytes of the plan's arena.
//!
//! A graph without errors is printed, read back and compared too.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use apprentice_graph::{Array, Extent, Extents, Graph, GraphError, ParseError, Type, evaluate, parse, plan};

/// A test for each file, and one that none is left out.
macro_rules! files {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { check(stringify!($name)); })*
        const FILES: &[&str] = &[$(stringify!($name)),*];
    };
}

files! {
    adapter,
    attention,
    comments,
    effects,
    in_place,
    linear,
    rule_1_unknown_value,
    rule_2_later_node,
    rule_3_inputs_and_outputs,
    rule_4_types,
    rule_5_names,
    rule_6_elements,
    rule_7_effects,
    rule_8_purity,
}

#[test]
fn every_file_is_a_test() {
    let mut found: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "graph"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort();
    assert_eq!(found, FILES);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn check(name: &str) {
    let text = std::fs::read_to_string(folder().join(format!("{name}.graph"))).expect("the file is there");
    let expected = Expected::read(&text);
    let mut errors: Vec<String> = match parse(&text) {
        Ok(graph) => {
            expected.check(&graph);
            Vec::new()
        }
        Err(ParseError::Graph(GraphError::Invalid(violations))) => {
            violations.iter().map(ToString::to_string).collect()
        }
        Err(other) => vec![other.to_string()],
    };
    let mut wanted = expected.errors;
    errors.sort();
    wanted.sort();
    assert_eq!(errors, wanted);
    assert_eq!(name.starts_with("rule_"), !errors.is_empty(), "a file named by a rule breaks it");
}

/// What the comments of a file say.
#[derive(Default)]
struct Expected {
    errors: Vec<String>,
    extents: Extents,
    given: HashMap<String, Vec<f64>>,
    gives: Vec<(String, Vec<f64>)>,
    peak: Option<usize>,
}

impl Expected {
    fn read(text: &str) -> Expected {
        let mut expected = Expected::default();
        for line in text.lines().filter_map(|line| line.trim().strip_prefix("; ")) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "error:" => expected.errors.push(rest.to_owned()),
                "count" => {
                    let (name, count) = rest.split_once(' ').expect("an extent and a count");
                    let extent = Extent::all().find(|extent| extent.to_string() == name).expect("an extent");
                    expected.extents = expected.extents.with(extent, count.parse().expect("a count"));
                }
                "given" => {
                    let (name, values) = numbers(rest);
                    expected.given.insert(name, values);
                }
                "gives" => expected.gives.push(numbers(rest)),
                "peak" => expected.peak = Some(rest.parse().expect("a number of bytes")),
                _ => {} // a sentence
            }
        }
        expected
    }

    fn check(&self, graph: &Graph) {
        let text = graph.to_string();
        let again = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(again, *graph, "printed and read back");
        assert_eq!(again.to_string(), text);
        if let Some(peak) = self.peak {
            assert_eq!(plan(graph).bytes, peak, "{}", plan(graph));
        }
        if self.gives.is_empty() {
            return;
        }
        let values = evaluate(graph, |value| {
            let binding = graph.bindings().iter().find(|binding| binding.value == value).expect("a binding");
            Array::new(self.sizes(graph.ty(value)), self.given[&binding.name].clone())
        });
        for (name, expected) in &self.gives {
            let (_, value) = graph.output(name).unwrap_or_else(|| panic!("no output {name:?}"));
            assert_eq!(values[&value].data, *expected, "{name}");
        }
    }

    fn sizes(&self, ty: &Type) -> Vec<usize> {
        let mut sizes = ty.shape.0.clone();
        if let Some(extent) = ty.extent {
            sizes[0] = self.extents.get(extent);
        }
        sizes
    }
}

/// A name and the numbers behind it.
fn numbers(text: &str) -> (String, Vec<f64>) {
    let (name, list) = text.split_at(text.rfind('[').expect("a list"));
    (name.trim().to_owned(), serde_json::from_str(list).expect("numbers"))
}
