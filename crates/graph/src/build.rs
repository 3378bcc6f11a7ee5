//! Builds graphs. The first error is kept and returned by [`Builder::finish`]; until then later calls do nothing, so a
//! model's function reads without a `?` a line, and a hostile file is refused rather than a panic.

use std::cell::RefCell;
use std::ops::{Add, Mul};

use crate::error::GraphError;
use crate::graph::{Binding, BindingKind, Effect, Graph, Node, Origin, Output, ValueData};
use crate::ids::{NodeId, ValueId};
use crate::op::Op;
use crate::ops::{self, AnyOp};
use crate::types::{Element, Extent, Type};
use crate::verify::verify;

/// A graph in the making.
#[derive(Default)]
pub struct Builder {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    graph: Graph,
    site: String,
    error: Option<GraphError>,
}

/// A value of a graph in the making.
#[derive(Clone, Copy)]
pub struct Value<'g> {
    builder: &'g Builder,
    id: Option<ValueId>,
}

impl Builder {
    /// An empty graph.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Goes on with a finished graph.
    pub fn reopen(graph: Graph) -> Builder {
        Builder { state: RefCell::new(State { graph, ..State::default() }) }
    }

    /// Names the place in the model of the nodes that follow.
    pub fn site(&self, site: &str) {
        site.clone_into(&mut self.state.borrow_mut().site);
    }

    /// The weight called `name`; the same name gives the same value.
    pub fn weight(&self, name: &str, ty: Type) -> Value<'_> {
        self.binding(name, BindingKind::Weight, ty)
    }

    /// Numbers that the caller gives for each run; the same name gives the same value.
    pub fn data(&self, name: &str, ty: Type) -> Value<'_> {
        self.binding(name, BindingKind::Data, ty)
    }

    /// A buffer that outlives runs; the same name gives the same value.
    pub fn store(&self, name: &str, ty: Type) -> Value<'_> {
        self.binding(name, BindingKind::Store, ty)
    }

    /// Adds a node.
    pub fn push<'g, T: Op<I, O> + Into<AnyOp>, const I: usize, const O: usize>(
        &'g self,
        op: T,
        inputs: [Value<'g>; I],
    ) -> [Value<'g>; O] {
        let outputs = self.push_any(op.into(), &inputs.map(|input| input.id));
        std::array::from_fn(|output| Value { builder: self, id: outputs.get(output).copied() })
    }

    /// The outputs of the same op over the same inputs where the graph has it already, else of a new node.
    pub fn push_once<'g, T: Op<I, O> + Into<AnyOp>, const I: usize, const O: usize>(
        &'g self,
        op: T,
        inputs: [Value<'g>; I],
    ) -> [Value<'g>; O] {
        let op = op.into();
        let ids = inputs.map(|input| input.id);
        let same = |node: &&Node| node.op == op && node.inputs == ids;
        let known = self.state.borrow().graph.nodes.iter().find(same).map(|node| node.outputs.clone());
        let outputs = known.unwrap_or_else(|| self.push_any(op, &ids));
        std::array::from_fn(|output| Value { builder: self, id: outputs.get(output).copied() })
    }

    /// An optional input that is not given.
    pub fn absent(&self) -> Value<'_> {
        Value { builder: self, id: None }
    }

    /// The block table for sums over values with `extent`: int32 `[blocks, 2]`, each `(first row, rows)`, in the order in
    /// which blocks are added (NUMERICS: from the last block of a sequence to the first, sequence after sequence).
    pub fn blocks(&self, of: Value<'_>) -> Value<'_> {
        let ty = of.ty();
        let Some(extent) = ty.extent.and_then(Extent::blocks) else {
            let site = self.state.borrow().site.clone();
            self.fail(GraphError::NoBlocks { site, ty: ty.to_string() });
            return self.absent();
        };
        // Every row may begin a block of its own: that many short spans.
        let capacity = ty.rows();
        self.data(&format!("blocks.{extent}"), Type::i32([capacity, 2]).counted(extent))
    }

    /// Returns `value` from a run under `name`.
    pub fn output(&self, name: &str, value: Value<'_>) {
        let Some(value) = value.id else { return };
        self.state.borrow_mut().graph.outputs.push(Output { name: name.to_owned(), value });
    }

    /// Writes `value` into `store` when a run has succeeded: row `i` into cell `cells[i]`, or the whole store.
    pub fn effect(&self, value: Value<'_>, store: Value<'_>, cells: Option<Value<'_>>) {
        let (Some(value), Some(store)) = (value.id, store.id) else { return };
        let cells = cells.and_then(|cells| cells.id);
        self.state.borrow_mut().graph.effects.push(Effect { value, store, cells });
    }

    /// The graph, or the first error.
    pub fn finish(self) -> Result<Graph, GraphError> {
        let state = self.state.into_inner();
        if let Some(error) = state.error {
            return Err(error);
        }
        let violations = verify(&state.graph);
        if violations.is_empty() { Ok(state.graph) } else { Err(GraphError::Invalid(violations)) }
    }

    /// The value with this id.
    pub fn value(&self, id: ValueId) -> Value<'_> {
        Value { builder: self, id: Some(id) }
    }

    /// Keeps `error` if it is the first.
    pub(crate) fn fail(&self, error: GraphError) {
        self.state.borrow_mut().error.get_or_insert(error);
    }

    /// Adds a node of any op.
    pub(crate) fn push_any(&self, op: AnyOp, inputs: &[Option<ValueId>]) -> Vec<ValueId> {
        let mut state = self.state.borrow_mut();
        if state.error.is_some() {
            return Vec::new();
        }
        let node = NodeId::new(state.graph.nodes.len());
        let types: Vec<Type> =
            inputs.iter().map(|id| id.map_or_else(Type::absent, |id| state.graph.ty(id).clone())).collect();
        let outputs = match op.infer(&types.iter().collect::<Vec<_>>()) {
            Ok(outputs) => outputs,
            Err(reason) => {
                let site = state.site.clone();
                state.error = Some(GraphError::Shape { node, op: op.name(), site, reason });
                return Vec::new();
            }
        };
        let ids: Vec<ValueId> = outputs
            .into_iter()
            .enumerate()
            .map(|(output, ty)| {
                state.graph.values.push(ValueData { ty, origin: Origin::Node { node, output } });
                ValueId::new(state.graph.values.len() - 1)
            })
            .collect();
        let site = state.site.clone();
        state.graph.nodes.push(Node { op, inputs: inputs.to_vec(), outputs: ids.clone(), site });
        ids
    }

    fn binding(&self, name: &str, kind: BindingKind, ty: Type) -> Value<'_> {
        let mut state = self.state.borrow_mut();
        if let Some(binding) = state.graph.binding(name) {
            let (value, known) = (binding.value, binding.kind);
            let first = state.graph.ty(value).clone();
            if known != kind || first != ty {
                let name = name.to_owned();
                state.error.get_or_insert(GraphError::Declared {
                    name,
                    first: first.to_string(),
                    second: ty.to_string(),
                });
            }
            return Value { builder: self, id: Some(value) };
        }
        let value = ValueId::new(state.graph.values.len());
        let index = state.graph.bindings.len();
        state.graph.values.push(ValueData { ty, origin: Origin::Binding(index) });
        state.graph.bindings.push(Binding { name: name.to_owned(), kind, value });
        Value { builder: self, id: Some(value) }
    }
}

