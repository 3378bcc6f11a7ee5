//! Random graphs: chains, forks and joins of small ops over a few types, with views, several outputs a node, dead values,
//! effects and sometimes gradients. For the plan, passes, text, and backends against each other.

use std::collections::HashMap;

use apprentice_graph::ops::{
    AdamW, Argmax, CrossEntropy, Gelu, Linear, Pairing, RmsNorm, Rope, RoundF16, ScatterRows, SelectRows,
    Silu,
};
use apprentice_graph::{
    Builder, Element, Extent, Extents, Format, Graph, Type, Value, ValueId, differentiate,
};

use crate::blocks::random_blocks;
use crate::filled::{Data, Filled};
use crate::random::Random;

/// Capacity of the rows, and of the rows selected from them.
const CAPACITY: usize = 70;
/// Widths of activations, one no multiple of 16.
const WIDTHS: [usize; 3] = [8, 17, 32];
/// Cells of the store that rows are written to.
const CELLS: usize = 80;

/// The random graph of `seed` with up to `nodes` nodes before gradients, filled.
pub fn random_graph(seed: u64, nodes: usize) -> Filled {
    let mut random = Random::new(seed);
    let builder = Builder::new();
    let graph = {
        let mut sketch = Sketch { builder: &builder, values: Vec::new(), random: &mut random };
        sketch.inputs();
        for number in 0..nodes {
            builder.site(&format!("step {number}"));
            sketch.step();
        }
        sketch.finish();
        builder.finish().expect("a random graph verifies")
    };
    let graph = if random.below(2) == 0 { with_gradients(graph, &mut random) } else { graph };
    fill(graph, &mut random)
}

struct Sketch<'g, 'r> {
    builder: &'g Builder,
    values: Vec<Value<'g>>,
    random: &'r mut Random,
}

