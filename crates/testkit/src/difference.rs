//! Gradients against central differences, in float64: the graph that autodiff builds is evaluated once, the graph that it
//! was built from many times.
//!
//! The derivative along a direction `d` is `(8 (f(x+hd) - f(x-hd)) - (f(x+2hd) - f(x-2hd))) / 12h`, off by the fifth
//! derivative times `h^4 / 30`; `h` is a small part of the size of `x`. What is differentiated is
//! `<cotangent, output>` with a random cotangent. Directions are single elements, all of them where that is cheap enough,
//! and two random ones over the whole target, which no wrong element escapes. The bound is relative to the largest
//! element of the gradient.

use std::collections::HashMap;

use apprentice_graph::{
    AnyCase, Array, Builder, Element, Extent, Graph, GraphError, Type, ValueId, differentiate,
};

use crate::case_graph::{Form, case_graph};
use crate::filled::{Data, Filled};
use crate::random::Random;

/// How far a gradient may be from the difference, relative to its largest element.
pub const BOUND: f64 = 1e-6;

/// The step, relative to the root mean square of the target: small beside every curve in the cases, large beside float64.
const STEP: f64 = 3e-4;
/// Floating-point operations that may be spent on the single elements of one target.
const BUDGET: u64 = 4_000_000;
/// Elements that are tried at least.
const LEAST: usize = 12;
/// Random directions over a whole target.
const DIRECTIONS: usize = 2;

/// A graph and what autodiff made of it.
#[derive(Clone, Debug)]
pub struct Subject {
    forward: Filled,
    output: usize,
    cotangent: Array,
    targets: Vec<ValueId>,
    /// The forward's outputs, then the gradient of each target.
    joint: Filled,
}

/// What the forward graph says of its outputs and of its derivatives.
#[derive(Clone, Debug)]
pub struct Reference {
    outputs: Vec<(String, Array)>,
    targets: Vec<(String, Vec<(Probe, f64)>)>,
    seed: u64,
}

/// What came of a target.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Verdict {
    /// Gradient and differences agree; the largest error, relative to the largest element.
    Agrees(f64),
    /// Both are zero everywhere: nothing was tested.
    Zero,
}

/// A gradient that is not the derivative, or outputs that are not the forward's.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error(
    "{target}, {probe}: difference {expected:e}, graph {found:e}, largest element {largest:e} (seed {seed})"
)]
pub struct Mismatch {
    /// The target, or the output.
    pub target: String,
    /// Along which direction.
    pub probe: String,
    /// The central difference.
    pub expected: f64,
    /// What the graph says.
    pub found: f64,
    /// The largest element of the gradient.
    pub largest: f64,
    /// What repeats it.
    pub seed: u64,
}

impl Subject {
    /// The one-node graph of `case`, to be differentiated to its inputs `slots` from its first output.
    ///
    /// # Errors
    /// What autodiff refuses.
    pub fn of_case(case: &AnyCase, slots: &[usize], seed: u64) -> Result<Subject, GraphError> {
        let forward = case_graph(case, Form::Bound, 0, seed);
        let inputs = &forward.graph.nodes()[0].inputs;
        let given = |slot: &usize| inputs[*slot].expect("a differentiated input is given");
        let targets: Vec<ValueId> = slots.iter().map(given).collect();
        Subject::new(forward, 0, &targets, seed)
    }

    /// `forward` with the gradients of `<random cotangent, output>` to `targets`, which are float32 bindings.
    ///
    /// # Errors
    /// What autodiff refuses.
    pub fn new(
        forward: Filled,
        output: usize,
        targets: &[ValueId],
        seed: u64,
    ) -> Result<Subject, GraphError> {
        let seeded = forward.graph.outputs()[output].value;
        let ty = forward.graph.ty(seeded).clone();
        let builder = Builder::reopen(forward.graph.clone());
        let cotangent = builder.data("cotangent", ty.clone()).id().expect("a fresh name");
        let (graph, gradients) = differentiate(builder.finish()?, &[(seeded, cotangent)], targets)?;
        let builder = Builder::reopen(graph);
        for (index, gradient) in gradients.iter().enumerate() {
            builder.output(&format!("gradient {index}"), builder.value(gradient.gradient));
        }
        let mut random = Random::new(seed ^ 0x5EED);
        let sizes = forward.sizes(&ty);
        let values = random.normals(sizes.iter().product(), 1.0);
        let joint = forward.completed(builder.finish()?, &values);
        let cotangent = Array::new(sizes, values.iter().map(|v| f64::from(*v)).collect());
        Ok(Subject { forward, output, cotangent, targets: targets.to_vec(), joint })
    }

