//! Folders of block formats: `NAME.bin` holds whole blocks, `NAME.f32` what they mean, little-endian. Bit-equal or not.

use std::path::Path;

use apprentice_quant::Format;

use crate::bounds;
use crate::error::CheckError;
use crate::files;
use crate::report::{Figure, Report, Row, Verdict};

/// Decodes every `NAME.bin` of a folder. A format that is not built is listed as such.
///
/// # Errors
/// A folder without such files; files of lengths that do not belong together.
pub fn quants(folder: &Path) -> Result<Report, CheckError> {
    let paths = files::with_extension(folder, "bin")?;
    if paths.is_empty() {
        return Err(CheckError::Nothing {
            path: folder.to_owned(),
            expected: "files NAME.bin with NAME.f32",
        });
    }
    let rows = paths.iter().map(|path| format_row(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(Report { rows })
}

fn format_row(path: &Path) -> Result<Row, CheckError> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let Some(format) = Format::from_name(&name) else {
        return Ok(Row::without(name, Verdict::NotBuilt, "no decoder"));
    };
    let reference_path = path.with_extension("f32");
    let (blocks, reference) = (files::bytes(path)?, files::bytes(&reference_path)?);
    let (reference, rest) = reference.as_chunks::<4>();
    if reference.is_empty() || !rest.is_empty() {
        let (expected, found) =
            ("whole float32 values".to_owned(), format!("{} bytes", 4 * reference.len() + rest.len()));
        return Err(CheckError::Content { path: reference_path, expected, found });
    }
    let mut values = vec![0f32; reference.len()];
    format
        .decode(&blocks, &mut values)
        .map_err(|error| CheckError::Quant { path: path.to_owned(), error })?;
    let differ =
        values.iter().zip(reference).filter(|(value, bytes)| !same(**value, f32::from_le_bytes(**bytes)));
    let figure = Figure::at_most("values of other bits", differ.count() as f64, bounds::OTHER_BITS);
    Ok(Row::measured(name, vec![figure], format!("{} values", values.len())))
}

/// Equal to the bit, every NaN read as one value.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}
