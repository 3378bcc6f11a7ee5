//! Every unit once, steps in order, whatever the workers do in between.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::{Outcome, Pool, Stop};

static GO: AtomicBool = AtomicBool::new(false);

/// A step that is open while it should not be, or a unit done twice, shows in `done`.
fn check(workers: usize, steps: &[usize], delay: impl Fn(usize, usize) + Sync) {
    let pool = Pool::new(workers).unwrap();
    let done: Vec<AtomicUsize> = steps.iter().map(|_| AtomicUsize::new(0)).collect();
    let unit_done: Vec<Vec<AtomicUsize>> =
        steps.iter().map(|units| (0..*units).map(|_| AtomicUsize::new(0)).collect()).collect();
    let busy: Vec<AtomicBool> = (0..workers).map(|_| AtomicBool::new(false)).collect();
    let outcome = pool.run(
        steps,
        &|step, units, worker| {
            assert!(!busy[worker].swap(true, Ordering::SeqCst), "worker {worker} twice at a time");
            if let Some(before) = step.checked_sub(1) {
                assert_eq!(done[before].load(Ordering::SeqCst), steps[before], "step {step} began too early");
            }
            for unit in units {
                delay(step, unit);
                unit_done[step][unit].fetch_add(1, Ordering::SeqCst);
                done[step].fetch_add(1, Ordering::SeqCst);
            }
            busy[worker].store(false, Ordering::SeqCst);
        },
        &GO,
    );
    assert_eq!(outcome, Outcome::Done);
    assert!(unit_done.iter().flatten().all(|count| count.load(Ordering::SeqCst) == 1), "{workers} workers");
}

/// Numbers below `below`, from a seed that the failure prints by its step list.
fn numbers(seed: u64, below: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    })
}

#[test]
fn every_unit_once_and_steps_in_order() {
    for workers in [1, 2, 3, 8] {
        check(workers, &[], |_, _| {});
        check(workers, &[0, 0], |_, _| {});
        check(workers, &[1, 0, 7, 1, 1, 2, 100], |_, _| {});
    }
}

#[test]
fn random_steps_under_random_delays() {
    for seed in 0..20 {
        let steps: Vec<usize> = numbers(seed, 12).take(60).map(|units| units as usize).collect();
        let workers = 1 + (seed as usize * 3) % 9;
        check(workers, &steps, |step, unit| match numbers(seed ^ (step * 31 + unit) as u64, 40).next() {
            Some(0) => std::thread::sleep(Duration::from_micros(200)),
            Some(1..4) => std::thread::yield_now(),
            Some(4..8) => (0..2000).for_each(|_| std::hint::spin_loop()),
            _ => {}
        });
    }
}

#[test]
fn many_runs_of_one_pool() {
    let pool = Pool::new(4).unwrap();
    let sum = AtomicUsize::new(0);
    for _ in 0..2000 {
        let add = |step: usize, units: Range<usize>, _: usize| {
            units.for_each(|unit| _ = sum.fetch_add(10 * step + unit, Ordering::SeqCst));
        };
        pool.run(&[3, 1, 2], &add, &GO);
    }
    assert_eq!(sum.into_inner(), 2000 * (1 + 2 + 10 + 20 + 21));
}

#[test]
fn sleepers_are_woken_for_later_steps() {
    // Both workers of each two-unit step must be there at once, long after the others fell asleep.
    let pool = Pool::new(2).unwrap();
    let here = AtomicUsize::new(0);
    let steps = [1, 2, 1, 2, 1, 2];
    pool.run(
        &steps,
        &|step, _, _| {
            if steps[step] == 1 {
                return std::thread::sleep(Duration::from_millis(3));
            }
            let expected = 2 * step.div_ceil(2);
            here.fetch_add(1, Ordering::SeqCst);
            while here.load(Ordering::SeqCst) < expected {
                std::thread::yield_now();
            }
        },
        &GO,
    );
    assert_eq!(here.into_inner(), 6);
}

#[test]
fn a_stop_is_seen_between_steps() {
    for workers in [1, 3] {
        let pool = Pool::new(workers).unwrap();
        let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        let outcome = pool.run(
            &[4; 10],
            &|step, units, _| {
                stop.fetch_or(step == 5, Ordering::SeqCst);
                done.fetch_add(units.len(), Ordering::SeqCst);
            },
            &stop,
        );
        assert_eq!((outcome, done.into_inner()), (Outcome::Stopped { step: 6 }, 24));
        assert_eq!(pool.run(&[4], &|_, _, _| panic!("begun"), &stop), Outcome::Stopped { step: 0 });
    }
}

#[test]
fn what_begins_behind_the_last_stop_is_finished() {
    for workers in [1, 3] {
        let pool = Pool::new(workers).unwrap();
        let flag = AtomicBool::new(false);
        for (raised, expected) in [(3, Outcome::Stopped { step: 4 }), (4, Outcome::Done), (9, Outcome::Done)]
        {
            flag.store(false, Ordering::SeqCst);
            let execute = |step: usize, _: Range<usize>, _: usize| {
                flag.fetch_or(step == raised, Ordering::SeqCst);
            };
            assert_eq!(pool.run(&[2; 10], &execute, Stop { flag: &flag, until: 4 }), expected, "{raised}");
        }
    }
}

#[test]
fn a_panic_surfaces_and_the_pool_lives_on() {
    let pool = Pool::new(3).unwrap();
    for panicking in [(0, 0), (1, 0), (1, 5), (2, 0)] {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.run(
                &[1, 6, 1],
                &|step, units, _| {
                    if step == panicking.0 && units.contains(&panicking.1) {
                        std::panic::resume_unwind(Box::new("unit broke"));
                    }
                },
                &GO,
            )
        }))
        .unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"unit broke"));
    }
    assert_eq!(pool.run(&[8], &|_, _, _| {}, &GO), Outcome::Done);
}

#[test]
fn two_callers_take_turns() {
    let pool = Pool::new(2).unwrap();
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..50 {
                    pool.run(
                        &[1, 2, 1],
                        &|step, _, _| match step {
                            0 => assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0),
                            1 => std::thread::yield_now(),
                            _ => assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1),
                        },
                        &GO,
                    );
                }
            });
        }
    });
}

#[cfg(target_arch = "x86_64")]
#[test]
fn denormals_are_kept_inside_and_the_callers_mode_outside() {
    use super::float_control::{read_control, write_control};
    const FLUSH_TO_ZERO: u32 = 0x8000;
    let before = read_control();
    write_control(before | FLUSH_TO_ZERO);
    let pool = Pool::new(2).unwrap();
    let seen = AtomicUsize::new(0);
    pool.run(
        &[1, 16],
        &|_, _, _| _ = seen.fetch_or((read_control() & FLUSH_TO_ZERO) as usize, Ordering::SeqCst),
        &GO,
    );
    let after = read_control();
    write_control(before);
    assert_eq!((after, seen.into_inner()), (before | FLUSH_TO_ZERO, 0));
}
