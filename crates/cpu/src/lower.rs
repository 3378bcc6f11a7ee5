//! From the nodes of a graph to kernels over a run's memory: the one place that knows which kernel an op has.
//!
//! A step is a node or an effect. Its kernel is made anew, from pointers that the plan has fixed, for each call that does
//! units of it and for counting them, so that slices exist only while units run (see [`crate::memory`]). How many units
//! there are depends on counts only, so a [`Schedule`] serves all runs with the same counts.

use std::ops::Range;

use apprentice_graph::ops::Pairing;
use apprentice_graph::{AnyOp, Effect, Element, Graph, Node, Storage, Type, ValueId};

use crate::isa::Level;
use crate::kernels::adamw::AdamW;
use crate::kernels::adapt::Adapt;
use crate::kernels::adapt_vjp::AdaptVjp;
use crate::kernels::add_squares::AddSquares;
use crate::kernels::argmax::Argmax;
use crate::kernels::arithmetic::{Add, Divide, Mul, Offset, Rsqrt, Scale};
use crate::kernels::attention::{Attention, Keys, Pages};
use crate::kernels::attention_vjp::AttentionVjp;
use crate::kernels::clip_factor::ClipFactor;
use crate::kernels::copy::Copy;
use crate::kernels::cross_entropy::CrossEntropy;
use crate::kernels::cross_entropy_vjp::CrossEntropyVjp;
use crate::kernels::dot::Dot;
use crate::kernels::embed::Embed;
use crate::kernels::gelu::{Gelu, GeluVjp};
use crate::kernels::linear::Linear;
use crate::kernels::linear_q8::{LinearQ8, Quantised};
use crate::kernels::linear_vjp::LinearVjp;
use crate::kernels::map::{Function, Map, Operand, Pair, Zip};
use crate::kernels::quantise_q8::QuantiseQ8;
use crate::kernels::rms_norm::RmsNorm;
use crate::kernels::rope::Rope;
use crate::kernels::rope_table::RopeTable;
use crate::kernels::round_f16::RoundF16;
use crate::kernels::round_q8_0::RoundQ8_0;
use crate::kernels::scatter_rows::ScatterRows;
use crate::kernels::select_rows::SelectRows;
use crate::kernels::silu::{Silu, SiluVjp};
use crate::kernels::sum_rows::SumRows;
use crate::kernels::weight::Weight;
use crate::kernels::write_rows::{Store, WriteRows};
use crate::kernels::{Kernel, run_units};
use crate::memory::Memory;

/// The steps of runs with the same counts: nodes in their order that have units, then effects.
pub(crate) struct Schedule {
    steps: Vec<Step>,
    units: Vec<usize>,
    /// FLOPs of each step.
    flops: Vec<u64>,
    scratch: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Node(usize),
    Effect(usize),
}

impl Schedule {
    /// The schedule of a run; it holds for others with the same counts.
    pub(crate) fn new(memory: &Memory<'_>) -> Schedule {
        let graph = memory.graph;
        let nodes = (0..graph.nodes().len()).map(Step::Node);
        let all = nodes.chain((0..graph.effects().len()).map(Step::Effect));
        let mut made = Schedule { steps: Vec::new(), units: Vec::new(), flops: Vec::new(), scratch: 0 };
        for step in all {
            let Some(Size { units, scratch }) = step.visit(memory, Count) else { continue };
            if units > 0 {
                made.steps.push(step);
                made.units.push(units);
                made.flops.push(step.flops(memory));
                made.scratch = made.scratch.max(scratch);
            }
        }
        made
    }

    /// Units of each step.
    pub(crate) fn units(&self) -> &[usize] {
        &self.units
    }

    /// float32 that a worker needs as working memory.
    pub(crate) fn scratch(&self) -> usize {
        self.scratch
    }

    /// The first step that writes a store.
    pub(crate) fn first_effect(&self) -> usize {
        self.steps.partition_point(|step| matches!(step, Step::Node(_)))
    }

