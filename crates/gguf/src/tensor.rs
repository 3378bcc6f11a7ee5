//! An entry of the tensor table, checked against the data that the file has.

use std::ops::Range;

use apprentice_quant::Format;

use crate::GgufError;
use crate::reader::Reader;

/// The most dimensions that a tensor may have.
pub(crate) const DIMENSIONS: usize = 4;

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Extents, outermost first: the reverse of their order in the file.
    pub shape: Vec<usize>,
    /// How its values lie in its bytes. Blocks do not cross rows, which are the last axis.
    pub format: Format,
    /// Index of the file that holds it.
    pub(crate) part: usize,
    /// Its bytes in that file.
    pub(crate) range: Range<usize>,
}

impl Tensor {
    /// Number of values.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number of bytes.
    pub fn byte_count(&self) -> usize {
        self.range.len()
    }
}

/// An entry of the tensor table, its offset not yet looked at.
pub(crate) struct Entry {
    pub name: String,
    pub shape: Vec<usize>,
    pub format: Format,
    pub bytes: usize,
    /// From the start of the data.
    pub offset: u64,
}

/// The fewest bytes of an entry: the lengths of an empty name and no extents, a type, an offset.
pub(crate) const ENTRY_BYTES: usize = 8 + 4 + 4 + 8;

impl Entry {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Entry, GgufError> {
        const WHAT: &str = "a tensor's entry";
        let name = reader.name("a tensor's name")?.to_string();
        let dimensions = reader.u32(WHAT)?;
        if dimensions as usize > DIMENSIONS {
            return Err(GgufError::Dimensions { name, limit: DIMENSIONS, found: dimensions.into() });
        }
        let mut extents = (0..dimensions).map(|_| reader.u64(WHAT)).collect::<Result<Vec<u64>, _>>()?;
        extents.reverse();
        let block_type = reader.u32(WHAT)?;
        let offset = reader.u64(WHAT)?;
        let Some(format) = Format::from_gguf_id(block_type) else {
            return Err(GgufError::BlockType { name, found: block_type });
        };
        let shape = extents.iter().map(|&extent| usize::try_from(extent)).collect::<Result<Vec<_>, _>>();
        let Ok(shape) = shape else {
            return Err(GgufError::ShapeOverflow { name, shape: extents, format });
        };
        let bytes = byte_count(&name, &shape, format)?;
        Ok(Entry { name, shape, format, bytes, offset })
    }

    /// The tensor in a file of `file_bytes` bytes whose data begins at `data_start`.
    pub(crate) fn place(
        self,
        part: usize,
        alignment: u64,
        data_start: usize,
        file_bytes: usize,
    ) -> Result<Tensor, GgufError> {
        let Entry { name, shape, format, bytes, offset } = self;
        if !offset.is_multiple_of(alignment) {
            return Err(GgufError::Misaligned { name, alignment, offset });
        }
        let start = usize::try_from(offset).ok().and_then(|offset| data_start.checked_add(offset));
        let end = start.and_then(|start| start.checked_add(bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_bytes => {
                Ok(Tensor { name, shape, format, part, range: start..end })
            }
            _ => {
                let have = file_bytes.saturating_sub(data_start);
                Err(GgufError::Data { name, shape, format, offset, need: bytes, have })
            }
        }
    }
}

/// Bytes of a tensor; refused where its rows are not whole blocks or a product overflows.
pub(crate) fn byte_count(name: &str, shape: &[usize], format: Format) -> Result<usize, GgufError> {
    let (&width, outer) = shape.split_last().unwrap_or((&1, &[]));
    if !width.is_multiple_of(format.block_values()) {
        return Err(GgufError::PartialBlock { name: name.to_string(), format, found: width });
    }
    // The values are counted too, because whoever decodes them counts them; in an order in which no zero hides an overflow.
    let count =
        |each: usize| outer.iter().filter(|&&n| n > 0).try_fold(each, |n, &extent| n.checked_mul(extent));
    let bytes = format.row_bytes(width).and_then(count);
    match bytes.filter(|_| count(width.max(1)).is_some()) {
        Some(bytes) => Ok(if outer.contains(&0) { 0 } else { bytes }),
        None => Err(GgufError::ShapeOverflow {
            name: name.to_string(),
            shape: shape.iter().map(|&extent| extent as u64).collect(),
            format,
        }),
    }
}
