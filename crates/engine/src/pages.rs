//! The page pool of a layer group: which pages are free.

/// Free pages, lowest first.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    free: Vec<i32>,
    total: usize,
}

impl Pages {
    /// A pool of `total` free pages.
    pub(crate) fn new(total: usize) -> Pages {
        Pages { free: (0..total as i32).rev().collect(), total }
    }
    /// Pages in all.
    pub(crate) fn total(&self) -> usize {
        self.total
    }
    /// Pages that are free.
    pub(crate) fn available(&self) -> usize {
        self.free.len()
    }
    /// Takes a page.
    pub(crate) fn take(&mut self) -> Option<i32> {
        self.free.pop()
    }
    /// Gives a page back.
    pub(crate) fn give(&mut self, page: i32) {
        self.free.push(page);
    }
}
