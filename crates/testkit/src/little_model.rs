//! A model written by hand: two layers of a small transformer with adapters, a loss over labelled rows, pages, and two
//! sequences of which one has a past. Every op of a training step stands in it.

use apprentice_graph::ops::{
    AdamW, Adapt, AddSquares, Attention, ClipFactor, CrossEntropy, Embed, Gelu, Linear, Pairing, RmsNorm,
    Rope, RopeTable, SelectRows, Silu,
};
use apprentice_graph::{
    Builder, Element, Extent, Extents, Format, Gradient, Graph, GraphError, Type, Value, ValueId,
    differentiate,
};

use crate::blocks::random_blocks;
use crate::filled::{Data, Filled};
use crate::random::Random;

/// Sizes of a little model and of its batch. Sequences have 7 rows from their start and 6 from position 61, so that one
/// reads pages and crosses a border of 64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LittleModel {
    /// Blocks; the second has a window.
    pub layers: usize,
    /// Format of the linears.
    pub format: Format,
    /// Element of pages. Under float16 keys and values are rounded, and gradients are no derivatives.
    pub cache: Element,
    /// Capacity beyond the 13 rows of the batch.
    pub slack: usize,
}

const ROWS: usize = 13;
const SEQUENCES: [[i32; 4]; 2] = [[0, 7, 0, 0], [7, 6, 61, 1]];
const PAGES: [i32; 3] = [1, 3, 0];
/// Where keys and values of the rows are written: in pages of their own sequence, past what it has; one row is not kept.
const CELLS: [i32; ROWS] = [64, 65, 66, 67, 68, 69, 70, 253, 254, 255, 0, 1, -1];
const POOL_PAGES: usize = 4;
const LABELLED: [i32; 5] = [1, 4, 6, 8, 11];
const VOCAB: usize = 24;
const WIDTH: usize = 32;
const HEADS: usize = 2;
const KV_HEADS: usize = 1;
const HEAD_DIM: usize = 16;
const HIDDEN: usize = 64;
const RANK_ROWS: usize = 5;
const WINDOW: u32 = 4;

impl LittleModel {
    /// Two layers of float32 weights and pages, no slack: what differences are taken of.
    pub fn exact() -> LittleModel {
        LittleModel { layers: 2, format: Format::F32, cache: Element::F32, slack: 0 }
    }

    /// The forward pass, filled from `seed`; output `loss`, a number a labelled row. Targets of a gradient are its
    /// adapters and gains, by [`LittleModel::targets`].
    ///
    /// # Panics
    /// If it does not build: a bug here.
    pub fn forward(&self, seed: u64) -> Filled {
        let builder = Builder::new();
        self.build(&builder);
        self.filled(builder.finish().expect("a little model builds"), seed)
    }

    /// A training step: the gradients of the weighted loss to the adapters, their norm, clipping and the optimiser. The
    /// next adapters and moments are outputs.
    ///
    /// # Errors
    /// What autodiff refuses, which would be a bug.
    pub fn step(&self, seed: u64) -> Result<Filled, GraphError> {
        let builder = Builder::new();
        let loss = self.build(&builder).id().expect("the loss was built");
        let factors = builder.data("factors", self.labelled(Element::F32)).id().expect("a fresh name");
        let graph = builder.finish()?;
        let targets: Vec<ValueId> = self.adapters(&graph);
        let (graph, gradients) = differentiate(graph, &[(loss, factors)], &targets)?;
        let builder = Builder::reopen(graph);
        update(&builder, &gradients);
        Ok(self.filled(builder.finish()?, seed))
    }

    /// The bindings that are differentiated to: adapters, and the gains of the norms.
    pub fn targets(&self, graph: &Graph) -> Vec<ValueId> {
        let gains = graph.bindings().iter().filter(|binding| binding.name.ends_with("norm"));
        self.adapters(graph).into_iter().chain(gains.map(|binding| binding.value)).collect()
    }

    fn adapters(&self, graph: &Graph) -> Vec<ValueId> {
        let adapters =
            graph.bindings().iter().filter(|b| b.name.ends_with("lora_a") || b.name.ends_with("lora_b"));
        adapters.map(|binding| binding.value).collect()
    }

    fn rows(&self) -> usize {
        ROWS + self.slack
    }

    fn labelled(&self, element: Element) -> Type {
        Type::new(element, [LABELLED.len() + self.slack]).counted(Extent::Labelled)
    }

