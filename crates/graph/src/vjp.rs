//! Reverse mode, from graph to graph. Runs before every other pass.
//!
//! Nodes are walked from the last to the first. Cotangents of a value are added as explicit nodes in that order: the last
//! use first, and within a node the last input first (NUMERICS, "Fan-out"). An absent cotangent stays absent; nothing is
//! skipped: an op without VJP on the way to a target, and a target that nothing reaches, are refused.

use crate::build::{Builder, Value};
use crate::error::GraphError;
use crate::graph::{Graph, Origin};
use crate::ids::{NodeId, ValueId};

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
    let active = active_values(&graph, targets);
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
        let gradients =
            node.op.vjp(&builder, &node.inputs, &node.outputs, &arrived, &wanted).map_err(|reason| {
                GraphError::NoVjp {
                    node: NodeId::new(index),
                    op: node.op.name(),
                    site: node.site.clone(),
                    reason,
                }
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