impl<'g> Value<'g> {
    /// Its id, unless it is absent or an earlier error left it unmade.
    pub fn id(self) -> Option<ValueId> {
        self.id
    }
    /// The builder that it belongs to.
    pub fn builder(self) -> &'g Builder {
        self.builder
    }
    /// Itself, unless it stands for an absent input.
    pub fn present(self) -> Option<Value<'g>> {
        self.id.map(|_| self)
    }
    /// Its type; [`Type::absent`] where it is absent.
    pub fn ty(self) -> Type {
        self.id.map_or_else(Type::absent, |id| self.builder.state.borrow().graph.ty(id).clone())
    }
    /// Size of its last axis.
    pub fn width(self) -> usize {
        self.ty().width()
    }

    /// Every element times `factor`.
    pub fn scale(self, factor: f32) -> Value<'g> {
        let [y] = self.builder.push(ops::Scale { factor }, [self]);
        y
    }
    /// Every element divided by `divisor`.
    pub fn divide(self, divisor: f32) -> Value<'g> {
        let [y] = self.builder.push(ops::Divide { divisor }, [self]);
        y
    }
    /// Every element plus `term`.
    pub fn offset(self, term: f32) -> Value<'g> {
        let [y] = self.builder.push(ops::Offset { term }, [self]);
        y
    }
    /// `1 / sqrt(x)` of every element.
    pub fn rsqrt(self) -> Value<'g> {
        let [y] = self.builder.push(ops::Rsqrt {}, [self]);
        y
    }
    /// Dot product over the last axis, which becomes 1.
    pub fn dot(self, other: Value<'g>) -> Value<'g> {
        let [y] = self.builder.push(ops::Dot {}, [self, other]);
        y
    }
    /// Sum over all axes but the last, in the order of the block table of its rows: `[width]`.
    pub fn sum_rows(self) -> Value<'g> {
        let [y] = self.builder.push(ops::SumRows {}, [self, self.builder.blocks(self)]);
        y
    }
    /// The same bytes with axes `[rows, inner..]`.
    pub fn reshape(self, inner: &[usize]) -> Value<'g> {
        let [y] = self.builder.push(ops::Reshape { inner: inner.to_vec() }, [self]);
        y
    }
    /// Rounds to the element type of a page; nothing where that is float32.
    pub fn round_to(self, element: Element) -> Value<'g> {
        match element {
            Element::F16 => {
                let [y] = self.builder.push(ops::RoundF16 {}, [self]);
                y
            }
            Element::Q8_0 => {
                let [y] = self.builder.push(ops::RoundQ8_0 {}, [self]);
                y
            }
            _ => self,
        }
    }
}

impl<'g> Add for Value<'g> {
    type Output = Value<'g>;
    /// Elementwise sum; the right side may be `[width]`.
    fn add(self, other: Value<'g>) -> Value<'g> {
        let [y] = self.builder.push(ops::Add {}, [self, other]);
        y
    }
}

impl<'g> Mul for Value<'g> {
    type Output = Value<'g>;
    /// Elementwise product; the right side may be `[width]`, `[.., 1]` or `[1]`.
    fn mul(self, other: Value<'g>) -> Value<'g> {
        let [y] = self.builder.push(ops::Mul {}, [self, other]);
        y
    }
}
