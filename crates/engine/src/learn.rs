//! Learning: one optimiser step of an adapter on labelled spans, all or nothing.
//!
//! A step begins with the number of its labelled rows, sums gradients micro-batch after micro-batch, and ends with the
//! update: [`Engine::begin`], [`Engine::accumulate`], [`Engine::update_at`]. [`Engine::learn`] is the three in one call.
//! Sequences are only read: the context of a span is the constant pages of its sequence, and the span's own keys and values
//! never leave the run.

use std::collections::HashMap;

use apprentice_graph::{Arena, Bound, Extents, Graph, ProgramId, StoreId};
use apprentice_models::{Adapter, Pair, Request, names};

use crate::assemble::Arrays;
use crate::bank::check_pairs;
use crate::engine::{Engine, output_index};
use crate::error::EngineError;
use crate::learner::{Generation, Matrix, PairShape, Sums, store_names};
use crate::program::Program;
use crate::request::{StepCounts, learning_request};
use crate::update::{
    LIMIT, NEXT_SQUARES, SCALARS, SQUARES, Trained, gradient, gradient_graph, trained, update_graph,
};
use crate::workload::StepShape;

pub use crate::learner::{Learner, LearnerOptions};
pub use crate::spans::{MicroBatch, Span};

/// What the gradients summed so far say.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gradients {
    /// Weighted losses of the labelled rows divided by the labelled rows of the step, in nats: their mean once all rows
    /// are summed.
    pub loss: f64,
    /// Norm of all gradients, before clipping.
    pub norm: f64,
    /// Labelled rows.
    pub labelled: usize,
}

/// Losses without gradients.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Losses {
    /// Sum of weight times loss over the labelled rows, in nats.
    pub sum: f64,
    /// Labelled rows.
    pub labelled: usize,
}

impl Engine {
    /// Takes a copy of `adapter` into training.
    ///
    /// # Errors
    /// Pairs that do not fit the model; memory that the backend does not get.
    pub fn start_learner(
        &mut self,
        adapter: &Adapter,
        options: LearnerOptions,
    ) -> Result<Learner, EngineError> {
        check_pairs(&self.model, adapter)?;
        let rank_rows = adapter.rank();
        let sites: Vec<usize> = adapter.pairs.iter().map(|pair| pair.site).collect();
        let matrices = trained(&self.model, &sites, rank_rows);
        let mut made = Vec::new();
        let ready = self.fill_stores(adapter, &matrices, &mut made);
        let (stores, update) =
            ready.inspect_err(|_| made.into_iter().for_each(|store| self.backend.release(store)))?;
        let names = store_names(&matrices);
        Ok(Learner {
            tables: adapter.pairs.iter().map(|pair| [0, pair.rank as i32]).collect(),
            scales: adapter.pairs.iter().map(|pair| [pair.scale]).collect(),
            pairs: adapter
                .pairs
                .iter()
                .map(|pair| PairShape { site: pair.site, rank: pair.rank, scale: pair.scale })
                .collect(),
            rows: adapter.rows.clone(),
            rank_rows,
            matrices,
            stores,
            names,
            current: 0,
            summed: 0,
            programs: HashMap::new(),
            judges: HashMap::new(),
            update,
            options,
            steps: 0,
            powers: (1.0, 1.0),
            sums: None,
        })
    }

    /// Stores of the matrices with the adapter's values in the first generation, and the update program. `made` holds the
    /// stores that there are, also where a later one fails.
    fn fill_stores(
        &mut self,
        adapter: &Adapter,
        matrices: &[Trained],
        made: &mut Vec<StoreId>,
    ) -> Result<(Vec<Matrix>, (ProgramId, Graph)), EngineError> {
        let backend = self.backend.as_mut();
        let mut stores = Vec::new();
        for matrix in matrices {
            let mut store = || {
                let store = backend.store(&matrix.name, &matrix.ty)?;
                made.push(store);
                Ok::<_, EngineError>(store)
            };
            let gradients = [store()?, store()?];
            let mut generation = || {
                Ok::<_, EngineError>(Generation { parameter: store()?, moment: store()?, square: store()? })
            };
            let generations = [generation()?, generation()?];
            stores.push(Matrix { gradients, generations });
        }
        let names = store_names(matrices);
        for pair in &adapter.pairs {
            let site = &self.model.sites()[pair.site].name;
            for (name, values) in [(names::adapter_a(site), &pair.a), (names::adapter_b(site), &pair.b)] {
                backend.write(stores[names[&name].0].generations[0].parameter, 0, values)?;
            }
        }
        let update = update_graph(matrices)?;
        Ok((stores, (backend.compile(&update, Arena::Learning)?, update)))
    }

