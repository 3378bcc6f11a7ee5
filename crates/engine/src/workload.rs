//! Memory known first: what an engine will hold, to the byte, told from the graphs that it would compile. Nothing is
//! allocated, and nothing is read but the file's header.
//!
//! Weights, pages, arenas, adapters, learners and the workers' memory are what [`Backend::resident`] counts once the planned
//! shapes have run. Copies outside the backend are bounded. Not counted: the program itself, metadata of the file, texts,
//! stacks of threads.

use std::collections::BTreeMap;

use apprentice_graph::{AnyOp, Arena, Backend, BindingKind, Graph, Need, Origin, Type, ValueId, plan};
use apprentice_models::{Adapter, Model, Request, Want, names};

use crate::account::{Account, Kind, PlanAccount, PlannedValue};
use crate::bank::rank_rows;
use crate::error::EngineError;
use crate::learner::store_names;
use crate::options::{LEARN_ROWS_MAX, Options, PAGE_POSITIONS};
use crate::request::{ALL_LOGITS, CHUNK, FEW, StepCounts, learning_request, serving_request};
use crate::spans::{MicroBatch, cut_step};
use crate::update::{gradient_graph, trained, update_graph};

/// What an engine will be asked to do, as far as memory goes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Workload {
    /// Prompts and replies: batches of up to 16 and up to 512 rows.
    pub serving: bool,
    /// Batches in which every row gives logits.
    pub all_logits: bool,
    /// Adapters that are loaded at a time, in this order.
    pub adapters: Vec<AdapterShape>,
    /// Adapters that are in training at a time.
    pub learners: Vec<LearnerShape>,
    /// Learning steps; they share one arena.
    pub steps: Vec<StepShape>,
}

/// An adapter that rows may name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdapterShape {
    /// Indices of its sites.
    pub sites: Vec<usize>,
    /// The largest rank of its pairs.
    pub rank: usize,
}

/// An adapter in training.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LearnerShape {
    /// Indices of its sites.
    pub sites: Vec<usize>,
    /// The largest rank of its pairs.
    pub rank: usize,
}

/// One graph of a learning step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepShape {
    /// Indices of the sites of the adapter in training.
    pub sites: Vec<usize>,
    /// Its rank.
    pub rank: usize,
    /// Rows of all spans.
    pub rows: usize,
    /// Those with a label.
    pub labelled: usize,
    /// Spans.
    pub sequences: usize,
    /// Pages before the spans, of all of them.
    pub context_pages: usize,
}

impl StepShape {
    /// The shape that covers every graph of a step over `samples`, each `(rows, labelled)` and without pages before it, as
    /// [`cut_step`] cuts it.
    pub fn of_samples(
        adapter: &AdapterShape,
        samples: &[(usize, usize)],
        vocab: usize,
        limit: MicroBatch,
    ) -> StepShape {
        let AdapterShape { sites, rank } = adapter.clone();
        let mut shape = StepShape { sites, rank, rows: 0, labelled: 0, sequences: 0, context_pages: 0 };
        for cut in cut_step(samples, vocab, limit) {
            shape.sequences = shape.sequences.max(cut.len());
            let (rows, labelled) = samples[cut].iter().fold((0usize, 0usize), |sum, sample| {
                (sum.0.saturating_add(sample.0), sum.1.saturating_add(sample.1))
            });
            (shape.rows, shape.labelled) = (shape.rows.max(rows), shape.labelled.max(labelled));
        }
        shape
    }
}

/// Values of a program that are named.
const LARGEST: usize = 64;

impl AdapterShape {
    /// The shape of an adapter.
    pub fn of(adapter: &Adapter) -> AdapterShape {
        AdapterShape { sites: adapter.pairs.iter().map(|pair| pair.site).collect(), rank: adapter.rank() }
    }
}

impl LearnerShape {
    /// The shape of an adapter.
    pub fn of(adapter: &Adapter) -> LearnerShape {
        let AdapterShape { sites, rank } = AdapterShape::of(adapter);
        LearnerShape { sites, rank }
    }
}

