//! OpenAI-shaped HTTP over one engine, which learns between the steps of others.
//!
//! One thread has the engine and goes round: take what is asked, one step, send what happened. HTTP runs on another. Between
//! them are a bounded queue in (full: 429) and a channel a request out, as deep as its answer can be long, so that the
//! engine never waits for a client; a client that goes away has dropped its end, which cancels.
#![forbid(unsafe_code)]

mod answer;
mod chat;
mod command;
mod completion;
mod error;
mod fields;
mod guard;
mod learn;
mod metrics;
mod options;
mod page;
mod random;
mod reject;
mod replies;
mod reply;
mod routes;
mod serve;
mod shelf;
mod slots;
mod state;
mod tokens;
mod wanted;
mod worker;

pub use error::ServerError;
pub use options::ServerOptions;
pub use serve::{Server, Stop};
