//! Which keys a row of a batch sees, and where they lie: shared by attention and its gradient.
//!
//! A sequence of the batch is `(first row, rows, first position, first entry)`: its row `t` has position
//! `first position + t`. Keys at positions below the first lie in pages: position `p` in cell
//! `64 * pages[first entry + p / 64] + p % 64`. Later ones are the batch's own rows.

use super::check;
use super::table::{BLOCK, at};
use crate::array::Array;
use crate::op::{Cost, Fill, Given};
use crate::types::{Element, Extent, ShapeError, Type};

/// The attributes of attention and of its gradient.
pub(super) struct Attributes {
    pub(super) scale: f32,
    pub(super) window: Option<u32>,
    pub(super) segment: u32,
}

/// Where a key and its value lie.
#[derive(Clone, Copy)]
pub(super) enum Key {
    /// A cell of the pages.
    Cell(usize),
    /// A row of the batch.
    Row(usize),
}

/// A row of the batch and the keys that it sees, by ascending position.
pub(super) struct Sight {
    pub(super) row: usize,
    pub(super) keys: Vec<Key>,
}

/// What each row of each sequence sees.
pub(super) fn sights(sequences: &Array, pages: &Array, window: Option<u32>) -> Vec<Sight> {
    let mut sights = Vec::new();
    for sequence in 0..sequences.rows() {
        let [first_row, rows, first_position, first_entry] =
            [0, 1, 2, 3].map(|field| at(sequences, 4 * sequence + field));
        for t in 0..rows {
            let position = first_position + t;
            let oldest = window.map_or(0, |window| (position + 1).saturating_sub(window as usize));
            let key = |position: usize| match position.checked_sub(first_position) {
                None => Key::Cell(BLOCK * at(pages, first_entry + position / BLOCK) + position % BLOCK),
                Some(row) => Key::Row(first_row + row),
            };
            sights.push(Sight { row: first_row + t, keys: (oldest..=position).map(key).collect() });
        }
    }
    sights
}

/// The vector of a key or value head.
pub(super) fn vector<'a>(key: Key, rows: &'a Array, pages: &'a Array, head: usize) -> &'a [f64] {
    let (array, index) = match key {
        Key::Cell(cell) => (pages, cell),
        Key::Row(row) => (rows, row),
    };
    head_of(array, index, head)
}

/// Head `head` of row `row` of `[rows, heads, width]`.
pub(super) fn head_of(array: &Array, row: usize, head: usize) -> &[f64] {
    let width = array.width();
    &array.row(row)[head * width..(head + 1) * width]
}

/// Head `head` of row `row` of `[rows, heads, width]`, to be written.
pub(super) fn head_mut(array: &mut Array, row: usize, head: usize) -> &mut [f64] {
    let width = array.width();
    &mut array.row_mut(row)[head * width..(head + 1) * width]
}

/// Types of `out`, `max` and `sum`, for `q`, `k`, `v`, `k_pages`, `v_pages`, `sequences`, `pages`.
pub(super) fn types(
    attributes: &Attributes,
    [q, k, v, k_pages, v_pages, sequences, pages]: [&Type; 7],
) -> Result<[Type; 3], ShapeError> {
    check::finite("scale", attributes.scale)?;
    if attributes.window == Some(0) {
        return Err(ShapeError::new("window", "at least 1 position", 0));
    }
    if attributes.segment == 0 || !(attributes.segment as usize).is_multiple_of(BLOCK) {
        return Err(ShapeError::new("segment", "a multiple of 64 positions", attributes.segment));
    }
    for (name, rows) in [("q", q), ("k", k), ("v", v)] {
        rows.expect_f32(name)?;
        rows.expect_rank(name, 3)?;
        rows.expect_rows_of(name, q)?;
    }
    let (heads, kv_heads) = (q.shape.0[1], k.shape.0[1]);
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(ShapeError::new("k", format!("a number of heads that divides {heads}"), kv_heads));
    }
    k.expect("k", &[q.rows(), kv_heads, q.width()])?;
    v.expect("v", &[q.rows(), kv_heads, v.width()])?;
    let is_cache = matches!(k_pages.element, Element::F32 | Element::F16 | Element::Q8_0);
    if !is_cache || k_pages.extent.is_some() {
        return Err(ShapeError::new("k_pages", "pages of f32, f16 or q8_0", k_pages));
    }
    let cells = k_pages.rows();
    if !cells.is_multiple_of(BLOCK) {
        return Err(ShapeError::new("k_pages", "whole pages of 64 cells", k_pages));
    }
    k_pages.expect("k_pages", &[cells, kv_heads, k.width()])?;
    v_pages.expect_same("v_pages", &Type::new(k_pages.element, [cells, kv_heads, v.width()]))?;
    sequences.expect_element("sequences", Element::I32)?;
    sequences.expect("sequences", &[sequences.rows(), 4])?;
    check::index(pages, "pages")?;
    let row = q.shaped([q.rows(), heads]);
    Ok([q.shaped([q.rows(), heads, v.width()]), row.clone(), row])
}

/// Work where every row sees every key that could be there; `products` per score and channel of a head.
pub(super) fn cost(products: usize, inputs: [&Type; 7], moved: &[&Type]) -> Cost {
    let [q, _, v, _, _, _, pages] = inputs;
    let keys = pages.rows().saturating_mul(BLOCK).saturating_add(q.rows());
    let scores = q.rows().saturating_mul(q.row_count() / q.width().max(1)).saturating_mul(keys);
    let mut all: Vec<&Type> = inputs.to_vec();
    all.extend(moved);
    Cost::moving(scores.saturating_mul(2 * products * (q.width() + v.width())), &all)
}

/// The sizes of a case.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) value_dim: usize,
    pub(super) pages: Element,
}

