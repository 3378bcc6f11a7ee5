//! Writing a file of version 3. What the reader would refuse, the writer refuses first.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use apprentice_quant::Format;

use crate::part::{ALIGNMENT_KEY, Metadata, alignment};
use crate::reader::{ARRAY_DEPTH, check_name};
use crate::tensor::{DIMENSIONS, byte_count};
use crate::{Array, GgufError, Value};

/// A file to be written: metadata and tensors in the order in which they were given. Tensor bytes may be borrowed.
#[derive(Default)]
pub struct Writer<'a> {
    metadata: Metadata,
    tensors: Vec<Pending<'a>>,
    names: HashSet<String>,
}

struct Pending<'a> {
    name: String,
    shape: Vec<usize>,
    format: Format,
    bytes: Cow<'a, [u8]>,
}

impl<'a> Writer<'a> {
    /// A file without keys and tensors.
    pub fn new() -> Writer<'a> {
        Writer::default()
    }

    /// Appends a key. The key `general.alignment` sets the alignment of tensor data, a power of two (32 without it).
    ///
    /// # Errors
    /// [`GgufError::DuplicateKey`], [`GgufError::LongName`], [`GgufError::ArrayDepth`], [`GgufError::Alignment`]; the
    /// writer is then unchanged.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> Result<(), GgufError> {
        let value = value.into();
        check_name(key, "a key")?;
        if matches!(&value, Value::Array(array) if array.depth() > ARRAY_DEPTH) {
            return Err(GgufError::ArrayDepth { limit: ARRAY_DEPTH });
        }
        if key == ALIGNMENT_KEY {
            let mut alone = Metadata::default();
            alone.insert(key.to_string(), value.clone())?;
            alignment(&alone)?;
        }
        self.metadata.insert(key.to_string(), value)
    }

    /// Appends a tensor; `shape` is outermost first.
    ///
    /// # Errors
    /// [`GgufError::DuplicateTensor`], [`GgufError::LongName`], [`GgufError::Dimensions`],
    /// [`GgufError::PartialBlock`], [`GgufError::ShapeOverflow`], [`GgufError::TensorBytes`]; the writer is then unchanged.
    pub fn tensor(
        &mut self,
        name: &str,
        shape: &[usize],
        format: Format,
        bytes: impl Into<Cow<'a, [u8]>>,
    ) -> Result<(), GgufError> {
        let bytes = bytes.into();
        check_name(name, "a tensor's name")?;
        if shape.len() > DIMENSIONS {
            let found = shape.len() as u64;
            return Err(GgufError::Dimensions { name: name.to_string(), limit: DIMENSIONS, found });
        }
        let need = byte_count(name, shape, format)?;
        if need != bytes.len() {
            let (name, shape, found) = (name.to_string(), shape.to_vec(), bytes.len());
            return Err(GgufError::TensorBytes { name, shape, format, need, found });
        }
        if !self.names.insert(name.to_string()) {
            return Err(GgufError::DuplicateTensor { name: name.to_string() });
        }
        self.tensors.push(Pending { name: name.to_string(), shape: shape.to_vec(), format, bytes });
        Ok(())
    }

    /// Writes the file to `out`.
    ///
    /// # Errors
    /// [`GgufError::Io`].
    pub fn write_to(&self, out: &mut impl Write) -> Result<(), GgufError> {
        let alignment = alignment(&self.metadata)?;
        let header = self.header(alignment);
        out.write_all(&header)?;
        pad(out, header.len(), alignment)?;
        for tensor in &self.tensors {
            out.write_all(&tensor.bytes)?;
            pad(out, tensor.bytes.len(), alignment)?;
        }
        Ok(())
    }

    /// Writes the file at `path`, which holds the old bytes or all of the new ones at every moment: a temporary file
    /// beside it is written, flushed to the disk and renamed.
    ///
    /// # Errors
    /// [`GgufError::File`] with [`GgufError::Io`]; the temporary file is then removed.
    pub fn write(&self, path: &Path) -> Result<(), GgufError> {
        let temporary = beside(path);
        let write = || {
            let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
            let written = self.fill(file).and_then(|()| Ok(fs::rename(&temporary, path)?));
            if written.is_err() {
                // The first failure is the one to report.
                let _ = fs::remove_file(&temporary);
            }
            written
        };
        write().map_err(|error: GgufError| error.in_file(path))
    }

    fn fill(&self, file: File) -> Result<(), GgufError> {
        let mut out = BufWriter::new(file);
        self.write_to(&mut out)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        Ok(())
    }

    /// Header, metadata and tensor table.
    fn header(&self, alignment: u64) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        put(&mut out, 3u32.to_le_bytes());
        put_count(&mut out, self.tensors.len());
        put_count(&mut out, self.metadata.entries.len());
        for (key, value) in &self.metadata.entries {
            put_string(&mut out, key);
            put(&mut out, value.value_type().id().to_le_bytes());
            put_value(&mut out, value);
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            put_string(&mut out, &tensor.name);
            put(&mut out, (tensor.shape.len() as u32).to_le_bytes());
            for &extent in tensor.shape.iter().rev() {
                put_count(&mut out, extent);
            }
            put(&mut out, tensor.format.gguf_id().to_le_bytes());
            put(&mut out, offset.to_le_bytes());
            offset += (tensor.bytes.len() as u64).next_multiple_of(alignment);
        }
        out
    }
}

