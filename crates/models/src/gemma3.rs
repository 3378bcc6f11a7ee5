//! Gemma 3 (text): norms before and after attention and feed-forward, norms on query and key heads, GELU, embeddings
//! scaled by the square root of the width, and layers that see a sliding window between layers that see everything.
//!
//! Norm gains in the file contain the `1 +` already. Constants of the architecture that a file may leave out: every sixth
//! layer sees everything; sliding layers rotate with base 10,000 and without scaling. The 27B model (62 blocks) scales its
//! scores by `(width / heads)^(-1/2)`, all others by `head_dim^(-1/2)`.
//! Source: Gemma Team 2025 (Gemma 3 technical report); the GGUF description of the `gemma3` architecture.

use apprentice_gguf::Gguf;
use apprentice_graph::Value;
use apprentice_graph::ops::Pairing;

use crate::error::ModelError;
use crate::family::Family;
use crate::forward::Forward;
use crate::hyper::{Hyper, Keys, LayerAttention, Rope};
use crate::table::Dim::{Attended, HeadDim, Hidden, Key, Query, Value as Values, Vocab, Width};
use crate::table::Role::{Embedding, Head, Linear, Norm};
use crate::table::{TensorRow, layer, whole};

/// The family.
pub(crate) const GEMMA3: Family =
    Family { architecture: "gemma3", tensors: TENSORS, pairing: Pairing::Halves, hyper, block };

/// Every so many layers one sees everything, where the file does not say which.
const FULL_EVERY: usize = 6;
/// Blocks of the one model whose score scale differs.
const BLOCKS_27B: usize = 62;

const TENSORS: &[TensorRow] = &[
    whole("token_embd.weight", Embedding, &[Vocab, Width]),
    whole("output_norm.weight", Norm, &[Width]),
    whole("output.weight", Head, &[Vocab, Width]).peft("lm_head").optional(),
    layer("attn_norm.weight", Norm, &[Width]),
    layer("attn_q.weight", Linear, &[Query, Width]).peft("self_attn.q_proj"),
    layer("attn_q_norm.weight", Norm, &[HeadDim]),
    layer("attn_k.weight", Linear, &[Key, Width]).peft("self_attn.k_proj"),
    layer("attn_k_norm.weight", Norm, &[HeadDim]),
    layer("attn_v.weight", Linear, &[Values, Width]).peft("self_attn.v_proj"),
    layer("attn_output.weight", Linear, &[Width, Attended]).peft("self_attn.o_proj"),
    layer("post_attention_norm.weight", Norm, &[Width]),
    layer("ffn_norm.weight", Norm, &[Width]),
    layer("ffn_gate.weight", Linear, &[Hidden, Width]).peft("mlp.gate_proj"),
    layer("ffn_up.weight", Linear, &[Hidden, Width]).peft("mlp.up_proj"),
    layer("ffn_down.weight", Linear, &[Width, Hidden]).peft("mlp.down_proj"),
    layer("post_ffw_norm.weight", Norm, &[Width]),
];

fn hyper(gguf: &Gguf) -> Result<Hyper, ModelError> {
    let keys = Keys::new(gguf)?;
    let mut hyper = Hyper::dense(gguf)?;
    hyper.embedding_scale = (hyper.width as f64).sqrt() as f32;
    if hyper.layers == BLOCKS_27B {
        hyper.attention_scale = (hyper.heads as f64 / hyper.width as f64).sqrt() as f32;
    }
    let base = keys.positive_or("rope.freq_base_swa", 10_000.0)?;
    hyper.ropes.push(Rope { name: "rope.frequencies_sliding", base, divisor: 1.0 });
    let window = keys.size("attention.sliding_window")?;
    let sliding = match keys.flags("attention.sliding_window_pattern")? {
        None => (0..hyper.layers).map(|layer| (layer + 1) % FULL_EVERY != 0).collect(),
        Some(flags) if flags.len() == hyper.layers => flags,
        Some(flags) => {
            let expected = format!("{} flags", hyper.layers);
            return Err(keys.wrong("attention.sliding_window_pattern", expected, flags.len()));
        }
    };
    hyper.attention = sliding
        .into_iter()
        .map(|sliding| match sliding {
            true => LayerAttention { rope: 1, window: Some(window) },
            false => LayerAttention { rope: 0, window: None },
        })
        .collect();
    Ok(hyper)
}

fn block<'g>(f: &Forward<'g>, layer: usize, x: Value<'g>) -> Value<'g> {
    let h = f.norm(layer, "attn_norm", x);
    let q = f.norm(layer, "attn_q_norm", f.heads(f.linear(layer, "attn_q", h)));
    let k = f.norm(layer, "attn_k_norm", f.heads(f.linear(layer, "attn_k", h)));
    let v = f.values(f.linear(layer, "attn_v", h));
    let attended = f.attention(layer, f.rope(layer, q), f.rope(layer, k), v);
    let x = x + f.norm(layer, "post_attention_norm", f.linear(layer, "attn_output", attended));
    let h = f.norm(layer, "ffn_norm", x);
    let gated = f.gelu(f.linear(layer, "ffn_gate", h)) * f.linear(layer, "ffn_up", h);
    x + f.norm(layer, "post_ffw_norm", f.linear(layer, "ffn_down", gated))
}
