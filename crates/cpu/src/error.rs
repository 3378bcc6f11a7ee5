//! Why this crate refused something.

use apprentice_quant::{ErrorKind, Format};

/// Why a level or a run was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CpuError {
    /// No level has this name.
    #[error("level {found:?}: expected scalar, avx2, avxvnni, avx512 or avx512vnni")]
    UnknownLevel {
        /// The name.
        found: String,
    },
    /// The machine lacks an instruction set.
    #[error("level {level}: this machine lacks {missing}")]
    LevelAbsent {
        /// The level that was asked for.
        level: &'static str,
        /// The first feature that is missing, by its name in Rust.
        missing: &'static str,
    },
    /// Multiply-add rounds twice here, so no result could keep its bytes.
    #[error("level {level}: fused multiply-add is not rounded once on this machine")]
    FusedMultiplyAdd {
        /// The level that was asked for.
        level: &'static str,
    },
    /// The system did not start as many threads as were asked for.
    #[error("workers: {wanted} asked for, the system started {started}: {reason}")]
    Threads {
        /// Workers asked for.
        wanted: usize,
        /// Workers there are, the caller included.
        started: usize,
        /// What the system said.
        reason: std::io::ErrorKind,
    },
    /// Bytes that are not the blocks of the weight that they should be.
    #[error("weight [{rows}, {width}] in {format}: expected {expected:?} bytes, found {found}")]
    Weight {
        /// Its format.
        format: Format,
        /// Its rows.
        rows: usize,
        /// Values of a row.
        width: usize,
        /// Bytes that it takes; `None` where a row is no whole number of blocks, or the number overflows.
        expected: Option<usize>,
        /// Bytes that were given.
        found: usize,
    },
}

impl CpuError {
    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CpuError::UnknownLevel { .. } | CpuError::Weight { .. } => ErrorKind::Input,
            CpuError::LevelAbsent { .. } | CpuError::FusedMultiplyAdd { .. } => ErrorKind::Unsupported,
            CpuError::Threads { .. } => ErrorKind::Limit,
        }
    }
}
