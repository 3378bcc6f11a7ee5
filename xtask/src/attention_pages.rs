//! A throw-away experiment: does one attention op over pages and the batch's own rows keep the bytes, whatever the cut?
//!
//! 1,200 tokens, two layers (window 96, and none), f16 pages, adapters on q, k and v. Values for every cut into batches;
//! gradients of a walk in chunks against one graph over all rows. Figures and decision: `docs/decisions`.

mod arithmetic;
mod attention;
mod model;
mod reference;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use arithmetic::{Matrix, parts};
use attention::{Attention, Own, Pages};
use model::{Adapter, Layer, LayerGradient, Order, OwnRows, SITES, backward, forward};
use reference::{Nudge, Reference};

const TOKENS: usize = 1200;
const WINDOW: usize = 96;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 16;
const WIDTH: usize = HEADS * HEAD_DIM;
const RANK: usize = 4;
/// Positions before the span of objective `reply`: it begins 33 rows into a block.
const CONTEXT: usize = 417;
const CHUNKS: [usize; 3] = [64, 192, 512];
const SEED: u64 = 20261201;

/// Runs every part and fails if bytes that must be equal are not, or if a wrong order goes unnoticed.
pub fn run() -> anyhow::Result<()> {
    let begun = Instant::now();
    println!("seed {SEED}, {TOKENS} tokens, window {WINDOW} in layer 0 and none in layer 1");
    let mut failures = 0;
    for segment in [128, 1024] {
        println!("\nsegments of {segment} keys");
        let setup = Setup::new(segment);
        failures += values(&setup);
        for first in [0, CONTEXT] {
            failures += gradients(&setup, first);
        }
        failures += wrong_orders(&setup);
    }
    failures += differences(&Setup::new(1024));
    println!("\n{failures} failures, {:.1} s", begun.elapsed().as_secs_f64());
    anyhow::ensure!(failures == 0, "the orders do not hold");
    Ok(())
}

struct Setup {
    layers: Vec<Layer>,
    /// `[TOKENS, WIDTH]`.
    x: Vec<f32>,
    /// Cotangent of the output; zero on two rows of three.
    cotangent: Vec<f32>,
}

impl Setup {
    fn new(segment: usize) -> Self {
        let mut random = Random(SEED);
        let layers = [Some(WINDOW), None].map(|window| {
            let attention = Attention {
                heads: HEADS,
                kv_heads: KV_HEADS,
                head_dim: HEAD_DIM,
                window,
                segment,
                scale: 0.25, // head_dim^(-1/2)
            };
            let rows = [WIDTH, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM];
            let adapters = rows.map(|rows| Adapter {
                a: random.matrix(RANK, WIDTH, 0.1),
                b: random.matrix(rows, RANK, 0.1),
            });
            Layer {
                attention,
                weights: rows.map(|rows| random.matrix(rows, WIDTH, 0.18)),
                adapters,
                output: random.matrix(WIDTH, WIDTH, 0.12),
            }
        });
        let x = random.matrix(TOKENS, WIDTH, 1.0).data;
        let mut cotangent = random.matrix(TOKENS, WIDTH, 0.01).data;
        for (row, values) in cotangent.chunks_exact_mut(WIDTH).enumerate() {
            if row % 3 != 0 {
                values.fill(0.0);
            }
        }
        Setup { layers: layers.into(), x, cotangent }
    }

    fn rows<'a>(&self, of: &'a [f32], rows: Range<usize>) -> &'a [f32] {
        &of[rows.start * WIDTH..rows.end * WIDTH]
    }

    /// Pages in which only what these rows may see is not NaN: not what the window has passed, no later row.
    fn poisoned(&self, pages: &[Pages], rows: &Range<usize>) -> Vec<Pages> {
        let keep = |(layer, pages): (&Layer, &Pages)| {
            let from = layer.attention.window.map_or(0, |window| (rows.start + 1).saturating_sub(window));
            pages.poisoned(from..rows.start)
        };
        self.layers.iter().zip(pages).map(keep).collect()
    }

    /// Runs batches in order; returns the output rows and the pages.
    fn serve(&self, batches: &[Range<usize>], adapted: bool, own_rows: OwnRows) -> (Vec<f32>, Vec<Pages>) {
        let mut pages = vec![Pages::default(); self.layers.len()];
        let mut output = Vec::new();
        for batch in batches {
            output.extend(self.batch(batch, &mut pages, adapted, own_rows));
        }
        (output, pages)
    }

    /// Runs one batch after the positions before it and writes its rows into the pages.
    fn batch(&self, rows: &Range<usize>, pages: &mut [Pages], adapted: bool, own_rows: OwnRows) -> Vec<f32> {
        let visible = self.poisoned(pages, rows);
        let x = self.rows(&self.x, rows.clone());
        let trace = forward(&self.layers, &visible, rows.start, x, adapted, own_rows);
        for ((pages, layer), trace) in pages.iter_mut().zip(&self.layers).zip(&trace.layers) {
            pages.write(&Own { start: rows.start, k: &trace.k, v: &trace.v }, layer.attention.kv_width());
        }
        trace.output
    }

    /// The walk over positions `first..TOKENS`; earlier ones are plain rows, read as constants.
    fn walk(&self, first: usize, chunk: usize, order: Order) -> (Vec<LayerGradient>, Vec<Pages>) {
        let (_, mut pages) = self.serve(&one_batch(first), false, OwnRows::Rounded);
        for rows in parts(first, TOKENS, chunk) {
            self.batch(&rows, &mut pages, true, OwnRows::Rounded);
        }
        let zeros = |layer| LayerGradient::zeros(layer, first, TOKENS);
        let mut gradients: Vec<LayerGradient> = self.layers.iter().map(zeros).collect();
        for rows in parts(first, TOKENS, chunk).rev() {
            let visible = self.poisoned(&pages, &rows);
            let x = self.rows(&self.x, rows.clone());
            let trace = forward(&self.layers, &visible, rows.start, x, true, OwnRows::Rounded);
            let dy = self.rows(&self.cotangent, rows.clone());
            backward(&self.layers, &visible, rows.start, &trace, dy, &mut gradients, order);
        }
        (gradients, pages)
    }
}

