//! Jobs: what a job answers does not depend on what else the engine does, and nothing is left behind.
#![allow(clippy::unwrap_used, reason = "these are tests")]

#[path = "../common/mod.rs"]
mod common;
mod laws;
mod lessons;
mod refusals;
mod replies;
mod shared;
