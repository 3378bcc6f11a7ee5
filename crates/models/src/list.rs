//! The families. A new one is its file and one line here.

use crate::family::Family;
use crate::{gemma3, llama, qwen2, qwen3};

/// Every family.
pub const FAMILIES: &[Family] = &[gemma3::GEMMA3, llama::LLAMA, qwen2::QWEN2, qwen3::QWEN3];

/// The family called `architecture`.
pub fn family(architecture: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.architecture == architecture)
}
