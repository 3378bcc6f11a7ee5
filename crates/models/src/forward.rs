//! The forward pass as a graph: what a family's block is written with, and the whole around the blocks.

use apprentice_graph::ops::{Adapt, Attention, CrossEntropy, Embed, Gelu, Linear, RmsNorm, RopeTable, Silu};
use apprentice_graph::ops::{Argmax, LinearQ8, QuantiseQ8, Rope as Rotate, SelectRows};
use apprentice_graph::{Builder, Element, Extent, Graph, Type, Value};

use crate::error::ModelError;
use crate::model::Model;
use crate::names;

/// What a graph is made for. Counts are capacities.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Request {
    /// What a run returns.
    pub want: Want,
    /// Rows of a batch.
    pub rows: usize,
    /// Rows that reach the head: outputs, or labelled rows.
    pub head_rows: usize,
    /// Sequences of a batch.
    pub sequences: usize,
    /// Entries of the page tables of all sequences of a batch.
    pub page_entries: usize,
    /// Cells of the page pools of each layer group.
    pub cells: Vec<usize>,
    /// Element of pages: float32, float16 or q8_0.
    pub cache: Element,
    /// Indices of the sites that adapters sit on, ascending.
    pub sites: Vec<usize>,
    /// Rank rows of the adapter stores.
    pub rank_rows: usize,
    /// Adapters that a batch may name.
    pub adapters: usize,
    /// Keys of a segment of attention.
    pub segment: u32,
    /// How forward products are rounded.
    pub numerics: Numerics,
}

/// What forward products with weights take activations as. Gradients are those of the smooth product in both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Numerics {
    /// Float32.
    F32,
    /// Rounded to eight bits in blocks of 32, where the weight is in blocks of integers; else float32.
    Q8,
}

impl Numerics {
    /// Whether a product with a weight of this type rounds its activations.
    pub fn rounds(self, weight: &Type) -> bool {
        match (self, weight.element) {
            (Numerics::Q8, Element::Weight(format)) => format.grid().is_some(),
            _ => false,
        }
    }
}

/// What a run returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Want {
    /// [`names::LOGITS`] of the output rows; keys and values of all rows are written to their cells.
    Logits,
    /// [`names::GREEDY`] of the output rows; keys and values of all rows are written to their cells.
    Greedy,
    /// [`names::LOSS`] of the labelled rows; nothing is written.
    Loss,
}

/// A forward pass in the making.
pub struct Forward<'g> {
    builder: &'g Builder,
    model: &'g Model,
    request: &'g Request,
}

