//! A learner's state outside of the backend: what its next step depends on, besides its settings, value by value.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::learner::{Generation, Learner};

/// What the next step of a learner depends on. Taken out and put back it is the same to the byte.
#[derive(Clone, PartialEq, Debug)]
pub struct LearnerState {
    /// Every trained matrix, in the order of their names.
    pub matrices: Vec<MatrixState>,
    /// Optimiser steps taken.
    pub steps: u64,
    /// The decay rates of the moments to the power of the steps taken, as products.
    pub powers: (f64, f64),
}

/// One matrix, `[rank_rows, width]`: rows beyond a pair's own rank are zero.
#[derive(Clone, PartialEq, Debug)]
pub struct MatrixState {
    /// Its store, `blk.0.attn_q.weight.lora_a`.
    pub name: String,
    /// Values.
    pub parameter: Vec<f32>,
    /// First moments.
    pub moment: Vec<f32>,
    /// Second moments.
    pub square: Vec<f32>,
}

impl Engine {
    /// Takes a copy of a learner's state.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn learner_state(&self, learner: &Learner) -> Result<LearnerState, EngineError> {
        let matrices = learner.matrices.iter().zip(&learner.stores).map(|(matrix, stores)| {
            let read = |store| {
                let mut values = vec![0.0; matrix.ty.shape.count().unwrap_or(0)];
                self.backend.read(store, 0, &mut values)?;
                Ok::<_, EngineError>(values)
            };
            let Generation { parameter, moment, square } = stores.generations[learner.current];
            let (parameter, moment, square) = (read(parameter)?, read(moment)?, read(square)?);
            Ok(MatrixState { name: matrix.name.clone(), parameter, moment, square })
        });
        let matrices = matrices.collect::<Result<Vec<_>, EngineError>>()?;
        Ok(LearnerState { matrices, steps: learner.steps, powers: learner.powers })
    }

    /// Puts a learner where `state` was taken. Gradients that it holds are forgotten.
    ///
    /// # Errors
    /// A state of other matrices, or with values that are not finite; nothing has changed then.
    pub fn restore_learner(
        &mut self,
        learner: &mut Learner,
        state: &LearnerState,
    ) -> Result<(), EngineError> {
        check(learner, state)?;
        // Into the generation that does not count: it counts when all of it is there.
        for (values, stores) in state.matrices.iter().zip(&learner.stores) {
            let Generation { parameter, moment, square } = stores.generations[1 - learner.current];
            self.backend.write(parameter, 0, &values.parameter)?;
            self.backend.write(moment, 0, &values.moment)?;
            self.backend.write(square, 0, &values.square)?;
        }
        learner.current = 1 - learner.current;
        (learner.steps, learner.powers, learner.sums) = (state.steps, state.powers, None);
        Ok(())
    }
}

fn check(learner: &Learner, state: &LearnerState) -> Result<(), EngineError> {
    let lengths = (learner.matrices.len(), state.matrices.len());
    if lengths.0 != lengths.1 {
        let (expected, found) = lengths;
        return Err(EngineError::Length {
            what: "matrices of the state",
            expected,
            of: "the learner",
            found,
        });
    }
    for (matrix, values) in learner.matrices.iter().zip(&state.matrices) {
        let count = matrix.ty.shape.count().unwrap_or(0);
        let parts = [&values.parameter, &values.moment, &values.square];
        if matrix.name != values.name || parts.iter().any(|part| part.len() != count) {
            return Err(EngineError::Pair {
                site: matrix.name.clone(),
                expected: format!("{count} values of {:?}", matrix.name),
                found: format!("{} of {:?}", values.parameter.len(), values.name),
            });
        }
        if parts.iter().any(|part| part.iter().any(|value| !value.is_finite())) {
            return Err(EngineError::NotFinite { tensor: matrix.name.clone() });
        }
    }
    let powers = [state.powers.0, state.powers.1];
    if powers.iter().any(|power| !(0.0..=1.0).contains(power)) {
        let found = format!("{powers:?}");
        return Err(EngineError::Setting { setting: "powers", expected: "numbers from 0 to 1", found });
    }
    Ok(())
}
