//! Qwen3: Llama's block with an RMS norm on each query and key head before rotation by halves, and no biases.
//!
//! Source: Yang et al. 2025 (Qwen3 technical report); the GGUF description of the `qwen3` architecture.

use apprentice_graph::Value;
use apprentice_graph::ops::Pairing;

use crate::family::Family;
use crate::forward::Forward;
use crate::hyper::Hyper;
use crate::table::Dim::{Attended, HeadDim, Hidden, Key, Query, Value as Values, Vocab, Width};
use crate::table::Role::{Embedding, Head, Linear, Norm};
use crate::table::{TensorRow, layer, whole};

/// The family.
pub(crate) const QWEN3: Family =
    Family { architecture: "qwen3", tensors: TENSORS, pairing: Pairing::Halves, hyper: Hyper::dense, block };

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
    layer("ffn_norm.weight", Norm, &[Width]),
    layer("ffn_gate.weight", Linear, &[Hidden, Width]).peft("mlp.gate_proj"),
    layer("ffn_up.weight", Linear, &[Hidden, Width]).peft("mlp.up_proj"),
    layer("ffn_down.weight", Linear, &[Width, Hidden]).peft("mlp.down_proj"),
];

fn block<'g>(f: &Forward<'g>, layer: usize, x: Value<'g>) -> Value<'g> {
    let h = f.norm(layer, "attn_norm", x);
    let q = f.norm(layer, "attn_q_norm", f.heads(f.linear(layer, "attn_q", h)));
    let k = f.norm(layer, "attn_k_norm", f.heads(f.linear(layer, "attn_k", h)));
    let v = f.values(f.linear(layer, "attn_v", h));
    let attended = f.attention(layer, f.rope(layer, q), f.rope(layer, k), v);
    let x = x + f.linear(layer, "attn_output", attended);
    let h = f.norm(layer, "ffn_norm", x);
    let gated = f.silu(f.linear(layer, "ffn_gate", h)) * f.linear(layer, "ffn_up", h);
    x + f.linear(layer, "ffn_down", gated)
}
