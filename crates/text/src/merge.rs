//! Greedy pair merging: the best adjacent pair becomes one symbol, again and again, until no pair may merge.
//!
//! Symbols are a linked list and candidate pairs a heap, so a text of `n` symbols takes `O(n log n)`. A candidate is
//! stale, and skipped, when one of its two symbols has changed since it was found. Of equal priorities the leftmost
//! goes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The work space of [`Merger::run`], kept between words. `S` is a symbol; `P` a priority, the largest first.
pub(crate) struct Merger<S, P: Ord> {
    links: Vec<Link>,
    heap: BinaryHeap<Candidate<S, P>>,
}

impl<S: Copy + Eq, P: Ord> Merger<S, P> {
    /// An empty work space.
    pub(crate) fn new() -> Self {
        Merger { links: Vec::new(), heap: BinaryHeap::new() }
    }

    /// Merges `symbols` in place. `pair` says whether two neighbours may merge, how soon, and into what.
    pub(crate) fn run(&mut self, symbols: &mut Vec<S>, pair: impl Fn(S, S) -> Option<(P, S)>) {
        self.links.clear();
        self.heap.clear();
        let count = symbols.len();
        self.links.extend((0..count).map(|index| Link {
            previous: index.checked_sub(1),
            next: Some(index + 1).filter(|next| *next < count),
            alive: true,
        }));
        for left in 0..count.saturating_sub(1) {
            self.propose(symbols, left, left + 1, &pair);
        }
        while let Some(best) = self.heap.pop() {
            let left = best.left.0;
            // A living symbol that has not changed still has the same neighbour: only it could have absorbed that.
            let Some(right) = self.links[left].next.filter(|_| self.links[left].alive) else { continue };
            if symbols[left] != best.symbols.0 || symbols[right] != best.symbols.1 {
                continue;
            }
            symbols[left] = best.merged;
            self.links[right].alive = false;
            let next = self.links[right].next;
            self.links[left].next = next;
            if let Some(next) = next {
                self.links[next].previous = Some(left);
                self.propose(symbols, left, next, &pair);
            }
            if let Some(previous) = self.links[left].previous {
                self.propose(symbols, previous, left, &pair);
            }
        }
        let mut alive = self.links.iter().map(|link| link.alive);
        symbols.retain(|_| alive.next().unwrap_or(false));
    }

    fn propose(&mut self, symbols: &[S], left: usize, right: usize, pair: impl Fn(S, S) -> Option<(P, S)>) {
        let both = (symbols[left], symbols[right]);
        if let Some((priority, merged)) = pair(both.0, both.1) {
            self.heap.push(Candidate { priority, left: Reverse(left), symbols: both, merged });
        }
    }
}

/// Neighbours of a symbol, by index.
struct Link {
    previous: Option<usize>,
    next: Option<usize>,
    alive: bool,
}

/// A pair that may merge. Ordered by priority, then leftmost first.
struct Candidate<S, P> {
    priority: P,
    left: Reverse<usize>,
    symbols: (S, S),
    merged: S,
}

impl<S, P: Ord> Ord for Candidate<S, P> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (&self.priority, self.left).cmp(&(&other.priority, other.left))
    }
}

impl<S, P: Ord> PartialOrd for Candidate<S, P> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<S, P: Ord> PartialEq for Candidate<S, P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<S, P: Ord> Eq for Candidate<S, P> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges decimal numbers whose sum is listed; the earlier in the list, the sooner.
    fn check(order: &[u32], symbols: &[u32], expected: &[u32]) {
        let mut symbols = symbols.to_vec();
        Merger::new().run(&mut symbols, |left: u32, right: u32| {
            let rank = order.iter().position(|sum| *sum == left + right)?;
            Some((Reverse(rank), left + right))
        });
        assert_eq!(symbols, expected);
    }

    #[test]
    fn nothing_to_merge() {
        check(&[], &[], &[]);
        check(&[2], &[1], &[1]);
        check(&[9], &[1, 2, 3], &[1, 2, 3]);
    }

    #[test]
    fn leftmost_of_equals_first() {
        check(&[2], &[1, 1, 1], &[2, 1]);
        check(&[2, 4], &[1, 1, 1, 1, 1], &[4, 1]);
    }

    #[test]
    fn better_pair_first_even_when_it_appears_late() {
        check(&[5, 3], &[1, 2, 3], &[1, 5]);
        check(&[3, 6, 5], &[1, 2, 3], &[6]);
    }

    #[test]
    fn stale_pairs_are_skipped() {
        // 2+3 is found first and goes stale when 1+2 merges.
        check(&[3, 5], &[1, 2, 3], &[3, 3]);
    }
}
