//! A run in parts, with whole runs of another arena between them, gives the bytes of one run; until its last part it has
//! changed nothing, and a stop leaves it there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apprentice_cpu::{Cpu, CpuOptions};
use apprentice_graph::{
    AnyOp, Arena, Array, Backend, BackendError, Bound, Element, Extents, Format, Graph, Interpreter, Need,
    ProgramId, Resident, StoreId, Support, Type, Weight, WeightId,
};
use apprentice_testkit::filled::{Filled, same_bits};
use apprentice_testkit::little_model::LittleModel;

const SEED: u64 = 20_261_201;

fn cpu(threads: usize) -> Cpu {
    Cpu::new(CpuOptions { threads: Some(threads), poison: true, ..CpuOptions::default() }).expect("starts")
}

fn models() -> Vec<LittleModel> {
    let exact = LittleModel::exact();
    vec![exact, LittleModel { format: Format::Q8_0, cache: Element::F16, slack: 2, ..exact }]
}

/// A processor on which every run of the learning arena is cut into parts.
struct InParts {
    cpu: Cpu,
    limit: u64,
    /// Run between parts, in the serving arena.
    between: Option<Filled>,
    /// Elements of each store.
    sizes: HashMap<StoreId, usize>,
    parts: usize,
}

impl InParts {
    fn new(limit: u64, between: Option<Filled>) -> InParts {
        InParts { cpu: cpu(2), limit, between, sizes: HashMap::new(), parts: 0 }
    }

    fn stores(&self, bindings: &[Bound<'_>]) -> Vec<Vec<u32>> {
        let stores = bindings.iter().filter_map(|bound| match bound {
            Bound::Store(store) => {
                let mut contents = vec![0f32; self.sizes[store]];
                self.cpu.read(*store, 0, &mut contents).expect("a store of this run");
                Some(contents.into_iter().map(f32::to_bits).collect())
            }
            _ => None,
        });
        stores.collect()
    }
}

impl Backend for InParts {
    fn name(&self) -> &'static str {
        "parts"
    }
    fn weight(&mut self, weight: Weight) -> Result<WeightId, BackendError> {
        self.cpu.weight(weight)
    }
    fn store(&mut self, name: &str, ty: &Type) -> Result<StoreId, BackendError> {
        let store = self.cpu.store(name, ty)?;
        self.sizes.insert(store, ty.shape.count().expect("a test fits the memory"));
        Ok(store)
    }
    fn release(&mut self, store: StoreId) {
        self.cpu.release(store);
    }
    fn write(&mut self, store: StoreId, first: usize, values: &[f32]) -> Result<(), BackendError> {
        self.cpu.write(store, first, values)
    }
    fn read(&self, store: StoreId, first: usize, into: &mut [f32]) -> Result<(), BackendError> {
        self.cpu.read(store, first, into)
    }
    fn copy(&mut self, store: StoreId, from: usize, to: usize, count: usize) -> Result<(), BackendError> {
        self.cpu.copy(store, from, to, count)
    }
    fn compile(&mut self, graph: &Graph, arena: Arena) -> Result<ProgramId, BackendError> {
        self.cpu.compile(graph, arena)
    }
    fn discard(&mut self, program: ProgramId) {
        self.cpu.discard(program);
    }
    fn run_part(
        &mut self,
        program: ProgramId,
        bindings: &[Bound<'_>],
        extents: &Extents,
        mut from: usize,
        _: u64,
    ) -> Result<Option<usize>, BackendError> {
        let before = self.stores(bindings);
        while let Some(next) = self.cpu.run_part(program, bindings, extents, from, self.limit)? {
            assert!(next > from, "a part does at least one step");
            assert!(self.stores(bindings) == before, "a part that is not the last one has written a store");
            if let Some(between) = &self.between {
                between.run(&mut self.cpu, Arena::Serving)?;
            }
            self.parts += 1;
            from = next;
        }
        Ok(None)
    }
    fn output_f32(&self, program: ProgramId, index: usize, into: &mut [f32]) -> Result<(), BackendError> {
        self.cpu.output_f32(program, index, into)
    }
    fn output_f64(&self, program: ProgramId, index: usize, into: &mut [f64]) -> Result<(), BackendError> {
        self.cpu.output_f64(program, index, into)
    }
    fn resident(&self) -> Resident {
        self.cpu.resident()
    }
    fn need(&self, of: Need<'_>) -> Result<u64, BackendError> {
        self.cpu.need(of)
    }
    fn support(&self, op: &AnyOp, inputs: &[&Type]) -> Support {
        self.cpu.support(op, inputs)
    }
}

fn run(backend: &mut dyn Backend, filled: &Filled) -> Vec<Array> {
    filled.run(backend, Arena::Learning).expect("runs")
}

#[test]
fn parts_with_serving_between_them_give_the_bytes_of_one_run() {
    for model in models() {
        let (step, served) = (model.step(SEED).expect("a training step is built"), model.forward(SEED + 1));
        let whole = run(&mut cpu(1), &step);
        for limit in [0, 1, 20_000, 1_000_000] {
            let mut parts = InParts::new(limit, Some(served.clone()));
            let found = run(&mut parts, &step);
            let same = whole.len() == found.len() && whole.iter().zip(&found).all(|(a, b)| same_bits(a, b));
            assert!(same, "{model:?} in {} parts of {limit} FLOPs (seed {SEED})", parts.parts);
            assert!(limit > 1 || parts.parts > 20, "only {} parts of {limit} FLOPs", parts.parts);
        }
        let mut whole_run = InParts::new(u64::MAX, None);
        run(&mut whole_run, &step);
        assert_eq!(whole_run.parts, 0, "without a limit there is one part");
    }
}

/// A program of the model without bindings' stores that matter: its forward graph, compiled, with its weights.
struct Held {
    filled: Filled,
    program: ProgramId,
    handles: Vec<Option<Handle>>,
}

#[derive(Clone, Copy)]
enum Handle {
    Weight(WeightId),
    Store(StoreId),
}

impl Held {
    fn new(backend: &mut dyn Backend, filled: Filled, arena: Arena) -> Held {
        use apprentice_testkit::filled::Data;
        let handles = filled.graph.bindings().iter().zip(&filled.data).map(|(binding, data)| {
            let ty = filled.graph.ty(binding.value).clone();
            match data {
                Data::Weight(bytes) => {
                    let weight = Weight { name: binding.name.clone(), ty, bytes: Arc::new(bytes.clone()) };
                    Some(Handle::Weight(backend.weight(weight).expect("a weight of its type")))
                }
                Data::Store(values) => {
                    let store = backend.store(&binding.name, &ty).expect("a little store");
                    backend.write(store, 0, values).expect("its own size");
                    Some(Handle::Store(store))
                }
                _ => None,
            }
        });
        let handles = handles.collect();
        let program = backend.compile(&filled.graph, arena).expect("compiles");
        Held { filled, program, handles }
    }

