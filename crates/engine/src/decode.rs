//! Greedy decoding of one sequence.

use crate::engine::{Engine, Named, Outputs, Run};
use crate::error::EngineError;
use crate::sequence::SequenceId;

impl Engine {
    /// Appends `prompt` to a sequence and then the most likely token, again and again: until `is_end` says that a token
    /// ends the reply (it is not returned, nor appended), `limit` tokens are out, or the context is full. `on_token` sees
    /// each token as it comes and stops by answering `false`.
    ///
    /// # Errors
    /// See [`Engine::greedy`].
    pub fn generate(
        &mut self,
        sequence: SequenceId,
        prompt: &[u32],
        named: Named,
        limit: usize,
        is_end: impl Fn(u32) -> bool,
        mut on_token: impl FnMut(u32) -> bool,
    ) -> Result<Vec<u32>, EngineError> {
        let mut reply = Vec::new();
        let mut input = prompt.to_vec();
        while reply.len() < limit {
            let run = Run { sequence, tokens: &input, named, outputs: Outputs::Last };
            let next = self.greedy(&[run])?;
            let Some(token) = next.first().copied().filter(|token| !is_end(*token)) else { break };
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