/// What an engine over `model` would hold at `work`. The backend is asked for sizes only.
///
/// # Errors
/// An adapter site that the model lacks, a graph that cannot be built, a size that the backend cannot tell.
pub fn account(
    model: &Model,
    options: &Options,
    work: &Workload,
    backend: &dyn Backend,
) -> Result<Account, EngineError> {
    check_sites(model, work)?;
    let programs = programs(model, options, work)?;
    let mut account = Account::default();
    weights(&mut account, &programs, backend)?;
    pages(&mut account, model, options, backend)?;
    arenas(&mut account, &programs, backend)?;
    adapters(&mut account, model, work, backend)?;
    learners(&mut account, model, work, backend)?;
    scratch(&mut account, &programs, backend)?;
    copies(&mut account, model, work);
    account.items.sort_by_key(|item| item.kind);
    Ok(account)
}

/// A graph that would be compiled.
struct Planned {
    name: String,
    arena: Arena,
    graph: Graph,
}

fn check_sites(model: &Model, work: &Workload) -> Result<(), EngineError> {
    let adapters = work.adapters.iter().map(|shape| &shape.sites);
    let learners = work.learners.iter().map(|shape| &shape.sites);
    let steps = work.steps.iter().map(|shape| &shape.sites);
    let limit = model.sites().len();
    match adapters.chain(learners).chain(steps).flatten().find(|site| **site >= limit) {
        Some(site) => Err(EngineError::Pair {
            site: site.to_string(),
            expected: format!("a site below {limit}"),
            found: site.to_string(),
        }),
        None => Ok(()),
    }
}

fn programs(model: &Model, options: &Options, work: &Workload) -> Result<Vec<Planned>, EngineError> {
    let mut programs = Vec::new();
    let mut sites: Vec<usize> = work.adapters.iter().flat_map(|shape| shape.sites.iter().copied()).collect();
    sites.sort_unstable();
    sites.dedup();
    let ranks = rank_rows(work.adapters.iter().map(|shape| shape.rank));
    let mut serving = Vec::new();
    if work.serving {
        serving.extend([(Want::Greedy, FEW), (Want::Logits, FEW), (Want::Logits, CHUNK)]);
    }
    if work.all_logits {
        serving.push((Want::Logits, ALL_LOGITS));
    }
    for (want, capacity) in serving {
        let request = serving_request(model, options, want, capacity, sites.clone(), ranks);
        let given = if want == Want::Greedy { "tokens" } else { "logits" };
        programs.push(Planned {
            name: format!("{} rows, {given} of {}", capacity.0, capacity.1),
            arena: Arena::Serving,
            graph: model.graph(&light(request))?,
        });
    }
    for step in &work.steps {
        let counts = StepCounts {
            rows: step.rows.min(LEARN_ROWS_MAX),
            labelled: step.labelled,
            sequences: step.sequences,
            page_entries: step.context_pages,
        };
        let request = learning_request(model, options, step.sites.clone(), step.rank, counts);
        programs.push(Planned {
            name: format!("step of {} rows, {} labelled", request.rows, request.head_rows),
            arena: Arena::Learning,
            graph: gradient_graph(model, &light(request))?,
        });
    }
    for learner in &work.learners {
        programs.push(Planned {
            name: format!("update of rank {}", learner.rank),
            arena: Arena::Learning,
            graph: update_graph(&trained(model, &learner.sites, learner.rank))?,
        });
    }
    Ok(programs)
}

/// The same request over pools of one page: no value of a run and no kernel depends on how many there are.
fn light(request: Request) -> Request {
    Request { cells: vec![PAGE_POSITIONS; request.cells.len()], ..request }
}

fn weights(account: &mut Account, programs: &[Planned], backend: &dyn Backend) -> Result<(), EngineError> {
    let mut all: BTreeMap<&str, &Type> = BTreeMap::new();
    for Planned { graph, .. } in programs {
        let weights = graph.bindings().iter().filter(|binding| binding.kind == BindingKind::Weight);
        all.extend(weights.map(|binding| (binding.name.as_str(), graph.ty(binding.value))));
    }
    for (name, ty) in all {
        let (held, copied) = (backend.need(Need::Weight(ty))?, backend.need(Need::Copied(ty))?);
        account.add(Kind::Weights, name, held.saturating_sub(copied));
        account.add(Kind::CopiedWeights, name, copied);
    }
    Ok(())
}

fn pages(
    account: &mut Account,
    model: &Model,
    options: &Options,
    backend: &dyn Backend,
) -> Result<(), EngineError> {
    let cells = options.pages().saturating_mul(PAGE_POSITIONS);
    for (layer, group) in
        (0..model.hyper().layers).map(|layer| (layer, &model.groups()[model.group_of(layer)]))
    {
        let pools = [(names::keys(layer), group.head_dim), (names::values(layer), group.value_dim)];
        for (name, width) in pools {
            let pool = Type::new(options.cache, [cells, group.kv_heads, width]);
            account.add(Kind::Pages, name, backend.need(Need::Store(&pool))?);
        }
    }
    Ok(())
}

