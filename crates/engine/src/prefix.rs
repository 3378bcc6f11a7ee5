//! Pages shared by content: a tree of blocks of 64 rows, in which a path from the root is a sequence of rows.
//!
//! A node is a block: its rows (each a token and the content of the adapter that it names), and for each layer group the
//! page that holds their keys and values. What a row's keys and values depend on is the path, so the path is the key,
//! compared in full: there are no hashes. A leaf may have fewer than 64 rows; its page is copied, never written on.
//!
//! A job *holds* the nodes of its path, and of each group the pages that it still sees; behind a window it lets go of
//! them. What nobody holds stays, and is given up when a page is wanted and none is free: the least recently used leaf
//! nobody holds, or in a group with a window the least recently used page nobody holds.

use crate::options::PAGE_POSITIONS;
use crate::pages::Pages;

#[cfg(test)]
mod tests;

/// What a row's keys and values depend on besides the rows before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) token: u32,
    /// Content of the adapter that it names; 0 for none.
    pub(crate) content: u32,
}

/// All pages: those of sequences, those of jobs, and those that are kept for whoever needs the same rows.
pub(crate) struct Cache {
    pools: Vec<Pages>,
    windows: Vec<Option<usize>>,
    nodes: Vec<Node>,
    /// Places in `nodes` that hold none.
    vacant: Vec<usize>,
    clock: u64,
}

/// The node that every path begins with. It has no rows and stays.
const ROOT: usize = 0;

#[derive(Default)]
struct Node {
    parent: usize,
    children: Vec<usize>,
    rows: Vec<Row>,
    /// The page of each group; none where it was given up behind a window.
    pages: Vec<Option<i32>>,
    /// How many hold the page of each group.
    uses: Vec<usize>,
    /// How many hold the node.
    users: usize,
    stamp: u64,
}

/// The pages of one job.
#[derive(Debug)]
pub(crate) struct Holding {
    /// Page of each block of each group, -1 where it is not held. Blocks past the path are the job's own.
    pub(crate) tables: Vec<Vec<i32>>,
    path: Vec<usize>,
    /// First block of each group that is still held.
    first: Vec<usize>,
    /// Most pages of each group that it may hold at a time.
    need: Vec<usize>,
    /// A position that keeps what it sees, however far the job is.
    anchor: usize,
}

/// What a job will want.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    /// The rows that it begins with.
    pub(crate) rows: &'a [Row],
    /// How many of them may be found; the rest must be computed.
    pub(crate) findable: usize,
    /// Rows that it may come to.
    pub(crate) positions: usize,
    /// The earliest position whose keys it will still need at its end.
    pub(crate) anchor: usize,
    /// Rows of its largest cut.
    pub(crate) cut: usize,
}

/// A page to be copied before anything else happens: its first rows are those that a job begins its own page with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PageCopy {
    /// From and to, for each group.
    pub(crate) pages: Vec<(i32, i32)>,
    pub(crate) rows: usize,
}

/// A job let in.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) holding: Holding,
    /// Rows that are there already, those of `copy` included.
    pub(crate) found: usize,
    pub(crate) copy: Option<PageCopy>,
}

/// Where rows were found.
struct Found {
    path: Vec<usize>,
    /// A node whose first rows follow, and how many.
    partial: Option<(usize, usize)>,
}

impl Cache {
    /// `pages` free pages for each of the groups, which see as far as their window.
    pub(crate) fn new(windows: Vec<Option<usize>>, pages: usize) -> Cache {
        let pools = vec![Pages::new(pages); windows.len()];
        Cache { pools, windows, nodes: vec![Node::default()], vacant: Vec::new(), clock: 0 }
    }

    /// Number of layer groups.
    pub(crate) fn groups(&self) -> usize {
        self.pools.len()
    }
    /// Pages of a group in all.
    pub(crate) fn total(&self, group: usize) -> usize {
        self.pools[group].total()
    }
    /// Pages of a group that hold nothing.
    pub(crate) fn free(&self, group: usize) -> usize {
        self.pools[group].available()
    }
    /// Pages of a group that hold something and that nobody holds.
    pub(crate) fn cached(&self, group: usize) -> usize {
        self.nodes.iter().filter(|node| node.spare(group)).count()
    }
    /// Pages of a group that can be had.
    pub(crate) fn available(&self, group: usize) -> usize {
        self.free(group) + self.cached(group)
    }

