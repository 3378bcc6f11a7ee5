//! The backend: weights and stores in memory, compiled programs, and runs over the pool.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use apprentice_graph::{
    AnyOp, Arena, Backend, BackendError, Bound, Bytes, Element, Extents, Graph, Need, Output, ProgramId,
    Resident, StoreId, Support, Type, Weight, WeightId, plan,
};
use half::f16;

use crate::error::CpuError;
use crate::isa::Level;
use crate::kernels::round_q8_0::{decode, encode, vector_bytes};
use crate::lower::supports;
use crate::memory::{Buffer, Place, data_place};
use crate::need::need;
use crate::pool::{Outcome, Pool, Stop};
use crate::program::{Prepared, Program};
use crate::schedule::fits;
use crate::times::{Tally, Times};

/// How a backend is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuOptions {
    /// Workers; `None`: as many as the process may use.
    pub threads: Option<usize>,
    /// The level to use; `None`: the best of the machine.
    pub level: Option<Level>,
    /// Whether arenas are filled with NaN before each run, for tests.
    pub poison: bool,
}

/// Runs graphs on the processor.
pub struct Cpu {
    pool: Pool,
    level: Level,
    poison: bool,
    weights: Vec<HeldWeight>,
    stores: Vec<Option<Store>>,
    programs: Vec<Option<Program>>,
    arenas: HashMap<Arena, HeldArena>,
    workers: Vec<Mutex<Worker>>,
    /// Places of the bindings of a run: kept, so that none is allocated.
    places: Vec<Place>,
    stop: Arc<AtomicBool>,
    times: Option<Times>,
}

/// What a worker has for itself.
#[derive(Default)]
struct Worker {
    /// Working memory of kernels.
    scratch: Vec<f32>,
    /// Time by kind of step, where it is taken.
    tallies: Vec<Tally>,
}

impl Worker {
    /// Room for `scratch` numbers and for tallies of `kinds`.
    fn prepare(&mut self, scratch: usize, kinds: &[usize]) {
        if self.scratch.len() < scratch {
            self.scratch.reserve_exact(scratch - self.scratch.len());
            self.scratch.resize(scratch, 0.0);
        }
        if let Some(last) = kinds.iter().max()
            && self.tallies.len() <= *last
        {
            self.tallies.resize(last + 1, Tally::default());
        }
    }
}

/// The memory of an arena, and whose values lie there.
struct HeldArena {
    buffer: Buffer,
    last: Option<LastRun>,
}

/// The last run in an arena; there is none where the last one failed.
#[derive(Clone, Copy)]
struct LastRun {
    program: ProgramId,
    extents: Extents,
    /// The first step that is not done; `None` after the last one.
    next: Option<usize>,
}

impl HeldArena {
    /// Where the run of `program` with `extents` stands, if it is in parts.
    fn stands(&self, program: ProgramId, extents: &Extents) -> Option<usize> {
        self.last.filter(|last| last.program == program && last.extents == *extents)?.next
    }
}

struct HeldWeight {
    ty: Type,
    bytes: WeightBytes,
}

/// Blocks are read where they lie; plain numbers are copied, so that they are aligned.
enum WeightBytes {
    Blocks(Bytes),
    Numbers(Buffer),
}

struct Store {
    ty: Type,
    buffer: Buffer,
}

impl Cpu {
    /// A backend with its workers started.
    ///
    /// # Errors
    /// A level that the machine lacks; threads that the system does not start.
    pub fn new(options: CpuOptions) -> Result<Cpu, CpuError> {
        let best = Level::detect()?;
        let level = options.level.unwrap_or(best);
        let pool = Pool::new(options.threads.unwrap_or_else(Pool::default_workers))?;
        let workers = (0..pool.workers()).map(|_| Mutex::default()).collect();
        Ok(Cpu {
            pool,
            level,
            poison: options.poison,
            weights: Vec::new(),
            stores: Vec::new(),
            programs: Vec::new(),
            arenas: HashMap::new(),
            workers,
            places: Vec::new(),
            stop: Arc::default(),
            times: None,
        })
    }

