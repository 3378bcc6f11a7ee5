//! What things will take, told before they are given: the bytes that [`Backend::resident`] counts afterwards.
//!
//! [`Backend::resident`]: apprentice_graph::Backend::resident

use apprentice_graph::{BackendError, Element, Extents, Graph, Need, Plan, Type, plan};

use crate::memory::{Buffer, Place};
use crate::schedule::Schedule;

/// Bytes of `of` with so many workers.
pub(crate) fn need(of: Need<'_>, workers: usize) -> Result<u64, BackendError> {
    let bytes = |ty: &Type| ty.bytes().unwrap_or(usize::MAX) as u64;
    Ok(match of {
        Need::Weight(ty) | Need::Store(ty) => bytes(ty),
        Need::Copied(ty) => match ty.element {
            Element::Weight(_) => 0, // blocks are read where they lie
            _ => bytes(ty),
        },
        Need::Arena(graph) => plan(graph).bytes as u64,
        Need::Scratch(graph) => (scratch(graph)? * size_of::<f32>() * workers) as u64,
    })
}

/// float32 that a worker needs in a run of `graph` at full capacity. Kernels are asked themselves, over memory that is never
/// touched: every value lies in the same zeros, of which the system gives addresses alone.
fn scratch(graph: &Graph) -> Result<usize, BackendError> {
    let size = |ty: &Type| ty.bytes().unwrap_or(usize::MAX);
    let largest = graph.values().iter().map(|value| size(&value.ty)).max().unwrap_or(0);
    let what = || "a table of sizes".to_owned();
    let mut zeros =
        Buffer::zeroed(largest).ok_or(BackendError::Memory { what: what(), bytes: largest as u64 })?;
    let mut flat: Plan = plan(graph);
    flat.offsets.iter_mut().flatten().for_each(|offset| *offset = 0);
    let zeros = zeros.place();
    let bindings: Vec<Place> = graph
        .bindings()
        .iter()
        .map(|binding| Place { start: zeros.start, bytes: size(graph.ty(binding.value)) })
        .collect();
    // Every place begins at the zeros and is no longer than they are. Counting units makes kernels: nothing is executed.
    Ok(Schedule::new(graph, &flat, &full(graph), &bindings, zeros).scratch())
}

/// The largest counts that a run may have.
fn full(graph: &Graph) -> Extents {
    let mut extents = Extents::default();
    let counted = graph.values().iter().filter_map(|value| Some((value.ty.extent?, value.ty.rows())));
    let mut seen = Vec::new();
    for (extent, rows) in counted {
        let known = seen.contains(&extent);
        seen.push(extent);
        extents = extents.with(extent, if known { rows.min(extents.get(extent)) } else { rows });
    }
    extents
}