impl<'g> Sketch<'g, '_> {
    fn inputs(&mut self) {
        for (number, width) in WIDTHS.into_iter().enumerate() {
            let x = self.builder.data(&format!("x{number}"), rows_of(&[width]));
            self.values.push(x);
        }
    }

    /// A value whose type fits; one of the inputs always does.
    fn any(&mut self, fits: impl Fn(&Type) -> bool) -> Option<Value<'g>> {
        let fitting: Vec<Value<'g>> = self.values.iter().copied().filter(|value| fits(&value.ty())).collect();
        // Late values more often, so that graphs grow long and not only wide.
        let late = fitting.len() - fitting.len().min(4);
        let from = if self.random.below(3) > 0 { &fitting[late..] } else { &fitting[..] };
        (!from.is_empty()).then(|| *self.random.choose(from))
    }

    fn parameter(&self, name: &str, ty: Type) -> Value<'g> {
        self.builder.data(name, ty)
    }

    /// One more node or two, if there is a value for it.
    fn step(&mut self) {
        let builder = self.builder;
        let Some(x) = self.any(is_activation) else { return };
        let (ty, width) = (x.ty(), x.width());
        let made = match self.random.below(17) {
            0 => x.scale(-0.75),
            1 => x.offset(0.5),
            2 => x.divide(1.25),
            3 | 4 => {
                let Some(other) = self.any(|other| *other == ty) else { return };
                x + other
            }
            5 => x * self.parameter(&format!("factor {ty}"), ty),
            6 => x * self.parameter(&format!("column {width}"), Type::f32([width])),
            7 => x + self.parameter(&format!("column {width}"), Type::f32([width])),
            8 => x * x.dot(x).offset(1.0).rsqrt(),
            9 => first(builder.push(Silu {}, [x])),
            10 => first(builder.push(Gelu {}, [x])),
            11 => first(builder.push(
                RmsNorm { eps: 0.1 },
                [x, self.parameter(&format!("gain {width}"), Type::f32([width]))],
            )),
            12 => self.viewed(x),
            13 if ty.rank() == 3 => {
                let table = rows_of(&[width / 4, 2]);
                let table = Type { extent: ty.extent, ..table };
                let table = self.parameter(&format!("rotations {table}"), table);
                first(builder.push(Rope { pairing: Pairing::Halves, inverse: false }, [x, table]))
            }
            13 => first(builder.push(RoundF16 {}, [x])),
            14 => self.rows_moved(x),
            15 if ty.rank() == 2 && width == 32 => {
                let out = *self.random.choose(&WIDTHS);
                let weight = Type::new(Element::Weight(Format::Q8_0), [out, 32]);
                first(builder.push(Linear {}, [x, builder.weight(&format!("weight {out}"), weight)]))
            }
            15 => x.scale(1.5),
            _ => return self.many_outputs(x),
        };
        self.values.push(made);
    }

    /// A view under other axes, never of a binding: that would have no bytes to be returned from.
    fn viewed(&self, x: Value<'g>) -> Value<'g> {
        let bound = self.values[..WIDTHS.len()].iter().any(|input| input.id() == x.id());
        let x = if bound { x.scale(1.25) } else { x };
        let (ty, width) = (x.ty(), x.width());
        match width % 8 {
            _ if ty.rank() == 3 => x.reshape(&[ty.row_count()]),
            0 => x.reshape(&[2, width / 2]),
            _ => x.reshape(&[1, width]),
        }
    }

    /// Rows selected, or scattered back.
    fn rows_moved(&mut self, x: Value<'g>) -> Value<'g> {
        let index = Type::i32([CAPACITY]).counted(Extent::Labelled);
        let index = self.parameter("index", index);
        if x.ty().extent == Some(Extent::Rows) {
            return first(self.builder.push(SelectRows {}, [x, index]));
        }
        let like = Type { extent: Some(Extent::Rows), ..x.ty() };
        let like = self.parameter(&format!("like {like}"), like);
        first(self.builder.push(ScatterRows {}, [x, index, like]))
    }

    fn many_outputs(&mut self, x: Value<'g>) {
        let ty = x.ty();
        if ty.rank() == 2 && ty.width() >= WIDTHS[0] && self.random.below(2) == 0 {
            let labels = Type { element: Element::I32, ..ty.shaped([ty.rows()]) };
            let labels = self.parameter(&format!("labels {labels}"), labels);
            let [loss, max, sum] = self.builder.push(CrossEntropy {}, [x, labels]);
            let column = |y: Value<'g>| y.reshape(&[1]);
            self.values.extend([column(loss), column(max), column(sum)]);
            if self.random.below(2) == 0 {
                let [ids] = self.builder.push(Argmax {}, [x]);
                self.builder.output(&format!("ids {}", self.values.len()), ids);
            }
            return;
        }
        let moment = self.parameter(&format!("squares {ty}"), ty.clone());
        let scalars = self.parameter("scalars", Type::f32([8]));
        let Some(g) = self.any(|other| *other == ty) else { return };
        let [p, m, v] = self.builder.push(AdamW {}, [x, g, x, moment, scalars]);
        self.values.extend([p, m, v]);
    }

    /// Returns a few values, the last among them, and sometimes writes one into a store.
    fn finish(&mut self) {
        let made: Vec<Value<'g>> = self.values[WIDTHS.len()..].to_vec();
        let last = made.last().copied().unwrap_or_else(|| self.values[0].scale(2.0));
        let computed = |value: Value<'g>| value.scale(1.0); // a returned value is a node's, never a binding's
        self.builder.output("last", computed(last));
        for number in 0..self.random.below(3).min(made.len()) {
            let value = *self.random.choose(&made);
            self.builder.output(&format!("kept {number}"), value);
        }
        if self.random.below(2) == 0 {
            let value = *self.random.choose(&self.values.clone());
            let ty = value.ty();
            let mut cells = ty.shape.clone();
            cells.0[0] = CELLS;
            let element = *self.random.choose(&[Element::F32, Element::F16, Element::Q8_0]);
            let store = self.builder.store("store", Type::new(element, cells));
            let cells = Type { extent: ty.extent, ..Type::i32([CAPACITY]) };
            let cells = self.parameter("cells", cells);
            self.builder.effect(computed(value), store, Some(cells));
        }
    }
}

/// float32 rows with these inner axes.
fn rows_of(inner: &[usize]) -> Type {
    let mut shape = vec![CAPACITY];
    shape.extend(inner);
    Type::f32(shape.as_slice()).counted(Extent::Rows)
}

fn is_activation(ty: &Type) -> bool {
    ty.element == Element::F32 && ty.rank() >= 2 && ty.extent.is_some()
}

fn first<'g>([y]: [Value<'g>; 1]) -> Value<'g> {
    y
}