    /// Runs look at `flag` between their steps, and end with [`BackendError::Stopped`] where it is set; it stays set
    /// until whoever set it takes it back. A run that has begun to write stores is finished first.
    pub fn stop_on(&mut self, flag: Arc<AtomicBool>) {
        self.stop = flag;
    }

    /// The level in use.
    pub fn level(&self) -> Level {
        self.level
    }
    /// Number of workers.
    pub fn threads(&self) -> usize {
        self.pool.workers()
    }

    /// Takes the time of kernels from now on.
    pub fn times(&mut self) -> Times {
        self.times.get_or_insert_default().clone()
    }

    fn store_at(&self, store: StoreId) -> Result<&Store, BackendError> {
        let slot = self.stores.get(store.0 as usize).and_then(Option::as_ref);
        slot.ok_or(BackendError::Handle { what: "store", index: store.0 as usize })
    }

    fn program_at(&self, program: ProgramId) -> Result<&Program, BackendError> {
        let slot = self.programs.get(program.0 as usize).and_then(Option::as_ref);
        slot.ok_or(BackendError::Handle { what: "program", index: program.0 as usize })
    }

    fn type_of(&self, bound: Bound<'_>) -> Option<&Type> {
        match bound {
            Bound::Weight(id) => self.weights.get(id.0 as usize).map(|weight| &weight.ty),
            Bound::Store(id) => self.store_at(id).ok().map(|store| &store.ty),
            _ => None,
        }
    }

    /// Output `index` of a program's last run: its element and bytes.
    fn output(
        &self,
        program: ProgramId,
        index: usize,
        count: usize,
    ) -> Result<(Element, &[u8]), BackendError> {
        let id = program;
        let program = self.program_at(id)?;
        let output =
            program.graph.outputs().get(index).ok_or(BackendError::Handle { what: "output", index })?;
        let ty = program.graph.ty(output.value);
        let range = |expected: String, found: String| BackendError::Range {
            what: format!("output {:?}", output.name),
            expected,
            found,
        };
        let arena = self.arenas.get(&program.arena);
        let last =
            arena.and_then(|arena| arena.last).filter(|last| last.program == id && last.next.is_none());
        let last =
            last.ok_or_else(|| range("a program that has just run".to_owned(), "another".to_owned()))?;
        let rows = ty.extent.map_or(ty.rows(), |extent| last.extents.get(extent));
        let elements = rows * ty.row_count();
        if elements != count {
            return Err(range(elements.to_string(), count.to_string()));
        }
        let root = program.plan.roots[output.value.index()];
        let offset = program.plan.offsets[root.index()];
        let offset = offset.ok_or_else(|| range("a value of a node".to_owned(), "a binding".to_owned()))?;
        let bytes = ty.element.bytes(elements).unwrap_or(0);
        let found = arena.and_then(|arena| arena.buffer.bytes().get(offset..offset + bytes));
        Ok((ty.element, found.ok_or_else(|| range("a program that has run".to_owned(), "none".to_owned()))?))
    }
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn weight(&mut self, weight: Weight) -> Result<WeightId, BackendError> {
        let bytes = (*weight.bytes).as_ref();
        if weight.ty.bytes() != Some(bytes.len()) {
            return Err(BackendError::Binding {
                name: weight.name,
                expected: format!("{} bytes of {}", weight.ty.bytes().unwrap_or(0), weight.ty),
                found: format!("{} bytes", bytes.len()),
            });
        }
        let held = match weight.ty.element {
            Element::Weight(_) => WeightBytes::Blocks(weight.bytes),
            _ => WeightBytes::Numbers(Buffer::of(bytes).ok_or_else(|| BackendError::Memory {
                what: weight.name.clone(),
                bytes: bytes.len() as u64,
            })?),
        };
        self.weights.push(HeldWeight { ty: weight.ty, bytes: held });
        Ok(WeightId(self.weights.len() as u32 - 1))
    }

    fn store(&mut self, name: &str, ty: &Type) -> Result<StoreId, BackendError> {
        let bytes = ty.bytes().unwrap_or(usize::MAX);
        let memory = || BackendError::Memory { what: name.to_owned(), bytes: bytes as u64 };
        let buffer = Buffer::zeroed(bytes).ok_or_else(memory)?;
        self.stores.push(Some(Store { ty: ty.clone(), buffer }));
        Ok(StoreId(self.stores.len() as u32 - 1))
    }

