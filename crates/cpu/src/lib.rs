//! Kernels for the processor: what a plan runs on, at whatever instruction set the machine has.
//!
//! Invariants: every level gives the same bytes, because an algorithm is written once over sixteen lanes ([`Isa`]) in
//! IEEE operations; a unit of work has borders that depend on shapes only ([`Kernel`]), and units write disjoint bytes.

mod backend;
pub mod disjoint;
mod error;
pub mod isa;
pub mod kernels;
mod lower;
pub mod math;
mod memory;
mod need;
mod operand;
pub mod pool;
mod program;
mod schedule;
pub mod times;

pub use backend::{Cpu, CpuOptions};
pub use disjoint::Disjoint;
pub use error::CpuError;
pub use isa::{Isa, Level, Task};
pub use kernels::Kernel;
pub use pool::{Outcome, Pool, Stop};
pub use times::Times;
