//! What is good enough, in one place. The figures are those of the golden data's own description.

/// SHA-256 of the models whose logits are held to [`LOGIT_NEAR`]: SmolLM2-135M-Instruct and Qwen2.5-Coder-0.5B-Instruct.
const NEAR_MODELS: [&str; 2] = [
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
];
/// "f32: every listed logit within 5e-4 (smollm2, qwen25c05)", absolute.
const LOGIT_NEAR: f64 = 5e-4;
/// "2e-3 (any other)", absolute.
const LOGIT_OTHER: f64 = 2e-3;

/// "the top-1 the same": rows whose most likely token is another.
pub const OTHER_TOP: f64 = 0.0;
/// "gradient <= 1e-4 relative (Frobenius) for every tensor"; `reply` too.
pub const GRADIENT: f64 = 1e-4;
/// "losses within 1e-4 absolute", nats.
pub const LOSS: f64 = 1e-4;
/// "`final` cosine >= 0.9999 a tensor".
pub const FINAL_COSINE: f64 = 0.9999;
/// "q8: KL(golden || ours) in nats over the 32 listed tokens and one bucket for the rest, mean over rows <= 7e-3".
pub const DIVERGENCE: f64 = 7e-3;
/// A comparison of rounded products that rounds none says nothing: linears that round their activations.
pub const ROUNDED: f64 = 1.0;
/// Block formats: "Bound: bit-equal". Values whose bits differ.
pub const OTHER_BITS: f64 = 0.0;
/// Tensors that are in a reference file and not among ours, or zero in either.
pub const ABSENT: f64 = 0.0;

/// The largest difference of a listed logit for the model with this SHA-256.
pub fn logit(model_sha256: &str) -> f64 {
    if NEAR_MODELS.contains(&model_sha256) { LOGIT_NEAR } else { LOGIT_OTHER }
}

/// Bounds of the tiny families.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArchsBounds {
    /// NMSE of the logits at the listed rows.
    pub logits: f64,
    /// NMSE of the gradient over the whole adapter.
    pub gradient: f64,
    /// Relative (Frobenius) difference of every tensor's gradient.
    pub tensor: f64,
}

/// "f32 numerics, f32 pages: logits NMSE <= 1e-9 at the listed rows; gradients NMSE over the whole adapter <= 1e-8 and every
/// tensor <= 1e-4 relative."
pub const ARCHS_F32: ArchsBounds = ArchsBounds { logits: 1e-9, gradient: 1e-8, tensor: GRADIENT };
/// "Through the float64 interpreter: NMSE <= 1e-12, logits and whole adapter gradient."
pub const ARCHS_MEANING: ArchsBounds = ArchsBounds { logits: 1e-12, gradient: 1e-12, tensor: GRADIENT };
