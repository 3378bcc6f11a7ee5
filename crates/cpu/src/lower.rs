//! From the nodes of a graph to kernels over a run's memory: the one place that knows which kernel an op has.
//!
//! A step is a node or an effect. Its kernel is made anew, from the step's operands, for each call that does units of it and
//! for counting them, so that slices exist only while units run (see [`crate::memory`]).

use std::ops::Range;

use apprentice_graph::ops::Pairing;
use apprentice_graph::{AnyOp, Element, Type};

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
use crate::kernels::write_rows::{Store, WriteRows};
use crate::kernels::{Kernel, run_units};
use crate::operand::Operands;

/// What a step does.
pub(crate) enum Work {
    /// A node, which is no view: its inputs, then its outputs.
    Node(AnyOp),
    /// Rows of a value go to cells of a store: value, cells, store.
    Write,
    /// A value replaces a store: value, store.
    Copy,
}

/// Units of a step, and the float32 that each needs as working memory.
pub(crate) struct Size {
    pub(crate) units: usize,
    pub(crate) scratch: usize,
}

impl Work {
    /// How much there is to do.
    pub(crate) fn size(&self, at: Operands<'_>) -> Size {
        self.visit(at, Count)
    }

    /// Does `units` of it.
    pub(crate) fn execute(&self, at: Operands<'_>, level: Level, units: Range<usize>, scratch: &mut [f32]) {
        self.visit(at, Execute { level, units, scratch });
    }

    fn visit<V: Visit>(&self, at: Operands<'_>, visit: V) -> V::Output {
        match self {
            Work::Node(op) => visit_node(op, at, visit),
            Work::Write => visit.visit(&WriteRows {
                width: at.row_count(2),
                value: at.floats(0),
                cells: at.ints(1),
                store: match at.element(2) {
                    Element::F16 => Store::F16(at.write_bytes(2)),
                    Element::Q8_0 => Store::Q8_0 { bytes: at.write_bytes(2), vector: at.width(2) },
                    _ => Store::F32(at.write(2)),
                },
            }),
            Work::Copy => visit.visit(&Copy { x: at.floats(0), y: at.write(1) }),
        }
    }
}

/// What is done with a kernel.
trait Visit {
    type Output;
    fn visit<K: Kernel>(self, kernel: &K) -> Self::Output;
}

struct Count;

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

fn map<V: Visit, F: Function>(at: Operands<'_>, function: F, visit: V) -> V::Output {
    visit.visit(&Map { function, x: at.unless_in_place(0), y: at.out(0) })
}

/// A function of two inputs, of which the second may be spread over the first.
fn zip<V: Visit, F: Pair>(at: Operands<'_>, function: F, visit: V) -> V::Output {
    let width = at.width(0);
    let operand = match at.floats(1) {
        values if at.same_shape(0, 1) => Operand::Each(values),
        values if at.rank(1) == 1 && at.width(1) == width => Operand::Columns(values),
        values if at.rank(1) == 1 => Operand::One(values),
        values => Operand::Rows(values),
    };
    visit.visit(&Zip { function, width, a: at.unless_in_place(0), b: operand, y: at.out(0) })
}

