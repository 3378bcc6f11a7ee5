//! Llama: pre-norm blocks of grouped attention and a gated feed-forward with SiLU; Mistral-like and SmolLM2 files too.
//!
//! Query and key rows are stored with rotation pairs interleaved. A linear may have a bias. Source: Touvron et al. 2023
//! (LLaMA); the GGUF description of the `llama` architecture.

use apprentice_gguf::Gguf;
use apprentice_graph::Value;
use apprentice_graph::ops::Pairing;

use crate::error::ModelError;
use crate::family::Family;
use crate::forward::Forward;
use crate::hyper::{Hyper, Keys};
use crate::table::Dim::{Attended, Hidden, Key, Query, RopePairs, Value as Values, Vocab, Width};
use crate::table::Role::{Bias, Embedding, Head, Linear, Norm, RopeFactors};
use crate::table::RowOrder::{RopeInterleavedKey, RopeInterleavedQuery};
use crate::table::{TensorRow, layer, whole};

/// The family.
pub(crate) const LLAMA: Family =
    Family { architecture: "llama", tensors: TENSORS, pairing: Pairing::Interleaved, hyper, block };

const TENSORS: &[TensorRow] = &[
    whole("token_embd.weight", Embedding, &[Vocab, Width]),
    whole("output_norm.weight", Norm, &[Width]),
    whole("output.weight", Head, &[Vocab, Width]).peft("lm_head").optional(),
    whole("rope_freqs.weight", RopeFactors, &[RopePairs]).optional(),
    layer("attn_norm.weight", Norm, &[Width]),
    layer("attn_q.weight", Linear, &[Query, Width]).peft("self_attn.q_proj").order(RopeInterleavedQuery),
    layer("attn_q.bias", Bias, &[Query]).optional(),
    layer("attn_k.weight", Linear, &[Key, Width]).peft("self_attn.k_proj").order(RopeInterleavedKey),
    layer("attn_k.bias", Bias, &[Key]).optional(),
    layer("attn_v.weight", Linear, &[Values, Width]).peft("self_attn.v_proj"),
    layer("attn_v.bias", Bias, &[Values]).optional(),
    layer("attn_output.weight", Linear, &[Width, Attended]).peft("self_attn.o_proj"),
    layer("attn_output.bias", Bias, &[Width]).optional(),
    layer("ffn_norm.weight", Norm, &[Width]),
    layer("ffn_gate.weight", Linear, &[Hidden, Width]).peft("mlp.gate_proj"),
    layer("ffn_gate.bias", Bias, &[Hidden]).optional(),
    layer("ffn_up.weight", Linear, &[Hidden, Width]).peft("mlp.up_proj"),
    layer("ffn_up.bias", Bias, &[Hidden]).optional(),
    layer("ffn_down.weight", Linear, &[Width, Hidden]).peft("mlp.down_proj"),
    layer("ffn_down.bias", Bias, &[Width]).optional(),
];

/// Mixtures of experts share the name of the architecture and are refused by it.
fn hyper(gguf: &Gguf) -> Result<Hyper, ModelError> {
    match Keys::new(gguf)?.count("expert_count")? {
        0 => Hyper::dense(gguf),
        experts => Err(ModelError::Variant {
            architecture: LLAMA.architecture,
            variant: format!("{experts} experts"),
        }),
    }
}

/// The block: norm, attention, residual; norm, gated feed-forward, residual.
pub(crate) fn block<'g>(f: &Forward<'g>, layer: usize, x: Value<'g>) -> Value<'g> {
    let h = f.norm(layer, "attn_norm", x);
    let q = f.rope(layer, f.heads(f.linear(layer, "attn_q", h)));
    let k = f.rope(layer, f.heads(f.linear(layer, "attn_k", h)));
    let v = f.values(f.linear(layer, "attn_v", h));
    let x = x + f.linear(layer, "attn_output", f.attention(layer, q, k, v));
    let h = f.norm(layer, "ffn_norm", x);
    let gated = f.silu(f.linear(layer, "ffn_gate", h)) * f.linear(layer, "ffn_up", h);
    x + f.linear(layer, "ffn_down", gated)
}