    /// Where a part ends that begins at `from` and may spend about `limit` FLOPs. Effects are in the last part only.
    pub(crate) fn end_of_part(&self, from: usize, limit: u64) -> usize {
        if limit == u64::MAX {
            return self.steps.len();
        }
        let effects = self.first_effect();
        let mut spent = 0u64;
        for step in from..effects {
            spent = spent.saturating_add(self.flops[step]);
            if spent >= limit && step + 1 < effects {
                return step + 1;
            }
        }
        self.steps.len()
    }

    /// Does `units` of one step.
    pub(crate) fn execute(
        &self,
        memory: &Memory<'_>,
        level: Level,
        step: usize,
        units: Range<usize>,
        scratch: &mut [f32],
    ) {
        self.steps[step].visit(memory, Execute { level, units, scratch });
    }

    /// What each step does, for a table of times: the op, of a product also the shape of its weight.
    pub(crate) fn names(&self, graph: &Graph) -> impl Iterator<Item = String> {
        self.steps.iter().map(|step| match step {
            Step::Effect(_) => "write".to_owned(),
            Step::Node(index) => {
                let node = &graph.nodes()[*index];
                let inputs = node.inputs.iter().flatten().map(|input| graph.ty(*input));
                let weight = inputs.filter(|ty| matches!(ty.element, Element::Weight(_))).next();
                let shape = weight.map(|ty| format!(" {}x{} {}", ty.rows(), ty.width(), ty.element));
                format!("{}{}", node.op.name(), shape.unwrap_or_default())
            }
        })
    }
}

impl Step {
    fn visit<V: Visit>(self, memory: &Memory<'_>, visit: V) -> Option<V::Output> {
        match self {
            Step::Node(index) => visit_node(memory, &memory.graph.nodes()[index], visit),
            Step::Effect(index) => Some(visit_effect(memory, &memory.graph.effects()[index], visit)),
        }
    }

    /// FLOPs with the counts of this run, about: its share of what it would be at full capacity.
    fn flops(self, memory: &Memory<'_>) -> u64 {
        let Step::Node(index) = self else { return 0 };
        let graph = memory.graph;
        let node = &graph.nodes()[index];
        let absent = Type::absent();
        let types: Vec<&Type> = node.inputs.iter().map(|id| id.map_or(&absent, |id| graph.ty(id))).collect();
        let out = node.outputs[0];
        let (rows, capacity) = (memory.rows(out) as u128, graph.ty(out).rows().max(1) as u128);
        (u128::from(node.op.cost(&types).flops) * rows / capacity) as u64
    }
}

/// What is done with a kernel.
trait Visit {
    type Output;
    fn visit<K: Kernel>(self, kernel: &K) -> Self::Output;
}

struct Count;

struct Size {
    units: usize,
    scratch: usize,
}

impl Visit for Count {
    type Output = Size;
    fn visit<K: Kernel>(self, kernel: &K) -> Size {
        Size { units: kernel.units(), scratch: kernel.scratch() }
    }
}

struct Execute<'a> {
    level: Level,
    units: Range<usize>,
    scratch: &'a mut [f32],
}

impl Visit for Execute<'_> {
    type Output = ();
    fn visit<K: Kernel>(self, kernel: &K) {
        run_units(self.level, kernel, self.units, self.scratch);
    }
}

/// Whether every element type among the inputs is one that the op's kernel reads.
pub(crate) fn supports(op: &AnyOp, inputs: &[&Type]) -> bool {
    let f64_inputs = match op {
        AnyOp::AddSquares(_) => &[1][..],
        AnyOp::RopeTable(_) => &[1],
        AnyOp::ClipFactor(_) => &[0],
        _ => &[],
    };
    inputs.iter().enumerate().all(|(slot, ty)| ty.element != Element::F64 || f64_inputs.contains(&slot))
}

/// The values of a node, by place.
struct At<'a> {
    memory: &'a Memory<'a>,
    node: &'a Node,
}

