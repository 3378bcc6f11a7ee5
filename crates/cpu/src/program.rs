//! A compiled program, and what is remembered from run to run: which bindings were found good, and for the last counts the
//! layout and the schedule. A run like the last one works out none of it again.

use apprentice_graph::{
    Arena, BackendError, BindingKind, Bound, Element, Extents, Graph, Origin, Plan, StoreId, WeightId,
};

use crate::lower::Schedule;
use crate::memory::Layout;

pub(crate) struct Program {
    pub(crate) graph: Graph,
    pub(crate) plan: Plan,
    pub(crate) arena: Arena,
    /// Bindings of int32 cells that effects write to, with the cells that their stores have.
    cells: Vec<(usize, usize)>,
    seen: Option<Seen>,
    prepared: Option<Prepared>,
}

/// Bindings that fit, with the counts of their run.
struct Seen {
    bindings: Vec<Key>,
    extents: Extents,
}

/// What of a binding decides whether it fits.
#[derive(Clone, Copy, PartialEq)]
enum Key {
    Weight(WeightId),
    Store(StoreId),
    Data(Element, usize),
}

/// What depends on the graph and the counts of a run.
pub(crate) struct Prepared {
    extents: Extents,
    pub(crate) layout: Layout,
    pub(crate) schedule: Option<Schedule>,
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
        Program { graph, plan, arena, cells, seen: None, prepared: None }
    }

    /// Whether these bindings fitted in an earlier run with these counts.
    pub(crate) fn has_seen(&self, bindings: &[Bound<'_>], extents: &Extents) -> bool {
        self.seen.as_ref().is_some_and(|seen| {
            let keys = bindings.iter().map(Key::of);
            seen.extents == *extents
                && seen.bindings.len() == bindings.len()
                && keys.eq(seen.bindings.iter().copied())
        })
    }

    /// Remembers bindings that fit.
    pub(crate) fn see(&mut self, bindings: &[Bound<'_>], extents: &Extents) {
        if !self.has_seen(bindings, extents) {
            let bindings = bindings.iter().map(Key::of).collect();
            self.seen = Some(Seen { bindings, extents: *extents });
        }
    }

    /// Forgets which bindings fit: a handle has become invalid.
    pub(crate) fn forget(&mut self) {
        self.seen = None;
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

    /// The graph, its plan, and what is prepared for these counts.
    pub(crate) fn prepared(&mut self, extents: &Extents) -> (&Graph, &Plan, &mut Prepared) {
        let Program { graph, plan, prepared, .. } = self;
        let known = prepared.take().filter(|prepared| prepared.extents == *extents);
        let known = known.unwrap_or_else(|| Prepared {
            extents: *extents,
            layout: Layout::new(graph, plan, extents),
            schedule: None,
            kinds: Vec::new(),
        });
        (graph, plan, prepared.insert(known))
    }
}

impl Key {
    fn of(bound: &Bound<'_>) -> Key {
        match bound {
            Bound::Weight(id) => Key::Weight(*id),
            Bound::Store(id) => Key::Store(*id),
            Bound::I32(data) => Key::Data(Element::I32, data.len()),
            Bound::I8(data) => Key::Data(Element::I8, data.len()),
            Bound::F32(data) => Key::Data(Element::F32, data.len()),
            Bound::F64(data) => Key::Data(Element::F64, data.len()),
        }
    }
}
