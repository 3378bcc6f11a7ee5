//! A graph as text, one line a value or node in the order of value ids; [`crate::parse()`] reads it back. Names are JSON
//! strings, so that any name survives.
//!
//! ```text
//! graph {
//!   %0 = weight "token_embd.weight" : weight:Q8_0[49152, 576]
//!   %1 = data "tokens" : i32[16]@rows
//!   %2 = embed(%1, %0) {} "token_embd" : f32[16, 576]@rows
//!   write %2 -> %3 [%4]
//!   return "hidden" %2
//! }
//! ```

use std::fmt;

use serde_json::Value as Json;

use crate::graph::{BindingKind, Graph, Origin};
use crate::ids::ValueId;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph {{")?;
        for (index, value) in self.values.iter().enumerate() {
            match value.origin {
                Origin::Binding(binding) => {
                    let binding = &self.bindings[binding];
                    let (id, kind) = (ValueId::new(index), keyword(binding.kind));
                    writeln!(f, "  {id} = {kind} {} : {}", quoted(&binding.name), value.ty)?;
                }
                Origin::Node { node, output: 0 } => {
                    let node = &self.nodes[node.index()];
                    let inputs =
                        node.inputs.iter().map(|id| id.map_or_else(|| "_".to_owned(), |id| id.to_string()));
                    let types = node.outputs.iter().map(|id| self.ty(*id).to_string());
                    let (outputs, inputs, types) =
                        (join(node.outputs.iter().map(ToString::to_string)), join(inputs), join(types));
                    let (name, attributes) = (node.op.name(), node.op.attributes());
                    let site = quoted(&node.site);
                    writeln!(f, "  {outputs} = {name}({inputs}) {attributes} {site} : {types}")?;
                }
                Origin::Node { .. } => {}
            }
        }
        for effect in &self.effects {
            match effect.cells {
                Some(cells) => writeln!(f, "  write {} -> {} [{cells}]", effect.value, effect.store)?,
                None => writeln!(f, "  write {} -> {}", effect.value, effect.store)?,
            }
        }
        for output in &self.outputs {
            writeln!(f, "  return {} {}", quoted(&output.name), output.value)?;
        }
        writeln!(f, "}}")
    }
}

/// The word for a kind of binding.
pub(crate) fn keyword(kind: BindingKind) -> &'static str {
    match kind {
        BindingKind::Weight => "weight",
        BindingKind::Data => "data",
        BindingKind::Store => "store",
    }
}

/// A name as a JSON string.
fn quoted(name: &str) -> Json {
    Json::from(name)
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}
