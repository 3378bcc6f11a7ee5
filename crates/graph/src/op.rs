//! What an op is: one type in one file of `ops/` that gives its inputs and outputs, shape rule, gradient, meaning, cost
//! and test cases. Everything else in the workspace learns of an op from here.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::array::Array;
use crate::build::Value;
use crate::ops::AnyOp;
use crate::types::{Element, ShapeError, Type};

/// An op with `I` inputs and `O` outputs. Its fields are its attributes; text and equality come from them.
pub trait Op<const I: usize, const O: usize>:
    Clone + PartialEq + Debug + Serialize + DeserializeOwned
{
    /// Name in text, unique among ops.
    const NAME: &'static str;
    /// The inputs in order.
    const INPUTS: [Input; I];
    /// Names of the outputs in order.
    const OUTPUTS: [&'static str; O];
    /// How far a float32 backend may be from the float64 meaning.
    const TOLERANCE: Tolerance;
    /// Where output 0 may lie.
    const STORAGE: Storage = Storage::Fresh;

    /// Types of the outputs, or why these inputs are refused. An absent optional input has [`Type::absent`].
    fn shape(&self, inputs: [&Type; I]) -> Result<[Type; O], ShapeError>;
    /// Builds the graph of the vector-Jacobian product: a cotangent for each input that has one.
    fn vjp<'g>(&self, v: Vjp<'g, I, O>) -> Result<[Option<Value<'g>>; I], Refusal>;
    /// FLOPs and bytes at full capacity.
    fn cost(&self, inputs: [&Type; I]) -> Cost;
    /// The meaning, in float64, by plain loops.
    fn oracle(&self, inputs: [&Array; I]) -> [Array; O];
    /// Inputs that tests run this op on, those that it must refuse included.
    fn cases() -> Vec<Case<Self>>;
}

/// A declared input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input {
    /// Name in text and errors.
    pub name: &'static str,
    /// Whether a gradient flows into it.
    pub gradient: bool,
    /// Whether it may be absent.
    pub optional: bool,
}

impl Input {
    /// An input that a gradient flows into.
    pub const fn new(name: &'static str) -> Input {
        Input { name, gradient: true, optional: false }
    }
    /// An input without gradient: ids, tables, weights as they lie in their file.
    pub const fn constant(name: &'static str) -> Input {
        Input { name, gradient: false, optional: false }
    }
    /// The same input, which may be absent.
    pub const fn optional(self) -> Input {
        Input { optional: true, ..self }
    }
}

/// How far float32 may be from float64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tolerance {
    /// Not at all: the op moves or selects, or its float64 result rounded once is what float32 gives.
    Exact,
    /// Rounding of sums and products; the bound follows from the number of terms.
    Rounding,
}

/// Where output 0 of a node may lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// In bytes of its own.
    Fresh,
    /// It is input 0 under another shape: the same bytes, nothing is executed.
    View,
    /// In the bytes of this input, where nobody reads that later: a kernel reads an element before it writes it.
    InPlace(usize),
}

/// Work of a node at full capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Multiplications and additions, a fused pair counting two.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

impl Cost {
    /// A cost from counts.
    pub fn new(flops: usize, bytes: usize) -> Cost {
        Cost { flops: flops as u64, bytes: bytes as u64 }
    }
    /// `flops` operations over these values, each read or written once.
    pub fn moving(flops: usize, values: &[&Type]) -> Cost {
        let bytes = values.iter().map(|ty| ty.bytes().unwrap_or(usize::MAX));
        Cost::new(flops, bytes.fold(0, usize::saturating_add))
    }
    /// An elementwise op: `flops` an element of `ty`, reading and writing `arrays` arrays of its size.
    pub fn elementwise(ty: &Type, flops: usize, arrays: usize) -> Cost {
        let count = ty.shape.count().unwrap_or(usize::MAX);
        Cost::new(count.saturating_mul(flops), count.saturating_mul(4 * arrays))
    }
}

/// Why a gradient through an op is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub &'static str);

/// What a VJP works with.
pub struct Vjp<'g, const I: usize, const O: usize> {
    /// The node's inputs; an absent one answers `None` to [`Value::present`].
    pub inputs: [Value<'g>; I],
    /// The node's outputs.
    pub outputs: [Value<'g>; O],
    /// Cotangents of the outputs; `None` where no gradient arrives.
    pub cotangents: [Option<Value<'g>>; O],
    /// Which inputs lead to a target. Others may be left `None`.
    pub wanted: [bool; I],
    /// Sums so far of the inputs' gradients, absent where there is none. An op that sums over rows begins with them.
    pub sums: [Value<'g>; I],
}

/// How a test fills an input.
#[derive(Clone, PartialEq, Debug)]
pub enum Fill {
    /// Normal deviates times this scale.
    Normal(f64),
    /// Normal deviates' magnitudes plus this floor: values that are positive.
    Positive(f64),
    /// One value everywhere.
    Constant(f64),
    /// These values.
    Values(Vec<f64>),
}

/// One input of a case.
#[derive(Clone, PartialEq, Debug)]
pub struct Given {
    /// Type of the input; its capacity is the count of the run too.
    pub ty: Type,
    /// Its elements.
    pub fill: Fill,
}

impl Given {
    /// float32 normal deviates.
    pub fn normal(shape: &[usize]) -> Given {
        Given { ty: Type::f32(shape), fill: Fill::Normal(1.0) }
    }
    /// float32 zeros.
    pub fn zeros(shape: &[usize]) -> Given {
        Given { ty: Type::f32(shape), fill: Fill::Constant(0.0) }
    }
    /// int32 values.
    pub fn ints(shape: &[usize], values: &[i32]) -> Given {
        Given { ty: Type::i32(shape), fill: Fill::Values(values.iter().map(|v| f64::from(*v)).collect()) }
    }
    /// Random blocks of a weight in `format`.
    pub fn weight(format: apprentice_quant::Format, shape: &[usize]) -> Given {
        Given { ty: Type::new(Element::Weight(format), shape), fill: Fill::Normal(0.5) }
    }
    /// Normal deviates of any element type.
    pub fn of(ty: Type) -> Given {
        Given { ty, fill: Fill::Normal(1.0) }
    }
    /// The same type, filled so.
    pub fn filled(self, fill: Fill) -> Given {
        Given { fill, ..self }
    }
    /// The same input with `extent` on axis 0.
    pub fn counted(self, extent: crate::Extent) -> Given {
        Given { ty: self.ty.counted(extent), ..self }
    }
    /// An optional input that is not given.
    pub fn absent() -> Given {
        Given { ty: Type::absent(), fill: Fill::Constant(0.0) }
    }
}

/// An input of an op's tests.
#[derive(Clone, PartialEq, Debug)]
pub struct Case<T> {
    /// The op with its attributes.
    pub op: T,
    /// Its inputs in order.
    pub inputs: Vec<Given>,
    /// What is special about it.
    pub note: &'static str,
    /// The message with which it must be refused, if it must.
    pub refused: Option<&'static str>,
}

impl<T> Case<T> {
    /// A case that must work.
    pub fn new(op: T, inputs: Vec<Given>) -> Case<T> {
        Case { op, inputs, note: "", refused: None }
    }
    /// A case that must be refused with this message.
    pub fn refuse(op: T, inputs: Vec<Given>, message: &'static str) -> Case<T> {
        Case { op, inputs, note: "refused", refused: Some(message) }
    }
    /// Says what is special about it.
    pub fn note(self, note: &'static str) -> Case<T> {
        Case { note, ..self }
    }
}

/// A case of any op.
pub type AnyCase = Case<AnyOp>;