impl<'g> Forward<'g> {
    /// The tensor `blk.layer.name.weight` applied to `x [rows, in]`, plus its bias where the file has one, plus what the
    /// adapters that rows name add: `[rows, out]`.
    pub fn linear(&self, layer: usize, name: &str, x: Value<'g>) -> Value<'g> {
        let name = format!("blk.{layer}.{name}");
        self.builder.site(&name);
        let named = self.builder.data(names::NAMED, Type::i32([self.request.rows]).counted(Extent::Rows));
        let weight = format!("{name}.weight");
        self.product(&weight, &weight, &format!("{name}.bias"), x, named)
    }

    /// RMS norm over the last axis with the gains `blk.layer.name.weight`.
    pub fn norm(&self, layer: usize, name: &str, x: Value<'g>) -> Value<'g> {
        self.norm_by(&format!("blk.{layer}.{name}.weight"), x)
    }

    /// `[rows, heads * head_dim]` as `[rows, heads, head_dim]`, for queries and keys.
    pub fn heads(&self, x: Value<'g>) -> Value<'g> {
        let head_dim = self.model.hyper().head_dim;
        x.reshape(&[x.width() / head_dim, head_dim])
    }

    /// `[rows, kv_heads * value_dim]` as `[rows, kv_heads, value_dim]`.
    pub fn values(&self, x: Value<'g>) -> Value<'g> {
        let hyper = self.model.hyper();
        x.reshape(&[hyper.kv_heads, hyper.value_dim])
    }

    /// Rotates `x [rows, heads, head_dim]` as layer `layer` does.
    pub fn rope(&self, layer: usize, x: Value<'g>) -> Value<'g> {
        let table = self.rope_table(self.model.hyper().attention[layer].rope);
        let op = Rotate { pairing: self.model.family().pairing, inverse: false };
        let [y] = self.builder.push(op, [x, table]);
        y
    }

    /// Attention of layer `layer` over pages and the batch's own rows, which become pages: `q [rows, heads, head_dim]`,
    /// `k [rows, kv_heads, head_dim]`, `v [rows, kv_heads, value_dim]` -> `[rows, heads * value_dim]`.
    pub fn attention(&self, layer: usize, q: Value<'g>, k: Value<'g>, v: Value<'g>) -> Value<'g> {
        let (hyper, request) = (self.model.hyper(), self.request);
        self.builder.site(&format!("blk.{layer}.attention"));
        let group = self.model.group_of(layer);
        let (own_k, own_v) = (k.round_to(request.cache), v.round_to(request.cache));
        let cells = request.cells.get(group).copied().unwrap_or(0);
        let pool = |width| Type::new(request.cache, [cells, hyper.kv_heads, width]);
        let k_pages = self.builder.store(&names::keys(layer), pool(hyper.head_dim));
        let v_pages = self.builder.store(&names::values(layer), pool(hyper.value_dim));
        let sequences = Type::i32([request.sequences, 4]).counted(Extent::Sequences);
        let entries = Type::i32([request.page_entries]).counted(Extent::Pages(group as u8));
        let op = Attention {
            scale: hyper.attention_scale,
            window: hyper.attention[layer].window.map(|window| window as u32),
            segment: request.segment,
        };
        let sequences = self.builder.data(names::SEQUENCES, sequences);
        let pages = self.builder.data(&names::pages(group), entries);
        let [out, _, _] = self.builder.push(op, [q, own_k, own_v, k_pages, v_pages, sequences, pages]);
        if request.want != Want::Loss {
            let cells =
                self.builder.data(&names::cells(group), Type::i32([request.rows]).counted(Extent::Rows));
            // Pages are rounded from the same rows as `own_k` and `own_v`: a second rounding might not be the identity.
            self.builder.effect(k, k_pages, Some(cells));
            self.builder.effect(v, v_pages, Some(cells));
        }
        out.reshape(&[hyper.heads * hyper.value_dim])
    }

    /// `x sigmoid(x)`.
    pub fn silu(&self, x: Value<'g>) -> Value<'g> {
        let [y] = self.builder.push(Silu {}, [x]);
        y
    }

    /// GELU in its tanh form.
    pub fn gelu(&self, x: Value<'g>) -> Value<'g> {
        let [y] = self.builder.push(Gelu {}, [x]);
        y
    }

    fn norm_by(&self, name: &str, x: Value<'g>) -> Value<'g> {
        self.builder.site(name);
        let [y] = self.builder.push(RmsNorm { eps: self.model.hyper().norm_eps }, [x, self.weight(name)]);
        y
    }

    /// A weight by its tensor name; absent where the file has none.
    fn weight(&self, name: &str) -> Value<'g> {
        match self.model.weight_type(name) {
            Some(ty) => self.builder.weight(name, ty),
            None => self.builder.absent(),
        }
    }

    /// The rotations of each row, computed once a run for each kind of rotation.
    fn rope_table(&self, rope: usize) -> Value<'g> {
        let hyper = self.model.hyper();
        let positions =
            self.builder.data(names::POSITIONS, Type::i32([self.request.rows]).counted(Extent::Rows));
        let frequencies = self.builder.weight(hyper.ropes[rope].name, Type::f64([hyper.rope_dims / 2]));
        let [table] = self.builder.push_once(RopeTable { scale: 1.0 }, [positions, frequencies]);
        table
    }

    fn product(&self, weight: &str, site: &str, bias: &str, x: Value<'g>, named: Value<'g>) -> Value<'g> {
        let mut y = self.smooth_or_rounded(x, self.weight(weight));
        if let Some(bias) = self.weight(bias).present() {
            y = y + bias;
        }
        if !self.request.sites.iter().any(|index| self.model.sites()[*index].name == site) {
            return y;
        }
        let (ranks, adapters) = (self.request.rank_rows, self.request.adapters);
        let table = Type::i32([adapters, 2]).counted(Extent::Adapters);
        let inputs = [
            y,
            x,
            self.builder.store(&names::adapter_a(site), Type::f32([ranks, x.width()])),
            self.builder.store(&names::adapter_b(site), Type::f32([ranks, y.width()])),
            self.builder.data(&names::adapter_table(site), table),
            self.builder.data(&names::adapter_scales(site), Type::f32([adapters]).counted(Extent::Adapters)),
            named,
        ];
        let [y] = self.builder.push(Adapt {}, inputs);
        y
    }

    /// `x` times a weight. Products with the same `x` share its rounding.
    fn smooth_or_rounded(&self, x: Value<'g>, weight: Value<'g>) -> Value<'g> {
        let [y] = if self.request.numerics.rounds(&weight.ty()) {
            let [q, d, sums] = self.builder.push_once(QuantiseQ8 {}, [x]);
            self.builder.push(LinearQ8 {}, [x, q, d, sums, weight])
        } else {
            self.builder.push(Linear {}, [x, weight])
        };
        y
    }

    /// Final norm and head over the rows that `index` selects: logits `[head_rows, vocab]`.
    fn head(&self, x: Value<'g>, index: &str, extent: Extent) -> Value<'g> {
        self.builder.site("output");
        let rows = Type::i32([self.request.head_rows]).counted(extent);
        let [selected] = self.builder.push(SelectRows {}, [x, self.builder.data(index, rows.clone())]);
        let h = self.norm_by("output_norm.weight", selected);
        self.builder.site("output");
        let named = self.builder.data(names::NAMED_HEAD, rows);
        self.product(self.model.head_weight(), "output.weight", "output.bias", h, named)
    }
}

/// The graph of `request` over `model`.
pub(crate) fn forward(model: &Model, request: &Request) -> Result<Graph, ModelError> {
    let builder = Builder::new();
    {
        let f = Forward { builder: &builder, model, request };
        builder.site("token_embd");
        let tokens = builder.data(names::TOKENS, Type::i32([request.rows]).counted(Extent::Rows));
        let [mut x] = builder.push(Embed {}, [tokens, f.weight("token_embd.weight")]);
        if model.hyper().embedding_scale != 1.0 {
            x = x.scale(model.hyper().embedding_scale);
        }
        for layer in 0..model.hyper().layers {
            x = (model.family().block)(&f, layer, x);
        }
        match request.want {
            Want::Logits => builder.output(names::LOGITS, f.head(x, names::OUTPUTS, Extent::Outputs)),
            Want::Greedy => {
                let [ids] = builder.push(Argmax {}, [f.head(x, names::OUTPUTS, Extent::Outputs)]);
                builder.output(names::GREEDY, ids);
            }
            Want::Loss => {
                let logits = f.head(x, names::LABELLED, Extent::Labelled);
                let labelled = || Type::i32([request.head_rows]).counted(Extent::Labelled);
                let [loss, _, _] =
                    builder.push(CrossEntropy {}, [logits, builder.data(names::LABELS, labelled())]);
                builder.data(names::FACTORS, labelled().of(Element::F32));
                builder.output(names::LOSS, loss);
            }
        }
    }
    Ok(builder.finish()?)
}
