//! Qwen2 and Qwen2.5: Llama's block with biases on queries, keys and values, and rotation by halves.
//!
//! Source: Yang et al. 2024 (Qwen2 technical report); the GGUF description of the `qwen2` architecture.

use apprentice_graph::ops::Pairing;

use crate::family::Family;
use crate::hyper::Hyper;
use crate::llama;
use crate::table::Dim::{Attended, Hidden, Key, Query, Value as Values, Vocab, Width};
use crate::table::Role::{Bias, Embedding, Head, Linear, Norm};
use crate::table::{TensorRow, layer, whole};

/// The family.
pub(crate) const QWEN2: Family = Family {
    architecture: "qwen2",
    tensors: TENSORS,
    pairing: Pairing::Halves,
    hyper: Hyper::dense,
    block: llama::block,
};

const TENSORS: &[TensorRow] = &[
    whole("token_embd.weight", Embedding, &[Vocab, Width]),
    whole("output_norm.weight", Norm, &[Width]),
    whole("output.weight", Head, &[Vocab, Width]).peft("lm_head").optional(),
    layer("attn_norm.weight", Norm, &[Width]),
    layer("attn_q.weight", Linear, &[Query, Width]).peft("self_attn.q_proj"),
    layer("attn_q.bias", Bias, &[Query]),
    layer("attn_k.weight", Linear, &[Key, Width]).peft("self_attn.k_proj"),
    layer("attn_k.bias", Bias, &[Key]),
    layer("attn_v.weight", Linear, &[Values, Width]).peft("self_attn.v_proj"),
    layer("attn_v.bias", Bias, &[Values]),
    layer("attn_output.weight", Linear, &[Width, Attended]).peft("self_attn.o_proj"),
    layer("ffn_norm.weight", Norm, &[Width]),
    layer("ffn_gate.weight", Linear, &[Hidden, Width]).peft("mlp.gate_proj"),
    layer("ffn_up.weight", Linear, &[Hidden, Width]).peft("mlp.up_proj"),
    layer("ffn_down.weight", Linear, &[Width, Hidden]).peft("mlp.down_proj"),
];
