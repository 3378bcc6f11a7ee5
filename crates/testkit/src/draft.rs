//! A graph that can be changed: a copy in plain fields, from which a graph is made again by way of its text, so that
//! whatever comes out has been verified.

use std::collections::HashMap;
use std::fmt::Write;

use apprentice_graph::{
    AnyOp, Binding, BindingKind, Effect, Graph, Node, Output, ParseError, Type, ValueId, parse,
};
use serde_json::Value as Json;

/// A graph in the making. Ids need not be in order; nodes must be.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Bindings.
    pub bindings: Vec<Binding>,
    /// Nodes in topological order.
    pub nodes: Vec<Node>,
    /// Effects.
    pub effects: Vec<Effect>,
    /// What a run returns.
    pub outputs: Vec<Output>,
    types: Vec<Type>,
}

impl Draft {
    /// A copy of `graph`.
    pub fn of(graph: &Graph) -> Draft {
        Draft {
            bindings: graph.bindings().to_vec(),
            nodes: graph.nodes().to_vec(),
            effects: graph.effects().to_vec(),
            outputs: graph.outputs().to_vec(),
            types: graph.values().iter().map(|value| value.ty.clone()).collect(),
        }
    }

    /// Type of a value.
    pub fn ty(&self, value: ValueId) -> &Type {
        &self.types[value.index()]
    }

    /// An id for a new value of this type.
    pub fn fresh(&mut self, ty: Type) -> ValueId {
        self.types.push(ty);
        ValueId::new(self.types.len() - 1)
    }

    /// Text of the draft, values numbered in order: bindings, then nodes.
    pub fn text(&self) -> String {
        let mut names: HashMap<ValueId, usize> = HashMap::new();
        let mut text = "graph {\n".to_owned();
        let quoted = |name: &str| Json::from(name).to_string();
        for (number, binding) in self.bindings.iter().enumerate() {
            names.insert(binding.value, number);
            let kind = match binding.kind {
                BindingKind::Weight => "weight",
                BindingKind::Data => "data",
                BindingKind::Store => "store",
            };
            let (name, ty) = (quoted(&binding.name), self.ty(binding.value));
            writeln!(text, "  %{number} = {kind} {name} : {ty}").expect("memory");
        }
        for node in &self.nodes {
            for output in &node.outputs {
                names.insert(*output, names.len());
            }
            let id = |value: &ValueId| format!("%{}", names[value]);
            let outputs: Vec<String> = node.outputs.iter().map(id).collect();
            let inputs: Vec<String> =
                node.inputs.iter().map(|input| input.as_ref().map_or("_".to_owned(), id)).collect();
            let types: Vec<String> = node.outputs.iter().map(|output| self.ty(*output).to_string()).collect();
            let (outputs, inputs, types) = (outputs.join(", "), inputs.join(", "), types.join(", "));
            let (op, attributes, site) = (node.op.name(), node.op.attributes(), quoted(&node.site));
            writeln!(text, "  {outputs} = {op}({inputs}) {attributes} {site} : {types}").expect("memory");
        }
        for Effect { value, store, cells } in &self.effects {
            let cells = cells.map_or(String::new(), |cells| format!(" [%{}]", names[&cells]));
            writeln!(text, "  write %{} -> %{}{cells}", names[value], names[store]).expect("memory");
        }
        for output in &self.outputs {
            writeln!(text, "  return {} %{}", quoted(&output.name), names[&output.value]).expect("memory");
        }
        text.push_str("}\n");
        text
    }

    /// The graph.
    ///
    /// # Errors
    /// The rules that the draft breaks.
    pub fn graph(&self) -> Result<Graph, ParseError> {
        parse(&self.text())
    }
}

/// The op with another attribute; `None` where it has none of this name or refuses the value.
pub fn with_attribute(op: &AnyOp, name: &str, value: Json) -> Option<AnyOp> {
    let Json::Object(mut attributes) = op.attributes() else { return None };
    *attributes.get_mut(name)? = value;
    AnyOp::from_attributes(op.name(), Json::Object(attributes))?.ok()
}
