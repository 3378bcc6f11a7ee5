//! A model: a file that a family has accepted. Every tensor is known, present where it must be and of the right shape.

use std::collections::HashMap;
use std::sync::Arc;

use apprentice_gguf::Gguf;
use apprentice_graph::{Element, Format, Graph, LAYER_GROUPS_MAX, Type, Weight, real};

use crate::error::ModelError;
use crate::family::Family;
use crate::forward::{self, Numerics, Request};
use crate::hyper::Hyper;
use crate::list;
use crate::table::{Role, RowOrder, TensorRow};

/// A model that can be turned into graphs.
pub struct Model {
    family: &'static Family,
    hyper: Hyper,
    gguf: Gguf,
    types: HashMap<String, Type>,
    sites: Vec<Site>,
    groups: Vec<LayerGroup>,
    group_of: Vec<usize>,
}

/// A linear that adapters may sit on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Name of its tensor, `blk.0.attn_q.weight`; the head is `output.weight`, tied or not.
    pub name: String,
    /// PEFT module path, `model.layers.0.self_attn.q_proj`.
    pub module: String,
    /// Width of its input.
    pub input: usize,
    /// Width of its output.
    pub output: usize,
    /// Order of its rows against Hugging Face's.
    pub order: RowOrder,
    /// Whether it is the head, which default targets leave out.
    pub head: bool,
}

/// Layers that share page tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayerGroup {
    /// How far they see; `None`: everything.
    pub window: Option<usize>,
    /// Their indices.
    pub layers: Vec<usize>,
    /// Heads of a page.
    pub kv_heads: usize,
    /// Width of a key head.
    pub head_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
}

impl Model {
    /// Accepts a file.
    ///
    /// # Errors
    /// An architecture that is not built, hyper-parameters that are missing or cannot be, tensors that are missing,
    /// unknown, or of another shape: each by name.
    pub fn open(gguf: Gguf) -> Result<Model, ModelError> {
        let architecture = gguf.architecture()?;
        let family = list::family(architecture).ok_or_else(|| ModelError::Architecture {
            found: architecture.to_owned(),
            known: list::FAMILIES.iter().map(|family| family.architecture).collect::<Vec<_>>().join(", "),
        })?;
        let hyper = (family.hyper)(&gguf)?;
        let types = accept_tensors(family, &hyper, &gguf)?;
        let (groups, group_of) = layer_groups(&hyper, family.architecture)?;
        let sites = sites(family, &hyper);
        let mut model = Model { family, hyper, gguf, types, sites, groups, group_of };
        for rope in &model.hyper.ropes {
            model.types.insert(rope.name.to_owned(), Type::f64([model.hyper.rope_dims / 2]));
        }
        Ok(model)
    }

    /// The family.
    pub fn family(&self) -> &'static Family {
        self.family
    }
    /// The hyper-parameters.
    pub fn hyper(&self) -> &Hyper {
        &self.hyper
    }
    /// The file.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }
    /// Where adapters may sit, in the order of the table, layer by layer; the head last.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }
    /// The layer groups.
    pub fn groups(&self) -> &[LayerGroup] {
        &self.groups
    }
    /// The group of a layer.
    pub fn group_of(&self, layer: usize) -> usize {
        self.group_of[layer]
    }
    /// Parameters in the file.
    pub fn parameters(&self) -> u64 {
        self.gguf
            .tensors()
            .iter()
            .map(|tensor| tensor.shape.iter().map(|size| *size as u64).product::<u64>())
            .sum()
    }
    /// The graph of `request`.
    pub fn graph(&self, request: &Request) -> Result<Graph, ModelError> {
        forward::forward(self, request)
    }

    /// The weight called `name` as a backend takes it: a tensor of the file, or a derived weight. `None` if there is none.
    pub fn weight(&self, name: &str) -> Option<Weight> {
        let ty = self.types.get(name)?.clone();
        if let Some(rope) = self.hyper.ropes.iter().position(|rope| rope.name == name) {
            let bytes: Vec<u8> = self.frequencies(rope).into_iter().flat_map(f64::to_le_bytes).collect();
            return Some(Weight { name: name.to_owned(), ty, bytes: Arc::new(bytes) });
        }
        let tensor = self.gguf.tensor(name)?;
        Some(Weight { name: name.to_owned(), ty, bytes: Arc::new(self.gguf.shared_bytes(tensor)) })
    }

    /// Type of the weight called `name`, if the model has it.
    pub(crate) fn weight_type(&self, name: &str) -> Option<Type> {
        self.types.get(name).cloned()
    }

    /// Linears, the head included, that round their activations under `numerics`.
    pub fn rounded_products(&self, numerics: Numerics) -> usize {
        let linears = self.sites.iter().filter(|site| !site.head).map(|site| site.name.as_str());
        let weights = linears.chain([self.head_weight()]).filter_map(|name| self.types.get(name));
        weights.filter(|ty| numerics.rounds(ty)).count()
    }

    /// Name of the tensor that gives logits: the embedding's where the head is tied.
    pub fn head_weight(&self) -> &'static str {
        if self.types.contains_key("output.weight") { "output.weight" } else { "token_embd.weight" }
    }

    /// Angular frequencies of a rotation, radians a position, in float64.
    fn frequencies(&self, rope: usize) -> Vec<f64> {
        let (dims, rope) = (self.hyper.rope_dims, &self.hyper.ropes[rope]);
        let factors = self.gguf.tensor("rope_freqs.weight").map(|tensor| {
            let mut factors = vec![0f32; dims / 2];
            // The table wants this tensor in float32 with one factor a pair, and loading has checked it.
            let decoded = Format::F32.decode(self.gguf.bytes(tensor), &mut factors);
            debug_assert!(decoded.is_ok(), "rope_freqs.weight was checked at load");
            factors
        });
        (0..dims / 2)
            .map(|pair| {
                let power = real::pow(rope.base, -2.0 * pair as f64 / dims as f64);
                power / rope.divisor / factors.as_ref().map_or(1.0, |factors| f64::from(factors[pair]))
            })
            .collect()
    }
}