/// `q`, `k`, `v`, `k_pages`, `v_pages`, `sequences`, `pages` for sequences of `(rows, first position)`. Their pages lie
/// in the store in no order, between pages of others.
pub(super) fn inputs(sizes: Sizes, sequences: &[(usize, usize)]) -> Vec<Given> {
    let mut entries: Vec<[i32; 4]> = Vec::new();
    let (mut rows, mut pages) = (0, 0);
    for &(count, first_position) in sequences {
        entries.push([rows, count, first_position, pages].map(|number| number as i32));
        rows += count;
        pages += (first_position + count).div_ceil(BLOCK);
    }
    let stored = pages + 2;
    let table: Vec<i32> = (0..pages).map(|entry| (stored - 1 - (entry ^ 1).min(pages - 1)) as i32).collect();
    let batch = |heads, width| Given::normal(&[rows, heads, width]).counted(Extent::Rows);
    let store = |width| Given {
        ty: Type::new(sizes.pages, [stored * BLOCK, sizes.kv_heads, width]),
        fill: Fill::Normal(1.0),
    };
    vec![
        batch(sizes.heads, sizes.head_dim),
        batch(sizes.kv_heads, sizes.head_dim),
        batch(sizes.kv_heads, sizes.value_dim),
        store(sizes.head_dim),
        store(sizes.value_dim),
        Given::ints(&[entries.len(), 4], entries.as_flattened()).counted(Extent::Sequences),
        Given::ints(&[pages], &table).counted(Extent::Pages(0)),
    ]
}

/// What attention and its gradient are tested on: attributes, inputs and what is special about them.
pub(super) fn layouts() -> Vec<(Attributes, Vec<Given>, &'static str)> {
    let plain = Sizes { heads: 2, kv_heads: 2, head_dim: 16, value_dim: 16, pages: Element::F32 };
    let grouped = Sizes { heads: 6, kv_heads: 2, ..plain };
    let odd = Sizes { heads: 3, kv_heads: 1, head_dim: 20, value_dim: 20, pages: Element::F16 };
    let layout = |sizes: Sizes, window: Option<u32>, segment: u32, sequences: &[(usize, usize)], note| {
        let scale = (sizes.head_dim as f32).sqrt().recip();
        (Attributes { scale, window, segment }, inputs(sizes, sequences), note)
    };
    let wide = Sizes { heads: 3, kv_heads: 1, head_dim: 64, value_dim: 64, pages: Element::F16 };
    let two_widths = Sizes { heads: 4, kv_heads: 2, head_dim: 24, value_dim: 10, pages: Element::F32 };
    let one = Sizes { heads: 1, kv_heads: 1, ..plain };
    let narrow = Sizes { heads: 4, kv_heads: 2, head_dim: 80, value_dim: 20, pages: Element::Q8_0 };
    vec![
        layout(plain, None, 1024, &[(5, 0)], "one sequence from its start, no page read"),
        layout(grouped, None, 1024, &[(7, 0), (9, 70)], "two sequences, one with pages; heads in groups"),
        layout(
            odd,
            None,
            1024,
            &[(70, 40), (1, 64), (3, 127)],
            "spans that begin inside, at and at the end of a block",
        ),
        layout(wide, None, 1024, &[(1, 200), (1, 3), (1, 0)], "decode: one row each, float16 pages"),
        layout(
            grouped,
            Some(5),
            1024,
            &[(20, 60), (6, 0)],
            "a window of 5 over the border of pages and batch",
        ),
        layout(odd, Some(96), 128, &[(130, 100), (4, 250)], "a window of 96 that begins inside blocks"),
        layout(plain, Some(1), 1024, &[(3, 10)], "a window of 1: each row sees itself"),
        layout(one, None, 128, &[(300, 0)], "more keys than a segment, all of the batch"),
        layout(plain, None, 128, &[(40, 260), (2, 128)], "more keys than a segment, most in pages"),
        layout(two_widths, None, 128, &[(6, 130)], "values of another width than keys"),
        layout(narrow, None, 128, &[(3, 140), (1, 65)], "q8_0 pages whose last block is short"),
        layout(
            Sizes { pages: Element::Q8_0, ..wide },
            Some(70),
            1024,
            &[(70, 100)],
            "q8_0 pages of whole blocks",
        ),
    ]
}

/// Layouts that must be refused, with the messages.
pub(super) fn refused() -> Vec<(Attributes, Vec<Given>, &'static str)> {
    let sizes = Sizes { heads: 4, kv_heads: 2, head_dim: 16, value_dim: 16, pages: Element::F16 };
    let attributes = |window, segment| Attributes { scale: 0.25, window, segment };
    let three = Sizes { kv_heads: 3, ..sizes };
    let mut mixed = inputs(sizes, &[(3, 0)]);
    mixed[4].ty = mixed[4].ty.of(Element::F32);
    let mut torn = inputs(sizes, &[(3, 0)]);
    torn[3] = Given::of(Type::new(Element::F16, [65, 2, 16]));
    vec![
        (
            attributes(Some(0), 1024),
            inputs(sizes, &[(3, 0)]),
            "window: expected at least 1 position, found 0",
        ),
        (
            attributes(None, 100),
            inputs(sizes, &[(3, 0)]),
            "segment: expected a multiple of 64 positions, found 100",
        ),
        (
            attributes(None, 1024),
            inputs(three, &[(3, 0)]),
            "k: expected a number of heads that divides 4, found 3",
        ),
        (attributes(None, 1024), mixed, "v_pages: expected f16[192, 2, 16], found f32[192, 2, 16]"),
        (attributes(None, 1024), torn, "k_pages: expected whole pages of 64 cells, found f16[65, 2, 16]"),
    ]
}
