//! Arrays in NumPy's format 1.0, float32 in row-major order: read whole, or written behind a header.
//!
//! Layout: `\x93NUMPY`, version bytes 1 and 0, a little-endian u16 of the header's length, the header (a Python dictionary
//! with the keys `descr`, `fortran_order` and `shape`, padded with blanks to a multiple of 64 and ended by a newline), then
//! the elements. Source: NumPy's description of its format.

/// An array.
#[derive(Clone, PartialEq, Debug)]
pub struct Npy {
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Elements, row-major.
    pub values: Vec<f32>,
}

/// Why bytes are not such an array.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NpyError {
    /// Something is missing or another than it must be.
    #[error("{what}: expected {expected}, found {found}")]
    Expected {
        /// Part of the file.
        what: &'static str,
        /// What would be accepted.
        expected: String,
        /// What stands there.
        found: String,
    },
}

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
/// Magic and length of the header.
const PREFIX_BYTES: usize = 10;
const ALIGNMENT: usize = 64;

/// What stands before the elements of a float32 array of this shape.
pub fn npy_header(shape: &[usize]) -> Vec<u8> {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    let text =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}{comma}), }}", sizes.join(", "));
    let total = (PREFIX_BYTES + text.len() + 1).next_multiple_of(ALIGNMENT);
    let mut header = MAGIC.to_vec();
    header.extend(((total - PREFIX_BYTES) as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header.resize(total - 1, b' ');
    header.push(b'\n');
    header
}

impl Npy {
    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// Another version, element or order; a length that is not that of the shape.
    pub fn parse(bytes: &[u8]) -> Result<Npy, NpyError> {
        let prefix = bytes.get(..PREFIX_BYTES).filter(|prefix| prefix.starts_with(MAGIC));
        let Some(prefix) = prefix else {
            return wrong(
                "start",
                "\\x93NUMPY version 1.0",
                format!("{:02x?}", &bytes[..bytes.len().min(MAGIC.len())]),
            );
        };
        let length = usize::from(u16::from_le_bytes([prefix[8], prefix[9]]));
        let header =
            bytes.get(PREFIX_BYTES..PREFIX_BYTES + length).and_then(|text| std::str::from_utf8(text).ok());
        let Some(header) = header else {
            return wrong(
                "header",
                &format!("{length} bytes of text"),
                format!("{} bytes", bytes.len() - PREFIX_BYTES),
            );
        };
        for part in ["'descr': '<f4'", "'fortran_order': False"] {
            if !header.contains(part) {
                return wrong("header", part, header.trim().to_owned());
            }
        }
        let Some(shape) = shape(header) else {
            return wrong("header", "'shape': (sizes)", header.trim().to_owned());
        };
        let data = &bytes[PREFIX_BYTES + length..];
        let wanted = shape.iter().try_fold(4usize, |bytes, size| bytes.checked_mul(*size));
        if wanted != Some(data.len()) {
            return wrong("elements", &format!("float32 {shape:?}"), format!("{} bytes", data.len()));
        }
        let values = data.as_chunks().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect();
        Ok(Npy { shape, values })
    }
}

/// The sizes behind the key `shape`.
fn shape(header: &str) -> Option<Vec<usize>> {
    let (_, rest) = header.split_once("'shape': (")?;
    let (sizes, _) = rest.split_once(')')?;
    sizes.split(',').map(str::trim).filter(|size| !size.is_empty()).map(|size| size.parse().ok()).collect()
}

fn wrong<T>(what: &'static str, expected: &str, found: String) -> Result<T, NpyError> {
    Err(NpyError::Expected { what, expected: expected.to_owned(), found })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(shape: &[usize], values: &[f32]) -> Vec<u8> {
        let mut bytes = npy_header(shape);
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    #[test]
    fn there_and_back() {
        for (shape, values) in
            [(vec![2, 3], vec![1.0, -0.0, 3.5, f32::MIN_POSITIVE, 5.0, 6.0]), (vec![1], vec![7.0])]
        {
            let bytes = file(&shape, &values);
            assert_eq!((bytes.len() - 4 * values.len()) % ALIGNMENT, 0);
            assert_eq!(Npy::parse(&bytes), Ok(Npy { shape, values }));
        }
    }

    #[test]
    fn header_is_the_one_that_numpy_writes() {
        let text = String::from_utf8(npy_header(&[64, 128])[PREFIX_BYTES..].to_vec()).unwrap();
        assert_eq!(text.trim_end(), "{'descr': '<f4', 'fortran_order': False, 'shape': (64, 128), }");
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let whole = file(&[2, 3], &[0.0; 6]);
        for length in 0..whole.len() {
            assert!(Npy::parse(&whole[..length]).is_err(), "{length} bytes");
        }
        let check = |from: &str, to: &str| {
            let text = String::from_utf8_lossy(&whole).into_owned();
            assert!(text.contains(from));
            let at = whole.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
            let mut bytes = whole.clone();
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
            assert!(Npy::parse(&bytes).is_err(), "{to}");
        };
        check("<f4", "<f8");
        check("False", "True ");
        check("(2, 3)", "(2, 4)");
        check("(2, 3)", "(-, 3)");
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let bytes = npy_header(&[usize::MAX, 2]);
        assert!(matches!(Npy::parse(&bytes), Err(NpyError::Expected { what: "elements", .. })));
    }
}
