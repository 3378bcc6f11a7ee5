//! The memory plan: an offset in one arena for every value that a node makes, by lifetime, and the peak to the byte.
//!
//! A value lives from its node to its last reader; what a run returns or writes lives to the end. A view shares the bytes of
//! what it views. An output that may lie in place of an input does so where that input is not read later. Larger values
//! choose first, each taking the lowest place that no value of an overlapping life occupies.

use std::fmt;

use crate::graph::{Graph, Origin};
use crate::ids::ValueId;
use crate::op::Storage;

/// Alignment of every offset, in bytes: a cache line.
pub const ALIGNMENT_BYTES: usize = 64;

/// Where values lie.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Offset of each value in the arena, in bytes; `None` for bindings and for values that view one.
    pub offsets: Vec<Option<usize>>,
    /// For each value, the value whose bytes it shares: itself, or the root of its views and in-place chain.
    pub roots: Vec<ValueId>,
    /// Size of the arena: the peak, in bytes.
    pub bytes: usize,
    places: Vec<Place>,
}

/// Bytes that one or more values occupy for a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    root: ValueId,
    bytes: usize,
    offset: usize,
    first: usize,
    last: usize,
}

/// Plans `graph`.
pub fn plan(graph: &Graph) -> Plan {
    let last_use = last_uses(graph);
    let mut layout = Layout {
        roots: (0..graph.values.len()).map(ValueId::new).collect(),
        lives: vec![None; graph.values.len()],
    };
    for (index, node) in graph.nodes.iter().enumerate() {
        for (output, value) in node.outputs.iter().enumerate() {
            let shared = match node.op.storage() {
                Storage::View if output == 0 => node.inputs[0],
                Storage::InPlace(slot) if output == 0 && layout.may_replace(graph, index, slot) => {
                    node.inputs[slot]
                }
                _ => None,
            };
            let end = last_use[value.index()];
            match shared {
                Some(input) => layout.share(*value, input, end),
                None => layout.lives[value.index()] = Some((index, end)),
            }
        }
    }
    layout.place(graph)
}

/// Which values share bytes, and how long each set of shared bytes lives: first and last node.
struct Layout {
    roots: Vec<ValueId>,
    lives: Vec<Option<(usize, usize)>>,
}

/// The last node that reads each value; the end of the run for what it returns or writes.
fn last_uses(graph: &Graph) -> Vec<usize> {
    let mut last: Vec<usize> = graph
        .values
        .iter()
        .map(|value| match value.origin {
            Origin::Node { node, .. } => node.index(),
            Origin::Binding(_) => 0,
        })
        .collect();
    for (index, node) in graph.nodes.iter().enumerate() {
        for value in node.inputs.iter().flatten() {
            last[value.index()] = index;
        }
    }
    let kept = graph
        .outputs
        .iter()
        .map(|output| output.value)
        .chain(graph.effects.iter().map(|effect| effect.value));
    for value in kept {
        last[value.index()] = graph.nodes.len();
    }
    // A view is read when what it views is read: the life of the whole family ends with its last reader.
    for node in graph.nodes.iter().rev() {
        if node.op.storage() == Storage::View
            && let Some(input) = node.inputs[0]
        {
            last[input.index()] = last[input.index()].max(last[node.outputs[0].index()]);
        }
    }
    last
}

impl Layout {
    /// Whether output 0 of node `index` may take the bytes of its input `slot`: the arena holds them, nobody reads them
    /// later, no other input of the node shares them, and they are as many.
    fn may_replace(&self, graph: &Graph, index: usize, slot: usize) -> bool {
        let node = &graph.nodes[index];
        let Some(input) = node.inputs[slot] else { return false };
        let root = self.roots[input.index()];
        let Some((_, last)) = self.lives[root.index()] else { return false }; // a binding, or a view of one
        let shares = |value: &ValueId| self.roots[value.index()] == root;
        let alone = node.inputs.iter().flatten().filter(|value| shares(value)).count() == 1;
        last == index && alone && graph.ty(root).bytes() == graph.ty(node.outputs[0]).bytes()
    }

    fn share(&mut self, value: ValueId, with: ValueId, end: usize) {
        let root = self.roots[with.index()];
        self.roots[value.index()] = root;
        if let Some((_, last)) = &mut self.lives[root.index()] {
            *last = (*last).max(end);
        }
    }

    fn place(self, graph: &Graph) -> Plan {
        let mut places: Vec<Place> = self
            .lives
            .iter()
            .enumerate()
            .filter_map(|(index, life)| {
                let (first, last) = (*life)?;
                // A verified graph has no value whose size overflows.
                let bytes = graph.values[index].ty.bytes().unwrap_or(usize::MAX / 4);
                Some(Place {
                    root: ValueId::new(index),
                    bytes: bytes.next_multiple_of(ALIGNMENT_BYTES),
                    offset: 0,
                    first,
                    last,
                })
            })
            .collect();
        places.sort_by_key(|place| (std::cmp::Reverse(place.bytes), place.root));
        let mut bytes = 0;
        for index in 0..places.len() {
            let (done, rest) = places.split_at_mut(index);
            let new = &mut rest[0];
            let mut taken: Vec<(usize, usize)> = done
                .iter()
                .filter(|old| old.first <= new.last && new.first <= old.last)
                .map(|old| (old.offset, old.offset + old.bytes))
                .collect();
            taken.sort_unstable();
            for (start, end) in taken {
                if new.offset + new.bytes <= start {
                    break;
                }
                new.offset = new.offset.max(end);
            }
            bytes = bytes.max(new.offset + new.bytes);
        }
        let mut at: Vec<Option<usize>> = vec![None; self.roots.len()];
        for place in &places {
            at[place.root.index()] = Some(place.offset);
        }
        let offsets = self.roots.iter().map(|root| at[root.index()]).collect();
        Plan { offsets, roots: self.roots, bytes, places }
    }
}

impl Plan {
    /// The `count` largest places: the value that owns each, and its bytes.
    pub fn largest(&self, count: usize) -> impl Iterator<Item = (ValueId, usize)> {
        self.places.iter().take(count).map(|place| (place.root, place.bytes))
    }
}

impl fmt::Display for Plan {
    /// A line a place, largest first: value, offset, bytes, nodes from and to; the peak last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in &self.places {
            let Place { root, bytes, offset, first, last } = place;
            writeln!(f, "{root} at {offset}, {bytes} bytes, nodes {first}..={last}")?;
        }
        writeln!(f, "peak {} bytes", self.bytes)
    }
}