fn put<const N: usize>(out: &mut Vec<u8>, bytes: [u8; N]) {
    out.extend_from_slice(&bytes);
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    put(out, (count as u64).to_le_bytes());
}

fn put_string(out: &mut Vec<u8>, string: &str) {
    put_count(out, string.len());
    out.extend_from_slice(string.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(value) => put(out, value.to_le_bytes()),
        Value::I8(value) => put(out, value.to_le_bytes()),
        Value::U16(value) => put(out, value.to_le_bytes()),
        Value::I16(value) => put(out, value.to_le_bytes()),
        Value::U32(value) => put(out, value.to_le_bytes()),
        Value::I32(value) => put(out, value.to_le_bytes()),
        Value::U64(value) => put(out, value.to_le_bytes()),
        Value::I64(value) => put(out, value.to_le_bytes()),
        Value::F32(value) => put(out, value.to_le_bytes()),
        Value::F64(value) => put(out, value.to_le_bytes()),
        Value::Bool(value) => out.push((*value).into()),
        Value::String(value) => put_string(out, value),
        Value::Array(array) => put_array(out, array),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    put(out, array.element().id().to_le_bytes());
    put_count(out, array.len());
    match array {
        Array::U8(items) => out.extend_from_slice(items),
        Array::I8(items) => items.iter().for_each(|item| put(out, item.to_le_bytes())),
        Array::U16(items) => items.iter().for_each(|item| put(out, item.to_le_bytes())),
        Array::I16(items) => items.iter().for_each(|item| put(out, item.to_le_bytes())),
        Array::U32(items) => items.iter().for_each(|item| put(out, item.to_le_bytes())),
        Array::I32(items) => items.iter().for_each(|item| put(out, item.to_le_bytes())),
        Array::U64(items) => items.iter().for_each(|item| put(out, item.to_le_bytes())),
        Array::I64(items) => items.iter().for_each(|item| put(out, item.to_le_bytes())),
        Array::F32(items) => items.iter().for_each(|item| put(out, item.to_le_bytes())),
        Array::F64(items) => items.iter().for_each(|item| put(out, item.to_le_bytes())),
        Array::Bool(items) => items.iter().for_each(|&item| out.push(item.into())),
        Array::Strings(items) => items.iter().for_each(|item| put_string(out, item)),
        Array::Arrays(items) => items.iter().for_each(|item| put_array(out, item)),
    }
}

/// Zeros from `written` bytes up to the next multiple of `alignment`.
fn pad(out: &mut impl Write, written: usize, alignment: u64) -> std::io::Result<()> {
    let written = written as u64;
    let zeros = written.next_multiple_of(alignment) - written;
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), zeros), out)?;
    Ok(())
}

/// A name beside `path` that no other writer uses.
fn beside(path: &Path) -> PathBuf {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}-{number}.tmp", std::process::id()));
    path.with_file_name(name)
}
