//! Typed indices of a graph. An index is valid in the graph that made it, and prints as it stands in text: `n3`, `%12`.

use std::fmt;

/// Index of a node in [`crate::Graph::nodes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

/// Index of a value in [`crate::Graph::values`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(u32);

impl NodeId {
    /// The id of the node at `index`. A graph has fewer than 2^32 nodes; more is a bug of its maker.
    pub fn new(index: usize) -> NodeId {
        NodeId(u32::try_from(index).expect("a graph has fewer than 2^32 nodes"))
    }
    /// Position in the node list.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ValueId {
    /// The id of the value at `index`. A graph has fewer than 2^32 values; more is a bug of its maker.
    pub fn new(index: usize) -> ValueId {
        ValueId(u32::try_from(index).expect("a graph has fewer than 2^32 values"))
    }
    /// Position in the value list.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl fmt::Debug for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}
