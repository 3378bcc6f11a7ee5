//! What an error means to whoever asked, shared by the error types of all crates.

/// What kind of refusal an error is. The command line maps kinds to exit codes, a server to statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// What was given is malformed or contradicts itself.
    Input,
    /// Something that was named does not exist.
    Missing,
    /// It would clash with something that is already there.
    Conflict,
    /// A limit on size, memory, time or count would be passed.
    Limit,
    /// Well formed, but not something this build can do.
    Unsupported,
    /// The system failed to read or write.
    Io,
    /// The caller asked for it to stop.
    Cancelled,
}
