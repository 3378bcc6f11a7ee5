//! Decoding against the golden blocks, bit for bit, and the lengths that are refused.

use std::path::{Path, PathBuf};

use apprentice_quant::{ErrorKind, Format, QuantError};

#[test]
fn goldens_are_equal_to_the_bit() {
    // Float32 is its own reference, so it has no file.
    for &format in Format::ALL.iter().filter(|&&format| format != Format::F32) {
        let bytes = golden(format, "bin");
        let expected = golden(format, "f32").as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        check(format, &bytes, &expected);
    }
}

#[test]
fn float32_is_read_as_it_lies() {
    let expected = vec![0.0, -0.0, 1.5, f32::MIN_POSITIVE / 2.0, f32::MAX, f32::NEG_INFINITY];
    let bytes: Vec<u8> = expected.iter().flat_map(|value: &f32| value.to_le_bytes()).collect();
    check(Format::F32, &bytes, &expected);
}

#[test]
fn float16_is_exact_for_every_pattern_and_any_length() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let expected: Vec<f32> = (0..=u16::MAX).map(float16).collect();
    for values in [0, 1, 7, 255, 256, 257, expected.len()] {
        check(Format::F16, &bytes[..2 * values], &expected[..values].to_vec());
    }
    check(Format::F16, &bytes[6..], &expected[3..].to_vec());
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    for &format in Format::ALL {
        let (values, bytes) = (2 * format.block_values(), 2 * format.block_bytes());
        for found in [0, bytes - 1, bytes + 1, 2 * bytes] {
            let error = format.decode(&vec![0; found], &mut vec![7.0; values]).unwrap_err();
            assert_eq!(error, QuantError::Length { format, values, expected: bytes, found });
            assert_eq!(error.kind(), ErrorKind::Input);
        }
        assert_eq!(format.row_bytes(values), Some(bytes), "{format}");
        assert_eq!(format.decode(&[], &mut []), Ok(()), "{format}: no blocks at all");
    }
    let error = Format::Q4K.decode(&[0; 144], &mut [0.0; 255]).unwrap_err();
    assert_eq!(error, QuantError::PartialBlock { format: Format::Q4K, values: 255 });
    assert_eq!(error.to_string(), "Q4_K: expected a multiple of 256 values, found 255");
    assert_eq!(Format::Q4K.row_bytes(255), None);
    assert_eq!(Format::F32.row_bytes(usize::MAX), None, "the product overflows");
}

#[test]
fn names_and_numbers_lead_back_to_their_format() {
    for &format in Format::ALL {
        assert_eq!(Format::from_name(format.name()), Some(format));
        assert_eq!(Format::from_gguf_id(format.gguf_id()), Some(format));
        assert_eq!(apprentice_quant::unbuilt_name(format.gguf_id()), None, "{format} is built");
    }
    assert_eq!(format!("{} {:>6}", Format::Q4K, Format::BF16), "Q4_K   BF16");
    assert_eq!(apprentice_quant::unbuilt_name(20), Some("IQ4_NL"));
    assert_eq!(Format::from_gguf_id(20), None);
}

/// `format` reads `bytes` as `expected`, bit for bit.
fn check(format: Format, bytes: &[u8], expected: &Vec<f32>) {
    // Poison, so that a value that is not written is seen.
    let mut found = vec![12345.0; expected.len()];
    format.decode(bytes, &mut found).expect("whole blocks");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let equal = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(equal, "{format}: value {index}: expected {expected}, found {found}");
    }
}

fn golden(format: Format, end: &str) -> Vec<u8> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/quants");
    std::fs::read(folder.join(format!("{format}.{end}"))).expect("a golden file")
}

/// The meaning of a float16, from its three fields.
fn float16(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let magnitude = match (exponent, fraction) {
        (31, 0.0) => f64::INFINITY,
        (31, _) => f64::NAN,
        (0, _) => fraction * 2f64.powi(-24),
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    (if bits >> 15 == 1 { -magnitude } else { magnitude }) as f32
}