    /// Takes a page, giving up what was used least recently where none is free.
    pub(crate) fn take(&mut self, group: usize) -> Option<i32> {
        if self.free(group) == 0 {
            self.give_up(group);
        }
        self.pools[group].take()
    }
    /// Gives a page back that no node holds.
    pub(crate) fn give(&mut self, group: usize, page: i32) {
        self.pools[group].give(page);
    }

    /// Gives up every page that nobody holds.
    pub(crate) fn forget(&mut self) {
        for group in 0..self.groups() {
            while self.cached(group) > 0 {
                self.give_up(group);
            }
        }
    }

    /// Lets a job in, if the pages that it may come to need can be had besides the `reserved` ones of each group.
    pub(crate) fn admit(&mut self, wish: &Wish<'_>, reserved: &[usize]) -> Option<Admitted> {
        let found = self.find(wish);
        let whole = found.path.len() * PAGE_POSITIONS;
        let first = self.first_blocks(whole + found.partial.map_or(0, |(_, rows)| rows), wish.anchor);
        let mut holding = Holding {
            tables: vec![Vec::new(); self.groups()],
            need: (0..self.groups()).map(|group| self.need(group, wish)).collect(),
            path: found.path,
            first,
            anchor: wish.anchor,
        };
        self.hold(&mut holding);
        let is_short = |group: usize| {
            let wanted = holding.need[group].saturating_sub(holding.held(group)) + reserved[group];
            wanted > self.available(group)
        };
        if (0..self.groups()).any(is_short) {
            self.drop_path(&holding);
            return None;
        }
        let Some((node, rows)) = found.partial else {
            return Some(Admitted { holding, found: whole, copy: None });
        };
        match self.copy_of(&mut holding, node, rows) {
            Some(copy) => Some(Admitted { holding, found: whole + copy.rows, copy: Some(copy) }),
            None => {
                // The page to copy from is the last that could be had: it is given up instead.
                self.drop_path(&holding);
                self.admit(&Wish { findable: whole, ..*wish }, reserved)
            }
        }
    }

    /// Pages for positions up to `positions`. The job was let in for them, so they can be had.
    pub(crate) fn grow(&mut self, holding: &mut Holding, positions: usize) -> Result<(), usize> {
        for group in 0..self.groups() {
            while holding.tables[group].len() < positions.div_ceil(PAGE_POSITIONS) {
                let page = self.take(group).ok_or(group)?;
                holding.tables[group].push(page);
            }
        }
        Ok(())
    }

    /// The first `computed` of `rows` are in the job's pages now: full blocks are shared, and pages that a window has
    /// passed are let go of.
    pub(crate) fn commit(&mut self, holding: &mut Holding, rows: &[Row], computed: usize) {
        for block in holding.path.len()..computed / PAGE_POSITIONS {
            let of_block = &rows[block * PAGE_POSITIONS..(block + 1) * PAGE_POSITIONS];
            let parent = holding.path.last().copied().unwrap_or(ROOT);
            let node = match self.child(parent, of_block) {
                Some(node) => node,
                None => self.insert(parent, of_block),
            };
            for group in 0..self.groups() {
                let own = holding.tables[group][block];
                match self.nodes[node].pages[group] {
                    None => self.nodes[node].pages[group] = Some(own),
                    Some(shared) => {
                        self.give(group, own);
                        holding.tables[group][block] = shared;
                    }
                }
                self.nodes[node].uses[group] += 1;
            }
            self.nodes[node].users += 1;
            holding.path.push(node);
        }
        let first = self.first_blocks(computed, holding.anchor);
        for (group, first) in first.into_iter().enumerate() {
            for block in holding.first[group]..first {
                self.nodes[holding.path[block]].uses[group] -= 1;
                holding.tables[group][block] = -1;
            }
            holding.first[group] = holding.first[group].max(first);
        }
    }

