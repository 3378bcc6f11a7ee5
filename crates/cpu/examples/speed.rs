//! Speed of the products on one thread beside the machine's own peak, and the cost of small steps in the pool.
//!
//! `cargo run --release -p apprentice-cpu --example speed [-- scalar|avx2|avx512]`. Every figure is the best of several
//! runs; peak and products are measured one after another, so compare ratios within one table.

use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use apprentice_cpu::kernels::linear::Linear;
use apprentice_cpu::kernels::linear_vjp::LinearVjp;
use apprentice_cpu::kernels::run_all;
use apprentice_cpu::kernels::weight::Weight;
use apprentice_cpu::{CpuError, Disjoint, Isa, Level, Pool, Task};
use apprentice_quant::Format;

/// Outputs and width of the matrices of SmolLM2-135M, and the format that its file holds them in.
const SHAPES: [(usize, usize, Format); 7] = [
    (192, 576, Format::Q4_1),
    (576, 576, Format::Q4_1),
    (1536, 576, Format::Q4_1),
    (576, 1536, Format::Q4_1),
    (1536, 576, Format::Q8_0),
    (49152, 576, Format::Q8_0),
    (640, 2048, Format::Q6K),
];

fn main() -> Result<(), CpuError> {
    let level = match std::env::args().nth(1) {
        Some(name) => Level::parse(&name)?,
        None => Level::detect()?,
    };
    println!("{level}, one thread, GFLOP/s (share of the peak just before)");
    for (outputs, width, format) in SHAPES {
        let bytes = blocks(format, outputs * width);
        let weight = Weight::new(format, &bytes, outputs, width)?;
        for rows in [1, 16, 128, 512] {
            if outputs * rows > 8_000_000 {
                continue;
            }
            let (mut x, mut dx, mut y) = (room(rows * width), room(rows * width), room(rows * outputs));
            let (x, dx, y) = (lines(&mut x), lines(&mut dx), lines(&mut y));
            let (x, dx, y) = (&mut x[..rows * width], &mut dx[..rows * width], &mut y[..rows * outputs]);
            let flops = 2.0 * (rows * outputs * width) as f64;
            let peak = peak(level);
            let forward = best(flops, || run_all(level, &Linear::new(rows, x, weight, Disjoint::new(y))));
            let backward =
                best(flops, || run_all(level, &LinearVjp::new(rows, y, weight, Disjoint::new(dx))));
            println!(
                "{outputs:>6} x {width:<5} {format:<5} rows {rows:>3}: peak {peak:6.1}  linear {forward:6.1} ({:3.0} %)  \
                 linear_vjp {backward:6.1} ({:3.0} %)",
                100.0 * forward / peak,
                100.0 * backward / peak,
            );
        }
    }
    small_steps()
}

/// 480 steps of eight units that are nearly nothing, and of one.
fn small_steps() -> Result<(), CpuError> {
    let go = AtomicBool::new(false);
    for workers in [1, 2, 8] {
        let pool = Pool::new(workers)?;
        for units in [1, 8] {
            let mut times: Vec<f64> = (0..50)
                .map(|_| {
                    let start = Instant::now();
                    pool.run(
                        &[units; 480],
                        &|_, units, _| units.for_each(|_| (0..50).for_each(|at| _ = black_box(at))),
                        &go,
                    );
                    start.elapsed().as_secs_f64() * 1e3
                })
                .collect();
            times.sort_by(f64::total_cmp);
            println!(
                "480 steps of {units} units, {workers} workers: median {:.3} ms, worst of 50 {:.3} ms",
                times[25], times[49]
            );
        }
    }
    Ok(())
}

/// Memory for `count` f32 from a whole cache line on, as an arena has it.
fn room(count: usize) -> Vec<f32> {
    vec![0.5; count + 16]
}

/// The memory from its first whole cache line on.
fn lines(room: &mut [f32]) -> &mut [f32] {
    let skipped = room.as_ptr().align_offset(64);
    &mut room[skipped..]
}

/// Arbitrary blocks with scales below two.
fn blocks(format: Format, values: usize) -> Vec<u8> {
    let count = values / format.block_values() * format.block_bytes();
    let mut state = 1u32;
    let byte = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 & 0x3b
    };
    (0..count).map(byte).collect()
}

/// GFLOP/s of the best of several runs that together take a tenth of a second.
fn best(flops: f64, mut work: impl FnMut()) -> f64 {
    let (begin, mut best) = (Instant::now(), f64::INFINITY);
    let mut runs = 0;
    while runs < 3 || begin.elapsed().as_secs_f64() < 0.1 {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    flops / best / 1e9
}

fn peak(level: Level) -> f64 {
    best(1e7, || {
        black_box(level.run(Peak));
    })
}

/// 10^7 operations in chains that hide the latency of a multiply-add and fit the registers.
struct Peak;

impl Task for Peak {
    type Output = f32;
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> f32 {
        if I::REGISTERS >= 32 { chains::<I, 16>(isa) } else { chains::<I, 6>(isa) }
    }
}

#[inline(always)]
fn chains<I: Isa, const CHAINS: usize>(isa: I) -> f32 {
    let factor = isa.splat(black_box(1.0));
    let mut sums = [isa.splat(black_box(0.0)); CHAINS];
    for _ in 0..10_000_000 / (2 * 16 * CHAINS) {
        for sum in &mut sums {
            *sum = isa.fma(*sum, factor, factor);
        }
    }
    sums.iter().map(|sum| isa.sum_tree(*sum)).sum()
}
