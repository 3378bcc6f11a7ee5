//! `POST /learn`: a reply as it should have been.
//!
//! The lesson is the conversation `messages` with the right reply last; or, for a slot, `reply` or `reply_tokens` in place
//! of the reply that it remembers. With `conversation` or `id_slot` the slot must hold the prompt: what is learnt from is
//! then what was served.

use apprentice_text::{Conversation, EncodeOptions, Message, Text};
use serde_json::{Value, json};

use crate::chat::messages;
use crate::command::{Taught, Teaching};
use crate::fields::{Fields, tokens};
use crate::options::{STEPS, STEPS_MAX};
use crate::reject::Reject;
use crate::shelf::DEFAULT;
use crate::slots::Held;
use crate::wanted::{Place, Sizes, Target};

/// Tokens of a reply that are given as ids, at most; the context is the real limit.
const REPLY_TOKENS_MAX: usize = 1 << 20;

/// A lesson as it is asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct Wish {
    /// Which slot it is about.
    pub place: Place,
    target: Target,
    right: Right,
    prefix: Option<usize>,
    learning_rate: Option<f64>,
    steps: usize,
}

/// What would have been right.
#[derive(Clone, PartialEq, Debug)]
enum Right {
    /// A conversation whose last message is the reply.
    Messages(Vec<Message>),
    /// The text of the reply.
    Reply(String),
    /// The tokens of the reply, its end included if that is to be learnt.
    Tokens(Vec<u32>),
}

impl Wish {
    /// Reads a request.
    ///
    /// # Errors
    /// The first field that is not what it must be.
    pub fn read(mut fields: Fields, sizes: Sizes) -> Result<Wish, Reject> {
        let place = Place::read(&mut fields, sizes)?;
        let target = Target::read(&mut fields)?;
        let messages = messages(&mut fields)?.map(Right::Messages);
        let reply = fields.string("reply")?.map(Right::Reply);
        let ids = fields.list("reply_tokens", REPLY_TOKENS_MAX)?;
        let ids = ids.map(|ids| tokens("reply_tokens", &ids, sizes.vocab)).transpose()?.map(Right::Tokens);
        let right = match (messages, reply, ids) {
            (Some(right), None, None) | (None, Some(right), None) | (None, None, Some(right)) => right,
            (None, None, None) => {
                let message = "messages: expected, or reply or reply_tokens for a slot; found none of them";
                return Err(Reject::field("messages", message));
            }
            _ => {
                let message = "reply: expected one of messages, reply and reply_tokens, found more";
                return Err(Reject::field("reply", message));
            }
        };
        check(&right, &place)?;
        let positions = 1..=i64::from(i32::MAX);
        Ok(Wish {
            place,
            target,
            right,
            prefix: fields.integer("n_prefix", positions)?.map(|prefix| prefix as usize),
            learning_rate: fields.number("lr", 1e-9..=1.0)?,
            steps: fields.integer("steps", 1..=STEPS_MAX)?.map_or(STEPS, |steps| steps as usize),
        })
    }

    /// Whether it takes the prompt from what a slot holds.
    pub fn needs_slot(&self) -> bool {
        !matches!(self.right, Right::Messages(_))
    }

    /// The lesson as tokens; `held` is what the slot holds, where [`Wish::needs_slot`].
    ///
    /// # Errors
    /// A conversation that the template does not take, or whose reply is no run of tokens of its own; another number of
    /// prompt tokens than `n_prefix`; a model or an adapter that is not meant here.
    pub fn teaching(self, text: &Text, model: &str, held: Option<Held>) -> Result<Teaching, Reject> {
        let adapter = match self.target.adapter(model)? {
            Some("") => return Err(Reject::field("adapter", "adapter: expected a name, found \"\"")),
            Some(name) => name.to_owned(),
            None => DEFAULT.to_owned(),
        };
        let slot = held.unwrap_or_default();
        let (tokens, reply_start, messages) = match self.right {
            Right::Messages(mut messages) => {
                let reply = messages.pop().map(|message| message.content).unwrap_or_default();
                encoded(text, messages, &reply).map_err(|reject| reject.or_at("messages"))?
            }
            Right::Reply(reply) => replied(text, &slot, &reply).map_err(|reject| reject.or_at("reply"))?,
            Right::Tokens(reply) => {
                let mut tokens = slot.tokens[..slot.reply_start].to_vec();
                tokens.extend(reply);
                (tokens, slot.reply_start, None)
            }
        };
        if let Some(prefix) = self.prefix.filter(|prefix| *prefix != reply_start) {
            let message = format!("n_prefix: the prompt has {reply_start} tokens, not {prefix}");
            let reject = Reject::conflict("prompt_mismatch", message).at("n_prefix");
            return Err(reject.position(prefix.min(reply_start)));
        }
        Ok(Teaching {
            adapter,
            tokens,
            reply_start,
            messages,
            place: self.place,
            learning_rate: self.learning_rate,
            steps: self.steps,
        })
    }
}

