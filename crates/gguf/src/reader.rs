//! A cursor over the header of a file that hands out nothing that the file does not hold.

use crate::{Array, GgufError, Strings, Value, ValueType};

/// The most bytes of metadata and tensor table: the largest vocabularies take about 20 MB. It bounds what a sparse file
/// of terabytes, which costs its author nothing, can make a reader allocate: at worst some ten times as much, for arrays
/// of empty arrays.
pub(crate) const HEADER_LIMIT: usize = 64 << 20;
/// How deep arrays may nest.
pub(crate) const ARRAY_DEPTH: usize = 8;
/// The most bytes of a key or a tensor name.
pub(crate) const NAME_BYTES: usize = 65535;

/// A place in the header of a file.
pub(crate) struct Reader<'a> {
    /// The file, or as much of it as a header may take.
    bytes: &'a [u8],
    offset: usize,
    /// Whether `bytes` is only the beginning of the file.
    cut: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(file: &'a [u8]) -> Reader<'a> {
        let bytes = &file[..file.len().min(HEADER_LIMIT)];
        Reader { bytes, offset: 0, cut: bytes.len() < file.len() }
    }

    /// Bytes read so far.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        let bytes = self.take(N as u64, what)?;
        Ok(bytes.try_into().expect("as many bytes as were asked for"))
    }

    /// A number of things of at least `each` bytes, which the rest of the file could hold.
    pub(crate) fn count(&mut self, what: &'static str, each: usize) -> Result<usize, GgufError> {
        let offset = self.offset;
        let count = self.u64(what)?;
        let have = self.left();
        match usize::try_from(count).ok().filter(|count| count.checked_mul(each).is_some_and(|n| n <= have)) {
            Some(count) => Ok(count),
            None if self.cut => Err(GgufError::HeaderTooLarge { limit: HEADER_LIMIT }),
            None => Err(GgufError::Count { offset, what, count, each, have }),
        }
    }

    /// A string, as it lies in the file.
    pub(crate) fn string(&mut self, what: &'static str) -> Result<&'a str, GgufError> {
        let length = self.u64(what)?;
        let offset = self.offset;
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes)
            .map_err(|error| GgufError::Utf8 { offset: offset + error.valid_up_to(), what })
    }

    /// A key or the name of a tensor.
    pub(crate) fn name(&mut self, what: &'static str) -> Result<&'a str, GgufError> {
        let name = self.string(what)?;
        check_name(name, what)?;
        Ok(name)
    }

    /// A value with its type before it.
    pub(crate) fn value(&mut self) -> Result<Value, GgufError> {
        const WHAT: &str = "a metadata value";
        Ok(match self.value_type()? {
            ValueType::U8 => Value::U8(u8::from_le_bytes(self.array(WHAT)?)),
            ValueType::I8 => Value::I8(i8::from_le_bytes(self.array(WHAT)?)),
            ValueType::U16 => Value::U16(u16::from_le_bytes(self.array(WHAT)?)),
            ValueType::I16 => Value::I16(i16::from_le_bytes(self.array(WHAT)?)),
            ValueType::U32 => Value::U32(u32::from_le_bytes(self.array(WHAT)?)),
            ValueType::I32 => Value::I32(i32::from_le_bytes(self.array(WHAT)?)),
            ValueType::U64 => Value::U64(u64::from_le_bytes(self.array(WHAT)?)),
            ValueType::I64 => Value::I64(i64::from_le_bytes(self.array(WHAT)?)),
            ValueType::F32 => Value::F32(f32::from_le_bytes(self.array(WHAT)?)),
            ValueType::F64 => Value::F64(f64::from_le_bytes(self.array(WHAT)?)),
            ValueType::Bool => Value::Bool(self.bool()?),
            ValueType::String => Value::String(self.string(WHAT)?.to_string()),
            ValueType::Array => Value::Array(self.items(ARRAY_DEPTH)?),
        })
    }

    /// An array, which may hold `depth - 1` levels of others.
    fn items(&mut self, depth: usize) -> Result<Array, GgufError> {
        const WHAT: &str = "array elements";
        if depth == 0 {
            return Err(GgufError::ArrayDepth { limit: ARRAY_DEPTH });
        }
        let element = self.value_type()?;
        let count = self.count(WHAT, element.least_bytes())?;
        // Nothing is allocated by `count`: numbers are copied out of bytes in hand, the others are pushed as they are read.
        Ok(match element {
            ValueType::U8 => Array::U8(self.numbers(count, u8::from_le_bytes)?),
            ValueType::I8 => Array::I8(self.numbers(count, i8::from_le_bytes)?),
            ValueType::U16 => Array::U16(self.numbers(count, u16::from_le_bytes)?),
            ValueType::I16 => Array::I16(self.numbers(count, i16::from_le_bytes)?),
            ValueType::U32 => Array::U32(self.numbers(count, u32::from_le_bytes)?),
            ValueType::I32 => Array::I32(self.numbers(count, i32::from_le_bytes)?),
            ValueType::U64 => Array::U64(self.numbers(count, u64::from_le_bytes)?),
            ValueType::I64 => Array::I64(self.numbers(count, i64::from_le_bytes)?),
            ValueType::F32 => Array::F32(self.numbers(count, f32::from_le_bytes)?),
            ValueType::F64 => Array::F64(self.numbers(count, f64::from_le_bytes)?),
            ValueType::Bool => Array::Bool((0..count).map(|_| self.bool()).collect::<Result<_, _>>()?),
            ValueType::String => {
                let mut strings = Strings::new();
                for _ in 0..count {
                    strings.push(self.string(WHAT)?);
                }
                Array::Strings(strings)
            }
            ValueType::Array => {
                Array::Arrays((0..count).map(|_| self.items(depth - 1)).collect::<Result<_, _>>()?)
            }
        })
    }

    fn numbers<T, const N: usize>(
        &mut self,
        count: usize,
        read: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, GgufError> {
        let bytes = self.take(count as u64 * N as u64, "array elements")?;
        let (items, _) = bytes.as_chunks();
        Ok(items.iter().map(|&item| read(item)).collect())
    }

    fn bool(&mut self) -> Result<bool, GgufError> {
        let offset = self.offset;
        match self.array("a boolean")? {
            [0] => Ok(false),
            [1] => Ok(true),
            [found] => Err(GgufError::Bool { offset, found }),
        }
    }

    fn value_type(&mut self) -> Result<ValueType, GgufError> {
        let offset = self.offset;
        let found = self.u32("a value type")?;
        ValueType::from_id(found).ok_or(GgufError::ValueType { offset, found })
    }

    fn take(&mut self, need: u64, what: &'static str) -> Result<&'a [u8], GgufError> {
        let have = self.left();
        match usize::try_from(need).ok().filter(|&need| need <= have) {
            Some(length) => {
                let bytes = &self.bytes[self.offset..][..length];
                self.offset += length;
                Ok(bytes)
            }
            None if self.cut => Err(GgufError::HeaderTooLarge { limit: HEADER_LIMIT }),
            None => Err(GgufError::Truncated { offset: self.offset, what, need, have }),
        }
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.offset
    }
}

/// Refuses a key or tensor name that is longer than GGUF allows.
pub(crate) fn check_name(name: &str, what: &'static str) -> Result<(), GgufError> {
    if name.len() <= NAME_BYTES {
        Ok(())
    } else {
        Err(GgufError::LongName { what, limit: NAME_BYTES, found: name.len() })
    }
}
