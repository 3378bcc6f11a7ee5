//! The adapters that rows may name: their matrices side by side in one pair of stores a site, a run of rank rows each.

use std::collections::BTreeMap;
use std::sync::Arc;

use apprentice_graph::{Backend, StoreId, Type};
use apprentice_models::{Adapter, Model, names};

use crate::error::EngineError;
use crate::options::ADAPTERS_MAX;

/// Handle of a loaded adapter. Its content never changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AdapterId(pub(crate) u32);

/// All loaded adapters.
#[derive(Default)]
pub(crate) struct Bank {
    /// In the order of their indices in tables; `None` where one was removed.
    slots: Vec<Option<Slot>>,
    /// Stores of each site that some adapter sits on.
    sites: BTreeMap<usize, SiteStores>,
    rank_rows: usize,
    next: u32,
    next_content: u32,
}

struct Slot {
    id: AdapterId,
    adapter: Arc<Adapter>,
    /// The same number for the same pairs, as long as one of them is loaded.
    content: u32,
    first: usize,
}

/// What a site binds.
pub(crate) struct SiteStores {
    pub(crate) a: StoreId,
    pub(crate) b: StoreId,
    pub(crate) table: Vec<i32>,
    pub(crate) scales: Vec<f32>,
}

/// Smallest number of rank rows of a store; it grows fourfold, because every growth compiles the serving programs again.
const RANK_ROWS_MIN: usize = 16;

/// Rank rows of stores that have to hold so many.
fn grown(ranks: usize) -> usize {
    let mut rows = RANK_ROWS_MIN;
    while rows < ranks {
        rows = rows.saturating_mul(4);
    }
    rows
}

/// Rank rows of every store once adapters of these ranks are loaded, one after another.
pub(crate) fn rank_rows(ranks: impl IntoIterator<Item = usize>) -> usize {
    let (mut used, mut rows) = (0usize, 0);
    for rank in ranks {
        used = used.saturating_add(rank);
        if used > rows {
            rows = grown(used);
        }
    }
    rows
}

impl Bank {
    /// Index of an adapter in the tables.
    pub(crate) fn index(&self, id: AdapterId) -> Result<i32, EngineError> {
        let index = self.slots.iter().position(|slot| slot.as_ref().is_some_and(|slot| slot.id == id));
        index.map(|index| index as i32).ok_or(EngineError::Adapter(id.0))
    }

    /// The adapter behind a handle.
    pub(crate) fn adapter(&self, id: AdapterId) -> Result<&Arc<Adapter>, EngineError> {
        let slot = self.slots.iter().flatten().find(|slot| slot.id == id);
        slot.map(|slot| &slot.adapter).ok_or(EngineError::Adapter(id.0))
    }

    /// Number of what a loaded adapter adds to rows: adapters of the same pairs share it, and no other ever gets it.
    pub(crate) fn content(&self, id: AdapterId) -> u32 {
        self.slots.iter().flatten().find(|slot| slot.id == id).map_or(0, |slot| slot.content)
    }

    /// Sites that some adapter sits on, ascending.
    pub(crate) fn sites(&self) -> Vec<usize> {
        self.sites.keys().copied().collect()
    }

    /// Rank rows of every store.
    pub(crate) fn rank_rows(&self) -> usize {
        self.rank_rows
    }

    /// What a site binds.
    pub(crate) fn at(&self, site: usize) -> Option<&SiteStores> {
        self.sites.get(&site)
    }

    /// Loads an adapter whose pairs fit the model.
    pub(crate) fn add(
        &mut self,
        backend: &mut dyn Backend,
        model: &Model,
        adapter: Arc<Adapter>,
    ) -> Result<AdapterId, EngineError> {
        check_pairs(model, &adapter)?;
        let rank = adapter.rank();
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if slot == ADAPTERS_MAX {
            return Err(EngineError::Limit { what: "adapters", found: slot + 1, limit: ADAPTERS_MAX });
        }
        let used: usize = self.slots.iter().flatten().map(|slot| slot.adapter.rank()).sum();
        let first = match self.gap(rank) {
            Some(first) => first,
            None => {
                self.rebuild(backend, model, grown(used + rank))?;
                used
            }
        };
        let sites = adapter.pairs.iter().try_for_each(|pair| self.ensure_site(backend, model, pair.site));
        // A site that was made before another failed stays, with tables that name nothing at it.
        self.write_tables();
        sites?;
        write_pairs(&self.sites, backend, &adapter, first)?;
        self.next += 1;
        let id = AdapterId(self.next);
        let same = self.slots.iter().flatten().find(|slot| slot.adapter.pairs == adapter.pairs);
        let content = same.map_or(self.next_content + 1, |slot| slot.content);
        self.next_content = self.next_content.max(content);
        let entry = Some(Slot { id, adapter, content, first });
        if slot == self.slots.len() {
            self.slots.push(entry)
        } else {
            self.slots[slot] = entry
        }
        self.write_tables();
        Ok(id)
    }

    /// Forgets an adapter.
    pub(crate) fn remove(&mut self, id: AdapterId) -> Result<(), EngineError> {
        let index = self.index(id)? as usize;
        self.slots[index] = None;
        self.write_tables();
        Ok(())
    }

