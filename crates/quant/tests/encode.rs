//! Encoding against golden blocks of ggml's reference quantiser, its bounds on random values, and what is refused.

use std::path::Path;

use apprentice_quant::{ErrorKind, Format, QuantError};

const ENCODED: [Format; 5] = [Format::F32, Format::F16, Format::BF16, Format::Q4_0, Format::Q8_0];

#[test]
fn goldens_are_equal_to_the_byte() {
    let values = floats(&golden("encode/values.f32"));
    for format in [Format::F16, Format::BF16, Format::Q4_0, Format::Q8_0] {
        check(format, &values, &golden(&format!("encode/{format}.bin")));
    }
}

#[test]
fn what_has_16_bits_comes_back_as_it_was() {
    for format in [Format::F16, Format::BF16] {
        let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let mut values = vec![0.0; 1 << 16];
        format.decode(&bytes, &mut values).unwrap();
        let mut again = Vec::new();
        format.encode(&values, &mut again).unwrap();
        for ((before, after), value) in bytes.chunks(2).zip(again.chunks(2)).zip(&values) {
            // A signalling NaN comes back as a quiet one.
            let quieted = if format == Format::F16 { 0x02 } else { 0x40 };
            let index = if format == Format::F16 { 1 } else { 0 };
            let mut expected = before.to_vec();
            expected[index] |= if value.is_nan() { quieted } else { 0 };
            assert_eq!(after, expected, "{format}: {value}");
        }
    }
}

#[test]
fn float16_overflows_to_infinity_and_bfloat16_keeps_nan() {
    check(Format::F16, &[65520.0, -1e30, f32::INFINITY], &[0, 0x7c, 0, 0xfc, 0, 0x7c]);
    // The fraction's only bit is below the half that is kept.
    check(Format::BF16, &[f32::from_bits(0x7f80_0001), f32::MAX], &[0xc0, 0x7f, 0x80, 0x7f]);
}

#[test]
fn errors_stay_within_a_step() {
    let seed = 0x5eed_0001;
    let mut random = Random(seed);
    for block in 0..2000 {
        let scale = (random.unit() * 18.0).exp2();
        let values: Vec<f32> = (0..32).map(|_| random.unit() * scale).collect();
        let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        // Q4_0 has no +8, so the largest value of the other sign may be off by a step; a step is a float16, 11 bits.
        for (format, steps, bound) in [(Format::Q8_0, 127.0, 0.5), (Format::Q4_0, 8.0, 1.0)] {
            let mut bytes = Vec::new();
            format.encode(&values, &mut bytes).unwrap();
            let mut found = vec![0.0; 32];
            format.decode(&bytes, &mut found).unwrap();
            let step = largest / steps;
            for (value, found) in values.iter().zip(&found) {
                // A code times the rounding of a subnormal float16 comes on top.
                let limit = step * bound * 1.0001 + largest / 2048.0 + steps * 2f32.powi(-25);
                assert!(
                    (value - found).abs() <= limit,
                    "seed {seed:#x}, block {block}, {format}: {value} became {found}"
                );
            }
        }
    }
}

#[test]
fn blocks_are_appended() {
    for format in ENCODED {
        let values = vec![1.0; 64];
        let (mut once, mut twice) = (Vec::new(), vec![9]);
        format.encode(&values[..32], &mut once).unwrap();
        format.encode(&values, &mut twice).unwrap();
        assert_eq!(twice, [&[9], &once[..], &once[..]].concat(), "{format}");
    }
}

#[test]
fn a_value_without_a_finite_scale_is_named() {
    for format in [Format::Q4_0, Format::Q8_0] {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            let mut values = vec![1.0; 96];
            values[70] = value;
            let mut out = vec![1, 2, 3];
            let error = format.encode(&values, &mut out).unwrap_err();
            assert!(matches!(error, QuantError::OutOfRange { index: 70, .. }), "{format}: {error}");
            assert_eq!(error.kind(), ErrorKind::Input);
            assert_eq!(out, [1, 2, 3], "{format}: nothing is written");
        }
    }
}

#[test]
fn scales_beyond_float32_do_no_harm() {
    // 1 / d is infinite: the codes are of no account, because the stored scale is zero.
    let mut values = vec![0.0; 32];
    values[3] = f32::from_bits(1);
    values[4] = -f32::from_bits(400);
    for format in [Format::Q4_0, Format::Q8_0] {
        let (mut bytes, mut found) = (Vec::new(), vec![1.0; 32]);
        format.encode(&values, &mut bytes).unwrap();
        format.decode(&bytes, &mut found).unwrap();
        assert_eq!(found, [0.0; 32], "{format}");
    }
}

#[test]
fn other_formats_are_refused_and_named() {
    for &format in Format::ALL.iter().filter(|format| !ENCODED.contains(format)) {
        let error = format.encode(&vec![0.0; 256], &mut Vec::new()).unwrap_err();
        assert_eq!(error, QuantError::NoEncoder { format });
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().starts_with(format.name()));
    }
    let error = Format::Q8_0.encode(&[0.0; 33], &mut Vec::new()).unwrap_err();
    assert_eq!(error, QuantError::PartialBlock { format: Format::Q8_0, values: 33 });
}

/// `format` writes `values` as `expected`.
fn check(format: Format, values: &[f32], expected: &[u8]) {
    let mut found = Vec::new();
    format.encode(values, &mut found).expect("whole blocks of finite values");
    assert_eq!(found.len(), expected.len(), "{format}");
    let (blocks, each) = (format.block_values(), format.block_bytes());
    for (index, (found, expected)) in found.chunks(each).zip(expected.chunks(each)).enumerate() {
        assert_eq!(found, expected, "{format}: block {index}, {:?}", &values[index * blocks..][..blocks]);
    }
}

fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    std::fs::read(folder.join(name)).expect("a golden file")
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// The 64-bit generator of Knuth, its upper half.
struct Random(u64);

impl Random {
    /// A number in [-1, 1).
    fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }
}
