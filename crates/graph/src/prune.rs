//! Pass: drops nodes and bindings that no output and no effect needs. Equivalence: every output and effect is computed by
//! the same nodes in the same order.

use crate::graph::{Graph, Node, Origin, ValueData};
use crate::ids::{NodeId, ValueId};

/// The graph without what nothing needs.
pub fn prune(graph: &Graph) -> Graph {
    let mut needed = vec![false; graph.values.len()];
    for output in &graph.outputs {
        needed[output.value.index()] = true;
    }
    for effect in &graph.effects {
        for value in [Some(effect.value), Some(effect.store), effect.cells].into_iter().flatten() {
            needed[value.index()] = true;
        }
    }
    for node in graph.nodes.iter().rev() {
        if node.outputs.iter().any(|output| needed[output.index()]) {
            for value in node.outputs.iter().copied().chain(node.inputs.iter().flatten().copied()) {
                needed[value.index()] = true;
            }
        }
    }
    let mut pruned = Graph::default();
    let mut moved: Vec<Option<ValueId>> = vec![None; graph.values.len()];
    for (index, value) in graph.values.iter().enumerate() {
        let Origin::Binding(binding) = value.origin else { continue };
        if needed[index] {
            let id = ValueId::new(pruned.values.len());
            moved[index] = Some(id);
            let origin = Origin::Binding(pruned.bindings.len());
            pruned.values.push(ValueData { ty: value.ty.clone(), origin });
            let mut binding = graph.bindings[binding].clone();
            binding.value = id;
            pruned.bindings.push(binding);
        }
    }
    for node in &graph.nodes {
        if !needed[node.outputs[0].index()] {
            continue;
        }
        let id = NodeId::new(pruned.nodes.len());
        let inputs = node.inputs.iter().map(|input| input.and_then(|value| moved[value.index()])).collect();
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for (output, value) in node.outputs.iter().enumerate() {
            let new = ValueId::new(pruned.values.len());
            moved[value.index()] = Some(new);
            let origin = Origin::Node { node: id, output };
            pruned.values.push(ValueData { ty: graph.values[value.index()].ty.clone(), origin });
            outputs.push(new);
        }
        pruned.nodes.push(Node { op: node.op.clone(), inputs, outputs, site: node.site.clone() });
    }
    // Everything that an output or effect names was marked as needed above, so it has moved.
    let at = |value: ValueId| moved[value.index()].expect("a needed value was kept");
    pruned.outputs = graph
        .outputs
        .iter()
        .cloned()
        .map(|mut o| {
            o.value = at(o.value);
            o
        })
        .collect();
    pruned.effects = graph
        .effects
        .iter()
        .copied()
        .map(|mut e| {
            e.value = at(e.value);
            e.store = at(e.store);
            e.cells = e.cells.map(at);
            e
        })
        .collect();
    pruned
}
