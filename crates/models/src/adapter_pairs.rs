//! From the tensors of an adapter file to pairs that fit the model, and back: names, shapes, values and row order.

use std::collections::BTreeMap;

use apprentice_quant::Format;

use crate::adapter::Pair;
use crate::adapter_error::AdapterError;
use crate::adapter_names::{PairNames, Scheme};
use crate::model::Model;
use crate::row_order::{from_file, to_file};

/// A tensor as a file holds it. The reader of its format has checked that `bytes` are what shape and format need.
pub(crate) struct Stored<'a> {
    pub(crate) name: &'a str,
    /// Outermost first.
    pub(crate) shape: Vec<usize>,
    pub(crate) format: Format,
    pub(crate) bytes: &'a [u8],
}

/// A pair that fits its site, in the order of the model's file, before it has a scale; and what the file calls it.
pub(crate) struct Matched {
    pub(crate) names: PairNames,
    pub(crate) rank: usize,
    pub(crate) a: Vec<f32>,
    pub(crate) b: Vec<f32>,
}

/// What is written for a pair: A `[rank, in]` and B `[out, rank]`, float32 of the naming's row order.
pub(crate) struct Laid {
    pub(crate) names: PairNames,
    pub(crate) rank: usize,
    pub(crate) a: Vec<u8>,
    pub(crate) b: Vec<u8>,
}

/// The pairs that `tensors` make, ascending by site.
///
/// # Errors
/// A tensor that matches no site, lacks its counterpart, is there twice, has another shape, or holds a value that is not
/// finite; no tensors at all.
pub(crate) fn pair_up(
    model: &Model,
    scheme: Scheme,
    tensors: &[Stored<'_>],
) -> Result<Vec<Matched>, AdapterError> {
    let sites = scheme.sites(model);
    let mut halves: BTreeMap<usize, [Option<&Stored<'_>>; 2]> = BTreeMap::new();
    for tensor in tensors {
        let place = scheme.split(tensor.name).and_then(|(key, half)| Some((*sites.get(key)?, half)));
        let Some((site, half)) = place else {
            return Err(AdapterError::Unmatched {
                tensor: tensor.name.to_owned(),
                known: scheme.known(model),
            });
        };
        if let Some(other) = halves.entry(site).or_default()[half as usize].replace(tensor) {
            return Err(AdapterError::Twice { tensor: tensor.name.to_owned(), other: other.name.to_owned() });
        }
    }
    if halves.is_empty() {
        return Err(AdapterError::Empty);
    }
    halves.into_iter().map(|(site, halves)| matched(model, scheme, site, halves)).collect()
}

/// A pair's matrices as a file wants them.
pub(crate) fn lay(model: &Model, names: &PairNames, a: &[f32], b: &[f32]) -> Laid {
    let site = &model.sites()[names.site];
    let rank = a.len() / site.input;
    assert!(
        a.len() == rank * site.input && b.len() == rank * site.output,
        "the matrices at {} are not [rank, in] and [rank, out]",
        site.name
    );
    let sources = site.order.sources(model.hyper(), site.output).filter(|_| names.hugging_face);
    let ordered = sources.map(|sources| from_file(&sources, b));
    let b = transposed(ordered.as_deref().unwrap_or(b), site.output);
    Laid { names: names.clone(), rank, a: bytes(a), b: bytes(&b) }
}

impl Matched {
    /// The pair, at a scale.
    pub(crate) fn at(self, scale: f32) -> Pair {
        Pair { site: self.names.site, rank: self.rank, scale, a: self.a, b: self.b }
    }
}

fn matched(
    model: &Model,
    scheme: Scheme,
    site: usize,
    halves: [Option<&Stored<'_>>; 2],
) -> Result<Matched, AdapterError> {
    let (a, b) = match halves {
        [Some(a), Some(b)] => (a, b),
        [a, b] => {
            let tensor = a.or(b).map_or("", |tensor| tensor.name);
            return Err(AdapterError::Unpaired {
                tensor: tensor.to_owned(),
                wanted: scheme.counterpart(tensor),
            });
        }
    };
    let names =
        PairNames { site, a: a.name.to_owned(), b: b.name.to_owned(), hugging_face: scheme.hugging_face() };
    let site = &model.sites()[site];
    let shape = |tensor: &Stored<'_>, expected: String| AdapterError::Shape {
        tensor: tensor.name.to_owned(),
        expected,
        found: tensor.shape.clone(),
    };
    let rank = match a.shape[..] {
        [rank, input] if input == site.input => rank,
        _ => return Err(shape(a, format!("[rank, {}]", site.input))),
    };
    let b_rank = match b.shape[..] {
        [output, rank] if output == site.output => rank,
        _ => return Err(shape(b, format!("[{}, rank]", site.output))),
    };
    if rank == 0 {
        return Err(AdapterError::Rank { tensor: names.a, expected: "at least 1".to_owned(), found: 0 });
    }
    if b_rank != rank {
        let expected = format!("{rank} of {:?}", names.a);
        return Err(AdapterError::Rank { tensor: names.b, expected, found: b_rank });
    }
    let values = decode(a, rank, site.input)?;
    let columns = transposed(&decode(b, site.output, rank)?, rank);
    let sources = site.order.sources(model.hyper(), site.output).filter(|_| scheme.hugging_face());
    let b = sources.map(|sources| to_file(&sources, &columns)).unwrap_or(columns);
    Ok(Matched { names, rank, a: values, b })
}

/// Finite values of a tensor, `[rows, columns]`.
fn decode(tensor: &Stored<'_>, rows: usize, columns: usize) -> Result<Vec<f32>, AdapterError> {
    let mut values = vec![0.0; rows * columns]; // its bytes are there, so the product is no surprise
    let failed = |source| AdapterError::Quant { tensor: tensor.name.to_owned(), source };
    tensor.format.decode(tensor.bytes, &mut values).map_err(failed)?;
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(values),
        Some(index) => Err(AdapterError::NotFinite {
            tensor: tensor.name.to_owned(),
            row: index / columns,
            column: index % columns,
            found: values[index],
        }),
    }
}

/// `[rows, columns]` as `[columns, rows]`.
fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.len() / columns;
    (0..columns).flat_map(|column| (0..rows).map(move |row| values[row * columns + column])).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
