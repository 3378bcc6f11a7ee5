//! A sample: what a record is as tokens, labels, and the rows that are learnt from.
//!
//! Row `i` predicts token `i + 1`. A reply in positions `[p0, p1)` is predicted by the rows `p0-1` to `p1-2`. Under `all` a
//! sample is one span from its first row to its last labelled one; later rows change nothing. Under `reply` each reply is a
//! span of its own rows.

use std::ops::Range;

use apprentice_engine::{MicroBatch, Objective};
use apprentice_text::{Conversation, EncodeOptions, Text};

use crate::error::LineError;
use crate::record::Record;

/// What is learnt from one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Line of the file, from 1.
    pub line: usize,
    /// Tokens, from the first to the last that a span needs.
    pub tokens: Vec<u32>,
    /// For each row the token that it should predict, or -1.
    pub labels: Vec<i32>,
    /// Rows of each span, ascending.
    pub spans: Vec<Range<usize>>,
}

/// What a sample is made by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SampleRules {
    /// Which gradient is taken.
    pub objective: Objective,
    /// Tokens that a sample may have.
    pub context: usize,
    /// The time that a chat template may write, in seconds since 1970-01-01 UTC.
    pub unix_seconds: u64,
}

impl Sample {
    /// The sample of a line's record.
    pub(crate) fn new(
        text: &Text,
        rules: &SampleRules,
        line: usize,
        record: Record,
    ) -> Result<Sample, LineError> {
        let (tokens, replies) = match record {
            Record::Conversation { messages, learnt } => conversation(text, rules, messages, &learnt)?,
            Record::Completion { prompt, completion } => text_and_more(text, &prompt, &completion)?,
        };
        let (found, limit) = (tokens.len(), rules.context);
        if found > limit {
            return Err(LineError::Context { found, limit });
        }
        let sample = labelled(line, tokens, &replies, rules.objective);
        check_spans(&sample, text.vocab())?;
        Ok(sample)
    }

    /// Rows that are learnt from, all spans together.
    pub fn rows(&self) -> usize {
        self.spans.iter().map(Range::len).sum()
    }

    /// Rows with a label.
    pub fn labelled(&self) -> usize {
        self.spans.iter().map(|rows| labels(&self.labels[rows.clone()])).sum()
    }

    /// Positions before the last span: what its context's pages hold.
    pub fn context(&self) -> usize {
        self.spans.last().map_or(0, |rows| rows.start)
    }
}

fn labels(rows: &[i32]) -> usize {
    rows.iter().filter(|label| **label >= 0).count()
}

/// Tokens of a conversation and the runs of the replies that are learnt.
fn conversation(
    text: &Text,
    rules: &SampleRules,
    messages: Vec<apprentice_text::Message>,
    learnt: &[bool],
) -> Result<(Vec<u32>, Vec<Range<usize>>), LineError> {
    if !learnt.contains(&true) {
        return Err(LineError::Masked { reason: "every message of the assistant has the weight 0" });
    }
    let conversation = Conversation { messages, unix_seconds: Some(rules.unix_seconds) };
    let encoded = text.conversation(&conversation)?;
    if encoded.replies.is_empty() {
        return Err(LineError::Masked { reason: "the template's generation blocks hold nothing" });
    }
    if learnt.contains(&false) && encoded.replies.len() != learnt.len() {
        // Which block belongs to which message is not known then.
        return Err(LineError::Unsupported {
            place: "weight with this template's generation blocks".to_owned(),
        });
    }
    let wanted = |index: usize| learnt.get(index).copied().unwrap_or(true);
    let replies = encoded.replies.iter().enumerate().filter(|(index, _)| wanted(*index));
    let replies = replies.map(|(_, reply)| reply.clone()).collect();
    Ok((encoded.tokens, replies))
}

/// Tokens of a text and what follows it, and of the token that ends it. The prompt's tokens are those that it has when it
/// stands alone, as it is served.
fn text_and_more(
    text: &Text,
    prompt: &str,
    completion: &str,
) -> Result<(Vec<u32>, Vec<Range<usize>>), LineError> {
    if completion.is_empty() {
        return Err(LineError::Masked { reason: "the completion is empty" });
    }
    let options = EncodeOptions { special: true, bos: true };
    let asked = text.encode(prompt, options);
    let mut tokens = text.encode(&format!("{prompt}{completion}"), options);
    let same = asked.iter().zip(&tokens).take_while(|(left, right)| left == right).count();
    if same < asked.len() {
        return Err(LineError::Border { position: same });
    }
    if asked.is_empty() {
        return Err(LineError::AtStart);
    }
    let end = text.eos().or_else(|| text.end_ids().first().copied()).ok_or(LineError::NoEnd)?;
    if tokens.last() != Some(&end) {
        tokens.push(end);
    }
    let reply = asked.len()..tokens.len();
    Ok((tokens, vec![reply]))
}

fn labelled(line: usize, mut tokens: Vec<u32>, replies: &[Range<usize>], objective: Objective) -> Sample {
    let mut labels = vec![-1; tokens.len()];
    for reply in replies {
        for position in reply.clone() {
            // A vocabulary's ids are below 2^31: the tokeniser's tables are int32 in the file.
            labels[position - 1] = tokens[position] as i32;
        }
    }
    let rows = replies.last().map_or(0, |reply| reply.end - 1);
    tokens.truncate(rows);
    labels.truncate(rows);
    let spans = match objective {
        Objective::All => std::iter::once(0..rows).collect(),
        Objective::Reply => replies.iter().map(|reply| reply.start - 1..reply.end - 1).collect(),
    };
    Sample { line, tokens, labels, spans }
}

fn check_spans(sample: &Sample, vocab: usize) -> Result<(), LineError> {
    let limit = MicroBatch::default();
    for rows in &sample.spans {
        let labelled = labels(&sample.labels[rows.clone()]);
        let bytes = labelled.saturating_mul(vocab).saturating_mul(size_of::<f32>());
        for (what, found, limit) in
            [("rows", rows.len(), limit.rows), ("bytes of logits", bytes, limit.logits_bytes)]
        {
            if found > limit {
                return Err(LineError::Span { what, found, limit });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn check(objective: Objective, replies: &[Range<usize>], labels: &[i32], spans: &[Range<usize>]) {
        let sample = labelled(1, (10..20).collect(), replies, objective);
        assert_eq!(sample.labels, labels);
        assert_eq!(sample.spans, spans);
        assert_eq!(sample.tokens.len(), labels.len());
        assert_eq!(sample.labelled(), labels.iter().filter(|label| **label >= 0).count());
    }

    #[test]
    fn a_row_predicts_the_next_token() {
        let (reply, labels) = (3..5, [-1, -1, 13, 14]);
        check(Objective::All, slice::from_ref(&reply), &labels, slice::from_ref(&(0..4)));
        check(Objective::Reply, slice::from_ref(&reply), &labels, slice::from_ref(&(2..4)));
    }

    #[test]
    fn every_reply_is_a_span_of_its_own() {
        let labels = [11, -1, -1, 14, 15, -1, -1, -1, 19];
        check(Objective::All, &[1..2, 4..6, 9..10], &labels, slice::from_ref(&(0..9)));
        check(Objective::Reply, &[1..2, 4..6, 9..10], &labels, &[0..1, 3..5, 8..9]);
    }
}