/// The graph with the gradient of its last value to one input, where there is one.
fn with_gradients(graph: Graph, random: &mut Random) -> Graph {
    let seed = graph.output("last").expect("made above").1;
    let builder = Builder::reopen(graph.clone());
    let cotangent = builder.data("cotangent", graph.ty(seed).clone()).id().expect("a fresh name");
    let opened = builder.finish().expect("one binding more");
    let target = graph.binding(&format!("x{}", random.below(WIDTHS.len()))).expect("an input").value;
    match differentiate(opened, &[(seed, cotangent)], &[target]) {
        Ok((graph, gradients)) => {
            let builder = Builder::reopen(graph);
            builder.output("gradient", builder.value(gradients[0].gradient));
            builder.finish().expect("a gradient verifies")
        }
        // The optimiser stands between, or nothing does.
        Err(_) => graph,
    }
}

/// Every binding filled with numbers that keep results of a moderate size.
fn fill(graph: Graph, random: &mut Random) -> Filled {
    let rows = 1 + random.below(CAPACITY - 3);
    let labelled = 1 + random.below(CAPACITY - 3);
    let table = |rows: usize| -> Vec<i32> {
        let blocks = (0..rows.div_ceil(64)).rev();
        blocks.flat_map(|block| [64 * block, 64.min(rows - 64 * block)].map(|v| v as i32)).collect()
    };
    let tables =
        HashMap::from([("blocks.row_blocks", table(rows)), ("blocks.labelled_blocks", table(labelled))]);
    let extents = Extents::default()
        .with(Extent::Rows, rows)
        .with(Extent::Labelled, labelled)
        .with(Extent::RowBlocks, tables["blocks.row_blocks"].len() / 2)
        .with(Extent::LabelledBlocks, tables["blocks.labelled_blocks"].len() / 2);
    let mut filled = Filled { graph, data: Vec::new(), extents };
    for binding in filled.graph.bindings() {
        let ty = filled.graph.ty(binding.value);
        let count: usize = filled.sizes(ty).iter().product();
        let name = binding.name.as_str();
        let below =
            |random: &mut Random, limit: usize| (0..count).map(|_| random.below(limit) as i32).collect();
        filled.data.push(match ty.element {
            Element::Weight(format) => {
                let bytes = random_blocks(format, ty.rows(), ty.width(), 0.2, random);
                Data::Weight(bytes.expect("whole blocks"))
            }
            Element::I32 if name == "index" => Data::I32(below(random, rows)),
            Element::I32 if name.starts_with("labels") => Data::I32(below(random, WIDTHS[0])),
            Element::I32 if name == "cells" => Data::I32(distinct(count, random)),
            Element::I32 => Data::I32(tables[name].clone()),
            _ if name == "store" => Data::Store(random.normals(ty.shape.0.iter().product(), 1.0)),
            _ if name == "scalars" => Data::F32(vec![1e-3, 0.9, 0.1, 0.99, 0.01, 1e-2, 0.1, 1e-3]),
            _ if name.starts_with("squares") => {
                Data::F32(random.normals(count, 0.3).into_iter().map(|value| 0.01 + value * value).collect())
            }
            _ => Data::F32(random.normals(count, 0.7)),
        });
    }
    filled
}

/// As many different cells, one of them none.
fn distinct(count: usize, random: &mut Random) -> Vec<i32> {
    let mut cells: Vec<i32> = (0..CELLS as i32).collect();
    for index in (1..cells.len()).rev() {
        cells.swap(index, random.below(index + 1));
    }
    cells.truncate(count);
    cells[0] = -1;
    cells
}

/// Values of `graph` that no output and no effect needs.
pub fn dead_values(graph: &Graph) -> Vec<ValueId> {
    let mut needed = vec![false; graph.values().len()];
    graph.outputs().iter().for_each(|output| needed[output.value.index()] = true);
    for effect in graph.effects() {
        [Some(effect.value), Some(effect.store), effect.cells]
            .into_iter()
            .flatten()
            .for_each(|value| needed[value.index()] = true);
    }
    for node in graph.nodes().iter().rev() {
        if node.outputs.iter().any(|output| needed[output.index()]) {
            let inputs = node.inputs.iter().flatten();
            inputs.chain(&node.outputs).for_each(|value| needed[value.index()] = true);
        }
    }
    (0..needed.len()).filter(|index| !needed[*index]).map(ValueId::new).collect()
}
