//! Compiled programs and where each of their bindings comes from, resolved once by name.

use std::collections::HashMap;

use apprentice_graph::{Arena, Backend, Bound, Graph, ProgramId, StoreId, WeightId};
use apprentice_models::{Model, names};

use crate::assemble::Arrays;
use crate::error::EngineError;

/// A compiled graph.
pub(crate) struct Program {
    pub(crate) id: ProgramId,
    pub(crate) graph: Graph,
    sources: Vec<Source>,
}

/// Where a binding comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Weight(WeightId),
    /// A store of the engine that never changes its handle.
    Store(StoreId),
    /// The A matrices of a site.
    AdapterA(usize),
    /// The B matrices of a site.
    AdapterB(usize),
    AdapterTable(usize),
    AdapterScales(usize),
    /// A store that only one kind of program has: its caller resolves it by index of the binding.
    Own(usize),
    Tokens,
    Positions,
    Sequences,
    Pages(usize),
    Cells(usize),
    Head,
    Named,
    NamedHead,
    Labels,
    Factors,
    RowBlocks,
    LabelledBlocks,
}

/// The adapter of a site as a run binds it.
pub(crate) struct SiteBinding<'a> {
    pub(crate) a: StoreId,
    pub(crate) b: StoreId,
    pub(crate) table: &'a [i32],
    pub(crate) scales: &'a [f32],
}

/// Weights and page pools that are already with the backend.
#[derive(Default)]
pub(crate) struct Residents {
    pub(crate) weights: HashMap<String, WeightId>,
    pub(crate) pools: HashMap<String, StoreId>,
}

impl Residents {
    /// The handle of a weight, handed to the backend on first use.
    fn weight(
        &mut self,
        backend: &mut dyn Backend,
        model: &Model,
        name: &str,
    ) -> Result<Option<WeightId>, EngineError> {
        if let Some(id) = self.weights.get(name) {
            return Ok(Some(*id));
        }
        let Some(weight) = model.weight(name) else { return Ok(None) };
        let id = backend.weight(weight)?;
        self.weights.insert(name.to_owned(), id);
        Ok(Some(id))
    }
}

impl Program {
    /// Compiles `graph` and resolves its bindings.
    pub(crate) fn new(
        backend: &mut dyn Backend,
        model: &Model,
        residents: &mut Residents,
        graph: Graph,
        arena: Arena,
    ) -> Result<Program, EngineError> {
        let sites: HashMap<String, Source> = model
            .sites()
            .iter()
            .enumerate()
            .flat_map(|(index, site)| {
                [
                    (names::adapter_a(&site.name), Source::AdapterA(index)),
                    (names::adapter_b(&site.name), Source::AdapterB(index)),
                    (names::adapter_table(&site.name), Source::AdapterTable(index)),
                    (names::adapter_scales(&site.name), Source::AdapterScales(index)),
                ]
            })
            .collect();
        let groups = model.groups().len();
        let mut sources = Vec::with_capacity(graph.bindings().len());
        for (index, binding) in graph.bindings().iter().enumerate() {
            let name = binding.name.as_str();
            let source = match data_source(name, groups) {
                Some(source) => source,
                None => match (
                    residents.weight(backend, model, name)?,
                    residents.pools.get(name),
                    sites.get(name),
                ) {
                    (Some(weight), _, _) => Source::Weight(weight),
                    (None, Some(store), _) => Source::Store(*store),
                    (None, None, Some(source)) => *source,
                    (None, None, None) => Source::Own(index),
                },
            };
            sources.push(source);
        }
        let id = backend.compile(&graph, arena)?;
        Ok(Program { id, graph, sources })
    }

    /// The bindings of a run. `site` answers for adapters, `own` for stores that only this program has, by name.
    pub(crate) fn bind<'a>(
        &self,
        arrays: &'a Arrays,
        site: impl Fn(usize) -> Option<SiteBinding<'a>>,
        own: impl Fn(&str) -> Option<StoreId>,
    ) -> Result<Vec<Bound<'a>>, EngineError> {
        let missing = |index: usize| EngineError::Pair {
            site: self.graph.bindings()[index].name.clone(),
            expected: "a binding".to_owned(),
            found: "nothing".to_owned(),
        };
        let bound = self.sources.iter().enumerate().map(|(index, source)| {
            Ok(match *source {
                Source::Weight(id) => Bound::Weight(id),
                Source::Store(id) => Bound::Store(id),
                Source::AdapterA(at) => Bound::Store(site(at).ok_or_else(|| missing(index))?.a),
                Source::AdapterB(at) => Bound::Store(site(at).ok_or_else(|| missing(index))?.b),
                Source::AdapterTable(at) => Bound::I32(site(at).ok_or_else(|| missing(index))?.table),
                Source::AdapterScales(at) => Bound::F32(site(at).ok_or_else(|| missing(index))?.scales),
                Source::Own(at) => {
                    Bound::Store(own(&self.graph.bindings()[at].name).ok_or_else(|| missing(index))?)
                }
                Source::Tokens => Bound::I32(&arrays.tokens),
                Source::Positions => Bound::I32(&arrays.positions),
                Source::Sequences => Bound::I32(&arrays.sequences),
                Source::Pages(group) => Bound::I32(&arrays.pages[group]),
                Source::Cells(group) => Bound::I32(&arrays.cells[group]),
                Source::Head => Bound::I32(&arrays.head),
                Source::Named => Bound::I32(&arrays.named),
                Source::NamedHead => Bound::I32(&arrays.named_head),
                Source::Labels => Bound::I32(&arrays.labels),
                Source::Factors => Bound::F32(&arrays.factors),
                Source::RowBlocks => Bound::I32(&arrays.row_blocks),
                Source::LabelledBlocks => Bound::I32(&arrays.labelled_blocks),
            })
        });
        bound.collect()
    }
}

/// The array that a data binding of a model graph reads.
fn data_source(name: &str, groups: usize) -> Option<Source> {
    match name {
        names::TOKENS => Some(Source::Tokens),
        names::POSITIONS => Some(Source::Positions),
        names::SEQUENCES => Some(Source::Sequences),
        names::OUTPUTS | names::LABELLED => Some(Source::Head),
        names::NAMED => Some(Source::Named),
        names::NAMED_HEAD => Some(Source::NamedHead),
        names::LABELS => Some(Source::Labels),
        names::FACTORS => Some(Source::Factors),
        "blocks.row_blocks" => Some(Source::RowBlocks),
        "blocks.labelled_blocks" => Some(Source::LabelledBlocks),
        _ => (0..groups).find_map(|group| match name {
            _ if name == names::pages(group) => Some(Source::Pages(group)),
            _ if name == names::cells(group) => Some(Source::Cells(group)),
            _ => None,
        }),
    }
}
