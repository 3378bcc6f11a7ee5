//! Answers in the shapes of the two dialects: whole, or as chunks of a stream.

use std::time::{SystemTime, UNIX_EPOCH};

use apprentice_engine::Logprobs;
use apprentice_text::Text;
use serde_json::{Map, Value, json};

use crate::command::Reason;
use crate::random::random;
use crate::reply::Scored;

/// The two dialects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
}

/// What all parts of an answer say.
#[derive(Clone, Debug)]
pub struct Head {
    dialect: Dialect,
    id: String,
    created: u64,
    model: String,
    slot: usize,
}

/// A reply of an answer, as far as it is there.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Choice {
    /// Its text.
    pub text: String,
    /// Its tokens, where log probabilities are wanted.
    pub scored: Vec<Scored>,
    /// Why it ended.
    pub reason: Option<Reason>,
}

/// Tokens of a request and its replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Of the prompt.
    pub prompt: usize,
    /// Of the prompt, found in pages.
    pub cached: usize,
    /// Of all replies.
    pub replies: usize,
}

impl Usage {
    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.replies,
            "total_tokens": self.prompt + self.replies,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        })
    }
}

impl Head {
    /// A new answer.
    pub fn new(dialect: Dialect, model: String, slot: usize) -> Head {
        let prefix = match dialect {
            Dialect::Chat => "chatcmpl",
            Dialect::Completion => "cmpl",
        };
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Head { dialect, id: format!("{prefix}-{:016x}", random()), created, model, slot }
    }

    /// The whole answer. `logprobs`: whether they were asked for.
    pub fn whole(&self, text: &Text, choices: &[Choice], usage: Usage, logprobs: bool) -> Value {
        let choices = choices.iter().enumerate().map(|(index, choice)| {
            let scores = logprobs.then(|| self.scores(text, &choice.scored, 0).0);
            let mut json = match self.dialect {
                Dialect::Chat => json!({
                    "index": index,
                    "message": {"role": "assistant", "content": choice.text, "refusal": null},
                }),
                Dialect::Completion => json!({"index": index, "text": choice.text}),
            };
            json["logprobs"] = scores.into();
            json["finish_reason"] = choice.reason.map(Reason::name).into();
            json
        });
        let object = match self.dialect {
            Dialect::Chat => "chat.completion",
            Dialect::Completion => "text_completion",
        };
        let choices = choices.collect();
        self.json(object, choices, Some(usage.json()))
    }

    /// The chunk that opens a reply; completions have none.
    pub fn open(&self, index: u32, usage: bool) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        (self.dialect == Dialect::Chat).then(|| self.chunk(index, delta, None, None, usage))
    }

    /// A chunk with more text; `offset` is the number of characters before it, and grows.
    pub fn piece(
        &self,
        text: &Text,
        index: u32,
        piece: &str,
        scored: &[Scored],
        offset: &mut usize,
        usage: bool,
    ) -> Value {
        let (scores, end) = self.scores(text, scored, *offset);
        *offset = end;
        let scores = Some(scores).filter(|_| !scored.is_empty());
        self.chunk(index, self.delta(piece), scores, None, usage)
    }

    /// The chunk that ends a reply.
    pub fn close(&self, index: u32, reason: Reason, usage: bool) -> Value {
        let delta = match self.dialect {
            Dialect::Chat => json!({}),
            Dialect::Completion => self.delta(""),
        };
        self.chunk(index, delta, None, Some(reason), usage)
    }

    /// The chunk that tells the usage, at the end of a stream.
    pub fn usage(&self, usage: Usage) -> Value {
        self.json(self.chunk_object(), Vec::new(), Some(usage.json()))
    }

    fn delta(&self, text: &str) -> Value {
        match self.dialect {
            Dialect::Chat => json!({"content": text}),
            Dialect::Completion => text.into(),
        }
    }

    fn chunk(
        &self,
        index: u32,
        delta: Value,
        scores: Option<Value>,
        reason: Option<Reason>,
        usage: bool,
    ) -> Value {
        let name = match self.dialect {
            Dialect::Chat => "delta",
            Dialect::Completion => "text",
        };
        let choice = json!({
            "index": index,
            name: delta,
            "logprobs": scores,
            "finish_reason": reason.map(Reason::name),
        });
        self.json(self.chunk_object(), vec![choice], usage.then_some(Value::Null))
    }

    fn chunk_object(&self) -> &'static str {
        match self.dialect {
            Dialect::Chat => "chat.completion.chunk",
            Dialect::Completion => "text_completion",
        }
    }

    fn json(&self, object: &str, choices: Vec<Value>, usage: Option<Value>) -> Value {
        let mut json = json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        });
        if let Some(usage) = usage {
            json["usage"] = usage;
        }
        json["id_slot"] = self.slot.into();
        json
    }

    /// Log probabilities, and the number of characters up to the end of these tokens.
    fn scores(&self, text: &Text, scored: &[Scored], offset: usize) -> (Value, usize) {
        match self.dialect {
            Dialect::Chat => {
                let content: Vec<Value> = scored.iter().map(|scored| chat_score(text, scored)).collect();
                (json!({"content": content, "refusal": null}), offset)
            }
            Dialect::Completion => completion_scores(text, scored, offset),
        }
    }
}

fn chat_score(text: &Text, scored: &Scored) -> Value {
    let Logprobs { chosen, top } = &scored.logprobs;
    let entry = |token: u32, logprob: f32| {
        let bytes = bytes(text, token);
        json!({"token": String::from_utf8_lossy(&bytes), "logprob": finite(logprob), "bytes": bytes})
    };
    let mut json = entry(scored.token, *chosen);
    json["top_logprobs"] = top.iter().map(|(token, logprob)| entry(*token, *logprob)).collect();
    json
}

fn completion_scores(text: &Text, scored: &[Scored], mut offset: usize) -> (Value, usize) {
    let name = |token| String::from_utf8_lossy(&bytes(text, token)).into_owned();
    let mut offsets = Vec::new();
    for scored in scored {
        offsets.push(offset);
        offset += name(scored.token).chars().count();
    }
    let top = |scored: &Scored| -> Map<String, Value> {
        scored.logprobs.top.iter().map(|(token, logprob)| (name(*token), finite(*logprob).into())).collect()
    };
    let json = json!({
        "tokens": scored.iter().map(|scored| name(scored.token)).collect::<Vec<_>>(),
        "token_logprobs": scored.iter().map(|scored| finite(scored.logprobs.chosen)).collect::<Vec<_>>(),
        "top_logprobs": scored.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    });
    (json, offset)
}

/// JSON has no infinity: a token that cannot be has the least logarithm that clients know.
fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}

/// The bytes of a token, those of a control token as it is spelt.
fn bytes(text: &Text, token: u32) -> Vec<u8> {
    text.bytes(token).map_or_else(Vec::new, |bytes| bytes.into_owned())
}
