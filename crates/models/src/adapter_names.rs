//! What adapter files call their tensors.
//!
//! PEFT: `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight` (or `.lora_A.default.weight`), rows of B in
//! Hugging Face's order. GGUF: `blk.0.attn_q.weight.lora_a`, rows in the order of the model's file.

use std::collections::HashMap;

use crate::model::{Model, Site};

/// What an adapter file calls the tensors of its pairs, so that others can be written under the same names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdapterNaming {
    /// One entry a pair, ascending by site.
    pub pairs: Vec<PairNames>,
    /// Whether the file names the base model that it was made for. One that does not was judged by names and shapes alone.
    pub names_base: bool,
}

/// The tensors of a pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PairNames {
    /// Index into [`Model::sites`].
    pub site: usize,
    /// Name of A, `[rank, in]`.
    pub a: String,
    /// Name of B, `[out, rank]`.
    pub b: String,
    /// Whether the rows of B are in Hugging Face's order, not the model file's.
    pub hugging_face: bool,
}

impl AdapterNaming {
    /// PEFT's names for pairs at `sites`, in their order.
    pub fn peft(model: &Model, sites: &[usize]) -> AdapterNaming {
        AdapterNaming::of(Scheme::Peft, model, sites)
    }

    /// GGUF's names for pairs at `sites`, in their order.
    pub fn gguf(model: &Model, sites: &[usize]) -> AdapterNaming {
        AdapterNaming::of(Scheme::Gguf, model, sites)
    }

    fn of(scheme: Scheme, model: &Model, sites: &[usize]) -> AdapterNaming {
        let pairs = sites.iter().map(|site| {
            let [a, b] = scheme.names(&model.sites()[*site]);
            PairNames { site: *site, a, b, hugging_face: scheme.hugging_face() }
        });
        AdapterNaming { pairs: pairs.collect(), names_base: true }
    }
}

/// A way to name tensors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Peft,
    Gguf,
}

/// Which matrix of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Half {
    A,
    B,
}

const PEFT_PREFIX: &str = "base_model.model.";
const PEFT_ENDS: [(&str, Half); 4] = [
    (".lora_A.weight", Half::A),
    (".lora_B.weight", Half::B),
    (".lora_A.default.weight", Half::A),
    (".lora_B.default.weight", Half::B),
];
const GGUF_ENDS: [(&str, Half); 2] = [(".lora_a", Half::A), (".lora_b", Half::B)];

/// Sites that an error lists before it counts.
const LISTED: usize = 3;

impl Scheme {
    /// The scheme of a file that does not say: GGUF's where any name ends as its names do.
    pub(crate) fn of<'a>(mut names: impl Iterator<Item = &'a str>) -> Scheme {
        let gguf = |name: &str| GGUF_ENDS.iter().any(|(end, _)| name.ends_with(end));
        if names.any(gguf) { Scheme::Gguf } else { Scheme::Peft }
    }

    pub(crate) fn hugging_face(self) -> bool {
        self == Scheme::Peft
    }

    /// Names of A and B at a site.
    pub(crate) fn names(self, site: &Site) -> [String; 2] {
        match self {
            Scheme::Peft => ["A", "B"].map(|half| format!("{PEFT_PREFIX}{}.lora_{half}.weight", site.module)),
            Scheme::Gguf => ["a", "b"].map(|half| format!("{}.lora_{half}", site.name)),
        }
    }

    /// The sites by what [`Scheme::split`] leaves of a name.
    pub(crate) fn sites(self, model: &Model) -> HashMap<&str, usize> {
        model.sites().iter().enumerate().map(|(index, site)| (self.key(site), index)).collect()
    }

    /// What a tensor's name says of its site, and which half it is.
    pub(crate) fn split(self, name: &str) -> Option<(&str, Half)> {
        let (name, ends) = match self {
            Scheme::Peft => (name.strip_prefix(PEFT_PREFIX).unwrap_or(name), &PEFT_ENDS[..]),
            Scheme::Gguf => (name, &GGUF_ENDS[..]),
        };
        ends.iter().find_map(|(end, half)| Some((name.strip_suffix(end)?, *half)))
    }

    /// The name of the other half of a pair.
    pub(crate) fn counterpart(self, name: &str) -> String {
        let (from, to) = match self {
            Scheme::Peft if name.contains(".lora_A.") => (".lora_A.", ".lora_B."),
            Scheme::Peft => (".lora_B.", ".lora_A."),
            Scheme::Gguf if name.ends_with(".lora_a") => (".lora_a", ".lora_b"),
            Scheme::Gguf => (".lora_b", ".lora_a"),
        };
        name.replace(from, to)
    }

    /// A few names that would match, for an error.
    pub(crate) fn known(self, model: &Model) -> String {
        let mut names: Vec<String> =
            model.sites().iter().take(LISTED).map(|site| self.names(site)[0].clone()).collect();
        if model.sites().len() > LISTED {
            names.push(format!("and so on at {} sites", model.sites().len()));
        }
        names.join(", ")
    }

    fn key(self, site: &Site) -> &str {
        match self {
            Scheme::Peft => &site.module,
            Scheme::Gguf => &site.name,
        }
    }
}