    fn release(&mut self, store: StoreId) {
        if let Some(slot) = self.stores.get_mut(store.0 as usize) {
            *slot = None;
            self.programs.iter_mut().flatten().for_each(Program::forget);
        }
    }

    fn write(&mut self, store: StoreId, first: usize, values: &[f32]) -> Result<(), BackendError> {
        let range = self.store_at(store)?.cells(first, values.len())?;
        if let Some(store) = &mut self.stores[store.0 as usize] {
            let (element, width) = (store.ty.element, store.ty.width().max(1));
            let bytes = &mut store.buffer.bytes_mut()[range];
            match element {
                Element::Q8_0 => {
                    let vectors = bytes.chunks_mut(vector_bytes(width)).zip(values.chunks(width));
                    vectors.for_each(|(bytes, vector)| encode(vector, bytes));
                }
                Element::F16 => {
                    for (slot, value) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                        *slot = f16::from_f32(*value).to_le_bytes();
                    }
                }
                _ => {
                    for (slot, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                        *slot = value.to_le_bytes();
                    }
                }
            }
        }
        Ok(())
    }

    fn read(&self, store: StoreId, first: usize, into: &mut [f32]) -> Result<(), BackendError> {
        let store = self.store_at(store)?;
        let bytes = &store.buffer.bytes()[store.cells(first, into.len())?];
        match store.ty.element {
            Element::Q8_0 => {
                let width = store.ty.width().max(1);
                for (bytes, vector) in bytes.chunks(vector_bytes(width)).zip(into.chunks_mut(width)) {
                    decode(|step| f16::from_bits(step).to_f32(), bytes, vector);
                }
            }
            Element::F16 => {
                for (value, slot) in into.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *value = f16::from_le_bytes(*slot).to_f32();
                }
            }
            _ => {
                for (value, slot) in into.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *value = f32::from_le_bytes(*slot);
                }
            }
        }
        Ok(())
    }

    fn copy(&mut self, store: StoreId, from: usize, to: usize, count: usize) -> Result<(), BackendError> {
        let held = self.store_at(store)?;
        let elements = count.saturating_mul(held.ty.row_count());
        let (from, to) = (held.cells(from, elements)?, held.cells(to, elements)?);
        if let Some(store) = &mut self.stores[store.0 as usize] {
            store.buffer.bytes_mut().copy_within(from, to.start);
        }
        Ok(())
    }

    fn compile(&mut self, graph: &Graph, arena: Arena) -> Result<ProgramId, BackendError> {
        for node in graph.nodes() {
            let absent = Type::absent();
            let types: Vec<&Type> =
                node.inputs.iter().map(|id| id.map_or(&absent, |id| graph.ty(id))).collect();
            if !supports(&node.op, &types) {
                let types = types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                return Err(BackendError::Unsupported { backend: self.name(), op: node.op.name(), types });
            }
        }
        if let Err((op, ty)) = fits(graph) {
            return Err(BackendError::Unsupported { backend: self.name(), op, types: ty.to_string() });
        }
        let plan = plan(graph);
        let of_a_binding =
            |output: &&Output| plan.offsets[plan.roots[output.value.index()].index()].is_none();
        if let Some(output) = graph.outputs().iter().find(of_a_binding) {
            let types = format!("{:?}, which is a binding", output.name);
            return Err(BackendError::Unsupported { backend: self.name(), op: "return", types });
        }
        if self.arenas.get(&arena).is_none_or(|held| held.buffer.len() < plan.bytes) {
            let what = format!("arena of {arena:?}");
            let buffer = Buffer::zeroed(plan.bytes);
            let buffer = buffer.ok_or(BackendError::Memory { what, bytes: plan.bytes as u64 })?;
            self.arenas.insert(arena, HeldArena { buffer, last: None });
        }
        self.programs.push(Some(Program::new(graph.clone(), plan, arena)));
        Ok(ProgramId(self.programs.len() as u32 - 1))
    }

    fn discard(&mut self, program: ProgramId) {
        if let Some(slot) = self.programs.get_mut(program.0 as usize) {
            *slot = None;
        }
    }

    fn run_part(
        &mut self,
        program: ProgramId,
        bindings: &[Bound<'_>],
        extents: &Extents,
        from: usize,
        limit: u64,
    ) -> Result<Option<usize>, BackendError> {
        let begin = Instant::now();
        let held = self.program_at(program)?;
        let stands = self.arenas.get(&held.arena).and_then(|arena| arena.stands(program, extents));
        if from != 0 && stands != Some(from) {
            return Err(BackendError::Part { expected: stands, found: from });
        }
        let sure = held.is_sure(bindings, extents);
        if !sure {
            held.graph.check_bindings(bindings, extents, |bound| self.type_of(bound))?;
        }
        held.check_cells(bindings)?;

        let Cpu { pool, level, weights, stores, programs, arenas, workers, places, stop, times, .. } = self;
        let id = program;
        let slot = programs[id.0 as usize].as_mut();
        let program = slot.ok_or(BackendError::Handle { what: "program", index: id.0 as usize })?;
        let held = arenas.get_mut(&program.arena);
        let held = held.ok_or(BackendError::Handle { what: "arena", index: 0 })?;
        held.last = None; // until this part is done
        if self.poison && from == 0 {
            held.buffer.poison();
        }
        let place = held.buffer.place();
        let (graph, prepared) = program
            .prepare(sure, bindings, extents, place, || find_places(weights, stores, bindings, places))?;
        let Prepared { schedule, kinds, .. } = prepared;
        if let Some(times) = times
            && kinds.len() != schedule.units().len()
        {
            *kinds = schedule.names(graph).map(|name| times.kind(name)).collect();
        }
        let schedule = &*schedule;
        let kinds = times.as_ref().map(|_| &kinds[..]);
        for worker in workers.iter_mut() {
            let worker = worker.get_mut().unwrap_or_else(PoisonError::into_inner);
            worker.prepare(schedule.scratch(), kinds.unwrap_or_default());
        }
        let execute = |step: usize, units: Range<usize>, worker: usize| {
            let mut worker = workers[worker].lock().unwrap_or_else(PoisonError::into_inner);
            let Worker { scratch, tallies } = &mut *worker;
            let step = from + step;
            // SAFETY: places lead to weights, stores and the arena of this backend, which `&mut self` holds exclusively until
            // the run is over, and to the caller's data, which is borrowed; what is released is forgotten by all programs.
            let mut execute = || unsafe { schedule.execute(*level, step, units.clone(), scratch) };
            let Some(kinds) = kinds else { return execute() };
            let start = Instant::now();
            execute();
            let tally = &mut tallies[kinds[step]];
            tally.time += start.elapsed();
            tally.calls += 1;
        };
        let end = schedule.end_of_part(graph, from, limit);
        // A store is not left half written: nobody stops once the first is being written.
        let stop = Stop { flag: stop, until: schedule.first_effect().saturating_sub(from) };
        let run = || pool.run(&schedule.units()[from..end], &execute, stop);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        if let Some(times) = times {
            let tallies = workers.iter_mut().map(|worker| worker.get_mut());
            let tallies = tallies.map(|worker| &mut worker.unwrap_or_else(PoisonError::into_inner).tallies);
            times.add(begin.elapsed(), tallies);
        }
        match outcome {
            Ok(Outcome::Done) => {
                let next = (end < schedule.units().len()).then_some(end);
                held.last = Some(LastRun { program: id, extents: *extents, next });
                Ok(next)
            }
            Ok(Outcome::Stopped { .. }) => Err(BackendError::Stopped),
            Err(panic) => Err(BackendError::Failed { what: panic_text(panic.as_ref()) }),
        }
    }

    fn output_f32(&self, program: ProgramId, index: usize, into: &mut [f32]) -> Result<(), BackendError> {
        let (element, bytes) = self.output(program, index, into.len())?;
        convert(element, bytes, into, |value| value as f32); // a float32 comes back as it was
        Ok(())
    }

    fn output_f64(&self, program: ProgramId, index: usize, into: &mut [f64]) -> Result<(), BackendError> {
        let (element, bytes) = self.output(program, index, into.len())?;
        convert(element, bytes, into, |value| value);
        Ok(())
    }

    fn resident(&self) -> Resident {
        let weight = |weight: &HeldWeight| match &weight.bytes {
            WeightBytes::Blocks(bytes) => (**bytes).as_ref().len() as u64,
            WeightBytes::Numbers(buffer) => buffer.len() as u64,
        };
        Resident {
            weights: self.weights.iter().map(weight).sum(),
            stores: self.stores.iter().flatten().map(|store| store.buffer.len() as u64).sum(),
            arenas: self.arenas.values().map(|held| held.buffer.len() as u64).sum(),
            scratch: self.workers.iter().map(scratch_bytes).sum(),
        }
    }

    fn need(&self, of: Need<'_>) -> Result<u64, BackendError> {
        need(of, self.pool.workers())
    }

    fn support(&self, op: &AnyOp, inputs: &[&Type]) -> Support {
        if supports(op, inputs) { Support::Yes } else { Support::No }
    }
}