impl<'a> At<'a> {
    /// A required input: verified graphs have it.
    fn input(&self, slot: usize) -> ValueId {
        self.node.inputs[slot].expect("a verified node has its required inputs")
    }
    fn floats(&self, slot: usize) -> &'a [f32] {
        self.memory.read(self.input(slot))
    }
    fn ints(&self, slot: usize) -> &'a [i32] {
        self.memory.read(self.input(slot))
    }
    fn doubles(&self, slot: usize) -> &'a [f64] {
        self.memory.read(self.input(slot))
    }
    /// An input, unless output 0 lies in its place.
    fn unless_in_place(&self, slot: usize) -> Option<&'a [f32]> {
        let shared = self.memory.shares(self.input(slot), self.node.outputs[0]);
        (!shared).then(|| self.floats(slot))
    }
    fn out(&self, output: usize) -> crate::Disjoint<'a, f32> {
        self.memory.write(self.node.outputs[output])
    }
    fn ty(&self, slot: usize) -> &'a Type {
        self.memory.ty(self.input(slot))
    }
    fn rows(&self, slot: usize) -> usize {
        self.memory.rows(self.input(slot))
    }
    fn sizes(&self, slot: usize) -> &'a [usize] {
        &self.ty(slot).shape.0
    }
    fn weight(&self, slot: usize) -> Weight<'a> {
        let ty = self.ty(slot);
        let Element::Weight(format) = ty.element else { unreachable!("a verified product has a weight") };
        let weight = Weight::new(format, self.memory.read_bytes(self.input(slot)), ty.rows(), ty.width());
        weight.expect("a weight's bytes were checked when it was taken")
    }
}

/// A store whose cells rows are written to.
fn store<'a>(memory: &Memory<'a>, value: ValueId) -> Store<'a> {
    match memory.ty(value).element {
        Element::F16 => Store::F16(memory.write_bytes(value)),
        Element::Q8_0 => Store::Q8_0 { bytes: memory.write_bytes(value), vector: memory.ty(value).width() },
        _ => Store::F32(memory.write(value)),
    }
}

fn map<V: Visit, F: Function>(at: &At<'_>, function: F, visit: V) -> V::Output {
    visit.visit(&Map { function, x: at.unless_in_place(0), y: at.out(0) })
}

/// A function of two inputs, of which the second may be spread over the first.
fn zip<V: Visit, F: Pair>(at: &At<'_>, function: F, visit: V) -> V::Output {
    let (a, b) = (at.ty(0), at.ty(1));
    let operand = match at.floats(1) {
        values if a.shape == b.shape => Operand::Each(values),
        values if b.rank() == 1 && b.width() == a.width() => Operand::Columns(values),
        values if b.rank() == 1 => Operand::One(values),
        values => Operand::Rows(values),
    };
    visit.visit(&Zip { function, width: a.width(), a: at.unless_in_place(0), b: operand, y: at.out(0) })
}

fn visit_effect<V: Visit>(memory: &Memory<'_>, effect: &Effect, visit: V) -> V::Output {
    match effect.cells {
        Some(cells) => visit.visit(&WriteRows {
            width: memory.ty(effect.store).row_count(),
            value: memory.read(effect.value),
            cells: memory.read(cells),
            store: store(memory, effect.store),
        }),
        None => visit.visit(&Copy { x: memory.read(effect.value), y: memory.write(effect.store) }),
    }
}