    fn build<'g>(&self, builder: &'g Builder) -> Value<'g> {
        builder.site("embed");
        let rows = || Type::i32([self.rows()]).counted(Extent::Rows);
        let table = self.weight(builder, "embedding", VOCAB, WIDTH);
        let [x] = builder.push(Embed {}, [builder.data("tokens", rows()), table]);
        let mut x = x.scale(1.5);
        let frequencies = builder.weight("frequencies", Type::f64([HEAD_DIM / 2]));
        let [rotations] =
            builder.push_once(RopeTable { scale: 1.0 }, [builder.data("positions", rows()), frequencies]);
        for layer in 0..self.layers {
            x = self.block(builder, layer, x, rotations);
        }
        builder.site("output");
        let index = builder.data("labelled", self.labelled(Element::I32));
        let [selected] = builder.push(SelectRows {}, [x, index]);
        let h = norm(builder, "output_norm", selected);
        let head = self.weight(builder, "head", VOCAB, WIDTH);
        let [logits] = builder.push(Linear {}, [h, head]);
        let labels = builder.data("labels", self.labelled(Element::I32));
        let [loss, _, _] = builder.push(CrossEntropy {}, [logits, labels]);
        builder.output("loss", loss);
        loss
    }

    fn block<'g>(&self, builder: &'g Builder, layer: usize, x: Value<'g>, rotations: Value<'g>) -> Value<'g> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        builder.site(&name("attention"));
        let h = norm(builder, &name("attention_norm"), x);
        let heads = |y: Value<'g>, heads| {
            let pairing = if layer == 0 { Pairing::Interleaved } else { Pairing::Halves };
            let [turned] =
                builder.push(Rope { pairing, inverse: false }, [y.reshape(&[heads, HEAD_DIM]), rotations]);
            turned
        };
        let q = heads(self.linear(builder, &name("q"), h, HEADS * HEAD_DIM), HEADS);
        let k = heads(self.linear(builder, &name("k"), h, KV_HEADS * HEAD_DIM), KV_HEADS);
        let v = self.linear(builder, &name("v"), h, KV_HEADS * HEAD_DIM).reshape(&[KV_HEADS, HEAD_DIM]);
        let (own_k, own_v) = (k.round_to(self.cache), v.round_to(self.cache));
        let pool = || Type::new(self.cache, [POOL_PAGES * 64, KV_HEADS, HEAD_DIM]);
        let k_pages = builder.store(&name("k_pages"), pool());
        let v_pages = builder.store(&name("v_pages"), pool());
        let sequences = Type::i32([SEQUENCES.len() + self.slack, 4]).counted(Extent::Sequences);
        let pages = Type::i32([PAGES.len() + self.slack]).counted(Extent::Pages(0));
        let cells = builder.data("cells", Type::i32([self.rows()]).counted(Extent::Rows));
        builder.effect(k, k_pages, Some(cells));
        builder.effect(v, v_pages, Some(cells));
        let op = Attention { scale: 0.25, window: (layer == 1).then_some(WINDOW), segment: 1024 };
        let (sequences, pages) = (builder.data("sequences", sequences), builder.data("pages", pages));
        let [attended, _, _] = builder.push(op, [q, own_k, own_v, k_pages, v_pages, sequences, pages]);
        let attended = attended.reshape(&[HEADS * HEAD_DIM]);
        let x = x + self.linear(builder, &name("o"), attended, WIDTH);
        builder.site(&name("feed_forward"));
        let h = norm(builder, &name("feed_forward_norm"), x);
        let gate = self.linear(builder, &name("gate"), h, HIDDEN);
        let gate = if layer == 0 {
            let [y] = builder.push(Silu {}, [gate]);
            y
        } else {
            let [y] = builder.push(Gelu {}, [gate]);
            y
        };
        let gated = gate * self.linear(builder, &name("up"), h, HIDDEN);
        x + self.linear(builder, &name("down"), gated, WIDTH)
    }

    fn weight<'g>(&self, builder: &'g Builder, name: &str, rows: usize, width: usize) -> Value<'g> {
        builder.weight(name, Type::new(Element::Weight(self.format), [rows, width]))
    }

    /// A product with its adapters; queries have a bias too.
    fn linear<'g>(&self, builder: &'g Builder, name: &str, x: Value<'g>, out: usize) -> Value<'g> {
        builder.site(name);
        let [mut y] = builder.push(Linear {}, [x, self.weight(builder, name, out, x.width())]);
        if name.ends_with(".q") {
            y = y + builder.data(&format!("{name}.bias"), Type::f32([out]));
        }
        let adapters = Type::i32([2 + self.slack, 2]).counted(Extent::Adapters);
        let scales = adapters.of(Element::F32).shaped([2 + self.slack]);
        let inputs = [
            y,
            x,
            builder.store(&format!("{name}.lora_a"), Type::f32([RANK_ROWS, x.width()])),
            builder.store(&format!("{name}.lora_b"), Type::f32([RANK_ROWS, out])),
            builder.data("adapters.table", adapters),
            builder.data("adapters.scales", scales),
            builder.data("adapters.named", Type::i32([self.rows()]).counted(Extent::Rows)),
        ];
        let [y] = builder.push(Adapt {}, inputs);
        y
    }

    fn filled(&self, graph: Graph, seed: u64) -> Filled {
        let mut random = Random::new(seed);
        let blocks: Vec<i32> = vec![0, 7, 10, 3, 7, 3]; // the second sequence from its last block to its first
        let label_blocks: Vec<i32> = vec![0, 3, 4, 1, 3, 1];
        let extents = Extents::default()
            .with(Extent::Rows, ROWS)
            .with(Extent::Labelled, LABELLED.len())
            .with(Extent::Sequences, SEQUENCES.len())
            .with(Extent::Pages(0), PAGES.len())
            .with(Extent::Adapters, 2)
            .with(Extent::RowBlocks, blocks.len() / 2)
            .with(Extent::LabelledBlocks, label_blocks.len() / 2);
        let mut filled = Filled { graph, data: Vec::new(), extents };
        for binding in filled.graph.bindings() {
            let ty = filled.graph.ty(binding.value);
            let sizes = filled.sizes(ty);
            let count: usize = sizes.iter().product();
            let tokens = |random: &mut Random| (0..count).map(|_| random.below(VOCAB) as i32).collect();
            filled.data.push(match (binding.name.as_str(), ty.element) {
                ("tokens" | "labels", _) => Data::I32(tokens(&mut random)),
                ("positions", _) => {
                    let positions = SEQUENCES.iter().flat_map(|[_, rows, first, _]| *first..*first + *rows);
                    Data::I32(positions.collect())
                }
                ("cells", _) => Data::I32(CELLS.to_vec()),
                ("labelled", _) => Data::I32(LABELLED.to_vec()),
                ("sequences", _) => Data::I32(SEQUENCES.as_flattened().to_vec()),
                ("pages", _) => Data::I32(PAGES.to_vec()),
                ("adapters.table", _) => Data::I32(vec![0, 2, 2, 3]),
                ("adapters.scales", _) => Data::F32(vec![0.5, -1.25]),
                ("adapters.named", _) => Data::I32((0..ROWS as i32).map(|row| row % 3 - 1).collect()),
                ("blocks.row_blocks", _) => Data::I32(blocks.clone()),
                ("blocks.labelled_blocks", _) => Data::I32(label_blocks.clone()),
                ("optimiser.limit", _) => Data::F32(vec![0.5]),
                ("optimiser.scalars", _) => Data::F32(vec![1e-5, 0.9, 0.1, 0.999, 0.001, 5e-3, 0.05, 1e-8]),
                ("frequencies", _) => {
                    let pairs = (0..count).map(|pair| 100f64.powf(-(pair as f64) / count as f64));
                    Data::Weight(pairs.flat_map(f64::to_le_bytes).collect())
                }
                (_, Element::Weight(format)) => {
                    let deviation = (sizes[1] as f64).powf(-0.5);
                    let bytes = random_blocks(format, sizes[0], sizes[1], deviation, &mut random);
                    Data::Weight(bytes.expect("widths are whole blocks"))
                }
                (name, _) if name.ends_with("norm") => {
                    Data::F32(random.normals(count, 0.2).into_iter().map(|gain| 1.0 + gain).collect())
                }
                (name, _) if name.ends_with("moment_v") => {
                    Data::Store(random.normals(count, 0.1).into_iter().map(|v| v * v).collect())
                }
                (name, _) if name.contains("lora") => Data::Store(random.normals(count, 0.2)),
                (name, _) if name.ends_with("pages") => Data::Store(random.normals(count, 1.0)),
                _ => Data::F32(random.normals(count, 0.5)),
            });
        }
        filled
    }
}