impl Store {
    /// Bytes of `count` elements from cell `first` on, if they are whole cells that exist.
    fn cells(&self, first: usize, count: usize) -> Result<std::ops::Range<usize>, BackendError> {
        let row = self.ty.row_count().max(1);
        let range = || {
            let (start, bytes) = (first, self.ty.cell_bytes()?);
            Some(start.checked_mul(bytes)?..start.checked_add(count / row)?.checked_mul(bytes)?)
        };
        match range() {
            Some(range) if count.is_multiple_of(row) && range.end <= self.buffer.len() => Ok(range),
            _ => Err(BackendError::Range {
                what: "store".to_owned(),
                expected: format!("cells of {}", self.ty),
                found: format!("{count} elements from cell {first}"),
            }),
        }
    }
}

/// Places of the bindings of a run.
fn find_places<'p>(
    weights: &[HeldWeight],
    stores: &mut [Option<Store>],
    bindings: &[Bound<'_>],
    places: &'p mut Vec<Place>,
) -> Result<&'p [Place], BackendError> {
    places.clear();
    for bound in bindings {
        places.push(match bound {
            Bound::Weight(id) => {
                let weight = weights.get(id.0 as usize);
                let bytes = match &weight.ok_or(missing("weight", id.0))?.bytes {
                    WeightBytes::Blocks(bytes) => (**bytes).as_ref(),
                    WeightBytes::Numbers(buffer) => buffer.bytes(),
                };
                Place { start: bytes.as_ptr().cast_mut(), bytes: bytes.len() }
            }
            Bound::Store(id) => {
                let store = stores.get_mut(id.0 as usize).and_then(Option::as_mut);
                store.ok_or(missing("store", id.0))?.buffer.place()
            }
            data => data_place(data).ok_or(missing("data", 0))?,
        });
    }
    Ok(places)
}