    fn part(
        &self,
        backend: &mut dyn Backend,
        from: usize,
        limit: u64,
    ) -> Result<Option<usize>, BackendError> {
        use apprentice_testkit::filled::Data;
        let bound: Vec<Bound<'_>> = self
            .handles
            .iter()
            .zip(&self.filled.data)
            .map(|(handle, data)| match (handle, data) {
                (Some(Handle::Weight(id)), _) => Bound::Weight(*id),
                (Some(Handle::Store(id)), _) => Bound::Store(*id),
                (None, Data::I32(values)) => Bound::I32(values),
                (None, Data::I8(values)) => Bound::I8(values),
                (None, Data::F64(values)) => Bound::F64(values),
                (None, Data::F32(values) | Data::Store(values)) => Bound::F32(values),
                (None, Data::Weight(_)) => unreachable!("every weight has a handle"),
            })
            .collect();
        backend.run_part(self.program, &bound, &self.filled.extents, from, limit)
    }
}

#[test]
fn a_part_that_does_not_follow_is_refused() {
    let model = LittleModel::exact();
    let mut cpu = cpu(1);
    let held = Held::new(&mut cpu, model.step(SEED).expect("a training step is built"), Arena::Learning);
    let other = Held::new(&mut cpu, model.forward(SEED), Arena::Learning);
    let refused = |found: Result<_, _>, expected: Option<usize>, from: usize| {
        assert_eq!(found, Err(BackendError::Part { expected, found: from }));
    };
    refused(held.part(&mut cpu, 3, 1), None, 3);
    let next = held.part(&mut cpu, 0, 1).expect("begins").expect("has more steps");
    refused(held.part(&mut cpu, next + 1, 1), Some(next), next + 1);
    refused(other.part(&mut cpu, next, 1), None, next);
    let next = held.part(&mut cpu, next, 1).expect("a refusal changes nothing").expect("has more steps");
    // Another program begins in the same arena: the values of this run are gone.
    assert_eq!(other.part(&mut cpu, 0, u64::MAX), Ok(None));
    refused(held.part(&mut cpu, next, 1), None, next);
    // And from the beginning it goes again.
    assert_eq!(held.part(&mut cpu, 0, u64::MAX), Ok(None));
    refused(held.part(&mut cpu, 1, 1), None, 1);
    let mut interpreter = Interpreter::new();
    let held = Held::new(&mut interpreter, model.forward(SEED), Arena::Learning);
    refused(held.part(&mut interpreter, 1, 1), None, 1);
}

#[test]
fn a_stop_ends_a_run_that_has_written_nothing() {
    let model = LittleModel::exact();
    let mut cpu = cpu(2);
    let stop = Arc::new(AtomicBool::new(false));
    cpu.stop_on(stop.clone());
    let held = Held::new(&mut cpu, model.step(SEED).expect("a training step is built"), Arena::Learning);
    let next = held.part(&mut cpu, 0, 1).expect("begins").expect("has more steps");
    stop.store(true, Ordering::Relaxed);
    assert_eq!(held.part(&mut cpu, next, 1), Err(BackendError::Stopped));
    assert_eq!(held.part(&mut cpu, 0, u64::MAX), Err(BackendError::Stopped));
    stop.store(false, Ordering::Relaxed);
    assert_eq!(
        held.part(&mut cpu, next, 1),
        Err(BackendError::Part { expected: None, found: next }),
        "a run that was stopped begins anew"
    );
    assert_eq!(held.part(&mut cpu, 0, u64::MAX), Ok(None));
}
