//! The families. A new one is its file and one line here.

use crate::family::Family;
use crate::llama;

/// Every family.
pub const FAMILIES: &[Family] = &[llama::LLAMA];

/// The family called `architecture`.
pub fn family(architecture: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.architecture == architecture)
}
