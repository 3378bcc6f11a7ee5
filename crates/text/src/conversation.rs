//! Conversations, and what becomes of them: tokens, and the run of tokens of each reply.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The role whose messages are replies of the model.
pub(crate) const ASSISTANT: &str = "assistant";

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, or what else a template knows.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into() }
    }
}

/// What a chat template reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// The time that a template may write, in seconds since 1970-01-01 UTC; `None` for the time of the call.
    pub unix_seconds: Option<u64>,
}

impl Conversation {
    /// A conversation at the time of the call.
    pub fn new(messages: Vec<Message>) -> Conversation {
        Conversation { messages, unix_seconds: None }
    }

    /// The time that a template may write. Read once a call, so that all renderings of a call agree.
    pub(crate) fn time(&self) -> u64 {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        self.unix_seconds.unwrap_or_else(now)
    }
}

/// A conversation as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedConversation {
    /// The ids of the whole conversation.
    pub tokens: Vec<u32>,
    /// For each assistant message, in order, its run `[p0, p1)` of `tokens`: from the first token after the generation
    /// prompt to the token that ends the reply, included. What a template writes after that token (a newline, mostly)
    /// belongs to no run. `p0` is at least 1 and a run is not empty.
    ///
    /// Where the template has `generation` blocks a run is what a block wrote: there may be none for a message, or
    /// several, and the end is in it only if it is in the block.
    pub replies: Vec<Range<usize>>,
}

/// A prompt and a reply to it as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedReply {
    /// The ids of the prompt, as [`Text::prompt`](crate::Text::prompt) gives them.
    pub prompt: Vec<u32>,
    /// The ids of the reply, with the token that ends it; at least one.
    pub reply: Vec<u32>,
}
