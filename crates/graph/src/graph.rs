//! A finished graph: plain data. Nodes stand in topological order; a value is a binding or one output of one node.

use crate::ids::{NodeId, ValueId};
use crate::ops::AnyOp;
use crate::types::Type;

/// A graph that has been checked. Made by [`crate::Builder::finish`], [`crate::parse()`] or a pass.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Graph {
    pub(crate) values: Vec<ValueData>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) bindings: Vec<Binding>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) outputs: Vec<Output>,
}

/// A value: its type and where it comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueData {
    /// Its type.
    pub ty: Type,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The binding at this index of [`Graph::bindings`].
    Binding(usize),
    /// Output `output` of node `node`.
    Node {
        /// The node.
        node: NodeId,
        /// Index among its outputs.
        output: usize,
    },
}

/// An op at work.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// What it does.
    pub op: AnyOp,
    /// Its inputs, in the order that the op declares; `None` where an optional one is absent.
    pub inputs: Vec<Option<ValueId>>,
    /// Its outputs, in the order that the op declares.
    pub outputs: Vec<ValueId>,
    /// Where in the model it stands, for messages: `blk.3.attn_q`.
    pub site: String,
}

/// What a run gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// Unique name.
    pub name: String,
    /// What kind of thing is bound.
    pub kind: BindingKind,
    /// The value that it gives.
    pub value: ValueId,
}

/// Kinds of bindings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindingKind {
    /// A weight of the model: fixed for the life of the backend.
    Weight,
    /// Numbers that the caller gives for this run.
    Data,
    /// A buffer of the backend that outlives runs.
    Store,
}

/// Something that is written when a run has succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effect {
    /// What is written: one row of axis 0 a cell, or the whole store.
    pub value: ValueId,
    /// The store's binding value.
    pub store: ValueId,
    /// int32 `[rows]`: the cell of each row of `value`; a negative one is not written. `None`: the whole store is
    /// replaced, and no node of the same run reads it.
    pub cells: Option<ValueId>,
}

/// A value that a run returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// Unique name.
    pub name: String,
    /// The value.
    pub value: ValueId,
}

impl Graph {
    /// All values.
    pub fn values(&self) -> &[ValueData] {
        &self.values
    }
    /// All nodes, in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
    /// All bindings, in the order in which a run gives them.
    pub fn bindings(&self) -> &[Binding] {
        &self.bindings
    }
    /// What is written at the end of a run.
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }
    /// What a run returns.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }
    /// Type of a value.
    pub fn ty(&self, value: ValueId) -> &Type {
        &self.values[value.index()].ty
    }
    /// The binding called `name`.
    pub fn binding(&self, name: &str) -> Option<&Binding> {
        self.bindings.iter().find(|binding| binding.name == name)
    }
    /// The output called `name`: its index in [`Graph::outputs`] and its value.
    pub fn output(&self, name: &str) -> Option<(usize, ValueId)> {
        let index = self.outputs.iter().position(|output| output.name == name)?;
        Some((index, self.outputs[index].value))
    }
}
