//! Arrays of metadata, one vector a type, and strings without an allocation each.

use std::fmt;

use crate::ValueType;

/// An array of metadata. Arrays nest; the inner ones may differ in type and length.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant is its own name")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    Strings(Strings),
    Arrays(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Array {
    /// Type of the elements.
    pub fn element(&self) -> ValueType {
        match self {
            Array::U8(_) => ValueType::U8,
            Array::I8(_) => ValueType::I8,
            Array::U16(_) => ValueType::U16,
            Array::I16(_) => ValueType::I16,
            Array::U32(_) => ValueType::U32,
            Array::I32(_) => ValueType::I32,
            Array::F32(_) => ValueType::F32,
            Array::Bool(_) => ValueType::Bool,
            Array::Strings(_) => ValueType::String,
            Array::Arrays(_) => ValueType::Array,
            Array::U64(_) => ValueType::U64,
            Array::I64(_) => ValueType::I64,
            Array::F64(_) => ValueType::F64,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(items) => items.len(),
            Array::I8(items) => items.len(),
            Array::U16(items) => items.len(),
            Array::I16(items) => items.len(),
            Array::U32(items) => items.len(),
            Array::I32(items) => items.len(),
            Array::F32(items) => items.len(),
            Array::Bool(items) => items.len(),
            Array::Strings(items) => items.len(),
            Array::Arrays(items) => items.len(),
            Array::U64(items) => items.len(),
            Array::I64(items) => items.len(),
            Array::F64(items) => items.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, if they are integers of any width.
    pub fn as_integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
        Some(match self {
            Array::U8(items) => Box::new(items.iter().map(|&item| item.into())),
            Array::I8(items) => Box::new(items.iter().map(|&item| item.into())),
            Array::U16(items) => Box::new(items.iter().map(|&item| item.into())),
            Array::I16(items) => Box::new(items.iter().map(|&item| item.into())),
            Array::U32(items) => Box::new(items.iter().map(|&item| item.into())),
            Array::I32(items) => Box::new(items.iter().map(|&item| item.into())),
            Array::U64(items) => Box::new(items.iter().map(|&item| item.into())),
            Array::I64(items) => Box::new(items.iter().map(|&item| item.into())),
            Array::F32(_) | Array::F64(_) | Array::Bool(_) | Array::Strings(_) | Array::Arrays(_) => {
                return None;
            }
        })
    }

    /// Levels of arrays, this one included.
    pub(crate) fn depth(&self) -> usize {
        match self {
            Array::Arrays(items) => 1 + items.iter().map(Array::depth).max().unwrap_or(0),
            _ => 1,
        }
    }
}

/// Strings in one piece of text: a vocabulary of 262,144 tokens costs its bytes and one number a token.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    /// Where each string ends in `text`; it begins where the one before it ends.
    ends: Vec<usize>,
}

impl Strings {
    /// No strings.
    pub fn new() -> Strings {
        Strings::default()
    }

    /// Appends a string.
    pub fn push(&mut self, string: &str) {
        self.text.push_str(string);
        self.ends.push(self.text.len());
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let string = &self.text[start..end];
            start = end;
            string
        })
    }
}

impl fmt::Debug for Strings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Strings {
        let mut all = Strings::new();
        for string in strings {
            all.push(string.as_ref());
        }
        all
    }
}

macro_rules! arrays_from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(impl From<$from> for Array {
            fn from(items: $from) -> Array {
                Array::$variant(items)
            }
        })*
    };
}

arrays_from! {
    Vec<u8> => U8, Vec<i8> => I8, Vec<u16> => U16, Vec<i16> => I16, Vec<u32> => U32, Vec<i32> => I32,
    Vec<u64> => U64, Vec<i64> => I64, Vec<f32> => F32, Vec<f64> => F64, Vec<bool> => Bool,
    Strings => Strings, Vec<Array> => Arrays,
}
