//! Workers that share the units of a program's steps.
//!
//! A run is a list of steps; a step is a number of units, and the next step begins when the units of this one are
//! done. Nobody waits for a worker to arrive: units are taken from one counter, so whoever is there does them, and the
//! worker that does the last unit of a step opens the next one. A step of one unit is done by that worker on the spot.
//! A worker without work spins for at most 20 microseconds, then sleeps; at most one sleeper is being woken at a time,
//! and it wakes the next if units are left.
//!
//! Proof of the `unsafe` here: workers reach the caller's job only through `Control::job`, under the lock that counts
//! them in, and [`Pool::run`] takes the job away and waits until all are out before it returns.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::CpuError;
use float_control::DefaultControl;

mod float_control;

/// How long a worker without work spins before it sleeps.
const SPIN: Duration = Duration::from_micros(20);

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All steps are done.
    Done,
    /// The flag was seen before `step`, which and all later ones were not begun; all earlier ones are done.
    Stopped {
        /// Index of the first step that was not begun.
        step: usize,
    },
}

/// When a run stops before its end.
#[derive(Clone, Copy, Debug)]
pub struct Stop<'a> {
    /// Set by whoever wants the run to stop.
    pub flag: &'a AtomicBool,
    /// The last step before which it is looked at; what begins behind it is finished.
    pub until: usize,
}

impl Stop<'_> {
    /// Whether the run ends before this step.
    fn is_due(&self, step: usize) -> bool {
        step <= self.until && self.flag.load(Ordering::Relaxed)
    }
}

impl<'a> From<&'a AtomicBool> for Stop<'a> {
    /// A flag that is looked at before every step.
    fn from(flag: &'a AtomicBool) -> Self {
        Stop { flag, until: usize::MAX }
    }
}

/// What a run does: `execute(step, units, worker)`.
pub type Execute<'a> = dyn Fn(usize, Range<usize>, usize) + Sync + 'a;

/// Threads that run programs. Dropping it ends them.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// One run at a time.
    turn: Mutex<()>,
}

impl Pool {
    /// A pool of `workers` workers, of which the thread that calls [`Pool::run`] is one; zero counts as one.
    ///
    /// # Errors
    /// [`CpuError::Threads`] if the system starts fewer.
    pub fn new(workers: usize) -> Result<Self, CpuError> {
        let workers = workers.max(1);
        let mut pool = Self { shared: Arc::default(), threads: Vec::new(), turn: Mutex::new(()) };
        for worker in 1..workers {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new()
                .name(format!("worker-{worker}"))
                .spawn(move || shared.serve(worker));
            match thread {
                Ok(thread) => pool.threads.push(thread),
                Err(error) => {
                    return Err(CpuError::Threads { wanted: workers, started: worker, reason: error.kind() });
                }
            }
        }
        Ok(pool)
    }

    /// The number of workers that this process may use.
    pub fn default_workers() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// Number of workers, the caller of [`Pool::run`] included. Worker indices lie below it.
    pub fn workers(&self) -> usize {
        self.threads.len() + 1
    }

    /// Does `steps[s]` units of each step `s`, in the order of steps: `execute(step, units, worker)`, each unit in one call,
    /// after all units of earlier steps, never twice at a time for one worker. `stop` is looked at between steps. One worker
    /// alone takes a step's units in one call.
    /// Workers run with the default floating-point control (nearest even, denormals kept); the caller's is restored.
    ///
    /// Another run of the same pool waits for its turn; one from inside `execute` would wait for ever.
    ///
    /// # Panics
    /// With the panic of `execute`, after all workers have left; which steps were begun is then unknown.
    pub fn run<'a>(&self, steps: &[usize], execute: &Execute<'_>, stop: impl Into<Stop<'a>>) -> Outcome {
        assert!(steps.iter().all(|units| u32::try_from(*units).is_ok()), "more units than a step can count");
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let stop = stop.into();
        if self.threads.is_empty() {
            return alone(steps, execute, stop);
        }
        let job = Job {
            steps,
            execute,
            stop,
            place: AtomicU64::new(pack(0, u32::MAX)), // taken whole, until the caller opens the first step
            finished: AtomicUsize::new(0),
            stopped: AtomicUsize::new(usize::MAX),
            panic: Mutex::new(None),
        };
        self.shared.enter(&job);
        {
            let _control = DefaultControl::enter();
            self.shared.open(&job, 0, 0);
            while self.shared.work(&job, 0) == Left::Idle {
                self.shared.wait_as_caller(&job);
            }
        }
        self.shared.leave();
        drop(turn);
        let Job { stopped, panic, .. } = job;
        if let Some(panic) = panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
        match stopped.into_inner() {
            usize::MAX => Outcome::Done,
            step => Outcome::Stopped { step },
        }
    }
}

