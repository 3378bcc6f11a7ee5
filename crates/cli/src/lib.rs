//! Apprentice for Rust programs: a quantised model that is served and trained by one engine.
//!
//! [`Gguf`] opens a file, [`Model`] accepts it, [`Engine`] runs it on a [`Backend`] ([`Cpu`], or the float64
//! [`Interpreter`]), [`Text`] turns text into its tokens and back, and an [`Adapter`] is what it learns; [`train`] is learning
//! from a file. This is the only API with a promise of stability.
#![forbid(unsafe_code)]

pub use apprentice_cpu::{Cpu, CpuOptions};
pub use apprentice_engine::{Engine, Learner, LearnerOptions, Named, Options, Outputs, Run, Span};
pub use apprentice_gguf::Gguf;
pub use apprentice_graph::{Backend, Interpreter};
pub use apprentice_models::{Adapter, AdapterRows, Model, adapter_file};
pub use apprentice_text::{Conversation, EncodeOptions, Message, Text};
pub use apprentice_train as train;