/// Every cut into two batches, equal batches, random cuts: outputs and pages against one batch.
fn values(setup: &Setup) -> usize {
    let expected = served(setup, &one_batch(TOKENS), OwnRows::Rounded);
    let mut random = Random(SEED + 1);
    let two = (1..TOKENS).map(|at| vec![0..at, at..TOKENS]).collect();
    let equal = [1, 7, 64, 65, 192, 512].map(|length| parts(0, TOKENS, length).collect()).to_vec();
    let mut failures = 0;
    let many = (0..200).map(|_| random.cut()).collect();
    for (name, cuts) in
        [("every cut in two", two), ("batches of 1 7 64 65 192 512", equal), ("random cuts", many)]
    {
        failures += report_values(name, setup, &cuts, &expected, OwnRows::Rounded, true);
    }
    failures
}

fn report_values(
    name: &str,
    setup: &Setup,
    cuts: &[Vec<Range<usize>>],
    expected: &[u32],
    own_rows: OwnRows,
    equal: bool,
) -> usize {
    let begun = Instant::now();
    let differ = AtomicUsize::new(0);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(cut) = cuts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    differ.fetch_add(differing(expected, &served(setup, cut, own_rows)), Ordering::Relaxed);
                }
            });
        }
    });
    let compared = cuts.len() * expected.len();
    let name = format!("values, {name} ({})", cuts.len());
    line(&name, compared, differ.into_inner(), begun, equal)
}

/// Positions `0..end` at once.
fn one_batch(end: usize) -> Vec<Range<usize>> {
    parts(0, end, TOKENS).collect()
}

/// The bits of all outputs, then of all pages.
fn served(setup: &Setup, cut: &[Range<usize>], own_rows: OwnRows) -> Vec<u32> {
    let (output, pages) = setup.serve(cut, true, own_rows);
    let pages = pages.iter().flat_map(|pages| pages.k.iter().chain(&pages.v)).flatten();
    bits(&output).into_iter().chain(pages.map(|value| value.to_bits().into())).collect()
}

/// Chunks against one graph over all rows from `first` on.
fn gradients(setup: &Setup, first: usize) -> usize {
    let (expected, _) = setup.walk(first, TOKENS, Order::Contract);
    let mut failures = 0;
    for gradient in &expected {
        for (name, tensor) in gradient.tensors() {
            let sound =
                tensor.iter().all(|value| value.is_finite()) && tensor.iter().any(|value| *value != 0.0);
            assert!(sound, "{name} is not finite, or zero");
        }
    }
    for chunk in CHUNKS {
        let begun = Instant::now();
        let (found, _) = setup.walk(first, chunk, Order::Contract);
        let (compared, differ) = compare(&expected, &found, |_| true);
        let name = format!("gradients from position {first}, chunks of {chunk}");
        failures += line(&name, compared, differ, begun, true);
    }
    failures
}