    /// The graph with the gradients.
    pub fn joint(&self) -> &Filled {
        &self.joint
    }

    /// Compares; a verdict a target.
    ///
    /// # Errors
    /// The first probe that is off by more than [`BOUND`], or is no number.
    pub fn check(&self, seed: u64) -> Result<Vec<Verdict>, Mismatch> {
        self.reference(seed).judge(&self.joint)
    }

    /// Takes the differences, to judge any number of graphs by.
    pub fn reference(&self, seed: u64) -> Reference {
        let measure = |target: &ValueId| {
            let at = self.forward.array(*target);
            let mean_square = at.data.iter().map(|v| v * v).sum::<f64>() / at.data.len().max(1) as f64;
            let step = if mean_square > 0.0 { STEP * mean_square.sqrt() } else { STEP };
            let mut random = Random::new(seed);
            let mut probes = self.elements(at.data.len(), &mut random);
            let signs = |_| Probe::Direction((0..at.data.len()).map(|_| random.sign()).collect());
            probes.extend((0..DIRECTIONS).map(signs));
            let measured = probes.into_iter().map(|probe| {
                let derivative = self.derivative(*target, &at, &probe, step);
                (probe, derivative)
            });
            (self.name_of(*target), measured.collect())
        };
        let names = self.forward.graph.outputs().iter().map(|output| output.name.clone());
        Reference {
            outputs: names.zip(self.forward.meaning()).collect(),
            targets: self.targets.iter().map(measure).collect(),
            seed,
        }
    }

    /// Single elements to be tried: all, or the first, the last and some between.
    fn elements(&self, count: usize, random: &mut Random) -> Vec<Probe> {
        let affordable = (BUDGET / flops(&self.forward.graph).max(1)) as usize;
        let tried = affordable.max(LEAST);
        if tried >= count {
            return (0..count).map(Probe::Element).collect();
        }
        let between = (2..tried).map(|_| random.below(count));
        [0, count - 1].into_iter().chain(between).map(Probe::Element).collect()
    }

    /// The central difference of `<cotangent, output>` along a direction.
    fn derivative(&self, target: ValueId, at: &Array, probe: &Probe, step: f64) -> f64 {
        let value = |steps: f64| {
            let moved = probe.moved(at, steps * step);
            self.forward.meaning_with(&HashMap::from([(target, moved)])).swap_remove(self.output)
        };
        let [one, minus_one, two, minus_two] = [1.0, -1.0, 2.0, -2.0].map(value);
        let stencil = |index: usize| {
            8.0 * (one.data[index] - minus_one.data[index]) - (two.data[index] - minus_two.data[index])
        };
        let terms = self.cotangent.data.iter().enumerate().map(|(index, c)| c * stencil(index));
        terms.sum::<f64>() / (12.0 * step)
    }

    fn name_of(&self, target: ValueId) -> String {
        let binding = self.forward.graph.bindings().iter().find(|binding| binding.value == target);
        binding.map_or_else(|| target.to_string(), |binding| format!("{:?}", binding.name))
    }
}

impl Reference {
    /// Compares the outputs of `joint`: the forward's, then the gradient of each target. A verdict a target.
    ///
    /// # Errors
    /// The first output or probe that is off by more than [`BOUND`], or is no number.
    pub fn judge(&self, joint: &Filled) -> Result<Vec<Verdict>, Mismatch> {
        let joint = joint.meaning();
        for ((name, expected), found) in self.outputs.iter().zip(&joint) {
            let scale = largest(&expected.data);
            for (at, (expected, found)) in expected.data.iter().zip(&found.data).enumerate() {
                let close = (expected - found).abs() <= BOUND * scale;
                if !(close || expected == found || expected.is_nan() && found.is_nan()) {
                    let (target, probe) = (format!("output {name:?}"), format!("element {at}"));
                    return Err(self.mismatch(target, probe, *expected, *found, scale));
                }
            }
        }
        let pairs = self.targets.iter().zip(&joint[self.outputs.len()..]);
        pairs.map(|((name, probes), gradient)| self.judge_target(name, probes, gradient)).collect()
    }

