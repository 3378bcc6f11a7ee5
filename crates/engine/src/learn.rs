//! Learning: one optimiser step of an adapter on labelled spans, all or nothing.
//!
//! A learner holds two generations of its matrices and moments. A step reads one and writes the other; swapping which is
//! which is the commit. Sequences are only read: the context of a span is the constant pages of its sequence, and the
//! span's own keys and values never leave the run.

use std::collections::HashMap;

use apprentice_graph::{Arena, Bound, Extents, Graph, ProgramId, StoreId};
use apprentice_models::{Adapter, AdapterRows, Pair, Request, names};

use crate::assemble::{Arrays, Piece, assemble};
use crate::bank::check_pairs;
use crate::engine::{Engine, output_index};
use crate::error::EngineError;
use crate::options::{LEARN_ROWS_MAX, LOGITS_BYTES_MAX};
use crate::program::{Program, SiteBinding};
use crate::request::{StepCounts, learning_request};
use crate::sequence::SequenceId;
use crate::update::{
    LIMIT, NEXT_SQUARES, SCALARS, SQUARES, Trained, UpdateNames, gradient, gradient_graph, trained,
    update_graph,
};

/// Settings of AdamW and clipping. Defaults are PyTorch's, with a learning rate that LoRA takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearnerOptions {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay rates of the moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Norm that gradients are clipped to; `None`: not clipped.
    pub clip_norm: Option<f64>,
}

impl Default for LearnerOptions {
    fn default() -> LearnerOptions {
        LearnerOptions {
            learning_rate: 2e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.01,
            clip_norm: Some(1.0),
        }
    }
}

/// Rows to learn from: consecutive positions of one sequence, all of them on the adapter in training.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The sequence whose pages hold every position before `first_position`, as served; `None` where there are none.
    pub context: Option<SequenceId>,
    /// Position of the first row. For a reply in positions `[p0, p1)` that is `p0 - 1`.
    pub first_position: usize,
    /// Token of each row.
    pub tokens: &'a [u32],
    /// The token that each row should predict, or -1.
    pub labels: &'a [i32],
    /// Weight of each row; `None`: 1.
    pub weights: Option<&'a [f32]>,
}

/// What one gradient gave.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gradients {
    /// Mean loss over the labelled rows, in nats.
    pub loss: f64,
    /// Norm of all gradients, before clipping.
    pub norm: f64,
    /// Labelled rows.
    pub labelled: usize,
}

/// An adapter in training.
pub struct Learner {
    pairs: Vec<PairShape>,
    rows: AdapterRows,
    rank_rows: usize,
    matrices: Vec<Trained>,
    /// Stores of each matrix, in the order of `matrices`.
    stores: Vec<Matrix>,
    /// What every store is called in the graphs: the matrix that it belongs to and which of its stores it is.
    names: HashMap<String, (usize, Part)>,
    current: usize,
    programs: HashMap<Request, Program>,
    update: (ProgramId, Graph),
    tables: Vec<[i32; 2]>,
    scales: Vec<[f32; 1]>,
    options: LearnerOptions,
    steps: u64,
    powers: (f64, f64),
    squares: Option<f64>,
}

struct PairShape {
    site: usize,
    rank: usize,
    scale: f32,
}

/// Stores of one trained matrix.
struct Matrix {
    gradient: StoreId,
    generations: [Generation; 2],
}

/// Which store of a matrix.
#[derive(Clone, Copy)]
enum Part {
    Parameter,
    Gradient,
    Moment,
    Square,
    Next,
    NextMoment,
    NextSquare,
}

