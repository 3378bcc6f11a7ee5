//! Reverse mode, from graph to graph. Runs before every other pass.
//!
//! Nodes are walked from the last to the first. Cotangents of a value are added as explicit nodes in that order: the last
//! use first, and within a node the last input first (NUMERICS, "Fan-out"). An absent cotangent stays absent; nothing is
//! skipped: an op without VJP on the way to a target, and a target that nothing reaches, are refused.

use std::collections::HashMap;

use crate::build::{Builder, Value};
use crate::error::GraphError;
use crate::graph::{Graph, Origin};
use crate::ids::{NodeId, ValueId};

/// What a gradient is taken with respect to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The value.
    pub value: ValueId,
    /// The sum so far that its gradient is added to, one block of rows at a time; `None`: from zero.
    pub sum: Option<ValueId>,
}

/// The gradient of one target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gradient {
    /// With respect to this value.
    pub target: ValueId,
    /// The value that holds it.
    pub gradient: ValueId,
}

/// Adds to `graph` the gradients of `sum over seeds of <cotangent, value>` with respect to `targets`.
///
/// # Errors
/// [`GraphError::NoVjp`] where an op on the way has no gradient, [`GraphError::Unreached`] for a target without one.
pub fn differentiate(
    graph: Graph,
    seeds: &[(ValueId, ValueId)],
    targets: &[ValueId],
) -> Result<(Graph, Vec<Gradient>), GraphError> {
    let targets: Vec<Target> = targets.iter().map(|value| Target { value: *value, sum: None }).collect();
    differentiate_onto(graph, seeds, &targets)
}

/// The same, onto the sums so far of targets: a gradient is then the sum with the blocks of this graph's rows added one
/// after another, as if the rows that gave the sum had stood before them in the batch.
///
/// # Errors
/// As [`differentiate`]; [`GraphError::Sum`] where a target with a sum is used more than once, or by an op that does not
/// sum over rows.
pub fn differentiate_onto(
    graph: Graph,
    seeds: &[(ValueId, ValueId)],
    targets: &[Target],
) -> Result<(Graph, Vec<Gradient>), GraphError> {
    let sums: HashMap<ValueId, ValueId> =
        targets.iter().filter_map(|target| Some((target.value, target.sum?))).collect();
    let targets: Vec<ValueId> = targets.iter().map(|target| target.value).collect();
    let active = active_values(&graph, &targets);
    let names: Vec<String> = targets.iter().map(|target| name_of(&graph, *target)).collect();
    let nodes = graph.nodes.clone();
    let builder = Builder::reopen(graph);
    let mut cotangents: Vec<Option<Value<'_>>> = vec![None; active.len()];
    for (value, cotangent) in seeds {
        accumulate(&mut cotangents, *value, builder.value(*cotangent));
    }
    for (index, node) in nodes.iter().enumerate().rev() {
        let arrived: Vec<Option<ValueId>> =
            node.outputs.iter().map(|v| cotangents[v.index()].and_then(Value::id)).collect();
        let wanted: Vec<bool> = node
            .inputs
            .iter()
            .zip(node.op.inputs())
            .map(|(value, input)| input.gradient && value.is_some_and(|value| active[value.index()]))
            .collect();
        if arrived.iter().all(Option::is_none) || !wanted.contains(&true) {
            continue;
        }
        builder.site(&format!("{} vjp", node.site));
        let onto: Vec<Option<ValueId>> =
            node.inputs.iter().map(|value| value.and_then(|value| sums.get(&value).copied())).collect();
        let gradients = node
            .op
            .vjp(&builder, &node.inputs, &node.outputs, &arrived, &wanted, &onto)
            .map_err(|reason| GraphError::NoVjp {
                node: NodeId::new(index),
                op: node.op.name(),
                site: node.site.clone(),
                reason,
            })?;
        for (slot, gradient) in gradients.into_iter().enumerate().rev() {
            if let (Some(value), Some(gradient), true) = (node.inputs[slot], gradient, wanted[slot]) {
                accumulate(&mut cotangents, value, builder.value(gradient));
            }
        }
    }
    let found: Vec<Option<ValueId>> =
        targets.iter().map(|target| cotangents[target.index()].and_then(Value::id)).collect();
    drop(cotangents);
    let graph = builder.finish()?;
    for (target, sum) in &sums {
        let readers = graph.nodes.iter().filter(|node| node.inputs.contains(&Some(*sum))).count();
        if readers != 1 {
            return Err(GraphError::Sum { target: name_of(&graph, *target), readers });
        }
    }
    let gradients = targets.iter().zip(found).zip(names).map(|((target, gradient), name)| {
        let gradient = gradient.ok_or(GraphError::Unreached { target: name })?;
        Ok(Gradient { target: *target, gradient })
    });
    let gradients = gradients.collect::<Result<Vec<_>, GraphError>>()?;
    Ok((graph, gradients))
}

