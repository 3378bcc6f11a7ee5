//! The engine: sequences, loaded adapters, and ragged batches run over both.

use std::collections::HashMap;
use std::sync::Arc;

use apprentice_graph::{Backend, Element, Resident, StoreId, Type};
use apprentice_models::{Adapter, Model, Request, Want, names};

use crate::assemble::Piece;
use crate::bank::{AdapterId, Bank};
use crate::batch::{Answer, serving_arrays};
use crate::error::EngineError;
use crate::live::Lives;
use crate::options::{HEAD_ROWS, Options, PAGE_POSITIONS, ROWS_ALL_LOGITS, ROWS_CHUNK};
use crate::prefix::Cache;
use crate::program::{Program, Residents};
use crate::sampling::most_likely;
use crate::scheduler::Jobs;
use crate::sequence::{Sequence, SequenceId};
use crate::stats::Counts;

/// A model at work on a backend.
pub struct Engine {
    pub(crate) model: Model,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) options: Options,
    pub(crate) residents: Residents,
    pub(crate) programs: HashMap<Request, Program>,
    pub(crate) bank: Bank,
    pub(crate) cache: Cache,
    /// Stores of the pages of each layer group.
    pub(crate) group_pools: Vec<Vec<StoreId>>,
    pub(crate) sequences: HashMap<u32, Sequence>,
    next_sequence: u32,
    pub(crate) jobs: Jobs,
    pub(crate) lives: Lives,
    pub(crate) counts: Counts,
}

/// Rows of one sequence in a batch: the tokens that follow what it holds.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The sequence; stands once in a batch.
    pub sequence: SequenceId,
    /// Its next tokens, at least one.
    pub tokens: &'a [u32],
    /// Which adapter its rows name.
    pub named: Named,
    /// Which of its rows give an output.
    pub outputs: Outputs,
}

/// Which adapter the rows of a run name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// None.
    Nothing,
    /// Rows from this position of the sequence onwards name this adapter; earlier rows name none.
    From(usize, AdapterId),
}

/// Which rows of a run give an output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outputs {
    /// None.
    Nothing,
    /// The last.
    Last,
    /// All.
    All,
}

