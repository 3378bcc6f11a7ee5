//! The rules of a graph. All that are broken are reported, each with its place, what was expected and what was found.
//!
//! 1. Every id exists, and a value's origin names it back.
//! 2. Nodes stand in topological order: an input is a binding or an output of an earlier node.
//! 3. A node has as many inputs and outputs as its op declares; only optional inputs are absent.
//! 4. The types of its outputs are those that its op infers.
//! 5. Names of bindings are unique, and names of outputs.
//! 6. float16 and q8_0 are elements of stores only; blocks of a file are the element of weights only; int8 is never that
//!    of either. The bytes of every value fit a `usize`.
//! 7. An effect writes a value that is no store into a store: whole, with the store's own type, or row by row through int32
//!    cells that the caller gives, one cell a row.
//! 8. Purity: no node reads a store that the same run replaces as a whole, and no store is replaced twice. (Cells that a
//!    run writes row by row lie past the lengths that its nodes read; the caller's tables see to that.)

use std::collections::HashSet;
use std::fmt;

use crate::graph::{BindingKind, Effect, Graph, Origin};
use crate::ids::{NodeId, ValueId};
use crate::op::Storage;
use crate::types::{Element, Type};

/// A broken rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Where: a node with its op and site, a binding, an effect.
    pub place: String,
    /// What the rule wants.
    pub expected: String,
    /// What stands there.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found {}", self.place, self.expected, self.found)
    }
}

/// Checks every rule; empty when all hold.
pub fn verify(graph: &Graph) -> Vec<Violation> {
    let mut check = Check { graph, violations: Vec::new() };
    check.bindings();
    for index in 0..graph.nodes.len() {
        check.node(index);
    }
    check.outputs();
    check.effects();
    check.violations
}

struct Check<'a> {
    graph: &'a Graph,
    violations: Vec<Violation>,
}

