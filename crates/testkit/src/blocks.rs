//! Random weights in the blocks of a file: formats with an encoder encode normal deviates; the others get random bytes,
//! so that every pattern of quants and sub-scales occurs, with finite float16 scales of a size that gives the wanted
//! spread.

use apprentice_quant::{Format, QuantError};
use half::f16;

use crate::random::Random;

/// Where a block of random bytes holds its float16 fields.
struct Fields {
    /// Byte of the scale.
    scale: usize,
    /// Byte of the minimum, and what it is times the scale so that values lie around 0.
    minimum: Option<(usize, f64)>,
}

/// The bytes of `rows` rows of `width` values in `format`, about normal with deviation `deviation`.
///
/// # Errors
/// [`QuantError::PartialBlock`] where a row is no whole number of blocks.
pub fn random_blocks(
    format: Format,
    rows: usize,
    width: usize,
    deviation: f64,
    random: &mut Random,
) -> Result<Vec<u8>, QuantError> {
    let row_bytes = format.row_bytes(width).ok_or(QuantError::PartialBlock { format, values: width })?;
    let Some(fields) = fields(format) else {
        let mut bytes = Vec::with_capacity(rows * row_bytes);
        format.encode(&random.normals(rows * width, deviation), &mut bytes)?;
        return Ok(bytes);
    };
    let mut bytes = random.bytes(rows * row_bytes);
    let mut values = vec![0f32; format.block_values()];
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        set_scale(block, &fields, 1.0);
        format.decode(block, &mut values)?;
        let squares: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
        let spread = (squares / values.len() as f64).sqrt();
        // Scales of both signs and different sizes, as files have them; a block of zeros keeps its scale.
        let size = if spread > 0.0 { deviation / spread } else { deviation };
        set_scale(block, &fields, size * random.sign() * (0.5 + random.uniform()));
    }
    Ok(bytes)
}

fn set_scale(block: &mut [u8], fields: &Fields, scale: f64) {
    let mut set = |at: usize, value: f64| {
        block[at..at + 2].copy_from_slice(&f16::from_f64(value).to_le_bytes());
    };
    set(fields.scale, scale);
    if let Some((at, factor)) = fields.minimum {
        set(at, factor * scale);
    }
}

/// The float16 fields of formats that get random bytes; `None`: the format is encoded.
fn fields(format: Format) -> Option<Fields> {
    let fields = |scale, minimum| Some(Fields { scale, minimum });
    match format {
        Format::F32 | Format::F16 | Format::BF16 | Format::Q4_0 | Format::Q8_0 => None,
        // w = d q + m, q below 16 or 32.
        Format::Q4_1 => fields(0, Some((2, -7.5))),
        Format::Q5_1 => fields(0, Some((2, -15.5))),
        Format::Q5_0 => fields(0, None),
        // w = d s q - dmin m: the sub-scales s and m have one distribution, q is below 4, 16 or 32.
        Format::Q2K => fields(80, Some((82, 1.5))),
        Format::Q4K => fields(0, Some((2, 7.5))),
        Format::Q5K => fields(0, Some((2, 15.5))),
        Format::Q3K => fields(108, None),
        Format::Q6K => fields(208, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_gives_finite_values_of_the_wanted_spread() {
        for &format in Format::ALL {
            let (rows, width) = (8, 512);
            let bytes = random_blocks(format, rows, width, 0.5, &mut Random::new(3)).unwrap();
            assert_eq!(bytes.len(), rows * format.row_bytes(width).unwrap(), "{format}");
            let mut values = vec![0f32; rows * width];
            format.decode(&bytes, &mut values).unwrap();
            let count = values.len() as f64;
            let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / count;
            let spread = (values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / count).sqrt();
            assert!(values.iter().all(|value| value.is_finite()), "{format}");
            assert!((0.3..0.8).contains(&spread) && mean.abs() < 0.2, "{format}: {mean} {spread}");
        }
    }

    #[test]
    fn a_row_that_is_no_whole_block_is_refused() {
        let found = random_blocks(Format::Q4K, 1, 255, 1.0, &mut Random::new(1));
        assert_eq!(found, Err(QuantError::PartialBlock { format: Format::Q4K, values: 255 }));
    }
}
