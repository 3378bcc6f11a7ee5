//! Bare kernels of each kind of product on this machine: the same bits at every level, and rates beside the machine's own
//! peaks, which loops over the same instructions measure. With a model and its golden folder, also the check of gradients
//! under the frozen orders. Figures and decision: `docs/decisions/0005-products.md`.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use apprentice_check::{Bench, CheckError, bounds, golden};
use apprentice_cpu::isa::{ByteTask, Bytes, LANES};
use apprentice_cpu::kernels::linear::Linear;
use apprentice_cpu::kernels::linear_q8::{LinearQ8, Quantised};
use apprentice_cpu::kernels::linear_vjp::LinearVjp;
use apprentice_cpu::kernels::quantise_q8::QuantiseQ8;
use apprentice_cpu::kernels::run_unit;
use apprentice_cpu::kernels::weight::Weight;
use apprentice_cpu::{Cpu, CpuOptions, Disjoint, Isa, Kernel, Level, Task};
use apprentice_engine::{Engine, Numerics, Options, SEGMENT_KEYS};
use apprentice_gguf::Gguf;
use apprentice_graph::Element;
use apprentice_models::{Model, ModelError};
use apprentice_quant::Format;

/// Rows of the products of a prompt; one row is a decoded token.
const ROWS: usize = 96;
/// Outputs and columns: those of a feed-forward of a small model.
const SHAPE: [usize; 2] = [1536, 768];
/// Bytes that are read between two reads of the same weight, so that a row's product reads from memory.
const FAR_BYTES: usize = 256 << 20;
const SEED: u64 = 20_261_201;
const FORMATS: [Format; 10] = [
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::Q2K,
    Format::Q3K,
    Format::Q4K,
    Format::Q5K,
    Format::Q6K,
];

/// Runs every part; fails where bits differ, or the check of gradients does.
pub fn run(files: Option<(&str, &str)>) -> anyhow::Result<()> {
    println!("one thread; best of some repetitions; seed {SEED}");
    println!("memory: {:.1} GB/s read\n", memory());
    println!("| level | fma, GFLOP/s | bytes, GOP/s |\n|---|---|---|");
    for level in Level::all() {
        let (fma, bytes) = (level.run(FmaPeak), level.run(BytesPeak));
        println!("| {level} | {fma:.0} | {bytes:.0} |");
    }
    let [outputs, width] = SHAPE;
    println!("\n{ROWS} and 1 rows, weight [{outputs}, {width}]\n");
    println!(
        "| product | level | {ROWS} rows, GOP/s | 1 row, us | 1 row, GB/s | bits |\n|---|---|---|---|---|---|"
    );
    let mut failures = 0;
    for (kind, formats) in
        [(Kind::Dot16, &FORMATS[4..5]), (Kind::Dx, &FORMATS[4..5]), (Kind::Q8, &FORMATS[..])]
    {
        for format in formats {
            failures += products(kind, *format)?;
        }
    }
    if let Some((model, folder)) = files {
        for numerics in [Numerics::F32, Numerics::Q8] {
            let report = golden(&CpuBench { numerics }, Path::new(folder), Path::new(model))?;
            println!("\ncheck golden, {numerics:?}\n{}", report.table());
            failures += usize::from(!report.passed(true));
        }
    }
    anyhow::ensure!(failures == 0, "{failures} failures");
    Ok(())
}

/// Kinds of products.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Forward in float32.
    Dot16,
    /// Gradient to the input.
    Dx,
    /// Forward with rounded activations.
    Q8,
}

/// A product at every level; how many gave other bits than the first.
fn products(kind: Kind, format: Format) -> anyhow::Result<usize> {
    let [outputs, width] = SHAPE;
    let bytes_one = format.row_bytes(width).context("whole blocks")? * outputs;
    let copies = FAR_BYTES / bytes_one + 1;
    let mut random = Random(SEED);
    let bytes = blocks(format, bytes_one * copies, &mut random);
    let weight = |copy: usize| Weight::new(format, &bytes[copy * bytes_one..][..bytes_one], outputs, width);
    let x: Vec<f32> = (0..ROWS * width.max(outputs)).map(|_| random.unit()).collect();
    let (mut q, mut d, mut sums) =
        (vec![0; ROWS * width], vec![0.0; ROWS * width / 32], vec![0; ROWS * width / 16]);
    all_units(
        Level::detect()?,
        &QuantiseQ8 {
            width,
            x: &x[..ROWS * width],
            q: Disjoint::new(&mut q),
            d: Disjoint::new(&mut d),
            sums: Disjoint::new(&mut sums),
        },
    );
    let mut failures = 0;
    let mut first: Option<Vec<u32>> = None;
    for level in Level::all() {
        let mut y = vec![0.0; ROWS * outputs.max(width)];
        let mut seconds = |rows: usize, repetitions: usize| -> anyhow::Result<f64> {
            let mut best = f64::INFINITY;
            for repetition in 0..repetitions {
                let weight = weight(repetition % copies)?;
                let begun = Instant::now();
                match kind {
                    Kind::Dot16 => {
                        let y = Disjoint::new(&mut y[..rows * outputs]);
                        all_units(level, &Linear::new(rows, &x[..rows * width], weight, y));
                    }
                    Kind::Dx => {
                        let dx = Disjoint::new(&mut y[..rows * width]);
                        all_units(level, &LinearVjp::new(rows, &x[..rows * outputs], weight, dx));
                    }
                    Kind::Q8 => {
                        let x = Quantised {
                            q: &q[..rows * width],
                            d: &d[..rows * width / 32],
                            sums: &sums[..rows * width / 16],
                        };
                        let y = Disjoint::new(&mut y[..rows * outputs]);
                        all_units(level, &LinearQ8::new(rows, x, weight, y));
                    }
                }
                best = best.min(begun.elapsed().as_secs_f64());
            }
            Ok(best)
        };
        let slow = matches!(level, Level::Scalar(_));
        let one = seconds(1, if slow { 2 } else { copies.min(60) })?;
        let many = seconds(ROWS, if slow { 1 } else { 1 + 12 })?;
        // The same copy of the weight for the bits of every level.
        seconds(ROWS, 1)?;
        let found: Vec<u32> = y.iter().map(|value| value.to_bits()).collect();
        let same = *first.get_or_insert_with(|| found.clone()) == found;
        failures += usize::from(!same);
        let rate = 2.0 * (ROWS * outputs * width) as f64 / many / 1e9;
        let (microseconds, gigabytes) = (one * 1e6, bytes_one as f64 / one / 1e9);
        let bits = if same { "equal" } else { "DIFFER" };
        println!("| {kind:?} {format} | {level} | {rate:.0} | {microseconds:.0} | {gigabytes:.1} | {bits} |");
    }
    Ok(failures)
}

