//! GGUF types that exist but have no decoder here, so that a refusal can name them.
//!
//! Source: the list of `ggml_type` in ggml. Numbers 4, 5, 31 to 33 and 36 to 38 were withdrawn there.

/// Name of a GGUF tensor type that exists and is not one of [`Format`](crate::Format).
pub fn unbuilt_name(gguf_id: u32) -> Option<&'static str> {
    let named = UNBUILT.iter().find(|(id, _)| *id == gguf_id);
    named.map(|(_, name)| *name)
}

const UNBUILT: &[(u32, &str)] = &[
    (4, "Q4_2"),
    (5, "Q4_3"),
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];