fn arenas(account: &mut Account, programs: &[Planned], backend: &dyn Backend) -> Result<(), EngineError> {
    for (arena, kind) in [(Arena::Serving, Kind::ServingArena), (Arena::Learning, Kind::LearningArena)] {
        let mut peak = (0, "");
        for Planned { name, graph, .. } in programs.iter().filter(|program| program.arena == arena) {
            let bytes = backend.need(Need::Arena(graph))?;
            if bytes > peak.0 {
                peak = (bytes, name);
            }
            account.plans.push(PlanAccount { name: name.clone(), arena, bytes, largest: largest(graph) });
        }
        account.add(kind, peak.1, peak.0);
    }
    Ok(())
}

fn largest(graph: &Graph) -> Vec<PlannedValue> {
    let plan = plan(graph);
    let value = |(value, bytes): (ValueId, usize)| {
        let Origin::Node { node, output } = graph.values()[value.index()].origin else { return None };
        let node = &graph.nodes()[node.index()];
        Some(PlannedValue {
            site: node.site.clone(),
            output: output_name(&node.op, output),
            ty: graph.ty(value).clone(),
            bytes: bytes as u64,
        })
    };
    plan.largest(LARGEST).filter_map(value).collect()
}

fn output_name(op: &AnyOp, output: usize) -> String {
    format!("{}.{}", op.name(), op.outputs()[output])
}

fn adapters(
    account: &mut Account,
    model: &Model,
    work: &Workload,
    backend: &dyn Backend,
) -> Result<(), EngineError> {
    let ranks = rank_rows(work.adapters.iter().map(|shape| shape.rank));
    let mut sites: Vec<usize> = work.adapters.iter().flat_map(|shape| shape.sites.iter().copied()).collect();
    sites.sort_unstable();
    sites.dedup();
    for matrix in trained(model, &sites, ranks) {
        account.add(Kind::Adapters, matrix.name, backend.need(Need::Store(&matrix.ty))?);
    }
    Ok(())
}

fn learners(
    account: &mut Account,
    model: &Model,
    work: &Workload,
    backend: &dyn Backend,
) -> Result<(), EngineError> {
    for learner in &work.learners {
        let matrices = trained(model, &learner.sites, learner.rank);
        let mut stores: Vec<(String, usize)> =
            store_names(&matrices).into_iter().map(|(name, (matrix, _))| (name, matrix)).collect();
        stores.sort_unstable();
        for (name, matrix) in stores {
            account.add(Kind::Learners, name, backend.need(Need::Store(&matrices[matrix].ty))?);
        }
    }
    Ok(())
}

fn scratch(account: &mut Account, programs: &[Planned], backend: &dyn Backend) -> Result<(), EngineError> {
    let mut peak = (0, "");
    for Planned { name, graph, .. } in programs {
        let bytes = backend.need(Need::Scratch(graph))?;
        if bytes > peak.0 {
            peak = (bytes, name);
        }
    }
    account.add(Kind::Scratch, peak.1, peak.0);
    Ok(())
}

/// Logits of the largest batch on their way to the caller, and each adapter as it was given.
fn copies(account: &mut Account, model: &Model, work: &Workload) {
    let rows = match (work.all_logits, work.serving) {
        (true, _) => ALL_LOGITS.1,
        (false, true) => FEW.1,
        (false, false) => 0,
    };
    let float = size_of::<f32>() as u64;
    account.add(Kind::Copies, "logits", (rows as u64).saturating_mul(model.hyper().vocab as u64 * float));
    let adapters = work.adapters.iter().map(|shape| (&shape.sites, shape.rank));
    let shapes = adapters.chain(work.learners.iter().map(|shape| (&shape.sites, shape.rank)));
    let elements = shapes.map(|(sites, rank)| {
        let widths = sites.iter().map(|site| &model.sites()[*site]);
        widths.map(|site| (site.input + site.output) as u64).sum::<u64>().saturating_mul(rank as u64)
    });
    account.add(Kind::Copies, "adapters", elements.fold(0u64, u64::saturating_add).saturating_mul(float));
}
