//! OpenAI-shaped HTTP over one engine, which learns between the steps of others.
#![forbid(unsafe_code)]

mod fields;
mod reject;