/// The answer to a lesson.
pub fn answer(taught: &Taught) -> Value {
    json!({
        "adapter": taught.adapter,
        "generation": taught.generation,
        "loss_before": taught.loss_before,
        "loss_after": taught.loss_after,
        "tokens": taught.tokens,
        "steps": taught.steps,
        "ms": taught.duration.as_secs_f64() * 1000.0,
        "id_slot": taught.slot,
    })
}

/// Refuses a reply that is none, and one that has no slot to follow.
fn check(right: &Right, place: &Place) -> Result<(), Reject> {
    let empty =
        |param: &str| Err(Reject::field(param, format!("{param}: a reply that is empty teaches nothing")));
    let param = match right {
        Right::Messages(messages) => {
            let last = messages.len() - 1;
            return match &messages[last] {
                message if message.role != "assistant" => {
                    let param = format!("messages[{last}].role");
                    let message =
                        format!("{param}: the last message must be the assistant's, as it should have been");
                    Err(Reject::field(param, message))
                }
                message if message.content.is_empty() => empty(&format!("messages[{last}].content")),
                _ => Ok(()),
            };
        }
        Right::Reply(reply) if reply.is_empty() => return empty("reply"),
        Right::Tokens(tokens) if tokens.is_empty() => return empty("reply_tokens"),
        Right::Reply(_) => "reply",
        Right::Tokens(_) => "reply_tokens",
    };
    match place.is_anywhere() {
        true => {
            let message = format!("{param}: needs id_slot or conversation, whose prompt it follows");
            Err(Reject::field(param, message))
        }
        false => Ok(()),
    }
}

type Encoded = (Vec<u32>, usize, Option<Vec<Message>>);

/// What precedes a reply, and the reply as the template writes it.
fn encoded(text: &Text, before: Vec<Message>, reply: &str) -> Result<Encoded, Reject> {
    let conversation = Conversation::new(before);
    let encoded = text.reply(&conversation, reply)?;
    let mut tokens = encoded.prompt;
    let reply_start = tokens.len();
    tokens.extend(encoded.reply);
    Ok((tokens, reply_start, Some(conversation.messages)))
}

/// What a slot holds, with another reply. Where it holds no conversation, the reply ends as the model ends its text.
fn replied(text: &Text, held: &Held, reply: &str) -> Result<Encoded, Reject> {
    if let Some(messages) = &held.messages {
        return encoded(text, messages.clone(), reply);
    }
    let mut tokens = held.tokens[..held.reply_start].to_vec();
    tokens.extend(text.encode(reply, EncodeOptions::default()));
    tokens.extend(text.eos().or(text.end_ids().first().copied()));
    Ok((tokens, held.reply_start, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let sizes = Sizes { vocab: 100, slots: 4 };
        let check = |value: Value, expected: Option<&str>| {
            let read = Wish::read(Fields::parse(value.to_string().as_bytes()).unwrap(), sizes);
            assert_eq!(read.err().map(|reject| reject.param.unwrap()).as_deref(), expected, "{value}");
        };
        let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
        check(json!({"messages": messages}), None);
        check(json!({"messages": messages, "id_slot": 0, "n_prefix": 3, "steps": 1, "lr": 1e-3}), None);
        check(json!({"reply": "b", "id_slot": 0}), None);
        check(json!({"reply_tokens": [1], "conversation": "c"}), None);
        check(json!({}), Some("messages"));
        check(json!({"messages": [{"role": "user", "content": "a"}]}), Some("messages[0].role"));
        check(json!({"messages": [{"role": "assistant", "content": ""}]}), Some("messages[0].content"));
        check(json!({"messages": messages, "reply": "b"}), Some("reply"));
        check(json!({"reply": "b"}), Some("reply"));
        check(json!({"reply": "", "id_slot": 0}), Some("reply"));
        check(json!({"reply_tokens": [], "id_slot": 0}), Some("reply_tokens"));
        check(json!({"reply_tokens": [100], "id_slot": 0}), Some("reply_tokens[0]"));
        for value in [json!(0), json!(-1), json!(1u64 << 31), json!(1u64 << 63), json!(1e308), json!("1")] {
            check(json!({"messages": messages, "steps": value}), Some("steps"));
            check(json!({"messages": messages, "n_prefix": value}), Some("n_prefix"));
        }
        for value in [json!(0), json!(-1), json!(1e308), json!("1"), json!(2)] {
            check(json!({"messages": messages, "lr": value}), Some("lr"));
        }
        for value in [json!(4), json!(-2), json!(1u64 << 63), json!(1e308), json!("1")] {
            check(json!({"messages": messages, "id_slot": value}), Some("id_slot"));
        }
    }
}