    /// The first run of `rank` free rank rows.
    fn gap(&self, rank: usize) -> Option<usize> {
        let mut taken: Vec<(usize, usize)> =
            self.slots.iter().flatten().map(|slot| (slot.first, slot.first + slot.adapter.rank())).collect();
        taken.sort_unstable();
        let mut first = 0;
        for (start, end) in taken {
            if first + rank <= start {
                break;
            }
            first = first.max(end);
        }
        (first + rank <= self.rank_rows).then_some(first)
    }

    /// Moves all adapters to the front of new, larger stores.
    fn rebuild(
        &mut self,
        backend: &mut dyn Backend,
        model: &Model,
        rank_rows: usize,
    ) -> Result<(), EngineError> {
        let mut moved = Bank { rank_rows, ..Bank::default() };
        let mut firsts = Vec::new();
        let filled = self.fill(&mut moved, &mut firsts, backend, model);
        let left = match filled {
            Ok(()) => std::mem::replace(&mut self.sites, moved.sites),
            Err(_) => moved.sites,
        };
        for stores in left.into_values() {
            backend.release(stores.a);
            backend.release(stores.b);
        }
        filled?;
        for (slot, first) in self.slots.iter_mut().flatten().zip(firsts) {
            slot.first = first;
        }
        self.rank_rows = rank_rows;
        self.write_tables();
        Ok(())
    }

    /// Writes all adapters into the stores of `moved`, one after another; `firsts` says where each begins.
    fn fill(
        &self,
        moved: &mut Bank,
        firsts: &mut Vec<usize>,
        backend: &mut dyn Backend,
        model: &Model,
    ) -> Result<(), EngineError> {
        for site in self.sites.keys() {
            moved.ensure_site(backend, model, *site)?;
        }
        let mut first = 0;
        for slot in self.slots.iter().flatten() {
            write_pairs(&moved.sites, backend, &slot.adapter, first)?;
            firsts.push(first);
            first += slot.adapter.rank();
        }
        Ok(())
    }

    fn ensure_site(
        &mut self,
        backend: &mut dyn Backend,
        model: &Model,
        site: usize,
    ) -> Result<(), EngineError> {
        if self.sites.contains_key(&site) {
            return Ok(());
        }
        let place = &model.sites()[site];
        let a = backend.store(&names::adapter_a(&place.name), &Type::f32([self.rank_rows, place.input]))?;
        let b = backend.store(&names::adapter_b(&place.name), &Type::f32([self.rank_rows, place.output]))?;
        self.sites.insert(site, SiteStores { a, b, table: Vec::new(), scales: Vec::new() });
        Ok(())
    }

    /// Tables of every site: where each adapter's rank rows lie; rank 0 where it has no pair.
    fn write_tables(&mut self) {
        for (site, stores) in &mut self.sites {
            stores.table.clear();
            stores.scales.clear();
            for slot in &self.slots {
                let pair = slot.as_ref().and_then(|slot| {
                    let pair = slot.adapter.pairs.iter().find(|pair| pair.site == *site)?;
                    Some((slot.first, pair))
                });
                let (first, rank, scale) =
                    pair.map_or((0, 0, 0.0), |(first, pair)| (first, pair.rank, pair.scale));
                stores.table.extend([first as i32, rank as i32]);
                stores.scales.push(scale);
            }
        }
    }

    /// Adapters that tables list, removed ones included.
    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }
}

fn write_pairs(
    sites: &BTreeMap<usize, SiteStores>,
    backend: &mut dyn Backend,
    adapter: &Adapter,
    first: usize,
) -> Result<(), EngineError> {
    for pair in &adapter.pairs {
        let stores = &sites[&pair.site];
        backend.write(stores.a, first, &pair.a)?;
        backend.write(stores.b, first, &pair.b)?;
    }
    Ok(())
}

/// Refuses pairs that do not fit their site.
pub(crate) fn check_pairs(model: &Model, adapter: &Adapter) -> Result<(), EngineError> {
    if adapter.pairs.is_empty() {
        return Err(EngineError::Empty { what: "adapter pairs" });
    }
    let mut last = None;
    for pair in &adapter.pairs {
        let Some(site) = model.sites().get(pair.site) else {
            let (expected, found) = (format!("a site below {}", model.sites().len()), pair.site.to_string());
            return Err(EngineError::Pair { site: pair.site.to_string(), expected, found });
        };
        let wrong =
            |expected: String, found: String| EngineError::Pair { site: site.name.clone(), expected, found };
        if last.is_some_and(|last| last >= pair.site) {
            return Err(wrong("one pair a site, ascending".to_owned(), "another order".to_owned()));
        }
        last = Some(pair.site);
        let finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
        if !pair.scale.is_finite() || !finite(&pair.a) || !finite(&pair.b) {
            return Err(wrong(
                "finite numbers".to_owned(),
                format!("scale {} or a matrix that is not", pair.scale),
            ));
        }
        let sizes = (pair.rank.checked_mul(site.input), pair.rank.checked_mul(site.output));
        if pair.rank == 0 || sizes != (Some(pair.a.len()), Some(pair.b.len())) {
            let expected =
                format!("A of rank x {} and B of rank x {}, rank at least 1", site.input, site.output);
            return Err(wrong(
                expected,
                format!("rank {}, {} and {} elements", pair.rank, pair.a.len(), pair.b.len()),
            ));
        }
    }
    Ok(())
}