/// Values that a target leads to through inputs with a gradient.
fn active_values(graph: &Graph, targets: &[ValueId]) -> Vec<bool> {
    let mut active = vec![false; graph.values.len()];
    for target in targets {
        active[target.index()] = true;
    }
    for node in &graph.nodes {
        let reached = node
            .inputs
            .iter()
            .zip(node.op.inputs())
            .any(|(value, input)| input.gradient && value.is_some_and(|value| active[value.index()]));
        if reached {
            for output in &node.outputs {
                active[output.index()] = true;
            }
        }
    }
    active
}

fn accumulate<'g>(cotangents: &mut [Option<Value<'g>>], value: ValueId, term: Value<'g>) {
    let slot = &mut cotangents[value.index()];
    *slot = Some(match *slot {
        Some(sum) => sum + term,
        None => term,
    });
}

fn name_of(graph: &Graph, value: ValueId) -> String {
    match graph.values[value.index()].origin {
        Origin::Binding(index) => graph.bindings[index].name.clone(),
        Origin::Node { .. } => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Adapt, AnyOp};
    use crate::types::{Extent, Type};

    /// `y` after `adapted` adapters with the same matrices, and their product with a gain.
    fn graph(adapted: usize) -> Graph {
        let builder = Builder::new();
        let rows = |ty: Type| ty.counted(Extent::Rows);
        let x = builder.data("x", rows(Type::f32([4, 8])));
        let mut y = builder.data("y", rows(Type::f32([4, 6])));
        let adapters = |ty: Type| ty.counted(Extent::Adapters);
        for _ in 0..adapted {
            let inputs = [
                y,
                x,
                builder.store("a", Type::f32([2, 8])),
                builder.store("b", Type::f32([2, 6])),
                builder.data("table", adapters(Type::i32([1, 2]))),
                builder.data("scales", adapters(Type::f32([1]))),
                builder.data("named", rows(Type::i32([4]))),
            ];
            [y] = builder.push(Adapt {}, inputs);
        }
        builder.output("y", y * builder.store("gain", Type::f32([6])));
        builder.store("a_sum", Type::f32([2, 8]));
        builder.store("b_sum", Type::f32([2, 6]));
        builder.store("gain_sum", Type::f32([6]));
        builder.data("dy", rows(Type::f32([4, 6])));
        builder.finish().expect("a graph")
    }

    /// The inputs of the adapter's gradient that are sums so far, by name; else why it is refused.
    fn check(adapted: usize, targets: &[&str], expected: Result<&[&str], &str>) {
        let graph = graph(adapted);
        let value = |name: &str| graph.binding(name).expect("a binding").value;
        let (_, y) = graph.output("y").expect("an output");
        let seeds = [(y, value("dy"))];
        let target = |name: &&str| Target { value: value(name), sum: Some(value(&format!("{name}_sum"))) };
        let targets: Vec<Target> = targets.iter().map(target).collect();
        let found = differentiate_onto(graph, &seeds, &targets).map(|(graph, _)| {
            let is_vjp = |node: &&crate::graph::Node| matches!(node.op, AnyOp::AdaptVjp(_));
            let node = graph.nodes.iter().find(is_vjp).expect("the gradient of the adapter");
            let names = node.inputs[8..].iter().flatten().map(|value| name_of(&graph, *value));
            names.collect::<Vec<_>>()
        });
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(found), Err(expected)) => assert_eq!(found.to_string(), expected),
            (found, expected) => panic!("{found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn gradients_of_matrices_begin_with_their_sums() {
        check(1, &["a", "b"], Ok(&["a_sum", "b_sum"]));
        check(1, &["b"], Ok(&["b_sum"]));
    }

    #[test]
    fn a_sum_is_taken_exactly_once() {
        check(2, &["a"], Err("target \"a\": its sum so far is taken by 2 ops, expected one"));
        check(1, &["gain"], Err("target \"gain\": its sum so far is taken by 0 ops, expected one"));
    }
}