    /// Gives back what a learner holds.
    pub fn end_learner(&mut self, learner: Learner) {
        for store in learner.stores.iter().flat_map(Matrix::all) {
            self.backend.release(store);
        }
        for program in learner.programs.into_values().chain(learner.judges.into_values()) {
            self.backend.discard(program.id);
        }
        self.backend.discard(learner.update.0);
    }

    /// Begins a step whose spans have `labelled` labelled rows in all: the denominator of its mean. Gradients of an earlier
    /// step are forgotten.
    ///
    /// # Errors
    /// No labelled rows; those of the backend.
    pub fn begin(&mut self, learner: &mut Learner, labelled: usize) -> Result<(), EngineError> {
        if labelled == 0 {
            return Err(EngineError::Empty { what: "labels" });
        }
        learner.sums = None;
        let mut zeros = Vec::new();
        for (matrix, stores) in learner.matrices.iter().zip(&learner.stores) {
            zeros.resize(matrix.ty.shape.count().unwrap_or(0), 0.0);
            self.backend.write(stores.gradients[learner.summed], 0, &zeros)?;
        }
        learner.sums = Some(Sums { expected: labelled, labelled: 0, loss: 0.0, squares: 0.0 });
        Ok(())
    }

    /// Adds loss and gradients of spans to the sums of the step that was begun. Whether a step's spans come in one call or
    /// in several makes no difference to a byte.
    ///
    /// # Errors
    /// As [`Engine::gradients`]; no step, or more labelled rows than it was begun with. A loss or gradient that is not
    /// finite ends the step.
    pub fn accumulate(
        &mut self,
        learner: &mut Learner,
        spans: &[Span<'_>],
    ) -> Result<Gradients, EngineError> {
        let labelled = self.check_spans(spans)?;
        let sums = learner.sums.ok_or(EngineError::Empty { what: "step to learn in" })?;
        let found = sums.labelled + labelled;
        if found > sums.expected {
            let (what, expected) = ("labelled rows", sums.expected);
            return Err(EngineError::Length { what, expected, of: "the step", found });
        }
        let mut gradients = sums.gradients();
        for cut in self.micro_batches(spans, MicroBatch::default()) {
            let spans = &spans[cut];
            if spans.iter().any(|span| span.labelled() > 0) {
                let ready = self.prepare(learner, spans)?;
                self.run_prepared(learner, &ready, 0, u64::MAX)?;
                gradients = self.take_sums(learner, &ready)?;
            }
        }
        Ok(gradients)
    }

    /// Loss and gradients of the spans: the gradients stay with the learner until the next call.
    ///
    /// # Errors
    /// Spans that do not fit their sequences or hold no label, labels outside the vocabulary, too many rows in one span; a
    /// loss or gradient that is not finite, by the name of the first such tensor.
    pub fn gradients(&mut self, learner: &mut Learner, spans: &[Span<'_>]) -> Result<Gradients, EngineError> {
        let labelled = self.check_spans(spans)?;
        self.begin(learner, labelled)?;
        self.accumulate(learner, spans)
    }

    /// Takes the optimiser step of the gradients summed, at the learner's own rate.
    ///
    /// # Errors
    /// As [`Engine::update_at`].
    pub fn update(&mut self, learner: &mut Learner) -> Result<(), EngineError> {
        self.update_at(learner, learner.options.learning_rate)
    }

    /// Takes the optimiser step of the gradients summed.
    ///
    /// # Errors
    /// No gradients since the last step, or not those of all its rows; settings or a next generation that are not finite:
    /// it is not taken then.
    pub fn update_at(&mut self, learner: &mut Learner, learning_rate: f64) -> Result<(), EngineError> {
        let sums =
            learner.sums.filter(|sums| sums.labelled > 0).ok_or(EngineError::Empty { what: "gradients" })?;
        if sums.labelled != sums.expected {
            let (expected, found) = (sums.expected, sums.labelled);
            return Err(EngineError::Length { what: "labelled rows", expected, of: "the step", found });
        }
        let squares = [sums.squares];
        let options = LearnerOptions { learning_rate, ..learner.options };
        let powers = (learner.powers.0 * options.betas.0, learner.powers.1 * options.betas.1);
        let scalars = scalars(&options, powers);
        if let Some(scalar) = scalars.iter().find(|scalar| !scalar.is_finite()) {
            let expected = "settings that give finite float32 factors";
            return Err(EngineError::Setting { setting: "optimizer", expected, found: scalar.to_string() });
        }
        let limit = [options.clip_norm.map_or(f32::INFINITY, |norm| norm as f32)];
        let (program, graph) = &learner.update;
        let bindings = graph
            .bindings()
            .iter()
            .map(|binding| match binding.name.as_str() {
                SQUARES => Ok(Bound::F64(&squares)),
                LIMIT => Ok(Bound::F32(&limit)),
                SCALARS => Ok(Bound::F32(&scalars)),
                name => learner.store(name).map(Bound::Store).ok_or(EngineError::Empty { what: "store" }),
            })
            .collect::<Result<Vec<_>, _>>()?;
        self.backend.run(*program, &bindings, &Extents::default())?;
        let mut size = [0f64];
        let (index, _) = graph.output(NEXT_SQUARES).ok_or(EngineError::Empty { what: "output" })?;
        self.backend.output_f64(*program, index, &mut size)?;
        if !size[0].is_finite() {
            return Err(EngineError::NotFinite { tensor: "adapter after the step".to_owned() });
        }
        learner.current = 1 - learner.current;
        learner.powers = powers;
        learner.steps += 1;
        learner.sums = None;
        Ok(())
    }

    /// One step: [`Engine::gradients`], then [`Engine::update`].
    pub fn learn(&mut self, learner: &mut Learner, spans: &[Span<'_>]) -> Result<Gradients, EngineError> {
        let gradients = self.gradients(learner, spans)?;
        self.update(learner)?;
        Ok(gradients)
    }

    /// Losses of spans under the adapter as it stands. Sums of gradients stay as they are.
    ///
    /// # Errors
    /// As [`Engine::gradients`].
    pub fn losses(&mut self, learner: &mut Learner, spans: &[Span<'_>]) -> Result<Losses, EngineError> {
        self.losses_onto(learner, spans, 0.0)
    }

    /// The same, added to a sum so far: whether spans come in one call or in several makes no difference to a byte.
    ///
    /// # Errors
    /// As [`Engine::gradients`].
    pub fn losses_onto(
        &mut self,
        learner: &mut Learner,
        spans: &[Span<'_>],
        so_far: f64,
    ) -> Result<Losses, EngineError> {
        let labelled = self.check_spans(spans)?;
        let mut sum = so_far;
        for cut in self.micro_batches(spans, MicroBatch::default()) {
            let spans = &spans[cut];
            if spans.iter().all(|span| span.labelled() == 0) {
                continue;
            }
            let ready = self.prepare_judge(learner, spans, labelled)?;
            self.run_judge(learner, &ready, 0, u64::MAX)?;
            sum = self.take_losses(learner, &ready, sum)?;
        }
        Ok(Losses { sum, labelled })
    }

    /// Compiles the program of a step's gradients, and with `judged` that of losses alone, for micro-batches up to `shape`:
    /// smaller ones run in it too, so that no more memory is taken later.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn reserve_step(
        &mut self,
        learner: &mut Learner,
        shape: &StepShape,
        judged: bool,
    ) -> Result<(), EngineError> {
        let counts = StepCounts {
            rows: shape.rows,
            labelled: shape.labelled,
            sequences: shape.sequences,
            page_entries: shape.context_pages,
        };
        let request = self.request_of(learner, counts);
        if !learner.programs.contains_key(&request) {
            let graph = gradient_graph(&self.model, &request)?;
            let program = self.compile_learning(graph)?;
            learner.programs.insert(request.clone(), program);
        }
        if judged && !learner.judges.contains_key(&request) {
            let graph = self.model.graph(&request)?;
            let program = self.compile_learning(graph)?;
            learner.judges.insert(request, program);
        }
        Ok(())
    }

    /// The adapter as it stands after the steps taken.
    pub fn learnt(&self, learner: &Learner) -> Result<Adapter, EngineError> {
        let pairs = self.read_pairs(learner, |matrix| matrix.generations[learner.current].parameter)?;
        Ok(Adapter { pairs, rows: learner.rows.clone() })
    }

    /// The gradients summed, before clipping, in the shape of an adapter.
    pub fn read_gradients(&self, learner: &Learner) -> Result<Vec<Pair>, EngineError> {
        self.read_pairs(learner, |matrix| matrix.gradients[learner.summed])
    }

    fn read_pairs(
        &self,
        learner: &Learner,
        store: impl Fn(&Matrix) -> StoreId,
    ) -> Result<Vec<Pair>, EngineError> {
        let pairs = learner.pairs.iter().map(|pair| {
            let site = &self.model.sites()[pair.site];
            let read = |name: String, width: usize| {
                let mut values = vec![0.0; pair.rank * width];
                self.backend.read(store(&learner.stores[learner.names[&name].0]), 0, &mut values)?;
                Ok::<_, EngineError>(values)
            };
            let a = read(names::adapter_a(&site.name), site.input)?;
            let b = read(names::adapter_b(&site.name), site.output)?;
            Ok(Pair { site: pair.site, rank: pair.rank, scale: pair.scale, a, b })
        });
        pairs.collect()
    }
}

/// A micro-batch whose program is compiled.
pub(crate) struct Prepared {
    request: Request,
    arrays: Arrays,
    weights: Vec<f64>,
}

/// A micro-batch in three acts, between which others may run.
impl Engine {
    /// Puts its arrays together and compiles its program, where no larger one is there.
    pub(crate) fn prepare(
        &mut self,
        learner: &mut Learner,
        spans: &[Span<'_>],
    ) -> Result<Prepared, EngineError> {
        let sums = learner.sums.ok_or(EngineError::Empty { what: "step to learn in" })?;
        let (arrays, weights) = self.learning_arrays(spans, sums.expected as f64)?;
        let wanted = self.learning_request(learner, &arrays);
        let request = fitting(&learner.programs, &wanted).unwrap_or(wanted);
        if !learner.programs.contains_key(&request) {
            let graph = gradient_graph(&self.model, &request)?;
            let program = self.compile_learning(graph)?;
            learner.programs.insert(request.clone(), program);
        }
        Ok(Prepared { request, arrays, weights })
    }

    /// Runs it, or the part of it from a step on that takes about `limit` FLOPs: reads the sums so far and, with its last
    /// part, writes the next ones. `Some` says where the next part begins.
    pub(crate) fn run_prepared(
        &mut self,
        learner: &Learner,
        ready: &Prepared,
        from: usize,
        limit: u64,
    ) -> Result<Option<usize>, EngineError> {
        self.run_learning(learner, &learner.programs[&ready.request], &ready.arrays, from, limit)
    }

    /// Takes what the run gave, if all of it is finite.
    pub(crate) fn take_sums(
        &mut self,
        learner: &mut Learner,
        ready: &Prepared,
    ) -> Result<Gradients, EngineError> {
        // A step whose sums are not taken is over.
        let sums = learner.sums.take().ok_or(EngineError::Empty { what: "step to learn in" })?;
        let program = &learner.programs[&ready.request];
        let losses = self.read_losses(program, &ready.arrays)?;
        let mut squares = [0f64];
        self.backend.output_f64(program.id, output_index(program, SQUARES), &mut squares)?;
        let loss = weighted_loss(sums.loss, &losses, &ready.weights, &ready.arrays.labelled_blocks);
        if !loss.is_finite() {
            return Err(EngineError::NotFinite { tensor: "loss".to_owned() });
        }
        if !squares[0].is_finite() {
            return Err(EngineError::NotFinite { tensor: self.first_not_finite(learner)? });
        }
        learner.summed = 1 - learner.summed;
        let sums = Sums { labelled: sums.labelled + losses.len(), loss, squares: squares[0], ..sums };
        learner.sums = Some(sums);
        Ok(sums.gradients())
    }

    fn compile_learning(&mut self, graph: Graph) -> Result<Program, EngineError> {
        Program::new(self.backend.as_mut(), &self.model, &mut self.residents, graph, Arena::Learning)
    }

    /// As [`Engine::prepare`], for losses alone.
    pub(crate) fn prepare_judge(
        &mut self,
        learner: &mut Learner,
        spans: &[Span<'_>],
        labelled: usize,
    ) -> Result<Prepared, EngineError> {
        let (arrays, weights) = self.learning_arrays(spans, labelled as f64)?;
        let wanted = self.learning_request(learner, &arrays);
        let request = fitting(&learner.judges, &wanted).unwrap_or(wanted);
        if !learner.judges.contains_key(&request) {
            let graph = self.model.graph(&request)?;
            let program = self.compile_learning(graph)?;
            learner.judges.insert(request.clone(), program);
        }
        Ok(Prepared { request, arrays, weights })
    }

    /// As [`Engine::run_prepared`], for losses alone.
    pub(crate) fn run_judge(
        &mut self,
        learner: &Learner,
        ready: &Prepared,
        from: usize,
        limit: u64,
    ) -> Result<Option<usize>, EngineError> {
        self.run_learning(learner, &learner.judges[&ready.request], &ready.arrays, from, limit)
    }

    /// Adds the weighted losses of a run to the sum so far.
    pub(crate) fn take_losses(
        &self,
        learner: &Learner,
        ready: &Prepared,
        so_far: f64,
    ) -> Result<f64, EngineError> {
        let losses = self.read_losses(&learner.judges[&ready.request], &ready.arrays)?;
        let sum = weighted_loss(so_far, &losses, &ready.weights, &ready.arrays.labelled_blocks);
        match sum.is_finite() {
            true => Ok(sum),
            false => Err(EngineError::NotFinite { tensor: "loss".to_owned() }),
        }
    }

    fn run_learning(
        &mut self,
        learner: &Learner,
        program: &Program,
        arrays: &Arrays,
        from: usize,
        limit: u64,
    ) -> Result<Option<usize>, EngineError> {
        let site = |site: usize| learner.site(&self.model.sites()[site].name, site);
        let bindings = program.bind(arrays, site, |name| learner.store(name))?;
        Ok(self.backend.run_part(program.id, &bindings, &arrays.extents(1), from, limit)?)
    }

    fn read_losses(&self, program: &Program, arrays: &Arrays) -> Result<Vec<f64>, EngineError> {
        let mut losses = vec![0f64; arrays.head.len()];
        self.backend.output_f64(program.id, output_index(program, names::LOSS), &mut losses)?;
        Ok(losses)
    }

    fn learning_request(&self, learner: &Learner, arrays: &Arrays) -> Request {
        let counts = StepCounts {
            rows: arrays.tokens.len(),
            labelled: arrays.head.len(),
            sequences: arrays.sequences.len() / 4,
            page_entries: arrays.pages.first().map_or(0, Vec::len),
        };
        self.request_of(learner, counts)
    }

    fn request_of(&self, learner: &Learner, counts: StepCounts) -> Request {
        let sites = learner.pairs.iter().map(|pair| pair.site).collect();
        learning_request(&self.model, &self.options, sites, learner.rank_rows, counts)
    }

    fn first_not_finite(&self, learner: &Learner) -> Result<String, EngineError> {
        for (matrix, stores) in learner.matrices.iter().zip(&learner.stores) {
            let mut values = vec![0.0; matrix.ty.shape.count().unwrap_or(0)];
            self.backend.read(stores.gradients[1 - learner.summed], 0, &mut values)?;
            if values.iter().any(|value| !value.is_finite()) {
                return Ok(gradient(&matrix.name));
            }
        }
        Ok("norm of the gradients".to_owned())
    }
}

impl Sums {
    fn gradients(&self) -> Gradients {
        let loss = self.loss / self.expected as f64;
        Gradients { loss, norm: self.squares.sqrt(), labelled: self.labelled }
    }
}

/// The smallest request with a program that has room for `wanted`: what a program is made for is a capacity, and no byte
/// depends on it.
fn fitting(programs: &HashMap<Request, Program>, wanted: &Request) -> Option<Request> {
    let room = |request: &&Request| {
        request.rows >= wanted.rows
            && request.head_rows >= wanted.head_rows
            && request.sequences >= wanted.sequences
            && request.page_entries >= wanted.page_entries
            && **request
                == Request {
                    rows: request.rows,
                    head_rows: request.head_rows,
                    sequences: request.sequences,
                    page_entries: request.page_entries,
                    ..wanted.clone()
                }
    };
    let size =
        |request: &&Request| (request.rows, request.head_rows, request.sequences, request.page_entries);
    programs.keys().filter(room).min_by_key(size).cloned()
}

/// What AdamW takes, computed in float64 and rounded once; `powers` are `b1^t` and `b2^t`.
fn scalars(options: &LearnerOptions, powers: (f64, f64)) -> [f32; 8] {
    let (b1, b2) = options.betas;
    [
        options.learning_rate * options.weight_decay,
        b1,
        1.0 - b1,
        b2,
        1.0 - b2,
        options.learning_rate / (1.0 - powers.0),
        (1.0 - powers.1).sqrt(),
        options.eps,
    ]
    .map(|scalar| scalar as f32)
}

/// The sum of weight times loss in float64, onto the sum so far: a chain a block of labelled rows, blocks in the order of
/// their table.
fn weighted_loss(so_far: f64, losses: &[f64], weights: &[f64], blocks: &[i32]) -> f64 {
    let block = |entry: &[i32]| {
        let (first, rows) = (entry[0] as usize, entry[1] as usize);
        (first..first + rows).fold(0.0, |sum, row| sum + weights[row] * losses[row])
    };
    blocks.chunks_exact(2).fold(so_far, |total, entry| total + block(entry))
}
