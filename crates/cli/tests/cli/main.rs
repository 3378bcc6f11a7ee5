//! The built binary, as a user calls it: what it computes on tiny models, what it refuses and how, and, with the real
//! models, what it is for.
#![allow(clippy::unwrap_used, reason = "a helper of a test may fail as the test does")]

mod chat;
mod checks;
mod doors;
mod program;
mod real;
mod refusals;
mod scratch;
mod served;
mod serving;
mod training;