/// Orders that the contract forbids must be noticed, or the comparisons above would say nothing.
fn wrong_orders(setup: &Setup) -> usize {
    let mut failures = 0;
    let (expected, _) = setup.walk(0, TOKENS, Order::Contract);
    for (name, order, tensors) in [
        ("a chunk's dK and dV first", Order::KeysOfChunkFirst, ["dK", "dV"]),
        ("a chunk's dA and dB first", Order::WeightsOfChunkFirst, ["dA", "dB"]),
    ] {
        // A chunk of one block adds one sum either way, so only longer ones can tell.
        for chunk in [192, 512] {
            let begun = Instant::now();
            let (found, _) = setup.walk(0, chunk, order);
            for tensor in tensors {
                let (compared, differ) = compare(&expected, &found, |name| name.starts_with(tensor));
                failures += line(
                    &format!("wrong: {name}, chunks of {chunk}: {tensor}"),
                    compared,
                    differ,
                    begun,
                    false,
                );
            }
        }
    }
    let begun = Instant::now();
    let (found, _) = setup.walk(0, 100, Order::Contract);
    let (compared, differ) = compare(&expected, &found, |_| true);
    failures += line("wrong: chunks of 100, not of blocks", compared, differ, begun, false);
    let expected = served(setup, &one_batch(TOKENS), OwnRows::Exact);
    let cuts = [64, 192, 512].map(|length| parts(0, TOKENS, length).collect());
    failures + report_values("wrong: own rows not rounded", setup, &cuts, &expected, OwnRows::Exact, false)
}

/// The gradient of one graph against central differences of a float64 loss, each tensor in a random direction.
fn differences(setup: &Setup) -> usize {
    println!(
        "\none graph against central differences in float64, error in units of |gradient| |direction| / sqrt(n)"
    );
    let mut random = Random(SEED + 2);
    let mut failures = 0;
    for first in [0, CONTEXT] {
        let (gradients, pages) = setup.walk(first, TOKENS, Order::Contract);
        let rows = first..TOKENS;
        let (x, cotangent) = (setup.rows(&setup.x, rows.clone()), setup.rows(&setup.cotangent, rows));
        let reference = Reference::new(&setup.layers, &pages, first, x, cotangent);
        let mut worst = (0.0, String::new());
        for (layer, gradient) in gradients.iter().enumerate() {
            for (tensor, (name, values)) in gradient.tensors().into_iter().enumerate() {
                let direction: Vec<f64> = values.iter().map(|_| f64::from(random.normal())).collect();
                let step = 1e-5;
                let at = |step| reference.loss(&Nudge { layer, tensor, direction: &direction, step });
                let expected = (at(step) - at(-step)) / (2.0 * step);
                let values: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
                let found: f64 = values.iter().zip(&direction).map(|(v, d)| v * d).sum();
                let norm = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>().sqrt();
                let unit = norm(&values) * norm(&direction) / (values.len() as f64).sqrt();
                let error = (found - expected).abs() / unit;
                if error > worst.0 {
                    worst = (error, format!("{name} of layer {layer}"));
                }
            }
        }
        println!(
            "from position {first}: worst of {} tensors {:.1e}, {}",
            2 * (3 + 2 * SITES),
            worst.0,
            worst.1
        );
        failures += usize::from(worst.0 > 1e-5);
    }
    failures
}

/// Elements compared and elements that differ, of the tensors whose name is wanted.
fn compare(
    expected: &[LayerGradient],
    found: &[LayerGradient],
    wanted: impl Fn(&str) -> bool,
) -> (usize, usize) {
    let pairs = expected.iter().zip(found).flat_map(|(e, f)| e.tensors().into_iter().zip(f.tensors()));
    pairs.filter(|((name, _), _)| wanted(name)).fold((0, 0), |(compared, differ), ((_, e), (_, f))| {
        (compared + e.len(), differ + differing(&bits(e), &bits(f)))
    })
}

fn differing(a: &[u32], b: &[u32]) -> usize {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).filter(|(a, b)| a != b).count()
}

/// Every NaN as one value; -0 and +0 differ.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }).collect()
}

/// Prints one comparison; 1 where it is not as it must be.
fn line(name: &str, compared: usize, differ: usize, begun: Instant, equal: bool) -> usize {
    let failed = (differ == 0) != equal;
    let percent = 100.0 * differ as f64 / compared as f64;
    let mark = if failed { "  FAILED" } else { "" };
    let seconds = begun.elapsed().as_secs_f64();
    println!("{name:56} {compared:>11} compared {differ:>8} differ ({percent:.2} %) {seconds:6.1} s{mark}");
    usize::from(failed)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Nearly normal, variance 1: the sum of twelve uniform numbers.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32).sum::<f32>() - 6.0
    }

    fn matrix(&mut self, rows: usize, columns: usize, deviation: f32) -> Matrix {
        let data = (0..rows * columns).map(|_| deviation * self.normal()).collect();
        Matrix { rows, columns, data }
    }

    /// Batches with 2 to 40 borders at random places.
    fn cut(&mut self) -> Vec<Range<usize>> {
        let count = 2 + self.next() as usize % 39;
        let mut borders: Vec<usize> = (0..count).map(|_| 1 + self.next() as usize % (TOKENS - 1)).collect();
        borders.extend([0, TOKENS]);
        borders.sort_unstable();
        borders.dedup();
        borders.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }
}