    /// Takes back what a job holds; its last, unfinished block stays as a leaf. The first `computed` of `rows` are in its
    /// pages.
    pub(crate) fn release(&mut self, mut holding: Holding, rows: &[Row], computed: usize) {
        self.commit(&mut holding, rows, computed);
        let block = holding.path.len();
        let tail = rows.get(block * PAGE_POSITIONS..computed).unwrap_or_default();
        let parent = holding.path.last().copied().unwrap_or(ROOT);
        let covers = |child: &usize| {
            let child = &self.nodes[*child];
            child.rows.starts_with(tail) && child.pages.iter().all(Option::is_some)
        };
        let covered = self.nodes[parent].children.iter().any(covers);
        let mut keep = block;
        if !tail.is_empty() && !covered {
            let leaf = self.insert(parent, tail);
            for (group, table) in holding.tables.iter().enumerate() {
                self.nodes[leaf].pages[group] = Some(table[block]);
            }
            keep += 1;
        }
        for (group, table) in holding.tables.iter().enumerate() {
            for page in table.iter().skip(keep) {
                self.pools[group].give(*page);
            }
        }
        self.drop_path(&holding);
    }

    /// Pages of `group` that a job with this wish holds at most.
    pub(crate) fn need(&self, group: usize, wish: &Wish<'_>) -> usize {
        let all = wish.positions.div_ceil(PAGE_POSITIONS);
        match self.windows[group] {
            Some(window) if wish.anchor >= wish.positions => {
                all.min((window + wish.cut).div_ceil(PAGE_POSITIONS) + 1)
            }
            _ => all,
        }
    }

    /// First block of each group that a row at `position` sees, or the one at `anchor` if that is earlier.
    fn first_blocks(&self, position: usize, anchor: usize) -> Vec<usize> {
        let position = position.min(anchor);
        let first = |window: usize| (position + 1).saturating_sub(window) / PAGE_POSITIONS;
        self.windows.iter().map(|window| window.map_or(0, first)).collect()
    }

    /// The longest start of a wish whose pages are all there.
    fn find(&self, wish: &Wish<'_>) -> Found {
        let rows = &wish.rows[..wish.findable.min(wish.rows.len())];
        let mut path = Vec::new();
        let (blocks, rest) = rows.as_chunks::<PAGE_POSITIONS>();
        for block in blocks {
            let Some(node) = self.child(path.last().copied().unwrap_or(ROOT), block) else { break };
            path.push(node);
        }
        let next = blocks.get(path.len()).map_or(rest, |block| block.as_slice());
        let mut partial = self.longest(path.last().copied().unwrap_or(ROOT), next);
        while !self.is_usable(&path, partial, wish.anchor) {
            if partial.take().is_none() {
                path.pop();
            }
        }
        Found { path, partial }
    }

    /// Whether every page is there that rows after these see.
    fn is_usable(&self, path: &[usize], partial: Option<(usize, usize)>, anchor: usize) -> bool {
        let length = path.len() * PAGE_POSITIONS + partial.map_or(0, |(_, rows)| rows);
        let first = self.first_blocks(length, anchor);
        first.into_iter().enumerate().all(|(group, first)| {
            let nodes = path.iter().skip(first).chain(partial.iter().map(|(node, _)| node));
            nodes.into_iter().all(|node| self.nodes[*node].pages[group].is_some())
        })
    }

    fn child(&self, parent: usize, rows: &[Row]) -> Option<usize> {
        self.nodes[parent].children.iter().copied().find(|child| self.nodes[*child].rows == rows)
    }

    /// The child with the most of its first rows in common with `rows`, if any, and how many.
    fn longest(&self, parent: usize, rows: &[Row]) -> Option<(usize, usize)> {
        let common = |child: &usize| {
            let pairs = self.nodes[*child].rows.iter().zip(rows);
            (*child, pairs.take_while(|(a, b)| a == b).count())
        };
        let best = self.nodes[parent].children.iter().map(common).max_by_key(|(_, rows)| *rows);
        best.filter(|(_, rows)| *rows > 0)
    }

    /// Marks the nodes of a path, and of their pages those from the first block of each group on, as held.
    fn hold(&mut self, holding: &mut Holding) {
        self.clock += 1;
        for (block, node) in holding.path.iter().enumerate() {
            let node = &mut self.nodes[*node];
            node.users += 1;
            node.stamp = self.clock;
            for (group, table) in holding.tables.iter_mut().enumerate() {
                match node.pages[group].filter(|_| block >= holding.first[group]) {
                    Some(page) => {
                        node.uses[group] += 1;
                        table.push(page);
                    }
                    None => table.push(-1),
                }
            }
        }
    }