    fn judge_target(
        &self,
        name: &str,
        probes: &[(Probe, f64)],
        gradient: &Array,
    ) -> Result<Verdict, Mismatch> {
        // Where the graph says zero, the differences set the scale.
        let scale = match largest(&gradient.data) {
            0.0 => largest(&probes.iter().map(|(_, derivative)| *derivative).collect::<Vec<_>>()),
            scale => scale,
        };
        let mut worst = 0.0f64;
        for (probe, expected) in probes {
            let found = probe.along(&gradient.data);
            let error = (expected - found).abs();
            let close = error <= BOUND * scale; // false for a NaN
            if !close {
                let target = format!("gradient of {name}");
                return Err(self.mismatch(target, probe.to_string(), *expected, found, scale));
            }
            worst = worst.max(if scale > 0.0 { error / scale } else { 0.0 });
        }
        Ok(if scale == 0.0 { Verdict::Zero } else { Verdict::Agrees(worst) })
    }

    fn mismatch(&self, target: String, probe: String, expected: f64, found: f64, largest: f64) -> Mismatch {
        Mismatch { target, probe, expected, found, largest, seed: self.seed }
    }
}

/// A direction in the space of a target.
#[derive(Clone, Debug)]
enum Probe {
    Element(usize),
    Direction(Vec<f64>),
}

impl Probe {
    fn moved(&self, at: &Array, by: f64) -> Array {
        let mut moved = at.clone();
        match self {
            Probe::Element(index) => moved.data[*index] += by,
            Probe::Direction(signs) => {
                moved.data.iter_mut().zip(signs).for_each(|(value, sign)| *value += by * sign);
            }
        }
        moved
    }

    fn along(&self, gradient: &[f64]) -> f64 {
        match self {
            Probe::Element(index) => gradient[*index],
            Probe::Direction(signs) => signs.iter().zip(gradient).map(|(sign, g)| sign * g).sum(),
        }
    }
}

impl std::fmt::Display for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Probe::Element(index) => write!(f, "element {index}"),
            Probe::Direction(_) => f.write_str("a direction over all elements"),
        }
    }
}

/// The largest magnitude; NaN where there is one, so that nothing compares as close to it.
fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |largest, value| {
        let value = value.abs();
        if value.is_nan() || value > largest { value } else { largest }
    })
}

/// Work of one evaluation, each element written counting as one operation more.
fn flops(graph: &Graph) -> u64 {
    let of_node = |node: &apprentice_graph::Node| {
        let absent = Type::absent();
        let types: Vec<&Type> = node.inputs.iter().map(|id| id.map_or(&absent, |id| graph.ty(id))).collect();
        let cost = node.op.cost(&types);
        cost.flops + cost.bytes / 4
    };
    graph.nodes().iter().map(of_node).sum()
}

impl Filled {
    /// This filling for `graph`, which has the same bindings and after them those of a gradient: the cotangent and the
    /// tables of blocks of rows.
    fn completed(&self, graph: Graph, cotangent: &[f32]) -> Filled {
        let mut filled = Filled { graph, ..self.clone() };
        let added: Vec<(String, Type)> = filled.graph.bindings()[self.data.len()..]
            .iter()
            .map(|binding| (binding.name.clone(), filled.graph.ty(binding.value).clone()))
            .collect();
        for (name, ty) in added {
            let data = match (name.as_str(), ty.element) {
                ("cotangent", Element::I32) => Data::I32(vec![1; cotangent.len()]),
                ("cotangent", Element::F64) => Data::F64(cotangent.iter().map(|v| f64::from(*v)).collect()),
                ("cotangent", _) => Data::F32(cotangent.to_vec()),
                _ => filled.block_table(&name, &ty),
            };
            filled.data.push(data);
        }
        filled
    }

    /// A table over all rows as one sequence from its start, blocks in their order: the last first.
    fn block_table(&mut self, name: &str, ty: &Type) -> Data {
        let blocks = ty.extent.unwrap_or_else(|| panic!("{name:?}: no table of blocks"));
        let of = [Extent::Rows, Extent::Labelled].into_iter().find(|rows| rows.blocks() == Some(blocks));
        let rows = self.extents.get(of.unwrap_or_else(|| panic!("{name:?}: blocks of what?")));
        let table: Vec<i32> = (0..rows.div_ceil(64))
            .rev()
            .flat_map(|block| [64 * block, 64.min(rows - 64 * block)].map(|number| number as i32))
            .collect();
        self.extents = self.extents.with(blocks, table.len() / 2);
        Data::I32(table)
    }
}
