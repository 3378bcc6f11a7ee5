//! What runs graphs. A backend owns weights, stores and compiled programs behind `u32` handles; a run reads its bindings,
//! returns outputs and writes stores at its end, all or nothing.

use std::collections::HashMap;
use std::sync::Arc;

use apprentice_quant::ErrorKind;

use crate::error::GraphError;
use crate::graph::{BindingKind, Graph, Origin};
use crate::ops::AnyOp;
use crate::types::{Element, Extents, Type};

/// Bytes that a weight keeps alive: usually a piece of a memory map.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Handle of a weight.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WeightId(pub u32);

/// Handle of a store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StoreId(pub u32);

/// Handle of a compiled program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProgramId(pub u32);

/// A weight as it lies in its file, or a derived one.
#[derive(Clone)]
pub struct Weight {
    /// Name, for messages.
    pub name: String,
    /// Element and shape, outermost first. float32 and float64 are little-endian.
    pub ty: Type,
    /// The elements; exactly as many bytes as the type has.
    pub bytes: Bytes,
}

/// What is bound to a binding of the graph in one run.
#[derive(Clone, Copy, Debug)]
pub enum Bound<'a> {
    /// A weight.
    Weight(WeightId),
    /// A store.
    Store(StoreId),
    /// int32 data.
    I32(&'a [i32]),
    /// int8 data.
    I8(&'a [i8]),
    /// float32 data.
    F32(&'a [f32]),
    /// float64 data.
    F64(&'a [f64]),
}

/// Which arena a program works in. Programs of the same arena never run at the same time and share its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arena {
    /// Prompts and decoding.
    Serving,
    /// Learning.
    Learning,
}

/// Bytes that a backend holds now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resident {
    /// Weights, file pages included.
    pub weights: u64,
    /// Stores: page pools, adapters, optimiser state, accumulators.
    pub stores: u64,
    /// Arenas of the compiled programs.
    pub arenas: u64,
    /// Working memory of the workers.
    pub scratch: u64,
}

impl Resident {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights + self.stores + self.arenas + self.scratch
    }
}