    /// Lets go of the nodes of a path and of the pages that are held of them.
    fn drop_path(&mut self, holding: &Holding) {
        self.clock += 1;
        for (block, node) in holding.path.iter().enumerate() {
            let node = &mut self.nodes[*node];
            node.users -= 1;
            node.stamp = self.clock;
            for (uses, first) in node.uses.iter_mut().zip(&holding.first) {
                *uses -= usize::from(block >= *first);
            }
        }
    }

    /// Pages of the job's own for a block whose first rows another node has; nothing where they cannot be had beside it.
    fn copy_of(&mut self, holding: &mut Holding, node: usize, rows: usize) -> Option<PageCopy> {
        self.nodes[node].users += 1;
        self.nodes[node].uses.iter_mut().for_each(|uses| *uses += 1);
        let taken: Vec<Option<i32>> = (0..self.groups()).map(|group| self.take(group)).collect();
        self.nodes[node].users -= 1;
        self.nodes[node].uses.iter_mut().for_each(|uses| *uses -= 1);
        self.clock += 1;
        self.nodes[node].stamp = self.clock;
        if taken.contains(&None) {
            for (group, page) in taken.into_iter().enumerate() {
                page.into_iter().for_each(|page| self.give(group, page));
            }
            return None;
        }
        let from = self.nodes[node].pages.iter().flatten().copied();
        let pages: Vec<(i32, i32)> = from.zip(taken.into_iter().flatten()).collect();
        for (table, (_, page)) in holding.tables.iter_mut().zip(&pages) {
            table.push(*page);
        }
        Some(PageCopy { pages, rows })
    }

    /// A new child without pages. Leaves whose rows it begins with are of no more use.
    fn insert(&mut self, parent: usize, rows: &[Row]) -> usize {
        let shorter = |child: &&usize| {
            let child = &self.nodes[**child];
            child.rows.len() < rows.len() && rows.starts_with(&child.rows)
        };
        let replaced: Vec<usize> = self.nodes[parent].children.iter().filter(shorter).copied().collect();
        replaced.into_iter().for_each(|leaf| self.remove(leaf));
        self.clock += 1;
        let groups = self.groups();
        let node = Node {
            parent,
            rows: rows.to_vec(),
            pages: vec![None; groups],
            uses: vec![0; groups],
            stamp: self.clock,
            ..Node::default()
        };
        let place = match self.vacant.pop() {
            Some(place) => {
                self.nodes[place] = node;
                place
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.nodes[parent].children.push(place);
        place
    }

    /// Frees at least one page of `group`, if there is one that nobody holds.
    fn give_up(&mut self, group: usize) {
        let slides = self.windows[group].is_some();
        let candidates =
            self.nodes.iter().enumerate().filter(|(_, node)| {
                node.spare(group) && (slides || node.children.is_empty() && node.users == 0)
            });
        let Some((place, _)) = candidates.min_by_key(|(_, node)| node.stamp) else { return };
        let node = &mut self.nodes[place];
        if node.users == 0 && node.children.is_empty() {
            self.remove(place);
        } else if let Some(page) = node.pages[group].take() {
            self.give(group, page);
        }
    }

    /// Removes a leaf that nobody holds.
    fn remove(&mut self, leaf: usize) {
        let node = std::mem::take(&mut self.nodes[leaf]);
        debug_assert!(
            node.users == 0 && node.children.is_empty(),
            "only leaves that nobody holds are removed"
        );
        self.nodes[node.parent].children.retain(|child| *child != leaf);
        for (group, page) in node.pages.into_iter().enumerate() {
            page.into_iter().for_each(|page| self.give(group, page));
        }
        self.vacant.push(leaf);
    }
}

impl Node {
    /// Whether the node has a page of `group` that nobody holds.
    fn spare(&self, group: usize) -> bool {
        self.pages.get(group).is_some_and(Option::is_some) && self.uses[group] == 0
    }
}

impl Holding {
    /// Pages of `group` that are held.
    pub(crate) fn held(&self, group: usize) -> usize {
        self.tables[group].len().saturating_sub(self.first[group])
    }
    /// Pages of `group` that may still be wanted.
    pub(crate) fn outstanding(&self, group: usize) -> usize {
        self.need[group].saturating_sub(self.held(group))
    }
}