/// A run with one worker: nothing is shared, and nobody is waited for.
fn alone(steps: &[usize], execute: &Execute<'_>, stop: Stop<'_>) -> Outcome {
    let _control = DefaultControl::enter();
    for (step, units) in steps.iter().enumerate() {
        if stop.is_due(step) {
            return Outcome::Stopped { step };
        }
        if *units > 0 {
            execute(step, 0..*units, 0);
        }
    }
    Outcome::Done
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.idle.notify_all();
        for thread in self.threads.drain(..) {
            // A worker catches the panics of its units, so it has none of its own to report.
            let _ = thread.join();
        }
    }
}

/// One run, on the stack of its caller.
struct Job<'a> {
    steps: &'a [usize],
    execute: &'a Execute<'a>,
    stop: Stop<'a>,
    /// The open step and its next unit, see [`pack`]; it only grows, so a stale value is never taken for a new one.
    place: AtomicU64,
    /// Finished units of the open step.
    finished: AtomicUsize,
    /// The step before which the run was stopped, or `usize::MAX`.
    stopped: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// A place: step above, unit below.
fn pack(step: usize, unit: u32) -> u64 {
    (step as u64) << 32 | u64::from(unit)
}

impl Job<'_> {
    /// The open step and its next unit; `None` after the last step.
    fn place(&self) -> Option<(u64, usize, usize)> {
        let place = self.place.load(Ordering::SeqCst);
        let (step, unit) = ((place >> 32) as usize, place as u32 as usize);
        (step < self.steps.len()).then_some((place, step, unit))
    }

    /// Whether a worker would find something to do, or the run has ended.
    fn is_worth_waking(&self) -> bool {
        self.place().is_none_or(|(_, step, unit)| unit < self.steps[step])
    }

    /// Does one unit; a panic is kept, the first one if there are several.
    fn execute(&self, step: usize, unit: usize, worker: usize) -> bool {
        match catch_unwind(AssertUnwindSafe(|| (self.execute)(step, unit..unit + 1, worker))) {
            Ok(()) => true,
            Err(panic) => {
                self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
                false
            }
        }
    }
}

/// Why a worker stopped looking for units.
#[derive(PartialEq)]
enum Left {
    /// Nothing to do for a while.
    Idle,
    /// The run has ended.
    Ended,
}

#[derive(Debug, Default)]
struct Shared {
    control: Mutex<Control>,
    /// Workers without work.
    idle: Condvar,
    /// The caller of a run: without work, or until the workers are out.
    caller: Condvar,
    /// Threads on `idle`, and the caller where it waits for units.
    sleepers: AtomicUsize,
    /// Somebody was woken and is not yet back.
    waking: AtomicBool,
}

#[derive(Debug, Default)]
struct Control {
    job: Option<JobAddress>,
    /// Workers, other than the caller, that hold the job.
    inside: usize,
    caller_sleeps: bool,
    closing: bool,
}