/// `None` for a view, which is no work.
fn visit_node<V: Visit>(memory: &Memory<'_>, node: &Node, visit: V) -> Option<V::Output> {
    let at = At { memory, node };
    Some(match &node.op {
        AnyOp::AdamW(_) => visit.visit(&AdamW {
            scalars: at.floats(4),
            g: at.floats(1),
            p: at.unless_in_place(0),
            m: Some(at.floats(2)),
            v: Some(at.floats(3)),
            p_out: at.out(0),
            m_out: at.out(1),
            v_out: at.out(2),
        }),
        AnyOp::Adapt(_) => visit.visit(&Adapt {
            y: at.unless_in_place(0),
            x: at.floats(1),
            a: at.floats(2),
            b: at.floats(3),
            table: at.ints(4),
            scales: at.floats(5),
            named: at.ints(6),
            input: at.ty(1).width(),
            output: at.ty(0).width(),
            out: at.out(0),
        }),
        AnyOp::AdaptVjp(_) => visit.visit(&AdaptVjp {
            dy: at.floats(0),
            x: at.floats(1),
            a: at.floats(2),
            b: at.floats(3),
            table: at.ints(4),
            scales: at.floats(5),
            named: at.ints(6),
            blocks: at.ints(7),
            da_sum: node.inputs[8].map(|_| at.floats(8)),
            db_sum: node.inputs[9].map(|_| at.floats(9)),
            dx: at.out(0),
            da: at.out(1),
            db: at.out(2),
        }),
        AnyOp::Add(_) => zip(&at, Add, visit),
        AnyOp::AddSquares(_) => {
            let so_far = node.inputs[1].map(|_| at.doubles(1));
            visit.visit(&AddSquares { x: at.floats(0), so_far, y: memory.write(node.outputs[0]) })
        }
        AnyOp::Argmax(_) => visit.visit(&Argmax {
            width: at.ty(0).width(),
            x: at.floats(0),
            ids: memory.write(node.outputs[0]),
        }),
        AnyOp::Attention(op) => visit.visit(&Attention {
            heads: at.sizes(0)[1],
            scale: op.scale,
            segment: op.segment as usize,
            q: at.floats(0),
            keys: keys(&at, 1, op.window),
            out: at.out(0),
            max: at.out(1),
            sum: at.out(2),
        }),
        AnyOp::AttentionVjp(op) => visit.visit(&AttentionVjp {
            heads: at.sizes(1)[1],
            scale: op.scale,
            d_out: at.floats(0),
            q: at.floats(1),
            keys: keys(&at, 2, op.window),
            out: at.floats(8),
            max: at.floats(9),
            sum: at.floats(10),
            dq: at.out(0),
            dk: at.out(1),
            dv: at.out(2),
        }),
        AnyOp::ClipFactor(_) => {
            visit.visit(&ClipFactor { squares: at.doubles(0), limit: at.floats(1), factor: at.out(0) })
        }
        AnyOp::CrossEntropy(_) => visit.visit(&CrossEntropy {
            vocab: at.ty(0).width(),
            logits: at.floats(0),
            labels: at.ints(1),
            loss: at.out(0),
            max: at.out(1),
            sum: at.out(2),
        }),
        AnyOp::CrossEntropyVjp(_) => visit.visit(&CrossEntropyVjp {
            vocab: at.ty(1).width(),
            d_loss: at.floats(0),
            logits: at.unless_in_place(1),
            labels: at.ints(2),
            max: at.floats(3),
            sum: at.floats(4),
            d_logits: at.out(0),
        }),
        AnyOp::Divide(op) => map(&at, Divide { divisor: op.divisor }, visit),
        AnyOp::Dot(_) => {
            visit.visit(&Dot { width: at.ty(0).width(), a: at.floats(0), b: at.floats(1), y: at.out(0) })
        }
        AnyOp::Embed(_) => {
            // A negative id becomes one that no vocabulary has: the kernel refuses it.
            visit.visit(&Embed::new(memory.read::<u32>(at.input(0)), at.weight(1), at.out(0)))
        }
        AnyOp::Gelu(_) => map(&at, Gelu, visit),
        AnyOp::GeluVjp(_) => zip(&at, GeluVjp, visit),
        AnyOp::Linear(_) => visit.visit(&Linear::new(at.rows(0), at.floats(0), at.weight(1), at.out(0))),
        AnyOp::LinearQ8(_) => {
            let x = Quantised { q: memory.read(at.input(1)), d: at.floats(2), sums: at.ints(3) };
            visit.visit(&LinearQ8::new(at.rows(0), x, at.weight(4), at.out(0)))
        }
        AnyOp::LinearVjp(_) => {
            visit.visit(&LinearVjp::new(at.rows(0), at.floats(0), at.weight(1), at.out(0)))
        }
        AnyOp::Mul(_) => zip(&at, Mul, visit),
        AnyOp::Offset(op) => map(&at, Offset { term: op.term }, visit),
        AnyOp::QuantiseQ8(_) => visit.visit(&QuantiseQ8 {
            width: at.ty(0).width(),
            x: at.floats(0),
            q: memory.write(node.outputs[0]),
            d: at.out(1),
            sums: memory.write(node.outputs[2]),
        }),
        AnyOp::Reshape(_) => {
            debug_assert_eq!(node.op.storage(), Storage::View, "a view is no work");
            return None;
        }
        AnyOp::RmsNorm(op) => {
            visit.visit(&RmsNorm { eps: op.eps, x: at.unless_in_place(0), gain: at.floats(1), y: at.out(0) })
        }
        AnyOp::Rope(op) => visit.visit(&Rope {
            interleaved: op.pairing == Pairing::Interleaved,
            inverse: op.inverse,
            heads: at.sizes(0)[1],
            head_dim: at.ty(0).width(),
            pairs: at.sizes(1)[1],
            x: at.unless_in_place(0),
            table: at.floats(1),
            y: at.out(0),
        }),
        AnyOp::RopeTable(op) => visit.visit(&RopeTable {
            scale: op.scale,
            positions: at.ints(0),
            frequencies: at.doubles(1),
            table: at.out(0),
        }),
        AnyOp::RoundF16(_) => map(&at, RoundF16, visit),
        AnyOp::RoundQ8_0(_) => {
            visit.visit(&RoundQ8_0 { width: at.ty(0).width(), x: at.unless_in_place(0), y: at.out(0) })
        }
        AnyOp::Rsqrt(_) => map(&at, Rsqrt, visit),
        AnyOp::Scale(op) => map(&at, Scale { factor: op.factor }, visit),
        AnyOp::ScatterRows(_) => visit.visit(&ScatterRows {
            width: at.ty(0).row_count(),
            x: at.floats(0),
            index: at.ints(1),
            y: at.out(0),
        }),
        AnyOp::SelectRows(_) => visit.visit(&SelectRows {
            width: at.ty(0).row_count(),
            x: at.floats(0),
            index: at.ints(1),
            y: at.out(0),
        }),
        AnyOp::Silu(_) => map(&at, Silu, visit),
        AnyOp::SiluVjp(_) => zip(&at, SiluVjp, visit),
        AnyOp::SumRows(_) => {
            let inner = at.sizes(0)[1..at.ty(0).rank() - 1].iter().product();
            visit.visit(&SumRows { inner, x: at.floats(0), blocks: at.ints(1), y: at.out(0) })
        }
    })
}

/// What attention attends to, its inputs from slot `first` on: k, v, both pools, sequences, page tables.
fn keys<'a>(at: &At<'a>, first: usize, window: Option<u32>) -> Keys<'a> {
    let pages = |slot: usize| match at.ty(slot).element {
        Element::F16 => Pages::F16(at.memory.read_bytes(at.input(slot))),
        Element::Q8_0 => Pages::Q8_0(at.memory.read_bytes(at.input(slot))),
        _ => Pages::F32(at.floats(slot)),
    };
    Keys {
        kv_heads: at.sizes(first)[1],
        head_dim: at.ty(first).width(),
        value_dim: at.ty(first + 1).width(),
        window,
        k: at.floats(first),
        v: at.floats(first + 1),
        k_pages: pages(first + 2),
        v_pages: pages(first + 3),
        sequences: at.ints(first + 4),
        pages: at.ints(first + 5),
    }
}
