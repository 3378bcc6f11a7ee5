//! Numbers that nobody can foretell: names of answers, and seeds of requests that name none.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// 64 bits: the hash of nothing under a key that the standard library draws from the system.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
