//! A small file with every type of value, files byte by byte, and folders for files.

#![allow(dead_code, reason = "each test file uses its share")]

use std::path::PathBuf;

use apprentice_gguf::{Array, Format, Strings, Value, Writer};

/// Values of every type, arrays of every type, and nested ones.
pub fn values() -> Vec<(&'static str, Value)> {
    let nested: Vec<Array> =
        vec![vec![1u8, 2].into(), strings(&["x"]).into(), vec![Array::from(vec![-0.5f64])].into()];
    vec![
        ("u8", Value::U8(u8::MAX)),
        ("i8", Value::I8(i8::MIN)),
        ("u16", Value::U16(u16::MAX)),
        ("i16", Value::I16(i16::MIN)),
        ("u32", Value::U32(u32::MAX)),
        ("i32", Value::I32(i32::MIN)),
        ("u64", Value::U64(u64::MAX)),
        ("i64", Value::I64(i64::MIN)),
        ("f32", Value::F32(-1.5)),
        ("f64", Value::F64(1e300)),
        ("true", true.into()),
        ("false", false.into()),
        ("string", "größer 語".into()),
        ("string.empty", "".into()),
        ("u8s", vec![1u8, 2, 3].into()),
        ("i8s", vec![-1i8, 2].into()),
        ("u16s", vec![1u16, 65535].into()),
        ("i16s", vec![-1i16].into()),
        ("u32s", vec![7u32; 3].into()),
        ("i32s", vec![-7i32; 3].into()),
        ("u64s", vec![1u64 << 40].into()),
        ("i64s", vec![-1i64 << 40].into()),
        ("f32s", vec![0.25f32, -0.0].into()),
        ("f64s", vec![f64::MIN_POSITIVE].into()),
        ("bools", vec![true, false, true].into()),
        ("strings", strings(&["", "ab", "", "ü"]).into()),
        ("empty", Array::U16(Vec::new()).into()),
        ("empty.strings", strings(&[]).into()),
        ("nested", nested.into()),
        ("nested.empty", Array::Arrays(Vec::new()).into()),
    ]
}

pub fn strings(items: &[&str]) -> Strings {
    items.iter().collect()
}

/// Three tensors: name, shape, format, bytes.
pub fn tensors() -> Vec<(&'static str, Vec<usize>, Format, Vec<u8>)> {
    vec![
        ("a", vec![2, 3], Format::F32, (0..24).collect()),
        ("b", vec![5, 1, 32], Format::Q8_0, (0..170).collect()),
        ("scalar", vec![], Format::F16, vec![1, 60]),
    ]
}

/// `values` and `tensors` in one file.
pub fn sample() -> Vec<u8> {
    let mut writer = Writer::new();
    for (key, value) in values() {
        writer.set(key, value).expect("a key");
    }
    for (name, shape, format, bytes) in tensors() {
        writer.tensor(name, &shape, format, bytes).expect("a tensor");
    }
    written(&writer)
}

pub fn written(writer: &Writer<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    writer.write_to(&mut bytes).expect("a vector takes everything");
    bytes
}

/// An empty folder for the files of one test.
pub fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // It may be left from an earlier run.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A file byte by byte.
#[derive(Clone, Default)]
pub struct Raw(pub Vec<u8>);

impl Raw {
    /// A header that announces `tensors` and `keys`.
    pub fn new(tensors: u64, keys: u64) -> Raw {
        Raw::default().bytes(b"GGUF").u32(3).u64(tensors).u64(keys)
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Raw {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn u32(self, value: u32) -> Raw {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u64(self, value: u64) -> Raw {
        self.bytes(&value.to_le_bytes())
    }

    pub fn string(self, string: &str) -> Raw {
        self.u64(string.len() as u64).bytes(string.as_bytes())
    }

    /// An entry of the tensor table; `extents` innermost first.
    pub fn tensor(self, name: &str, extents: &[u64], block_type: u32, offset: u64) -> Raw {
        let start = self.string(name).u32(extents.len() as u32);
        extents.iter().fold(start, |raw, &extent| raw.u64(extent)).u32(block_type).u64(offset)
    }

    /// Zeros up to a multiple of 32, and `count` more.
    pub fn data(mut self, count: usize) -> Raw {
        self.0.resize(self.0.len().next_multiple_of(32) + count, 0);
        self
    }
}

/// The 64-bit generator of Knuth.
pub struct Random(pub u64);

impl Random {
    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}