/// Types of all tensors, once every one of the file is known and every one of the table is there.
fn accept_tensors(family: &Family, hyper: &Hyper, gguf: &Gguf) -> Result<HashMap<String, Type>, ModelError> {
    let mut types = HashMap::new();
    for row in family.tensors {
        for layer in 0..if row.per_layer { hyper.layers } else { 1 } {
            let name = row.name(layer);
            match gguf.tensor(&name) {
                None if row.optional => {}
                None => return Err(ModelError::TensorMissing { name }),
                Some(tensor) => {
                    let ty = Type::new(element(row, tensor.format), tensor.shape.as_slice());
                    let wanted = row.sizes(hyper);
                    let any_format = matches!(row.role, Role::Embedding | Role::Linear | Role::Head);
                    if tensor.shape != wanted || !(any_format || tensor.format == Format::F32) {
                        let expected =
                            Type::new(if any_format { ty.element } else { Element::F32 }, wanted.as_slice());
                        let found = format!("{} {:?}", tensor.format, tensor.shape);
                        return Err(ModelError::Tensor { name, expected: expected.to_string(), found });
                    }
                    types.insert(name, ty);
                }
            }
        }
    }
    match gguf.tensors().iter().find(|tensor| !types.contains_key(&tensor.name)) {
        Some(tensor) => {
            Err(ModelError::TensorUnknown { name: tensor.name.clone(), architecture: family.architecture })
        }
        None => Ok(types),
    }
}

/// Products read blocks as they lie; norms and biases are plain float32.
fn element(row: &TensorRow, format: Format) -> Element {
    match row.role {
        Role::Embedding | Role::Linear | Role::Head => Element::Weight(format),
        Role::Norm | Role::Bias | Role::RopeFactors => Element::F32,
    }
}

fn layer_groups(
    hyper: &Hyper,
    architecture: &'static str,
) -> Result<(Vec<LayerGroup>, Vec<usize>), ModelError> {
    let mut groups: Vec<LayerGroup> = Vec::new();
    let group_of = hyper.attention.iter().enumerate().map(|(layer, attention)| {
        let known = groups.iter().position(|group| group.window == attention.window);
        let group = known.unwrap_or_else(|| {
            let (kv_heads, head_dim, value_dim) = (hyper.kv_heads, hyper.head_dim, hyper.value_dim);
            groups.push(LayerGroup {
                window: attention.window,
                layers: Vec::new(),
                kv_heads,
                head_dim,
                value_dim,
            });
            groups.len() - 1
        });
        groups[group].layers.push(layer);
        group
    });
    let group_of = group_of.collect();
    if groups.len() > LAYER_GROUPS_MAX {
        let variant = format!("{} kinds of windows, of which there may be {LAYER_GROUPS_MAX},", groups.len());
        return Err(ModelError::Variant { architecture, variant });
    }
    Ok((groups, group_of))
}

fn sites(family: &Family, hyper: &Hyper) -> Vec<Site> {
    let mut sites = Vec::new();
    let mut heads = Vec::new();
    let rows = |per_layer: bool| family.tensors.iter().filter(move |row| row.per_layer == per_layer);
    let site = |row: &TensorRow, layer: usize| {
        let sizes = row.sizes(hyper);
        let (output, input) = (sizes[0], sizes[1]);
        let head = row.role == Role::Head;
        row.module(layer).map(|module| Site {
            name: row.name(layer),
            module,
            input,
            output,
            order: row.order,
            head,
        })
    };
    for layer in 0..hyper.layers {
        sites.extend(rows(true).filter(|row| row.role == Role::Linear).filter_map(|row| site(row, layer)));
    }
    heads.extend(rows(false).filter(|row| row.role == Role::Head).filter_map(|row| site(row, 0)));
    sites.extend(heads);
    sites
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hyper::LayerAttention;

    fn check(windows: &[Option<usize>], expected: Result<&[usize], &str>) {
        let hyper = Hyper {
            vocab: 8,
            width: 8,
            layers: windows.len(),
            heads: 1,
            kv_heads: 1,
            head_dim: 8,
            value_dim: 8,
            hidden: 8,
            context: 64,
            norm_eps: 1e-6,
            attention_scale: 1.0,
            embedding_scale: 1.0,
            rope_dims: 8,
            ropes: Vec::new(),
            attention: windows.iter().map(|window| LayerAttention { rope: 0, window: *window }).collect(),
        };
        let found =
            layer_groups(&hyper, "tiny").map(|(_, group_of)| group_of).map_err(|error| error.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{windows:?}");
    }

    #[test]
    fn layers_with_one_window_share_a_group() {
        check(&[Some(4), None, Some(4)], Ok(&[0, 1, 0]));
        let eight: Vec<_> = (1..=8).map(Some).collect();
        check(&eight, Ok(&[0, 1, 2, 3, 4, 5, 6, 7]));
    }

    #[test]
    fn more_groups_than_a_run_counts_are_refused() {
        let nine: Vec<_> = (1..=9).map(Some).collect();
        let message =
            "architecture \"tiny\" with 9 kinds of windows, of which there may be 8, is not supported";
        check(&nine, Err(message));
    }
}
