//! Model families over GGUF files: what tensors a family has, how its forward pass reads as a graph, and adapter files.
//!
//! Invariants: only this crate knows tensor names, row orders and architectures; a family is one file and one line in
//! [`list`]; nothing here computes with activations.
#![forbid(unsafe_code)]

mod adapter;
mod adapter_error;
pub mod adapter_file;
mod adapter_gguf;
mod adapter_names;
mod adapter_pairs;
mod adapter_peft;
mod adapter_safetensors;
mod alpha;
mod atomic;
mod error;
mod family;
mod forward;
mod gemma3;
mod hyper;
pub mod list;
mod llama;
mod model;
pub mod names;
mod philox;
mod qwen2;
mod qwen3;
mod row_order;
mod table;
pub mod targets;

pub use adapter::{Adapter, AdapterRows, Pair};
pub use adapter_error::AdapterError;
pub use adapter_names::{AdapterNaming, PairNames};
pub use error::ModelError;
pub use family::Family;
pub use forward::{Numerics, Request, Want};
pub use hyper::{Hyper, LayerAttention, Rope};
pub use model::{LayerGroup, Model, Site};
pub use philox::Philox;
pub use table::{Dim, Role, RowOrder, TensorRow};