impl Engine {
    /// Puts `model` to work on `backend`. Page pools are made here; weights go to the backend on first use.
    ///
    /// # Errors
    /// Memory that the backend does not get, or a context of 0 positions.
    pub fn new(model: Model, mut backend: Box<dyn Backend>, options: Options) -> Result<Engine, EngineError> {
        if options.context == 0 || options.sequences == 0 {
            return Err(EngineError::Empty { what: "context or sequences" });
        }
        if !matches!(options.cache, Element::F32 | Element::F16 | Element::Q8_0) {
            return Err(EngineError::Setting {
                setting: "cache",
                expected: "f32, f16 or q8_0",
                found: options.cache.to_string(),
            });
        }
        let pages = options.pages();
        let limit = i32::MAX as usize / PAGE_POSITIONS;
        if pages > limit {
            return Err(EngineError::Limit { what: "pages", found: pages, limit });
        }
        let cells = pages * PAGE_POSITIONS;
        let mut residents = Residents::default();
        let mut group_pools = vec![Vec::new(); model.groups().len()];
        for (group, pools) in model.groups().iter().zip(&mut group_pools) {
            for layer in &group.layers {
                for (name, width) in
                    [(names::keys(*layer), group.head_dim), (names::values(*layer), group.value_dim)]
                {
                    let store =
                        backend.store(&name, &Type::new(options.cache, [cells, group.kv_heads, width]))?;
                    residents.pools.insert(name, store);
                    pools.push(store);
                }
            }
        }
        let windows = model.groups().iter().map(|group| group.window).collect();
        Ok(Engine {
            model,
            backend,
            options,
            residents,
            programs: HashMap::new(),
            bank: Bank::default(),
            cache: Cache::new(windows, pages),
            group_pools,
            sequences: HashMap::new(),
            next_sequence: 0,
            jobs: Jobs::default(),
            lives: Lives::default(),
            counts: Counts::default(),
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }
    /// What the engine was made for.
    pub fn options(&self) -> &Options {
        &self.options
    }
    /// Bytes that the backend holds.
    pub fn resident(&self) -> Resident {
        self.backend.resident()
    }

    /// Loads an adapter that rows may name.
    pub fn load_adapter(&mut self, adapter: Arc<Adapter>) -> Result<AdapterId, EngineError> {
        let id = self.bank.add(self.backend.as_mut(), &self.model, adapter)?;
        self.discard_stale();
        Ok(id)
    }
    /// Forgets an adapter, once no reply in progress names it. Pages that its rows wrote stay with their sequences.
    ///
    /// # Errors
    /// A handle that is not known; the newest generation of an adapter in training.
    pub fn unload_adapter(&mut self, id: AdapterId) -> Result<(), EngineError> {
        self.check_named(Named::From(0, id))?;
        if let Some((live, _)) = self.lives.entries.iter().find(|(_, live)| live.adapter == id) {
            return Err(EngineError::Busy { adapter: live.0 });
        }
        self.retire(id);
        Ok(())
    }
    /// The adapter behind a handle.
    pub fn adapter(&self, id: AdapterId) -> Result<&Arc<Adapter>, EngineError> {
        self.bank.adapter(id)
    }

    /// Opens an empty sequence.
    pub fn open_sequence(&mut self) -> SequenceId {
        self.next_sequence += 1;
        self.sequences.insert(self.next_sequence, Sequence::new(self.model.groups().len()));
        SequenceId(self.next_sequence)
    }
    /// Closes a sequence and gives its pages back.
    pub fn close_sequence(&mut self, id: SequenceId) -> Result<(), EngineError> {
        let mut sequence = self.sequences.remove(&id.0).ok_or(EngineError::Sequence(id.0))?;
        sequence.shrink(&mut self.cache, 0);
        Ok(())
    }
    /// Forgets everything past the first `length` tokens.
    pub fn truncate(&mut self, id: SequenceId, length: usize) -> Result<(), EngineError> {
        let sequence = self.sequences.get_mut(&id.0).ok_or(EngineError::Sequence(id.0))?;
        sequence.tokens.truncate(length);
        let keep = sequence.tokens.len().div_ceil(PAGE_POSITIONS);
        sequence.shrink(&mut self.cache, keep);
        Ok(())
    }
    /// A sequence over pages that are another's: it is removed, never closed.
    pub(crate) fn lend_sequence(&mut self, tokens: Vec<u32>, tables: Vec<Vec<i32>>) -> SequenceId {
        self.next_sequence += 1;
        self.sequences.insert(self.next_sequence, Sequence { tokens, tables });
        SequenceId(self.next_sequence)
    }
    /// The tokens of a sequence.
    pub fn tokens(&self, id: SequenceId) -> Result<&[u32], EngineError> {
        Ok(&self.sequence(id)?.tokens)
    }

    /// Gives up every page that is kept only for whoever may ask for the same rows.
    pub fn forget_cached(&mut self) {
        self.cache.forget();
    }

    /// Keys and values of a sequence as its pages hold them, layer by layer, keys before values, position by position.
    /// For checks: what learning must not change.
    pub fn page_contents(&self, id: SequenceId) -> Result<Vec<f32>, EngineError> {
        let sequence = self.sequence(id)?;
        let mut contents = Vec::new();
        for layer in 0..self.model.hyper().layers {
            let index = self.model.group_of(layer);
            let group = &self.model.groups()[index];
            for (name, width) in
                [(names::keys(layer), group.head_dim), (names::values(layer), group.value_dim)]
            {
                let store = self.residents.pools[&name];
                for position in 0..sequence.tokens.len() {
                    let mut cell = vec![0.0; group.kv_heads * width];
                    self.backend.read(store, sequence.cell(index, position) as usize, &mut cell)?;
                    contents.extend(cell);
                }
            }
        }
        Ok(contents)
    }

    /// Runs a batch and returns the logits of its output rows, `[outputs, vocab]`, run after run.
    ///
    /// A run longer than a batch is cut; the cut changes no byte.
    ///
    /// # Errors
    /// See [`Engine::greedy`]; a row whose logits are not finite, as an overflow of float16 pages makes it.
    pub fn logits(&mut self, runs: &[Run<'_>]) -> Result<Vec<f32>, EngineError> {
        let vocab = self.model.hyper().vocab;
        let mut all = Vec::new();
        self.run(runs, Want::Logits, |answer| {
            let Answer::Logits(logits) = answer else { return Ok(()) };
            let start = all.len();
            all.extend_from_slice(&logits);
            match logits.iter().position(|logit| !logit.is_finite()) {
                Some(at) => Err(EngineError::Logits { row: (start + at) / vocab }),
                None => Ok(()),
            }
        })?;
        Ok(all)
    }

    /// Runs a batch and returns the most likely token of each output row, run after run.
    ///
    /// # Errors
    /// A sequence that is not open or stands twice, a token outside the vocabulary, an adapter that is not loaded, more
    /// positions than the context has, too few free pages, an output row without a logit that is a number. Nothing has
    /// changed then.
    pub fn greedy(&mut self, runs: &[Run<'_>]) -> Result<Vec<u32>, EngineError> {
        let vocab = self.model.hyper().vocab;
        let mut tokens = Vec::new();
        self.run(runs, Want::Greedy, |answer| {
            match answer {
                Answer::Tokens(found) => tokens.extend(found),
                Answer::Logits(logits) => {
                    for row in logits.chunks_exact(vocab) {
                        let token = most_likely(row);
                        tokens.push(token.ok_or(EngineError::Logits { row: tokens.len() })?);
                    }
                }
            }
            Ok(())
        })?;
        Ok(tokens)
    }

    /// Gives back programs over adapter stores that are no more; plain programs stay.
    fn discard_stale(&mut self) {
        let (sites, rank_rows) = (self.bank.sites(), self.bank.rank_rows());
        let stale = |request: &Request| {
            !request.sites.is_empty() && (request.sites != sites || request.rank_rows != rank_rows)
        };
        for (_, program) in self.programs.extract_if(|request, _| stale(request)) {
            self.backend.discard(program.id);
        }
    }

    /// The open sequence behind a handle.
    pub(crate) fn sequence(&self, id: SequenceId) -> Result<&Sequence, EngineError> {
        self.sequences.get(&id.0).ok_or(EngineError::Sequence(id.0))
    }

    /// Checks a batch, gives its sequences pages and runs it in as many cuts as its rows need; all of it or, with an
    /// error, nothing.
    fn run(
        &mut self,
        runs: &[Run<'_>],
        want: Want,
        mut take: impl FnMut(Answer) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.check(runs)?;
        let before: Vec<(usize, usize)> = runs
            .iter()
            .map(|run| {
                let sequence = &self.sequences[&run.sequence.0];
                (sequence.tokens.len(), sequence.tables.first().map_or(0, Vec::len))
            })
            .collect();
        for run in runs {
            if let Some(sequence) = self.sequences.get_mut(&run.sequence.0) {
                let missing = sequence.missing(run.tokens.len());
                sequence.grow(&mut self.cache, missing);
            }
        }
        let result = cuts(runs, want).into_iter().try_for_each(|cut| self.run_cut(&cut, want, &mut take));
        if result.is_err() {
            for (run, (length, pages)) in runs.iter().zip(before) {
                if let Some(sequence) = self.sequences.get_mut(&run.sequence.0) {
                    sequence.tokens.truncate(length);
                    sequence.shrink(&mut self.cache, pages);
                }
            }
        }
        result
    }

    fn check(&self, runs: &[Run<'_>]) -> Result<(), EngineError> {
        if runs.is_empty() || runs.iter().any(|run| run.tokens.is_empty()) {
            return Err(EngineError::Empty { what: "tokens" });
        }
        let mut pages = 0;
        for (index, run) in runs.iter().enumerate() {
            let sequence = self.sequence(run.sequence)?;
            if runs[..index].iter().any(|earlier| earlier.sequence == run.sequence) {
                return Err(EngineError::SequenceTwice(run.sequence.0));
            }
            self.check_tokens(run.tokens)?;
            self.check_named(run.named)?;
            let (found, limit) =
                (sequence.tokens.len().saturating_add(run.tokens.len()), self.options.context);
            if found > limit {
                return Err(EngineError::Context { found, limit });
            }
            pages += sequence.missing(run.tokens.len());
        }
        let available =
            (0..self.cache.groups()).map(|group| self.unreserved(group)).min().unwrap_or(usize::MAX);
        if pages > available {
            return Err(EngineError::Limit { what: "pages", found: pages, limit: available });
        }
        Ok(())
    }

    pub(crate) fn check_tokens(&self, tokens: &[u32]) -> Result<(), EngineError> {
        let vocab = self.model.hyper().vocab;
        match tokens.iter().position(|token| *token as usize >= vocab) {
            Some(index) => Err(EngineError::Token { token: i64::from(tokens[index]), index, vocab }),
            None => Ok(()),
        }
    }

    fn run_cut(
        &mut self,
        runs: &[Run<'_>],
        want: Want,
        take: &mut impl FnMut(Answer) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let mut pieces = Vec::with_capacity(runs.len());
        for run in runs {
            let sequence = self.sequence(run.sequence)?;
            let first_position = sequence.tokens.len();
            let named = self.named_rows(run.named, first_position, run.tokens.len())?;
            let head = match run.outputs {
                Outputs::Nothing => Vec::new(),
                Outputs::Last => vec![run.tokens.len() - 1],
                Outputs::All => (0..run.tokens.len()).collect(),
            };
            pieces.push(Piece { tokens: run.tokens, first_position, tables: &sequence.tables, named, head });
        }
        let arrays = serving_arrays(&pieces, self.model.groups().len());
        take(self.execute(&arrays, want)?)?;
        for run in runs {
            if let Some(sequence) = self.sequences.get_mut(&run.sequence.0) {
                sequence.tokens.extend_from_slice(run.tokens);
            }
        }
        Ok(())
    }

    /// Index in the bank's tables of the adapter that each of `rows` rows from a position on names, or -1.
    pub(crate) fn named_rows(
        &self,
        named: Named,
        first_position: usize,
        rows: usize,
    ) -> Result<Vec<i32>, EngineError> {
        match named {
            Named::Nothing => Ok(vec![-1; rows]),
            Named::From(position, adapter) => {
                let index = self.bank.index(adapter)?;
                let row = |row: usize| if first_position + row >= position { index } else { -1 };
                Ok((0..rows).map(row).collect())
            }
        }
    }

    /// Pages of a group that no job is promised.
    pub(crate) fn unreserved(&self, group: usize) -> usize {
        self.cache.available(group).saturating_sub(self.jobs.reserved(group))
    }
}

/// Cuts runs into batches: rows in order, as many as fit. Runs with an output at every row are cut to slices of the head.
fn cuts<'a>(runs: &[Run<'a>], want: Want) -> Vec<Vec<Run<'a>>> {
    let heads: usize = runs
        .iter()
        .map(|run| match run.outputs {
            Outputs::Nothing => 0,
            Outputs::Last => 1,
            Outputs::All => run.tokens.len(),
        })
        .sum();
    debug_assert!(want != Want::Loss, "losses are learning's");
    let limit = if heads > HEAD_ROWS { ROWS_ALL_LOGITS } else { ROWS_CHUNK };
    let mut batches = vec![Vec::new()];
    let mut room = limit;
    for run in runs {
        let mut rest = *run;
        while rest.tokens.len() > room {
            if room > 0 {
                let (now, later) = rest.tokens.split_at(room);
                let outputs = if rest.outputs == Outputs::Last { Outputs::Nothing } else { rest.outputs };
                batches.last_mut().expect("there is a batch").push(Run { tokens: now, outputs, ..rest });
                rest.tokens = later;
            }
            batches.push(Vec::new());
            room = limit;
        }
        room -= rest.tokens.len();
        batches.last_mut().expect("there is a batch").push(rest);
    }
    batches.retain(|batch| !batch.is_empty());
    batches
}

/// Index of an output that the request asked for.
pub(crate) fn output_index(program: &Program, name: &str) -> usize {
    program.graph.output(name).map_or(usize::MAX, |(index, _)| index)
}
