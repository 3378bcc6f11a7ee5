//! Decoding of one sequence.

use crate::engine::{Engine, Named, Outputs, Run};
use crate::error::EngineError;
use crate::sampling::Sampling;
use crate::sequence::SequenceId;

impl Engine {
    /// Appends `prompt` to a sequence and then the token that `sampling` chooses, again and again: until `is_end` says that
    /// a token ends the reply (it is not returned, nor appended), `limit` tokens are out, or the context is full.
    /// `on_token` sees each token as it comes and stops by answering `false`.
    ///
    /// # Errors
    /// A setting of `sampling` out of its range, before anything runs; see [`Engine::greedy`] for the rest.
    #[allow(clippy::too_many_arguments, reason = "one call is one reply; two of them are closures")]
    pub fn generate(
        &mut self,
        sequence: SequenceId,
        prompt: &[u32],
        named: Named,
        limit: usize,
        sampling: &Sampling,
        is_end: impl Fn(u32) -> bool,
        mut on_token: impl FnMut(u32) -> bool,
    ) -> Result<Vec<u32>, EngineError> {
        sampling.check(self.model().hyper().vocab)?;
        let mut reply = Vec::new();
        let mut input = prompt.to_vec();
        while reply.len() < limit {
            let run = Run { sequence, tokens: &input, named, outputs: Outputs::Last };
            let token = if sampling.is_plain_greedy() {
                self.greedy(&[run])?[0]
            } else {
                let logits = self.logits(&[run])?;
                sampling.choose(&logits, self.tokens(sequence)?)
            };
            if is_end(token) {
                break;
            }
            reply.push(token);
            let full = self.tokens(sequence)?.len() >= self.options().context;
            if !on_token(token) || full {
                break;
            }
            input = vec![token];
        }
        Ok(reply)
    }
}
