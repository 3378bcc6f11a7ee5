//! A compiled program, and what is remembered from run to run: which weights and stores it ran over, and its schedule over
//! them. A run over the same ones works out none of it again.

use apprentice_graph::{
    Arena, BackendError, BindingKind, Bound, Element, Extent, Extents, Graph, Origin, Plan, StoreId, WeightId,
};

use crate::memory::Place;
use crate::schedule::Schedule;

pub(crate) struct Program {
    pub(crate) graph: Graph,
    pub(crate) plan: Plan,
    pub(crate) arena: Arena,
    /// Bindings of int32 cells that effects write to, with the cells that their stores have.
    cells: Vec<(usize, usize)>,
    data: Vec<Data>,
    prepared: Option<Prepared>,
}

/// A binding of data, or one whose rows are counted.
struct Data {
    binding: usize,
    element: Element,
    /// `None` for a weight or store.
    row_count: Option<usize>,
    extent: Option<Extent>,
    capacity: usize,
}

/// What a weight or store is bound to.
#[derive(Clone, Copy, PartialEq)]
enum Handle {
    Weight(WeightId),
    Store(StoreId),
    Data,
}

/// A schedule, and what it was made for.
pub(crate) struct Prepared {
    handles: Vec<Handle>,
    arena: Place,
    pub(crate) schedule: Schedule,
    /// Kind of each step, where times are taken.
    pub(crate) kinds: Vec<usize>,
}

impl Program {
    pub(crate) fn new(graph: Graph, plan: Plan, arena: Arena) -> Program {
        let mut cells: Vec<(usize, usize)> = Vec::new();
        for effect in graph.effects() {
            let Some(value) = effect.cells else { continue };
            let Origin::Binding(index) = graph.values()[value.index()].origin else { continue };
            debug_assert_eq!(graph.bindings()[index].kind, BindingKind::Data);
            let pair = (index, graph.ty(effect.store).rows());
            if !cells.contains(&pair) {
                cells.push(pair);
            }
        }
        let mut data = Vec::new();
        for (binding, of) in graph.bindings().iter().enumerate() {
            let (ty, is_data) = (graph.ty(of.value), of.kind == BindingKind::Data);
            if is_data || ty.extent.is_some() {
                let row_count = is_data.then(|| ty.row_count());
                data.push(Data {
                    binding,
                    element: ty.element,
                    row_count,
                    extent: ty.extent,
                    capacity: ty.rows(),
                });
            }
        }
        Program { graph, plan, arena, cells, data, prepared: None }
    }

    /// Whether a run over these bindings is sure to pass the graph's checks: weights and stores are those of the run before,
    /// and data has the lengths of its counts.
    pub(crate) fn is_sure(&self, bindings: &[Bound<'_>], extents: &Extents) -> bool {
        let Some(prepared) = &self.prepared else { return false };
        let handles = bindings.iter().map(Handle::of);
        prepared.handles.len() == bindings.len()
            && handles.eq(prepared.handles.iter().copied())
            && self.data.iter().all(|data| data.fits(&bindings[data.binding], extents))
    }

    /// Forgets the last run: a handle has become invalid.
    pub(crate) fn forget(&mut self) {
        self.prepared = None;
    }

    /// Refuses cells outside their store before anything runs: an effect is the one place where data names what is
    /// written.
    pub(crate) fn check_cells(&self, bindings: &[Bound<'_>]) -> Result<(), BackendError> {
        for (index, limit) in &self.cells {
            let Bound::I32(cells) = bindings[*index] else { continue };
            let outside = |cell: &&i32| usize::try_from(**cell).is_ok_and(|cell| cell >= *limit);
            if let Some(cell) = cells.iter().find(outside) {
                let name = self.graph.bindings()[*index].name.clone();
                return Err(BackendError::Index { name, index: i64::from(*cell), limit: *limit });
            }
        }
        Ok(())
    }

    /// The graph, and the schedule for this run: the last one's, where [`Program::is_sure`] said so and the arena is still
    /// the same, or a new one over the `places` of all bindings.
    pub(crate) fn prepare<'p>(
        &mut self,
        sure: bool,
        bindings: &[Bound<'_>],
        extents: &Extents,
        arena: Place,
        places: impl FnOnce() -> Result<&'p [Place], BackendError>,
    ) -> Result<(&Graph, &mut Prepared), BackendError> {
        let Program { graph, plan, prepared, .. } = self;
        let mut known = prepared.take().filter(|prepared| sure && prepared.arena == arena);
        if let Some(known) = &mut known {
            known.schedule.set(extents, bindings);
        }
        let known = match known {
            Some(known) => known,
            None => Prepared {
                handles: bindings.iter().map(Handle::of).collect(),
                arena,
                schedule: Schedule::new(graph, plan, extents, places()?, arena),
                kinds: Vec::new(),
            },
        };
        Ok((graph, prepared.insert(known)))
    }
}

impl Data {
    fn fits(&self, bound: &Bound<'_>, extents: &Extents) -> bool {
        let rows = self.extent.map_or(self.capacity, |extent| extents.get(extent));
        let (element, count) = match bound {
            Bound::Weight(_) | Bound::Store(_) => return self.row_count.is_none() && rows <= self.capacity,
            Bound::I32(data) => (Element::I32, data.len()),
            Bound::I8(data) => (Element::I8, data.len()),
            Bound::F32(data) => (Element::F32, data.len()),
            Bound::F64(data) => (Element::F64, data.len()),
        };
        let wanted = self.row_count.and_then(|row| row.checked_mul(rows));
        rows <= self.capacity && element == self.element && wanted == Some(count)
    }
}

impl Handle {
    fn of(bound: &Bound<'_>) -> Handle {
        match bound {
            Bound::Weight(id) => Handle::Weight(*id),
            Bound::Store(id) => Handle::Store(*id),
            Bound::I32(_) | Bound::I8(_) | Bound::F32(_) | Bound::F64(_) => Handle::Data,
        }
    }
}
