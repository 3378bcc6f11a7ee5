//! The server as its clients see it: shapes, streams, lessons, refusals, and the laws through HTTP.
#![allow(clippy::unwrap_used, reason = "a helper of a test may fail as the test does")]

mod client;
mod house;
mod laws;
mod lessons;
mod limits;
mod refusals;
mod shapes;