fn missing(what: &'static str, index: u32) -> BackendError {
    BackendError::Handle { what, index: index as usize }
}

/// Little-endian elements as numbers.
fn convert<T>(element: Element, bytes: &[u8], into: &mut [T], number: impl Fn(f64) -> T) {
    match element {
        Element::F64 => {
            for (value, slot) in into.iter_mut().zip(bytes.as_chunks().0) {
                *value = number(f64::from_le_bytes(*slot));
            }
        }
        Element::I32 => {
            for (value, slot) in into.iter_mut().zip(bytes.as_chunks().0) {
                *value = number(f64::from(i32::from_le_bytes(*slot)));
            }
        }
        Element::I8 => {
            for (value, slot) in into.iter_mut().zip(bytes) {
                *value = number(f64::from(slot.cast_signed()));
            }
        }
        _ => {
            for (value, slot) in into.iter_mut().zip(bytes.as_chunks().0) {
                *value = number(f64::from(f32::from_le_bytes(*slot)));
            }
        }
    }
}

/// Bytes that a worker's working memory has come to.
fn scratch_bytes(worker: &Mutex<Worker>) -> u64 {
    let worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
    (worker.scratch.capacity() * size_of::<f32>()) as u64
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("a kernel ({})", text.unwrap_or("no message"))
}
