//! The engine: sequences over pages, ragged batches, adapters by row, decoding, and learning from spans.
//!
//! Invariants: token ids only (no text, file, thread, clock or async); no family and no backend by name; a call that is
//! refused has changed nothing, and a run that fails has advanced no sequence.
#![forbid(unsafe_code)]

mod account;
mod assemble;
mod bank;
mod batch;
mod blocks;
mod decode;
mod engine;
mod error;
mod job;
mod learn;
mod learner;
mod learner_state;
mod lesson;
mod live;
mod logprobs;
mod options;
mod pages;
mod prefix;
mod program;
mod request;
mod sampling;
mod scheduler;
mod sequence;
mod share;
mod spans;
mod stats;
mod stream;
mod update;
mod workload;

pub use account::{Account, Item, Kind, PlanAccount, PlannedValue, readable};
pub use apprentice_graph::{ErrorKind, real};
pub use apprentice_models::Numerics;
pub use bank::AdapterId;
pub use blocks::{BLOCK_ROWS, block_table};
pub use engine::{Engine, Named, Outputs, Run};
pub use error::EngineError;
pub use job::{Event, Finish, Generate, Job, JobId, LOGPROBS_MAX, Lesson, LiveId, Logprobs, Objective};
pub use learn::{Gradients, Losses};
pub use learner::{Learner, LearnerOptions};
pub use learner_state::{LearnerState, MatrixState};
pub use live::{TEACHING_RANK, TEACHING_STEPS, teaching_adapter};
pub use options::{Options, PAGE_POSITIONS, SEGMENT_KEYS};
pub use sampling::Sampling;
pub use sequence::SequenceId;
pub use spans::{MicroBatch, Span, cut_step};
pub use stats::Stats;
pub use workload::{AdapterShape, LearnerShape, StepShape, Workload, account};
