//! Why a GGUF file was refused, or not written.

use std::path::PathBuf;

use apprentice_quant::{ErrorKind, Format};

/// Why a GGUF file was refused, or not written. Its message is one line, and a name out of a file is escaped in it.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "a field is named in its variant's message")]
pub enum GgufError {
    /// Any of the others, and the file in which it was met.
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: Box<GgufError> },
    /// The system failed to open, read or write.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A folder or a device.
    #[error("expected a file, found something else")]
    NotAFile,
    /// A file of no bytes.
    #[error("expected a GGUF file, found an empty one")]
    Empty,
    /// Another kind of file.
    #[error("expected a GGUF file (magic \"GGUF\"), found \"{}\" at byte 0", found.escape_ascii())]
    Magic { found: [u8; 4] },
    /// A version whose layout differs.
    #[error("expected GGUF version 2 or 3, found version {found}")]
    Version { found: u32 },
    /// A file for big-endian machines.
    #[error("expected a little-endian file, found a big-endian one (GGUF version {version})")]
    BigEndian { version: u32 },

    /// The file ends inside something.
    #[error("byte {offset}: expected {need} bytes of {what}, found the end of the file after {have}")]
    Truncated { offset: usize, what: &'static str, need: u64, have: usize },
    /// A count that the rest of the file cannot hold.
    #[error(
        "byte {offset}: {count} {what} take at least {each} bytes each, found {have} to the end of the file"
    )]
    Count { offset: usize, what: &'static str, count: u64, each: usize, have: usize },
    /// Metadata and tensor table go on past any size that a real file has.
    #[error("expected metadata and tensor table of at most {limit} bytes, found more")]
    HeaderTooLarge { limit: usize },
    /// Text that is not UTF-8.
    #[error("byte {offset}: expected UTF-8 in {what}")]
    Utf8 { offset: usize, what: &'static str },
    /// A boolean that is neither 0 nor 1.
    #[error("byte {offset}: expected a boolean, 0 or 1, found {found}")]
    Bool { offset: usize, found: u8 },
    /// A value of a type that GGUF does not have.
    #[error("byte {offset}: expected a value type from 0 to 12, found {found}")]
    ValueType { offset: usize, found: u32 },
    /// Arrays in arrays in arrays.
    #[error("expected arrays nested at most {limit} deep, found more")]
    ArrayDepth { limit: usize },
    /// A key or tensor name that is longer than GGUF allows.
    #[error("expected {what} of at most {limit} bytes, found {found}")]
    LongName { what: &'static str, limit: usize, found: usize },
    /// A key that is there twice.
    #[error("key {key:?}: found twice")]
    DuplicateKey { key: String },

    /// A key that must be there.
    #[error("key {key:?}: missing")]
    MissingKey { key: String },
    /// A value of another type than the key has.
    #[error("key {key:?}: expected {expected}, found {found}")]
    WrongType { key: String, expected: &'static str, found: String },
    /// An integer that the asker cannot hold.
    #[error("key {key:?}: expected {expected}, found {found}, which does not fit")]
    IntegerRange { key: String, expected: &'static str, found: i128 },
    /// An alignment that is not a power of two.
    #[error("key \"general.alignment\": expected a power of two, found {found}")]
    Alignment { found: u64 },

    /// A tensor name that is there twice.
    #[error("tensor {name:?}: found twice")]
    DuplicateTensor { name: String },
    /// A tensor of too many dimensions.
    #[error("tensor {name:?}: expected at most {limit} dimensions, found {found}")]
    Dimensions { name: String, limit: usize, found: u64 },
    /// A block type that is not built, or that does not exist.
    #[error("tensor {name:?}: block type {} is not supported", block_type(*found))]
    BlockType { name: String, found: u32 },
    /// A shape whose size no machine can count.
    #[error("tensor {name:?}: shape {shape:?} in {format} has more bytes than can be counted")]
    ShapeOverflow { name: String, shape: Vec<u64>, format: Format },
    /// Rows that are not whole blocks.
    #[error("tensor {name:?}: expected rows of a multiple of {} values in {format}, found {found}", format.block_values())]
    PartialBlock { name: String, format: Format, found: usize },
    /// Data that does not begin at a multiple of the alignment.
    #[error("tensor {name:?}: expected an offset that is a multiple of {alignment}, found {offset}")]
    Misaligned { name: String, alignment: u64, offset: u64 },
    /// Data that the file does not have.
    #[error(
        "tensor {name:?}: {shape:?} in {format} needs {need} bytes from offset {offset}, found {have} bytes of data"
    )]
    Data { name: String, shape: Vec<usize>, format: Format, offset: u64, need: usize, have: usize },
    /// Two tensors that share bytes.
    #[error("tensor {name:?}: its data begins inside that of {other:?}")]
    Overlap { name: String, other: String },
    /// Bytes that a writer was given and that do not fill the shape.
    #[error("tensor {name:?}: {shape:?} in {format} needs {need} bytes, found {found}")]
    TensorBytes { name: String, shape: Vec<usize>, format: Format, need: usize, found: usize },

    /// A part of a split file was opened by itself.
    #[error("expected the first of {count} parts, {first:?}, found part {part}")]
    NotFirstPart { part: u64, count: u64, first: String },
    /// A split file whose name does not say which part it is.
    #[error("expected a first of {count} parts to be named like \"NAME-00001-of-{count:05}.gguf\"")]
    PartName { count: u64 },
    /// A part that says of itself something else than its place.
    #[error("key {key:?}: expected {expected}, for part {part} of {count}, found {}", shown(*found))]
    PartKey { key: &'static str, part: u64, count: u64, expected: u64, found: Option<u64> },
    /// Parts that do not hold the number of tensors that the first announces.
    #[error("key \"split.tensors.count\": expected {expected} tensors in all parts, found {found}")]
    TensorTotal { expected: u64, found: usize },
}

impl GgufError {
    /// What the error means to whoever asked.
    pub fn kind(&self) -> ErrorKind {
        match self {
            GgufError::File { error, .. } => error.kind(),
            GgufError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => ErrorKind::Missing,
            GgufError::Io(_) => ErrorKind::Io,
            GgufError::MissingKey { .. } => ErrorKind::Missing,
            GgufError::Version { .. } | GgufError::BigEndian { .. } | GgufError::BlockType { .. } => {
                ErrorKind::Unsupported
            }
            GgufError::HeaderTooLarge { .. }
            | GgufError::ArrayDepth { .. }
            | GgufError::LongName { .. }
            | GgufError::Dimensions { .. } => ErrorKind::Limit,
            GgufError::NotAFile
            | GgufError::Empty
            | GgufError::Magic { .. }
            | GgufError::Truncated { .. }
            | GgufError::Count { .. }
            | GgufError::Utf8 { .. }
            | GgufError::Bool { .. }
            | GgufError::ValueType { .. }
            | GgufError::DuplicateKey { .. }
            | GgufError::WrongType { .. }
            | GgufError::IntegerRange { .. }
            | GgufError::Alignment { .. }
            | GgufError::DuplicateTensor { .. }
            | GgufError::ShapeOverflow { .. }
            | GgufError::PartialBlock { .. }
            | GgufError::Misaligned { .. }
            | GgufError::Data { .. }
            | GgufError::Overlap { .. }
            | GgufError::TensorBytes { .. }
            | GgufError::NotFirstPart { .. }
            | GgufError::PartName { .. }
            | GgufError::PartKey { .. }
            | GgufError::TensorTotal { .. } => ErrorKind::Input,
        }
    }

    /// The error itself, without the file in which it was met.
    pub fn cause(&self) -> &GgufError {
        match self {
            GgufError::File { error, .. } => error.cause(),
            other => other,
        }
    }

    /// The same error, met in the file at `path`.
    pub(crate) fn in_file(self, path: &std::path::Path) -> GgufError {
        GgufError::File { path: path.to_path_buf(), error: Box::new(self) }
    }
}

fn block_type(gguf_id: u32) -> String {
    match apprentice_quant::unbuilt_name(gguf_id) {
        Some(name) => format!("{name} ({gguf_id})"),
        None => format!("{gguf_id}, which is none of GGUF's,"),
    }
}

fn shown(value: Option<u64>) -> String {
    value.map_or("none".to_string(), |value| value.to_string())
}
