//! Where the replies of a conversation lie in its tokens, and the tokens of a reply that is put in place of another.
//!
//! A run of tokens is a reply only if it was asked for by exactly the tokens that stand before it. So the conversation
//! is written up to each reply, as a prompt and with the reply, and both must be prefixes of the whole, as text and as
//! tokens. A template that strips a reply's thoughts once the next question is there does not pass; neither does a
//! reply whose first character becomes one token with what stands before it.

use std::ops::Range;

use crate::conversation::{ASSISTANT, EncodedConversation, EncodedReply, Message};
use crate::error::TextError;
use crate::template::Template;

const PROMPT: &str = "the prompt before this reply";
const CLOSED: &str = "the conversation up to this reply";
const BLOCK_START: &str = "the text before this reply's generation block";
const BLOCK_END: &str = "the text up to the end of this reply's generation block";

/// Characters of a line that an error shows before the place where two texts differ, and from there on.
const SHOWN_BEFORE: usize = 40;
const SHOWN_AFTER: usize = 40;

/// What the runs of replies are found with: the template, and text as tokens.
pub(crate) struct Replies<'a, E> {
    pub(crate) template: &'a Template,
    /// The time that the template may write.
    pub(crate) unix_seconds: u64,
    /// The ids of what the template has written.
    pub(crate) encode: E,
    /// Ids that end a reply, ascending.
    pub(crate) ends: &'a [u32],
}

/// Bytes of a text that generation blocks wrote.
type Blocks = Vec<Range<usize>>;

/// What the template has written.
struct Rendered {
    text: String,
    tokens: Vec<u32>,
}

impl<E: Fn(&str) -> Vec<u32>> Replies<'_, E> {
    /// The tokens of a whole conversation and the runs of its replies.
    pub(crate) fn all(&self, messages: &[Message]) -> Result<EncodedConversation, TextError> {
        let (whole, blocks) = self.whole(messages)?;
        let mut replies = Vec::new();
        for message in (0..messages.len()).filter(|index| messages[*index].role == ASSISTANT) {
            let prompt = self.render(&messages[..message], true)?;
            let closed = self.render(&messages[..=message], false)?;
            whole.begins_with(&prompt, message, PROMPT)?;
            whole.begins_with(&closed, message, CLOSED)?;
            match &blocks {
                None => replies.push(self.run(message, &closed.tokens, prompt.tokens.len())?),
                Some(blocks) => {
                    let own = |block: &&Range<usize>| {
                        block.end > prompt.text.len() && block.end <= closed.text.len()
                    };
                    for block in blocks.iter().filter(own) {
                        let start = self.cut(&whole, block.start, message, BLOCK_START)?;
                        let end = self.cut(&whole, block.end, message, BLOCK_END)?;
                        let start = start.max(prompt.tokens.len()); // what was in the prompt is not answered
                        replies.push(self.run(message, &whole.tokens[..end], start)?);
                    }
                }
            }
        }
        Ok(EncodedConversation { tokens: whole.tokens, replies })
    }

    /// The tokens of `messages` as a prompt, and of `reply` as its reply.
    pub(crate) fn one(&self, messages: &[Message], reply: &str) -> Result<EncodedReply, TextError> {
        let message = messages.len();
        let prompt = self.render(messages, true)?;
        let answered: Vec<Message> =
            messages.iter().cloned().chain([Message::new(ASSISTANT, reply)]).collect();
        let closed = self.render(&answered, false)?;
        closed.begins_with(&prompt, message, PROMPT)?;
        let run = self.run(message, &closed.tokens, prompt.tokens.len())?;
        Ok(EncodedReply { prompt: prompt.tokens, reply: closed.tokens[run].to_vec() })
    }

    fn render(&self, messages: &[Message], generation_prompt: bool) -> Result<Rendered, TextError> {
        let text = self.template.render(messages, generation_prompt, self.unix_seconds)?;
        Ok(Rendered { tokens: (self.encode)(&text), text })
    }

    /// All of a conversation, and the blocks of it where the template has such.
    fn whole(&self, messages: &[Message]) -> Result<(Rendered, Option<Blocks>), TextError> {
        if !self.template.marks_replies() {
            return Ok((self.render(messages, false)?, None));
        }
        let (text, blocks) = self.template.render_marked(messages, self.unix_seconds)?;
        Ok((Rendered { tokens: (self.encode)(&text), text }, Some(blocks)))
    }

    /// From `start` to the last token that ends a reply; to the end of `tokens` where there is none.
    fn run(&self, message: usize, tokens: &[u32], start: usize) -> Result<Range<usize>, TextError> {
        let reply = tokens.get(start..).unwrap_or(&[]);
        let last = reply.iter().rposition(|id| self.ends.binary_search(id).is_ok());
        let end = start + last.map_or(reply.len(), |last| last + 1);
        if start == 0 || end == start {
            return Err(TextError::EmptyReply { message, start, end });
        }
        Ok(start..end)
    }

    /// Tokens of the first `bytes` of the text, which must be tokens of the whole.
    fn cut(
        &self,
        whole: &Rendered,
        bytes: usize,
        message: usize,
        part: &'static str,
    ) -> Result<usize, TextError> {
        let text = whole.text[..bytes].to_owned();
        let first = Rendered { tokens: (self.encode)(&text), text };
        whole.begins_with(&first, message, part)?;
        Ok(first.tokens.len())
    }
}

impl Rendered {
    /// Refuses unless `first` is a prefix of this, as text and as tokens.
    fn begins_with(&self, first: &Rendered, message: usize, part: &'static str) -> Result<(), TextError> {
        let position = self.tokens.iter().zip(&first.tokens).take_while(|(a, b)| a == b).count();
        let bytes = first.text.bytes().zip(self.text.bytes()).take_while(|(a, b)| a == b).count();
        if position == first.tokens.len() && bytes == first.text.len() {
            return Ok(());
        }
        // Where the text agrees and its tokens do not, a token goes over the border: the border's line says it.
        let from = first.text.floor_char_boundary(bytes.min(first.text.len().saturating_sub(1)));
        let line_start = first.text[..from].rfind('\n').map_or(0, |newline| newline + 1);
        let line = first.text[..line_start].matches('\n').count() + 1;
        let (expected, found) = (shown(&first.text, line_start, from), shown(&self.text, line_start, from));
        Err(TextError::Unsound { message, part, position, line, expected, found })
    }
}

/// The line that begins at `start`, around byte `at`, quoted. Both are in `text`, but for an end that comes before them.
fn shown(text: &str, start: usize, at: usize) -> String {
    let at = text.floor_char_boundary(at.min(text.len()));
    let start = start.min(at);
    let before = text[start..at].chars().count().saturating_sub(SHOWN_BEFORE);
    let first = text[start..].char_indices().nth(before).map_or(text.len(), |(index, _)| start + index);
    let last = text[at..].char_indices().nth(SHOWN_AFTER).map_or(text.len(), |(index, _)| at + index);
    let dots = |cut: bool| if cut { "..." } else { "" };
    format!("{}{:?}{}", dots(before > 0), &text[first..last], dots(last < text.len()))
}
