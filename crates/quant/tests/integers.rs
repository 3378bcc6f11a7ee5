//! Blocks as integers: what they decode to, the bits of `decode`; and no sum of products beyond what float32 holds exactly.

use apprentice_quant::{Format, HALF, STRIP};

#[test]
fn integers_decode_to_the_same_bits() {
    let seed = 0x5eed_0002;
    let mut random = Random(seed);
    for &format in Format::ALL {
        let Some(grid) = format.grid() else { continue };
        let (values, bytes) = (format.block_values(), format.block_bytes());
        for round in 0..300 {
            let row: Vec<u8> = (0..2 * bytes).map(|_| random.byte()).collect();
            let mut decoded = vec![0.0; 2 * values];
            format.decode(&row, &mut decoded).unwrap();
            for (index, decoded) in decoded.chunks(STRIP).enumerate() {
                let strip = format.strip(&row, index).expect("a strip of the row");
                for (i, &expected) in decoded.iter().enumerate() {
                    let (code, j) = (i32::from(strip.codes[i]), i / HALF);
                    assert!(grid.codes.contains(&code), "{format}: code {code}");
                    assert!(grid.factors.contains(&strip.factors[j]), "{format}: {:?}", strip.factors);
                    assert!(grid.minima.contains(&strip.minima[j]), "{format}: {:?}", strip.minima);
                    let product = strip.scale * strip.factors[j] as f32 * code as f32;
                    let minimum = strip.minimum * strip.minima[j] as f32;
                    let found = if grid.has_minima() { product + minimum } else { product };
                    assert!(
                        found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(),
                        "seed {seed:#x}, {format}, round {round}, strip {index}, value {i}: {found} {expected}"
                    );
                }
            }
            assert_eq!(format.strip(&row, 2 * values / STRIP), None, "{format}: behind the row");
        }
    }
}

#[test]
fn integer_sums_of_a_strip_are_exact_in_float32() {
    // The bounds of docs/numerics.md.
    let expected = [
        (Format::Q4_0, 32_512, 0),
        (Format::Q4_1, 60_960, 4_064),
        (Format::Q5_0, 65_024, 0),
        (Format::Q5_1, 125_984, 4_064),
        (Format::Q8_0, 520_192, 0),
        (Format::Q2K, 182_880, 60_960),
        (Format::Q3K, 520_192, 0),
        (Format::Q4K, 3_840_480, 256_032),
        (Format::Q5K, 7_936_992, 256_032),
        (Format::Q6K, 16_646_144, 0),
    ];
    let with_grid: Vec<Format> =
        Format::ALL.iter().copied().filter(|format| format.grid().is_some()).collect();
    assert_eq!(with_grid, expected.map(|(format, _, _)| format));
    for (format, product, minimum) in expected {
        let grid = format.grid().expect("it is in the list");
        assert_eq!((grid.product_max(), grid.minimum_max()), (product, minimum), "{format}");
        assert!(product < 1 << 24 && minimum < 1 << 24, "{format}");
        // Codes are bytes that a product of unsigned and signed bytes takes.
        assert!(*grid.codes.start() >= -128 && *grid.codes.end() <= 127, "{format}");
    }
}

#[test]
fn single_values_have_no_integers() {
    for format in [Format::F32, Format::F16, Format::BF16] {
        assert_eq!((format.grid(), format.strip(&[0; 256], 0)), (None, None), "{format}");
    }
}

/// The 64-bit generator of Knuth, its upper bits.
struct Random(u64);

impl Random {
    fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 56) as u8
    }
}