fn visit_node<V: Visit>(op: &AnyOp, at: Operands<'_>, visit: V) -> V::Output {
    match op {
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
            input: at.width(1),
            output: at.width(0),
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
            da_sum: at.has(8).then(|| at.floats(8)),
            db_sum: at.has(9).then(|| at.floats(9)),
            dx: at.out(0),
            da: at.out(1),
            db: at.out(2),
        }),
        AnyOp::Add(_) => zip(at, Add, visit),
        AnyOp::AddSquares(_) => {
            let so_far = at.has(1).then(|| at.doubles(1));
            visit.visit(&AddSquares { x: at.floats(0), so_far, y: at.write_out(0) })
        }
        AnyOp::Argmax(_) => {
            visit.visit(&Argmax { width: at.width(0), x: at.floats(0), ids: at.write_out(0) })
        }
        AnyOp::Attention(op) => visit.visit(&Attention {
            heads: at.size(0, 1),
            scale: op.scale,
            segment: op.segment as usize,
            q: at.floats(0),
            keys: keys(at, 1, op.window),
            out: at.out(0),
            max: at.out(1),
            sum: at.out(2),
        }),
        AnyOp::AttentionVjp(op) => visit.visit(&AttentionVjp {
            heads: at.size(1, 1),
            scale: op.scale,
            d_out: at.floats(0),
            q: at.floats(1),
            keys: keys(at, 2, op.window),
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
            vocab: at.width(0),
            logits: at.floats(0),
            labels: at.ints(1),
            loss: at.out(0),
            max: at.out(1),
            sum: at.out(2),
        }),
        AnyOp::CrossEntropyVjp(_) => visit.visit(&CrossEntropyVjp {
            vocab: at.width(1),
            d_loss: at.floats(0),
            logits: at.unless_in_place(1),
            labels: at.ints(2),
            max: at.floats(3),
            sum: at.floats(4),
            d_logits: at.out(0),
        }),
        AnyOp::Divide(op) => map(at, Divide { divisor: op.divisor }, visit),
        AnyOp::Dot(_) => {
            visit.visit(&Dot { width: at.width(0), a: at.floats(0), b: at.floats(1), y: at.out(0) })
        }
        AnyOp::Embed(_) => {
            // A negative id becomes one that no vocabulary has: the kernel refuses it.
            visit.visit(&Embed::new(at.read::<u32>(0), at.weight(1), at.out(0)))
        }
        AnyOp::Gelu(_) => map(at, Gelu, visit),
        AnyOp::GeluVjp(_) => zip(at, GeluVjp, visit),
        AnyOp::Linear(_) => visit.visit(&Linear::new(at.rows(0), at.floats(0), at.weight(1), at.out(0))),
        AnyOp::LinearQ8(_) => {
            let x = Quantised { q: at.read(1), d: at.floats(2), sums: at.ints(3) };
            visit.visit(&LinearQ8::new(at.rows(0), x, at.weight(4), at.out(0)))
        }
        AnyOp::LinearVjp(_) => {
            visit.visit(&LinearVjp::new(at.rows(0), at.floats(0), at.weight(1), at.out(0)))
        }
        AnyOp::Mul(_) => zip(at, Mul, visit),
        AnyOp::Offset(op) => map(at, Offset { term: op.term }, visit),
        AnyOp::QuantiseQ8(_) => visit.visit(&QuantiseQ8 {
            width: at.width(0),
            x: at.floats(0),
            q: at.write_out(0),
            d: at.out(1),
            sums: at.write_out(2),
        }),
        AnyOp::Reshape(_) => unreachable!("a view is no work, so no step"),
        AnyOp::RmsNorm(op) => {
            visit.visit(&RmsNorm { eps: op.eps, x: at.unless_in_place(0), gain: at.floats(1), y: at.out(0) })
        }
        AnyOp::Rope(op) => visit.visit(&Rope {
            interleaved: op.pairing == Pairing::Interleaved,
            inverse: op.inverse,
            heads: at.size(0, 1),
            head_dim: at.width(0),
            pairs: at.size(1, 1),
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
        AnyOp::RoundF16(_) => map(at, RoundF16, visit),
        AnyOp::RoundQ8_0(_) => {
            visit.visit(&RoundQ8_0 { width: at.width(0), x: at.unless_in_place(0), y: at.out(0) })
        }
        AnyOp::Rsqrt(_) => map(at, Rsqrt, visit),
        AnyOp::Scale(op) => map(at, Scale { factor: op.factor }, visit),
        AnyOp::ScatterRows(_) => visit.visit(&ScatterRows {
            width: at.row_count(0),
            x: at.floats(0),
            index: at.ints(1),
            y: at.out(0),
        }),
        AnyOp::SelectRows(_) => visit.visit(&SelectRows {
            width: at.row_count(0),
            x: at.floats(0),
            index: at.ints(1),
            y: at.out(0),
        }),
        AnyOp::Silu(_) => map(at, Silu, visit),
        AnyOp::SiluVjp(_) => zip(at, SiluVjp, visit),
        AnyOp::SumRows(_) => {
            let inner = at.row_count(0) / at.width(0).max(1);
            visit.visit(&SumRows { inner, x: at.floats(0), blocks: at.ints(1), y: at.out(0) })
        }
    }
}

/// What attention attends to, its inputs from slot `first` on: k, v, both pools, sequences, page tables.
fn keys<'a>(at: Operands<'a>, first: usize, window: Option<u32>) -> Keys<'a> {
    let pages = |slot: usize| match at.element(slot) {
        Element::F16 => Pages::F16(at.read_bytes(slot)),
        Element::Q8_0 => Pages::Q8_0(at.read_bytes(slot)),
        _ => Pages::F32(at.floats(slot)),
    };
    Keys {
        kv_heads: at.size(first, 1),
        head_dim: at.width(first),
        value_dim: at.width(first + 1),
        window,
        k: at.floats(first),
        v: at.floats(first + 1),
        k_pages: pages(first + 2),
        v_pages: pages(first + 3),
        sequences: at.ints(first + 4),
        pages: at.ints(first + 5),
    }
}