impl Check<'_> {
    fn report(&mut self, place: impl fmt::Display, expected: impl fmt::Display, found: impl fmt::Display) {
        self.violations.push(Violation {
            place: place.to_string(),
            expected: expected.to_string(),
            found: found.to_string(),
        });
    }

    fn exists(&self, value: ValueId) -> bool {
        value.index() < self.graph.values.len()
    }

    fn bindings(&mut self) {
        let mut names = HashSet::new();
        for (index, binding) in self.graph.bindings.iter().enumerate() {
            let place = format!("binding {:?}", binding.name);
            if !names.insert(binding.name.as_str()) {
                self.report(&place, "a unique name", "a second one");
            }
            if !self.exists(binding.value) {
                self.report(&place, "a value of the graph", binding.value);
                continue;
            }
            let value = &self.graph.values[binding.value.index()];
            if value.origin != Origin::Binding(index) {
                self.report(
                    &place,
                    format!("the origin of {}", binding.value),
                    format!("{:?}", value.origin),
                );
            }
            let fits = match (value.ty.element, binding.kind) {
                (Element::F16 | Element::Q8_0, kind) => kind == BindingKind::Store,
                (Element::I8, kind) => kind == BindingKind::Data,
                (Element::Weight(_), kind) => kind == BindingKind::Weight,
                (Element::Absent, _) => false,
                _ => true,
            };
            if !fits {
                self.report(&place, format!("an element that a {:?} may have", binding.kind), &value.ty);
            }
            if value.ty.bytes().is_none() {
                self.report(&place, "a size that fits and whole blocks", &value.ty);
            }
        }
    }

    fn node(&mut self, index: usize) {
        let node = &self.graph.nodes[index];
        let id = NodeId::new(index);
        let place = format!("{id} {} at {:?}", node.op.name(), node.site);
        let declared = node.op.inputs();
        if node.inputs.len() != declared.len() || node.outputs.len() != node.op.outputs().len() {
            let expected = format!("{} inputs and {} outputs", declared.len(), node.op.outputs().len());
            self.report(&place, expected, format!("{} and {}", node.inputs.len(), node.outputs.len()));
            return;
        }
        let mut types = Vec::with_capacity(declared.len());
        for (input, value) in declared.iter().zip(&node.inputs) {
            let Some(value) = value else {
                types.push(Type::absent());
                continue;
            };
            if !self.exists(*value) {
                self.report(&place, format!("{}: a value of the graph", input.name), value);
                return;
            }
            if let Origin::Node { node: from, .. } = self.graph.values[value.index()].origin
                && from >= id
            {
                self.report(&place, format!("{}: an earlier node", input.name), format!("{value} of {from}"));
                return;
            }
            types.push(self.graph.ty(*value).clone());
        }
        let inferred = match node.op.infer(&types.iter().collect::<Vec<_>>()) {
            Ok(inferred) => inferred,
            Err(reason) => {
                return self.report(&place, format!("{}: {}", reason.what, reason.expected), reason.found);
            }
        };
        for (output, (value, ty)) in node.outputs.iter().zip(&inferred).enumerate() {
            if !self.exists(*value) {
                self.report(&place, "outputs of the graph", value);
                continue;
            }
            let data = &self.graph.values[value.index()];
            if data.origin != (Origin::Node { node: id, output }) {
                self.report(&place, format!("the origin of {value}"), format!("{:?}", data.origin));
            }
            if data.ty != *ty {
                self.report(&place, format!("{value}: {ty}"), &data.ty);
            }
            if data.ty.bytes().is_none() {
                self.report(&place, format!("{value}: a size that fits"), &data.ty);
            }
        }
    }

    fn outputs(&mut self) {
        let mut names = HashSet::new();
        for output in &self.graph.outputs {
            let place = format!("output {:?}", output.name);
            if !names.insert(output.name.as_str()) {
                self.report(&place, "a unique name", "a second one");
            }
            if !self.exists(output.value) {
                self.report(&place, "a value of the graph", output.value);
            }
        }
    }

    fn effects(&mut self) {
        let mut replaced = HashSet::new();
        for effect in &self.graph.effects {
            let place = format!("effect {} -> {}", effect.value, effect.store);
            let known = [Some(effect.value), Some(effect.store), effect.cells].into_iter().flatten();
            if known.into_iter().any(|value| !self.exists(value)) {
                self.report(&place, "values of the graph", format!("{effect:?}"));
                continue;
            }
            let is_store = match self.graph.values[effect.store.index()].origin {
                Origin::Binding(index) => self.graph.bindings[index].kind == BindingKind::Store,
                Origin::Node { .. } => false,
            };
            if !is_store {
                self.report(&place, "a store", self.graph.ty(effect.store));
                continue;
            }
            if let Some(store) = self.viewed_store(effect.value) {
                self.report(&place, "a value that is no store", format!("{store:?}"));
            }
            match effect.cells {
                Some(cells) => self.rows_into_cells(&place, effect, cells),
                None => self.whole_store(&place, effect, &mut replaced),
            }
        }
    }

    /// Name of the store that a value is, or is a view of.
    fn viewed_store(&self, value: ValueId) -> Option<String> {
        match self.graph.values[value.index()].origin {
            Origin::Binding(index) => {
                let binding = self.graph.bindings.get(index)?;
                (binding.kind == BindingKind::Store).then(|| binding.name.clone())
            }
            Origin::Node { node, .. } => {
                let node = self.graph.nodes.get(node.index())?;
                let viewed = (*node.inputs.first()?)?;
                let earlier = node.op.storage() == Storage::View && viewed < value && self.exists(viewed);
                if earlier { self.viewed_store(viewed) } else { None }
            }
        }
    }

    fn rows_into_cells(&mut self, place: &str, effect: &Effect, cells: ValueId) {
        if !matches!(self.graph.values[cells.index()].origin, Origin::Binding(_)) {
            self.report(place, "cells that the caller gives", cells);
        }
        let (value, store, cells) =
            (self.graph.ty(effect.value), self.graph.ty(effect.store), self.graph.ty(cells));
        if cells.element != Element::I32 || cells.rank() != 1 || cells.expect_rows_of("cells", value).is_err()
        {
            self.report(place, format!("int32 cells with the rows of {value}"), cells);
        }
        if value.element != Element::F32
            || !matches!(store.element, Element::F32 | Element::F16 | Element::Q8_0)
        {
            let expected = "float32 rows into float32, float16 or q8_0 cells";
            self.report(place, expected, format!("{value} into {store}"));
        }
        if store.element == Element::Q8_0 && value.width() != store.width() {
            self.report(place, format!("rows of vectors of {}", store.width()), value);
        }
        if value.row_count() != store.row_count() {
            self.report(place, format!("rows of {} elements", store.row_count()), value);
        }
    }

    fn whole_store(&mut self, place: &str, effect: &Effect, replaced: &mut HashSet<ValueId>) {
        let (value, store) = (self.graph.ty(effect.value), self.graph.ty(effect.store));
        if value != store {
            self.report(place, store, value);
        }
        if !replaced.insert(effect.store) {
            self.report(place, "a store that is replaced once", "a second time");
        }
        let reader = self.graph.nodes.iter().find(|node| node.inputs.contains(&Some(effect.store)));
        if let Some(reader) = reader {
            self.report(place, "no reader of a store that the run replaces", format!("{:?}", reader.site));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Builder;

    /// What `change` breaks of a graph whose values are `%0`, a binding, and `%1`, made of it. No text gives such graphs.
    fn check(change: impl Fn(&mut Graph), expected: &[&str]) {
        let builder = Builder::new();
        builder.site("a");
        builder.output("y", builder.data("x", Type::f32([2])).scale(2.0));
        let mut graph = builder.finish().expect("the unchanged graph holds");
        change(&mut graph);
        let found: Vec<String> = verify(&graph).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_origin_names_its_value_back() {
        check(|_| {}, &[]);
        check(
            |graph| graph.values[0].origin = Origin::Binding(1),
            &["binding \"x\": expected the origin of %0, found Binding(1)"],
        );
        check(
            |graph| graph.values[1].origin = Origin::Node { node: NodeId::new(0), output: 1 },
            &["n0 scale at \"a\": expected the origin of %1, found Node { node: n0, output: 1 }"],
        );
    }

    #[test]
    fn bindings_and_outputs_exist() {
        check(
            |graph| graph.bindings[0].value = ValueId::new(7),
            &["binding \"x\": expected a value of the graph, found %7"],
        );
        check(
            |graph| graph.nodes[0].outputs[0] = ValueId::new(8),
            &["n0 scale at \"a\": expected outputs of the graph, found %8"],
        );
    }
}
