//! OpenAI-shaped HTTP over one engine, which learns between the steps of others.
#![forbid(unsafe_code)]

mod chat;
mod completion;
mod fields;
mod options;
mod reject;
mod wanted;

pub use options::ServerOptions;
