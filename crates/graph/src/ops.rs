//! The list of ops: a new one is its file and one line here. What the rest of the workspace asks of an op without knowing
//! which it is goes through [`AnyOp`].

use serde_json::Value as Json;

use crate::array::Array;
use crate::build::{Builder, Value};
use crate::ids::ValueId;
use crate::op::{AnyCase, Case, Cost, Input, Op, Refusal, Storage, Tolerance, Vjp};
use crate::types::{ShapeError, Type};

/// Declares the modules, [`AnyOp`] and its dispatch from one list.
macro_rules! op_list {
    ($($module:ident :: $op:ident),* $(,)?) => {
        $(mod $module;)*
        $(pub use $module::$op;)*

        /// Any op.
        #[derive(Clone, PartialEq, Debug)]
        pub enum AnyOp {
            $(#[doc = concat!("See [`struct@", stringify!($op), "`].")] $op($op),)*
        }

        $(impl From<$op> for AnyOp {
            fn from(op: $op) -> AnyOp {
                AnyOp::$op(op)
            }
        })*

        impl AnyOp {
            /// Names of all ops.
            pub const NAMES: &'static [&'static str] = &[$($op::NAME),*];

            /// Name in text.
            pub fn name(&self) -> &'static str {
                match self { $(AnyOp::$op(_) => $op::NAME,)* }
            }
            /// Declared inputs.
            pub fn inputs(&self) -> &'static [Input] {
                match self { $(AnyOp::$op(_) => &$op::INPUTS,)* }
            }
            /// Names of the outputs.
            pub fn outputs(&self) -> &'static [&'static str] {
                match self { $(AnyOp::$op(_) => &$op::OUTPUTS,)* }
            }
            /// Tolerance class of float32.
            pub fn tolerance(&self) -> Tolerance {
                match self { $(AnyOp::$op(_) => $op::TOLERANCE,)* }
            }
            /// Where output 0 may lie.
            pub fn storage(&self) -> Storage {
                match self { $(AnyOp::$op(_) => $op::STORAGE,)* }
            }
            /// Types of the outputs for inputs of these types.
            pub fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, ShapeError> {
                match self { $(AnyOp::$op(op) => infer(op, inputs),)* }
            }
            /// Work at full capacity.
            pub fn cost(&self, inputs: &[&Type]) -> Cost {
                match self { $(AnyOp::$op(op) => cost(op, inputs),)* }
            }
            /// The float64 meaning.
            pub fn oracle(&self, inputs: &[&Array]) -> Vec<Array> {
                match self { $(AnyOp::$op(op) => oracle(op, inputs),)* }
            }
            /// Attributes, as a JSON object.
            pub fn attributes(&self) -> Json {
                match self { $(AnyOp::$op(op) => serde_json::to_value(op).unwrap_or(Json::Null),)* }
            }
            /// The op called `name` with these attributes; `None` where no op has the name.
            pub fn from_attributes(name: &str, attributes: Json) -> Option<Result<AnyOp, serde_json::Error>> {
                $(if name == $op::NAME {
                    return Some(serde_json::from_value::<$op>(attributes).map(AnyOp::$op));
                })*
                None
            }
            /// The cases of every op.
            pub fn cases() -> Vec<AnyCase> {
                let mut all = Vec::new();
                $(all.extend($op::cases().into_iter().map(any_case));)*
                all
            }
            /// Builds the VJP; `None` where an input gets no cotangent.
            pub(crate) fn vjp(
                &self,
                builder: &Builder,
                inputs: &[Option<ValueId>],
                outputs: &[ValueId],
                cotangents: &[Option<ValueId>],
                wanted: &[bool],
                sums: &[Option<ValueId>],
            ) -> Result<Vec<Option<ValueId>>, Refusal> {
                match self { $(AnyOp::$op(op) => vjp(op, builder, inputs, outputs, cotangents, wanted, sums),)* }
            }
        }
    };
}

op_list! {
    adamw::AdamW,
    adapt::Adapt,
    adapt_vjp::AdaptVjp,
    add::Add,
    add_squares::AddSquares,
    argmax::Argmax,
    attention::Attention,
    attention_vjp::AttentionVjp,
    clip_factor::ClipFactor,
    cross_entropy::CrossEntropy,
    cross_entropy_vjp::CrossEntropyVjp,
    divide::Divide,
    dot::Dot,
    embed::Embed,
    gelu::Gelu,
    gelu_vjp::GeluVjp,
    linear::Linear,
    linear_q8::LinearQ8,
    linear_vjp::LinearVjp,
    mul::Mul,
    offset::Offset,
    quantise_q8::QuantiseQ8,
    reshape::Reshape,
    rms_norm::RmsNorm,
    rope::Rope,
    rope_table::RopeTable,
    round_f16::RoundF16,
    round_q8_0::RoundQ8_0,
    rsqrt::Rsqrt,
    scale::Scale,
    scatter_rows::ScatterRows,
    select_rows::SelectRows,
    silu::Silu,
    silu_vjp::SiluVjp,
    sum_rows::SumRows,
}

pub use rope::Pairing;

mod attend;
mod check;
mod table;
#[cfg(test)]
mod tests;

/// The inputs of a node have the number that its op declares: the builder and `verify` see to it.
fn fixed<T: Copy, const I: usize>(inputs: &[T]) -> [T; I] {
    std::array::from_fn(|slot| inputs[slot])
}

fn infer<T: Op<I, O>, const I: usize, const O: usize>(
    op: &T,
    inputs: &[&Type],
) -> Result<Vec<Type>, ShapeError> {
    if inputs.len() != I {
        return Err(ShapeError::new("inputs", I, inputs.len()));
    }
    for (input, ty) in T::INPUTS.iter().zip(inputs) {
        if !ty.is_present() && !input.optional {
            return Err(ShapeError::new(input.name, "an input", "nothing"));
        }
    }
    op.shape(fixed(inputs)).map(|types| types.to_vec())
}

fn cost<T: Op<I, O>, const I: usize, const O: usize>(op: &T, inputs: &[&Type]) -> Cost {
    op.cost(fixed(inputs))
}

fn oracle<T: Op<I, O>, const I: usize, const O: usize>(op: &T, inputs: &[&Array]) -> Vec<Array> {
    op.oracle(fixed(inputs)).into()
}

fn any_case<T: Into<AnyOp>>(case: Case<T>) -> AnyCase {
    Case { op: case.op.into(), inputs: case.inputs, note: case.note, refused: case.refused }
}

fn vjp<T: Op<I, O>, const I: usize, const O: usize>(
    op: &T,
    builder: &Builder,
    inputs: &[Option<ValueId>],
    outputs: &[ValueId],
    cotangents: &[Option<ValueId>],
    wanted: &[bool],
    sums: &[Option<ValueId>],
) -> Result<Vec<Option<ValueId>>, Refusal> {
    let value = |id: Option<ValueId>| id.map_or_else(|| builder.absent(), |id| builder.value(id));
    let v: Vjp<'_, I, O> = Vjp {
        inputs: std::array::from_fn(|slot| value(inputs[slot])),
        outputs: std::array::from_fn(|slot| builder.value(outputs[slot])),
        cotangents: std::array::from_fn(|slot| cotangents[slot].map(|id| builder.value(id))),
        wanted: fixed(wanted),
        sums: std::array::from_fn(|slot| value(sums[slot])),
    };
    Ok(op.vjp(v)?.into_iter().map(|gradient| gradient.and_then(Value::id)).collect())
}
