//! Mutants of a graph: one node changed so that the graph still verifies and means something else. A suite that lets one
//! pass tests less than it says.
//!
//! Kinds: an attribute altered (a factor, an epsilon, the sense of a rotation); two inputs swapped, or one read from
//! elsewhere; a sum or product left out; a value made zero.

use apprentice_graph::ops::{Add, Mul, Scale};
use apprentice_graph::{AnyOp, Element, Graph, Node, ValueId};
use serde_json::{Value as Json, json};

use crate::draft::{Draft, with_attribute};

/// A graph with one change.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// What was changed, for messages.
    pub change: String,
    /// The graph.
    pub graph: Graph,
}

/// All mutants of `graph`, each by one change of one of its nodes.
///
/// # Panics
/// If a change gives a graph that does not verify: a bug here.
pub fn mutants(graph: &Graph) -> Vec<Mutant> {
    let mut all = Vec::new();
    for (index, node) in graph.nodes().iter().enumerate() {
        let mut take = |change: String, draft: Draft| {
            let change = format!("node {index}, {} at {:?}: {change}", node.op.name(), node.site);
            let graph = draft.graph().unwrap_or_else(|error| panic!("{change}: {error}"));
            all.push(Mutant { change, graph });
        };
        let with_node = |node: Node| {
            let mut draft = Draft::of(graph);
            draft.nodes[index] = node;
            draft
        };
        for (change, op) in altered(&node.op) {
            take(change, with_node(Node { op, ..node.clone() }));
        }
        for (change, inputs) in swapped(graph, node) {
            take(change, with_node(Node { inputs, ..node.clone() }));
        }
        for (slot, kept) in parts(graph, node) {
            let op = Scale { factor: 1.0 }.into();
            take(
                format!("only input {slot} kept"),
                with_node(Node { op, inputs: vec![Some(kept)], ..node.clone() }),
            );
        }
        for (name, value) in node.op.outputs().iter().zip(&node.outputs) {
            if graph.ty(*value).element == Element::F32 && is_read(graph, *value) {
                take(format!("{name} zeroed"), zeroed(graph, index, *value));
            }
        }
    }
    all
}

/// The op with one attribute changed to another that it accepts.
fn altered(op: &AnyOp) -> Vec<(String, AnyOp)> {
    let Json::Object(attributes) = op.attributes() else { return Vec::new() };
    let changes = attributes.iter().filter_map(|(name, value)| {
        let other = match value {
            Json::Bool(value) => json!(!value),
            Json::Number(number) if number.is_f64() => json!(number.as_f64()? * 1.25 + 0.01),
            Json::String(pairing) if pairing == "halves" => json!("interleaved"),
            Json::String(pairing) if pairing == "interleaved" => json!("halves"),
            Json::Null if name == "window" => json!(1),
            Json::Number(_) if name == "window" => Json::Null,
            _ => return None, // shapes, and segments, which change no meaning
        };
        let op = with_attribute(op, name, other.clone())?;
        Some((format!("{name} {value} becomes {other}"), op))
    });
    changes.collect()
}

/// Inputs with two exchanged, or one replaced by another input of the node, where the types allow it and the meaning
/// changes.
fn swapped(graph: &Graph, node: &Node) -> Vec<(String, Vec<Option<ValueId>>)> {
    let mut changes = Vec::new();
    let names = node.op.inputs();
    for first in 0..node.inputs.len() {
        for second in first + 1..node.inputs.len() {
            let (Some(a), Some(b)) = (node.inputs[first], node.inputs[second]) else { continue };
            if a == b || graph.ty(a) != graph.ty(b) {
                continue;
            }
            let (first_name, second_name) = (names[first].name, names[second].name);
            let mut exchanged = node.inputs.clone();
            exchanged.swap(first, second);
            if !is_commutative(node) {
                changes.push((format!("{first_name} and {second_name} exchanged"), exchanged));
            }
            let mut twice = node.inputs.clone();
            twice[second] = Some(a);
            changes.push((format!("{first_name} also as {second_name}"), twice));
        }
    }
    changes
}

fn is_commutative(node: &Node) -> bool {
    matches!(node.op, AnyOp::Add(_) | AnyOp::Mul(_) | AnyOp::Dot(_))
}

/// The inputs of a sum or product that alone have its type.
fn parts(graph: &Graph, node: &Node) -> Vec<(usize, ValueId)> {
    if !matches!(node.op, AnyOp::Add(Add {}) | AnyOp::Mul(Mul {})) {
        return Vec::new();
    }
    let whole = graph.ty(node.outputs[0]);
    let inputs = node.inputs.iter().enumerate();
    inputs
        .filter_map(|(slot, input)| input.map(|id| (slot, id)))
        .filter(|(_, id)| graph.ty(*id) == whole)
        .collect()
}

/// `graph` with all readers of `value`, made by node `index`, reading zeros.
fn zeroed(graph: &Graph, index: usize, value: ValueId) -> Draft {
    let mut draft = Draft::of(graph);
    let zero = draft.fresh(graph.ty(value).clone());
    let replace = |read: &mut ValueId| {
        if *read == value {
            *read = zero;
        }
    };
    draft.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().flatten()).for_each(replace);
    draft.outputs.iter_mut().map(|output| &mut output.value).for_each(replace);
    draft.effects.iter_mut().map(|effect| &mut effect.value).for_each(replace);
    let site = graph.nodes()[index].site.clone();
    let op = Scale { factor: 0.0 }.into();
    draft.nodes.insert(index + 1, Node { op, inputs: vec![Some(value)], outputs: vec![zero], site });
    draft
}

fn is_read(graph: &Graph, value: ValueId) -> bool {
    let by_node = graph.nodes().iter().any(|node| node.inputs.contains(&Some(value)));
    by_node
        || graph.outputs().iter().any(|output| output.value == value)
        || graph.effects().iter().any(|effect| effect.value == value)
}