/// Something that a backend may be given.
#[derive(Clone, Copy, Debug)]
pub enum Need<'a> {
    /// A weight of this type, file pages included.
    Weight(&'a Type),
    /// That part of such a weight which is copied and not read where it lies.
    Copied(&'a Type),
    /// A store of this type.
    Store(&'a Type),
    /// The arena of a program of this graph; programs of one arena share that of the largest.
    Arena(&'a Graph),
    /// The working memory of a run of this graph at full capacity, all workers together; runs share that of the largest.
    Scratch(&'a Graph),
}

/// Whether a backend has an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// It runs.
    Yes,
    /// It does not, for these types.
    No,
}

/// Runs graphs.
pub trait Backend: Send {
    /// Name for messages: `cpu`, `interpreter`.
    fn name(&self) -> &'static str;
    /// Takes a weight.
    fn weight(&mut self, weight: Weight) -> Result<WeightId, BackendError>;
    /// Makes a store of zeros. Axis 0 counts its cells.
    fn store(&mut self, name: &str, ty: &Type) -> Result<StoreId, BackendError>;
    /// Gives a store back.
    fn release(&mut self, store: StoreId);
    /// Overwrites cells from `first` on; `values` is a whole number of cells. Rounds to the store's element.
    fn write(&mut self, store: StoreId, first: usize, values: &[f32]) -> Result<(), BackendError>;
    /// Reads cells from `first` on; `into` is a whole number of cells.
    fn read(&self, store: StoreId, first: usize, into: &mut [f32]) -> Result<(), BackendError>;
    /// Copies `count` cells within a store, byte for byte.
    fn copy(&mut self, store: StoreId, from: usize, to: usize, count: usize) -> Result<(), BackendError>;
    /// Prepares a graph to run in `arena`.
    fn compile(&mut self, graph: &Graph, arena: Arena) -> Result<ProgramId, BackendError>;
    /// Gives a program back.
    fn discard(&mut self, program: ProgramId);
    /// Runs a program over `bindings`, given in the order of [`Graph::bindings`], with the counts `extents`. On an error
    /// no store has changed.
    fn run(
        &mut self,
        program: ProgramId,
        bindings: &[Bound<'_>],
        extents: &Extents,
    ) -> Result<(), BackendError> {
        self.run_part(program, bindings, extents, 0, u64::MAX).map(|_| ())
    }
    /// A part of such a run: its steps from `from` on, until about `limit` FLOPs are spent, at least one step. `Some(next)`
    /// says where the next part has to begin, `None` that the run is done.
    ///
    /// Stores are written in the last part only, so a run that is never ended has changed nothing. All parts of a run get
    /// the same bindings and counts; what they read of stores must not change in between. Programs of other arenas may
    /// run between parts; a program that begins in the same arena ends the run for good. With `u64::MAX` there is one part.
    ///
    /// # Errors
    /// [`BackendError::Part`] if `from` is neither 0 nor where the run of this program stands.
    fn run_part(
        &mut self,
        program: ProgramId,
        bindings: &[Bound<'_>],
        extents: &Extents,
        from: usize,
        limit: u64,
    ) -> Result<Option<usize>, BackendError>;
    /// Copies output `index` of the program's last run; only until another program of the same arena runs. `into` has
    /// the elements of the run's counts. int32 and float64 outputs are converted.
    fn output_f32(&self, program: ProgramId, index: usize, into: &mut [f32]) -> Result<(), BackendError>;
    /// The same in float64: float32 and int32 outputs are converted exactly.
    fn output_f64(&self, program: ProgramId, index: usize, into: &mut [f64]) -> Result<(), BackendError>;
    /// What is held now.
    fn resident(&self) -> Resident;
    /// Bytes that this would take, before it is given: what [`Backend::resident`] counts afterwards.
    ///
    /// # Errors
    /// [`BackendError::Memory`] where the size cannot be told.
    fn need(&self, of: Need<'_>) -> Result<u64, BackendError>;
    /// Whether it runs this op on inputs of these types.
    fn support(&self, op: &AnyOp, inputs: &[&Type]) -> Support;
}

/// Why a backend refused or failed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum BackendError {
    /// The graph has an op that the backend lacks.
    #[error("{backend}: no kernel for {op} on {types}")]
    Unsupported {
        /// Name of the backend.
        backend: &'static str,
        /// Name of the op.
        op: &'static str,
        /// Types of its inputs.
        types: String,
    },
    /// A handle that was never given out, or was given back.
    #[error("{what} {index}: no such handle")]
    Handle {
        /// `weight`, `store`, `program` or `output`.
        what: &'static str,
        /// Its number.
        index: usize,
    },
    /// A binding that does not fit.
    #[error("binding {name:?}: expected {expected}, found {found}")]
    Binding {
        /// Name of the binding.
        name: String,
        /// What the graph wants.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A count above its capacity.
    #[error("{name:?}: {count} rows, room for {capacity}")]
    Capacity {
        /// Name of the binding.
        name: String,
        /// The count of the run.
        count: usize,
        /// What the graph was made for.
        capacity: usize,
    },
    /// A read or write outside a store or of another length than asked.
    #[error("{what}: expected {expected}, found {found}")]
    Range {
        /// What was accessed.
        what: String,
        /// The room.
        expected: String,
        /// The access.
        found: String,
    },
    /// An index in the data of a run that leads outside what it indexes.
    #[error("binding {name:?}: index {index} outside {limit}")]
    Index {
        /// Name of the binding.
        name: String,
        /// The index.
        index: i64,
        /// Number of things indexed.
        limit: usize,
    },
    /// Memory that the machine does not give.
    #[error("{what}: {bytes} bytes cannot be allocated")]
    Memory {
        /// What it was for.
        what: String,
        /// How much.
        bytes: u64,
    },
    /// A part of a run that does not follow the last one.
    #[error("a run in parts: expected to go on from step {}, found {found}", expected.map_or("none".to_owned(), |step| step.to_string()))]
    Part {
        /// Where the program's run stands, if it has one.
        expected: Option<usize>,
        /// Where it was to go on.
        found: usize,
    },
    /// The run was stopped between two steps; nothing has changed.
    #[error("the run was stopped")]
    Stopped,
    /// A kernel failed; a bug.
    #[error("{what} failed")]
    Failed {
        /// What was running.
        what: String,
    },
    /// The graph itself.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl BackendError {
    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            BackendError::Unsupported { .. } => ErrorKind::Unsupported,
            BackendError::Handle { .. } => ErrorKind::Missing,
            BackendError::Binding { .. }
            | BackendError::Range { .. }
            | BackendError::Index { .. }
            | BackendError::Part { .. } => ErrorKind::Input,
            BackendError::Capacity { .. } | BackendError::Memory { .. } => ErrorKind::Limit,
            BackendError::Stopped => ErrorKind::Cancelled,
            BackendError::Failed { .. } => ErrorKind::Io,
            BackendError::Graph(error) => error.kind(),
        }
    }
}

/// Sizes of `ty` in a run: its shape with the run's count on axis 0.
pub(crate) fn run_shape(ty: &Type, extents: &Extents) -> Vec<usize> {
    let mut shape = ty.shape.0.clone();
    if let (Some(extent), Some(rows)) = (ty.extent, shape.first_mut()) {
        *rows = extents.get(extent);
    }
    shape
}

impl Graph {
    /// Checks what does not depend on a backend: the number, kinds and lengths of `bindings`, and counts against
    /// capacities. `type_of` answers the type behind a weight's or store's handle.
    pub fn check_bindings<'t>(
        &self,
        bindings: &[Bound<'_>],
        extents: &Extents,
        type_of: impl Fn(Bound<'_>) -> Option<&'t Type>,
    ) -> Result<(), BackendError> {
        if bindings.len() != self.bindings.len() {
            return Err(BackendError::Binding {
                name: "all".to_owned(),
                expected: format!("{} bindings", self.bindings.len()),
                found: bindings.len().to_string(),
            });
        }
        for (binding, bound) in self.bindings.iter().zip(bindings) {
            let ty = self.ty(binding.value);
            let wrong = |found: String| BackendError::Binding {
                name: binding.name.clone(),
                expected: format!("{:?} {ty}", binding.kind),
                found,
            };
            if let Some(extent) = ty.extent
                && extents.get(extent) > ty.rows()
            {
                let (count, capacity) = (extents.get(extent), ty.rows());
                return Err(BackendError::Capacity { name: binding.name.clone(), count, capacity });
            }
            let data = match bound {
                Bound::Weight(_) | Bound::Store(_) => None,
                Bound::I32(data) => Some((Element::I32, data.len())),
                Bound::I8(data) => Some((Element::I8, data.len())),
                Bound::F32(data) => Some((Element::F32, data.len())),
                Bound::F64(data) => Some((Element::F64, data.len())),
            };
            match (binding.kind, data) {
                (BindingKind::Data, Some((element, count))) => {
                    let wanted: usize = run_shape(ty, extents).iter().product();
                    if element != ty.element || count != wanted {
                        return Err(wrong(format!("{count} of {element}, not {wanted} of {}", ty.element)));
                    }
                }
                (BindingKind::Weight, None) | (BindingKind::Store, None) => {
                    let kind_fits = matches!(
                        (binding.kind, bound),
                        (BindingKind::Weight, Bound::Weight(_)) | (BindingKind::Store, Bound::Store(_))
                    );
                    let found =
                        type_of(*bound).ok_or_else(|| wrong("a handle that is not known".to_owned()))?;
                    if !kind_fits || found.element != ty.element || found.shape != ty.shape {
                        return Err(wrong(found.to_string()));
                    }
                }
                _ => return Err(wrong(format!("{bound:?}").chars().take(40).collect())),
            }
        }
        self.check_written_once(bindings)
    }

    /// A store that the run writes is bound once: no node reads it under another name.
    fn check_written_once(&self, bindings: &[Bound<'_>]) -> Result<(), BackendError> {
        let mut times: HashMap<StoreId, usize> = HashMap::new();
        for bound in bindings {
            if let Bound::Store(store) = bound {
                *times.entry(*store).or_default() += 1;
            }
        }
        for effect in &self.effects {
            let Origin::Binding(written) = self.values[effect.store.index()].origin else { continue };
            let Bound::Store(store) = bindings[written] else { continue };
            if times[&store] > 1 {
                return Err(BackendError::Binding {
                    name: self.bindings[written].name.clone(),
                    expected: "a store that nothing else is bound to".to_owned(),
                    found: format!("store {}", store.0),
                });
            }
        }
        Ok(())
    }
}