fn all_units<K: Kernel>(level: Level, kernel: &K) {
    let mut scratch = vec![0.0; kernel.scratch()];
    (0..kernel.units()).for_each(|unit| run_unit(level, kernel, unit, &mut scratch));
}

/// Random blocks with small scales.
fn blocks(format: Format, count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..count).map(|_| random.bits() as u8).collect();
    let floats: &[usize] = match format {
        Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
        Format::Q2K => &[80, 82],
        Format::Q3K => &[108],
        Format::Q6K => &[208],
        _ => &[0],
    };
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        floats.iter().for_each(|at| block[at + 1] &= 0x2b);
    }
    bytes
}

/// GB/s of one thread that adds up words, the best of some pieces of 512 KiB that were not read before.
fn memory() -> f64 {
    const PIECE: usize = 1 << 16;
    let words = vec![1u64; PIECE * 512];
    let mut best = f64::INFINITY;
    for piece in words.chunks_exact(PIECE) {
        let begun = Instant::now();
        black_box(piece.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
        best = best.min(begun.elapsed().as_secs_f64());
    }
    (PIECE * 8) as f64 / best / 1e9
}

/// Rounds of the loops of a peak.
const ROUNDS: usize = 200_000;
/// Chains side by side.
const CHAINS: usize = 10;

/// GFLOP/s of fused multiply-adds in registers.
struct FmaPeak;

impl Task for FmaPeak {
    type Output = f64;
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> f64 {
        let (a, b) = (isa.splat(black_box(0.999)), isa.splat(black_box(0.001)));
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let mut sums = [isa.zero(); CHAINS];
            let begun = Instant::now();
            for _ in 0..ROUNDS {
                for sum in &mut sums {
                    *sum = isa.fma(*sum, a, b);
                }
            }
            sums.iter().for_each(|sum| {
                black_box(isa.lanes(*sum));
            });
            best = best.min(begun.elapsed().as_secs_f64());
        }
        (2 * LANES * CHAINS * ROUNDS) as f64 / best / 1e9
    }
}

/// GOP/s of products of bytes in registers.
struct BytesPeak;

impl Task for BytesPeak {
    type Output = f64;
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> f64 {
        isa.run_bytes(BytesLoop)
    }
}

struct BytesLoop;

impl ByteTask for BytesLoop {
    type Output = f64;
    #[inline(always)]
    fn run<I: Isa, B: Bytes<I>>(self, isa: I, bytes: B) -> f64 {
        let (codes, x) = (isa.splat_int(black_box(0x0102_0304)), isa.splat_int(black_box(0x0403_0201)));
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let mut sums = [isa.splat_int(0); CHAINS];
            let begun = Instant::now();
            for round in 0..ROUNDS {
                // Other codes each time, or the product would be taken out of the loop.
                let codes = isa.add_int(codes, isa.splat_int(round as i32 & 1));
                for sum in &mut sums {
                    *sum = bytes.dot(isa, *sum, codes, x);
                }
            }
            sums.iter().for_each(|sum| {
                black_box(isa.lanes(isa.from_bits(*sum)));
            });
            best = best.min(begun.elapsed().as_secs_f64());
        }
        (2 * 4 * LANES * CHAINS * ROUNDS) as f64 / best / 1e9
    }
}

/// Engines on the processor.
struct CpuBench {
    numerics: Numerics,
}

impl Bench for CpuBench {
    fn open(&self, path: &Path) -> Result<Model, CheckError> {
        let opened = Gguf::open(path).map_err(ModelError::from).and_then(Model::open);
        opened.map_err(|error| CheckError::model(path, error))
    }

    fn engine(&self, model: Model, context: usize) -> Result<Engine, CheckError> {
        let cpu = Cpu::new(CpuOptions::default())
            .map_err(|error| CheckError::Bench { kind: error.kind(), message: error.to_string() })?;
        let cache = Element::F32;
        let options =
            Options { cache, context, sequences: 1, segment: SEGMENT_KEYS, numerics: self.numerics };
        Ok(Engine::new(model, Box::new(cpu), options)?)
    }

    fn archs_bounds(&self) -> bounds::ArchsBounds {
        bounds::ARCHS_F32
    }
}

/// The 64-bit generator of Knuth.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
    /// A number in [-1, 1).
    fn unit(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    }
}