/// A job whose lifetime is kept by [`Pool::run`].
#[derive(Clone, Copy, Debug)]
struct JobAddress(*const Job<'static>);

// SAFETY: the job is used by reference only, and `Job` is `Sync`: atomics, a mutex, shared slices, a `Sync` function.
unsafe impl Send for JobAddress {}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Control> {
        // Nothing panics under this lock; if it did, the state would still be whole.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the job to the workers.
    fn enter(&self, job: &Job<'_>) {
        let mut control = self.lock();
        control.job = Some(JobAddress(std::ptr::from_ref(job).cast()));
    }

    /// Takes the job away and waits until no worker holds it.
    fn leave(&self) {
        let mut control = self.lock();
        control.job = None;
        while control.inside > 0 {
            control = self.caller.wait(control).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The life of a worker.
    fn serve(&self, worker: usize) {
        let mut control = self.lock();
        while !control.closing {
            if let Some(address) = control.job {
                control.inside += 1;
                drop(control);
                let _control = DefaultControl::enter();
                // SAFETY: counted in under the lock while the job was shown, so `leave` waits for this worker.
                let job = unsafe { &*address.0 };
                self.work(job, worker);
                control = self.lock();
                // Announced before the last look, so that whoever opens a step after it sees a sleeper.
                self.sleepers.fetch_add(1, Ordering::SeqCst);
                let stay = job.place().is_some() && job.is_worth_waking();
                control.inside -= 1;
                if control.inside == 0 {
                    self.caller.notify_one();
                }
                if stay {
                    self.sleepers.fetch_sub(1, Ordering::SeqCst);
                    continue;
                }
            } else {
                self.sleepers.fetch_add(1, Ordering::SeqCst);
            }
            control = self.idle.wait(control).unwrap_or_else(PoisonError::into_inner);
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            self.waking.store(false, Ordering::SeqCst);
        }
    }

    /// The caller sleeps until there are units again or the run has ended.
    fn wait_as_caller(&self, job: &Job<'_>) {
        let mut control = self.lock();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        control.caller_sleeps = true;
        while !job.is_worth_waking() {
            control = self.caller.wait(control).unwrap_or_else(PoisonError::into_inner);
            // Woken for units that others have done meanwhile: somebody else may be woken again.
            self.waking.store(false, Ordering::SeqCst);
        }
        control.caller_sleeps = false;
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        self.waking.store(false, Ordering::SeqCst);
    }

    /// Wakes one sleeper, unless one is already on its way.
    fn wake_one(&self) {
        if self.sleepers.load(Ordering::SeqCst) == 0 || self.waking.swap(true, Ordering::SeqCst) {
            return;
        }
        let control = self.lock();
        if control.caller_sleeps {
            self.caller.notify_one();
        } else if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.idle.notify_one();
        } else {
            self.waking.store(false, Ordering::SeqCst);
        }
    }

    /// Takes units until there are none for a while.
    fn work(&self, job: &Job<'_>, worker: usize) -> Left {
        let mut idle_since = None;
        while let Some((place, step, unit)) = job.place() {
            let units = job.steps[step];
            if unit >= units {
                let since = *idle_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= SPIN {
                    return Left::Idle;
                }
                (0..32).for_each(|_| std::hint::spin_loop());
                continue;
            }
            idle_since = None;
            if job.place.compare_exchange(place, place + 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                continue;
            }
            if unit + 1 < units {
                self.wake_one();
            }
            if !job.execute(step, unit, worker) {
                self.end(job);
            } else if job.finished.fetch_add(1, Ordering::SeqCst) + 1 == units {
                self.open(job, step + 1, worker);
            }
        }
        Left::Ended
    }

    /// Opens the first step from `step` on that is worth sharing; smaller ones before it are done here.
    fn open(&self, job: &Job<'_>, mut step: usize, worker: usize) {
        while let Some(&units) = job.steps.get(step) {
            if job.stop.is_due(step) {
                job.stopped.store(step, Ordering::SeqCst);
                return self.end(job);
            }
            if units > 1 {
                job.finished.store(0, Ordering::SeqCst);
                job.place.store(pack(step, 0), Ordering::SeqCst);
                return self.wake_one();
            }
            if units == 1 && !job.execute(step, 0, worker) {
                return self.end(job);
            }
            step += 1;
        }
        self.end(job);
    }

    /// Nobody takes a unit any more, and the caller learns of it.
    fn end(&self, job: &Job<'_>) {
        // After a panic other workers may still be in units of the step; they are out before `run` returns.
        job.place.store(pack(job.steps.len(), 0), Ordering::SeqCst);
        if self.lock().caller_sleeps {
            self.caller.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