/// A norm whose gains are data, so that a gradient may flow into them.
fn norm<'g>(builder: &'g Builder, name: &str, x: Value<'g>) -> Value<'g> {
    let gain = builder.data(name, Type::f32([WIDTH]));
    let [y] = builder.push(RmsNorm { eps: 1e-2 }, [x, gain]);
    y
}

/// Norm of all gradients, clipping, and a step of AdamW for each target, written back into its store.
fn update(builder: &Builder, gradients: &[Gradient]) {
    builder.site("update");
    let mut squares = builder.absent();
    for gradient in gradients {
        [squares] = builder.push(AddSquares {}, [builder.value(gradient.gradient), squares]);
    }
    let limit = builder.data("optimiser.limit", Type::f32([1]));
    let [factor] = builder.push(ClipFactor {}, [squares, limit]);
    builder.output("squares", squares);
    let scalars = builder.data("optimiser.scalars", Type::f32([8]));
    for (index, gradient) in gradients.iter().enumerate() {
        let (p, g) = (builder.value(gradient.target), builder.value(gradient.gradient));
        let m = builder.store(&format!("target {index} moment_m lora"), p.ty());
        let v = builder.store(&format!("target {index} moment_v"), p.ty());
        let [next_p, next_m, next_v] = builder.push(AdamW {}, [p, g * factor, m, v, scalars]);
        builder.output(&format!("target {index} p"), next_p);
        builder.output(&format!("target {index} m"), next_m);
        builder.output(&format!("target {index} v"), next_v);
    }
}
