//! Why this crate refused something.

/// Why a level or a run was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CpuError {
    /// No level has this name.
    #[error("level {found:?}: expected scalar, avx2 or avx512")]
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
}
