//! One batch: its arrays, the program that they fit, and what its output rows say.

use apprentice_graph::Arena;
use apprentice_models::{Request, Want, names};

use crate::assemble::{Arrays, Piece, assemble};
use crate::engine::{Engine, output_index};
use crate::error::EngineError;
use crate::options::PAGE_POSITIONS;
use crate::program::{Program, SiteBinding};
use crate::request::{FEW, capacity, serving_request};

/// What the output rows of a batch gave.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The most likely token of each.
    Tokens(Vec<u32>),
    /// Their logits, `[outputs, vocab]`.
    Logits(Vec<f32>),
}

/// The arrays of pieces whose tables reach as far as their rows.
pub(crate) fn serving_arrays(pieces: &[Piece<'_>], groups: usize) -> Arrays {
    let mut arrays = assemble(pieces, groups);
    for piece in pieces {
        for (cells, table) in arrays.cells.iter_mut().zip(piece.tables) {
            let positions = piece.first_position..piece.first_position + piece.tokens.len();
            cells.extend(positions.map(|position| {
                table[position / PAGE_POSITIONS] * PAGE_POSITIONS as i32 + (position % PAGE_POSITIONS) as i32
            }));
        }
    }
    arrays
}

impl Engine {
    /// Runs a batch. Greedy answers come as tokens where rows are few, else as logits to choose from: a program less.
    ///
    /// # Errors
    /// Those of the backend; no page has changed then.
    pub(crate) fn execute(&mut self, arrays: &Arrays, want: Want) -> Result<Answer, EngineError> {
        let fits = capacity(arrays.tokens.len(), arrays.head.len());
        if want == Want::Greedy && fits == FEW {
            let tokens = self.run_greedy(arrays, fits)?;
            // The program answers 0 also for a row in which nothing is a number. To run it again writes the same.
            if !tokens.contains(&0) {
                return Ok(Answer::Tokens(tokens));
            }
        }
        let request = self.ready(Want::Logits, fits)?;
        self.run_program(&request, arrays)?;
        let program = &self.programs[&request];
        let mut logits = vec![0.0; arrays.head.len() * self.model.hyper().vocab];
        if !logits.is_empty() {
            self.backend.output_f32(program.id, output_index(program, names::LOGITS), &mut logits)?;
        }
        Ok(Answer::Logits(logits))
    }

    fn run_greedy(&mut self, arrays: &Arrays, fits: (usize, usize)) -> Result<Vec<u32>, EngineError> {
        let request = self.ready(Want::Greedy, fits)?;
        self.run_program(&request, arrays)?;
        let program = &self.programs[&request];
        let mut ids = vec![0f64; arrays.head.len()];
        if !ids.is_empty() {
            self.backend.output_f64(program.id, output_index(program, names::GREEDY), &mut ids)?;
        }
        Ok(ids.into_iter().map(|id| id as u32).collect())
    }

    /// The request of a batch, compiled.
    fn ready(&mut self, want: Want, fits: (usize, usize)) -> Result<Request, EngineError> {
        let (sites, rank_rows) = (self.bank.sites(), self.bank.rank_rows());
        let request = serving_request(&self.model, &self.options, want, fits, sites, rank_rows);
        if !self.programs.contains_key(&request) {
            let graph = self.model.graph(&request)?;
            let backend = self.backend.as_mut();
            let program = Program::new(backend, &self.model, &mut self.residents, graph, Arena::Serving)?;
            self.programs.insert(request.clone(), program);
            self.counts.compiled += 1;
        }
        Ok(request)
    }

    fn run_program(&mut self, request: &Request, arrays: &Arrays) -> Result<(), EngineError> {
        let program = &self.programs[request];
        let bank = &self.bank;
        let site = |site: usize| {
            let stores = bank.at(site)?;
            Some(SiteBinding { a: stores.a, b: stores.b, table: &stores.table, scales: &stores.scales })
        };
        let bindings = program.bind(arrays, site, |_| None)?;
        Ok(self.backend.run(program.id, &bindings, &arrays.extents(bank.count()))?)
    }
}