#[derive(Clone, Copy)]
struct Generation {
    parameter: StoreId,
    moment: StoreId,
    square: StoreId,
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
            programs: HashMap::new(),
            update,
            options,
            steps: 0,
            powers: (1.0, 1.0),
            squares: None,
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
            let gradient = store()?;
            let mut generation = || {
                Ok::<_, EngineError>(Generation { parameter: store()?, moment: store()?, square: store()? })
            };
            let generations = [generation()?, generation()?];
            stores.push(Matrix { gradient, generations });
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
        for matrix in learner.stores {
            self.backend.release(matrix.gradient);
            for generation in matrix.generations {
                self.backend.release(generation.parameter);
                self.backend.release(generation.moment);
                self.backend.release(generation.square);
            }
        }
        for program in learner.programs.into_values() {
            self.backend.discard(program.id);
        }
        self.backend.discard(learner.update.0);
    }

    /// Loss and gradients of the spans: the gradients stay with the learner until the next call.
    ///
    /// # Errors
    /// Spans that do not fit their sequences or hold no label, labels outside the vocabulary, too many rows; a loss or
    /// gradient that is not finite, by the name of the first such tensor.
    pub fn gradients(&mut self, learner: &mut Learner, spans: &[Span<'_>]) -> Result<Gradients, EngineError> {
        self.check_spans(spans)?;
        let (arrays, weights, denominator) = self.learning_arrays(spans)?;
        let request = self.learning_request(learner, &arrays);
        if !learner.programs.contains_key(&request) {
            let graph = gradient_graph(&self.model, &request)?;
            let backend = self.backend.as_mut();
            let program = Program::new(backend, &self.model, &mut self.residents, graph, Arena::Learning)?;
            learner.programs.insert(request.clone(), program);
        }
        learner.squares = None; // from here on the stores may hold other gradients
        let program = &learner.programs[&request];
        let bindings = program.bind(
            &arrays,
            |site| learner.site(&self.model.sites()[site].name, site),
            |name| learner.store(name),
        )?;
        self.backend.run(program.id, &bindings, &arrays.extents(1))?;
        let mut losses = vec![0f64; arrays.head.len()];
        self.backend.output_f64(program.id, output_index(program, names::LOSS), &mut losses)?;
        let mut squares = [0f64];
        self.backend.output_f64(program.id, output_index(program, SQUARES), &mut squares)?;
        let loss = weighted_loss(&losses, &weights, &arrays.labelled_blocks) / denominator;
        if !loss.is_finite() {
            return Err(EngineError::NotFinite { tensor: "loss".to_owned() });
        }
        if !squares[0].is_finite() {
            return Err(EngineError::NotFinite { tensor: self.first_not_finite(learner)? });
        }
        learner.squares = Some(squares[0]);
        Ok(Gradients { loss, norm: squares[0].sqrt(), labelled: losses.len() })
    }

    /// Takes the optimiser step of the last [`Engine::gradients`].
    ///
    /// # Errors
    /// No gradients since the last step; settings or a next generation that are not finite: it is not taken then.
    pub fn update(&mut self, learner: &mut Learner) -> Result<(), EngineError> {
        let squares = [learner.squares.ok_or(EngineError::Empty { what: "gradients" })?];
        let options = learner.options;
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
        learner.squares = None;
        Ok(())
    }

    /// One step: [`Engine::gradients`], then [`Engine::update`].
    pub fn learn(&mut self, learner: &mut Learner, spans: &[Span<'_>]) -> Result<Gradients, EngineError> {
        let gradients = self.gradients(learner, spans)?;
        self.update(learner)?;
        Ok(gradients)
    }

    /// The adapter as it stands after the steps taken.
    pub fn learnt(&self, learner: &Learner) -> Result<Adapter, EngineError> {
        let pairs = self.read_pairs(learner, |matrix| matrix.generations[learner.current].parameter)?;
        Ok(Adapter { pairs, rows: learner.rows.clone() })
    }

    /// The gradients of the last [`Engine::gradients`], before clipping, in the shape of an adapter.
    pub fn read_gradients(&self, learner: &Learner) -> Result<Vec<Pair>, EngineError> {
        self.read_pairs(learner, |matrix| matrix.gradient)
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

    fn check_spans(&self, spans: &[Span<'_>]) -> Result<(), EngineError> {
        if spans.is_empty() {
            return Err(EngineError::Empty { what: "spans" });
        }
        let vocab = self.model.hyper().vocab;
        let (mut rows, mut labelled) = (0usize, 0);
        for span in spans {
            let position = span.first_position;
            let lengths = [("labels", Some(span.labels.len())), ("weights", span.weights.map(<[f32]>::len))];
            for (what, found) in lengths {
                if let Some(found) = found.filter(|found| *found != span.tokens.len()) {
                    return Err(EngineError::Length {
                        what,
                        expected: span.tokens.len(),
                        of: "tokens",
                        found,
                    });
                }
            }
            if span.tokens.is_empty() {
                return Err(EngineError::Span { position, reason: "it has no rows" });
            }
            self.check_tokens(span.tokens)?;
            let held =
                span.context.map_or(Ok(0), |id| self.sequence(id).map(|sequence| sequence.tokens.len()))?;
            if position > held {
                return Err(EngineError::Span {
                    position,
                    reason: "its context is not in the sequence's pages",
                });
            }
            let (found, limit) = (position.saturating_add(span.tokens.len()), self.options.context);
            if found > limit {
                return Err(EngineError::Context { found, limit });
            }
            for (index, label) in span.labels.iter().enumerate() {
                if *label < -1 || usize::try_from(*label).is_ok_and(|label| label >= vocab) {
                    return Err(EngineError::Token { token: i64::from(*label), index, vocab });
                }
            }
            if let Some(index) = span.weights.and_then(|weights| weights.iter().position(|w| !w.is_finite()))
            {
                return Err(EngineError::NotFinite { tensor: format!("weight of row {index}") });
            }
            rows += span.tokens.len();
            labelled += span.labels.iter().filter(|label| **label >= 0).count();
        }
        if labelled == 0 {
            return Err(EngineError::Empty { what: "labels" });
        }
        let logits = labelled.saturating_mul(vocab).saturating_mul(size_of::<f32>());
        if logits > LOGITS_BYTES_MAX {
            return Err(EngineError::Limit {
                what: "bytes of logits",
                found: logits,
                limit: LOGITS_BYTES_MAX,
            });
        }
        if rows > LEARN_ROWS_MAX {
            return Err(EngineError::Limit {
                what: "rows of a learning step",
                found: rows,
                limit: LEARN_ROWS_MAX,
            });
        }
        Ok(())
    }

    /// The arrays of the spans, the weight of each labelled row, and the denominator of the mean.
    fn learning_arrays(&self, spans: &[Span<'_>]) -> Result<(Arrays, Vec<f64>, f64), EngineError> {
        let mut pieces = Vec::with_capacity(spans.len());
        let (mut labels, mut weights) = (Vec::new(), Vec::new());
        for span in spans {
            let head: Vec<usize> = (0..span.labels.len()).filter(|row| span.labels[*row] >= 0).collect();
            labels.extend(head.iter().map(|row| span.labels[*row]));
            weights
                .extend(head.iter().map(|row| span.weights.map_or(1.0, |weights| f64::from(weights[*row]))));
            let tables = match span.context {
                Some(id) => self.sequence(id)?.tables.as_slice(),
                None => &[],
            };
            let named = vec![0; span.tokens.len()];
            pieces.push(Piece {
                tokens: span.tokens,
                first_position: span.first_position,
                tables,
                named,
                head,
            });
        }
        let mut arrays = assemble(&pieces, self.model.groups().len());
        let denominator = weights.len() as f64;
        arrays.labels = labels;
        arrays.factors = weights.iter().map(|weight| (weight / denominator) as f32).collect();
        Ok((arrays, weights, denominator))
    }

    fn learning_request(&self, learner: &Learner, arrays: &Arrays) -> Request {
        let sites = learner.pairs.iter().map(|pair| pair.site).collect();
        let counts = StepCounts {
            rows: arrays.tokens.len(),
            labelled: arrays.head.len(),
            sequences: arrays.sequences.len() / 4,
            page_entries: arrays.pages.first().map_or(0, Vec::len),
        };
        learning_request(&self.model, &self.options, sites, learner.rank_rows, counts)
    }

    fn first_not_finite(&self, learner: &Learner) -> Result<String, EngineError> {
        for (matrix, stores) in learner.matrices.iter().zip(&learner.stores) {
            let mut values = vec![0.0; matrix.ty.shape.count().unwrap_or(0)];
            self.backend.read(stores.gradient, 0, &mut values)?;
            if values.iter().any(|value| !value.is_finite()) {
                return Ok(gradient(&matrix.name));
            }
        }
        Ok("norm of the gradients".to_owned())
    }
}

impl Learner {
    /// Optimiser steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    fn site(&self, name: &str, site: usize) -> Option<SiteBinding<'_>> {
        let index = self.pairs.iter().position(|pair| pair.site == site)?;
        Some(SiteBinding {
            a: self.store(&names::adapter_a(name))?,
            b: self.store(&names::adapter_b(name))?,
            table: &self.tables[index],
            scales: &self.scales[index],
        })
    }

    /// The store behind a name of the learner's graphs.
    fn store(&self, name: &str) -> Option<StoreId> {
        let (matrix, part) = *self.names.get(name)?;
        let stores = &self.stores[matrix];
        let (now, next) = (stores.generations[self.current], stores.generations[1 - self.current]);
        Some(match part {
            Part::Gradient => stores.gradient,
            Part::Parameter => now.parameter,
            Part::Moment => now.moment,
            Part::Square => now.square,
            Part::Next => next.parameter,
            Part::NextMoment => next.moment,
            Part::NextSquare => next.square,
        })
    }
}

fn store_names(matrices: &[Trained]) -> HashMap<String, (usize, Part)> {
    let names = matrices.iter().enumerate().flat_map(|(index, matrix)| {
        let at = UpdateNames::new(&matrix.name);
        [
            (matrix.name.clone(), Part::Parameter),
            (gradient(&matrix.name), Part::Gradient),
            (at.moment, Part::Moment),
            (at.square, Part::Square),
            (at.next, Part::Next),
            (at.next_moment, Part::NextMoment),
            (at.next_square, Part::NextSquare),
        ]
        .map(|(name, part)| (name, (index, part)))
    });
    names.collect()
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

/// The sum of weight times loss in float64: a chain a block of labelled rows, blocks in the order of their table.
fn weighted_loss(losses: &[f64], weights: &[f64], blocks: &[i32]) -> f64 {
    let block = |entry: &[i32]| {
        let (first, rows) = (entry[0] as usize, entry[1] as usize);
        (first..first + rows).fold(0.0, |sum, row| sum + weights[row] * losses[row])
    };
    blocks.chunks_exact(2).fold(0.0, |total, entry| total + block(entry))
}
