//! `POST /tokenize` and `POST /detokenize`: text as tokens, and back.

use apprentice_text::{EncodeOptions, Text};
use serde_json::{Value, json};

use crate::fields::{Fields, tokens};
use crate::reject::Reject;

/// Token ids that are made text at a time; the size of a body is the real limit.
const TOKENS_MAX: usize = 1 << 20;

/// `{"content", "add_special", "parse_special", "with_pieces"}` -> `{"tokens"}`.
///
/// # Errors
/// The first field that is not what it must be.
pub fn tokenize(text: &Text, mut fields: Fields) -> Result<Value, Reject> {
    let content = fields.string("content")?;
    let content = content.ok_or_else(|| Reject::field("content", "content: expected, found nothing"))?;
    let bos = fields.boolean("add_special")?.unwrap_or(false);
    let special = fields.boolean("parse_special")?.unwrap_or(true);
    let pieces = fields.boolean("with_pieces")?.unwrap_or(false);
    let ids = text.encode(&content, EncodeOptions { special, bos });
    let piece = |id: &u32| {
        let bytes = text.bytes(*id).unwrap_or_default().into_owned();
        // A piece that is no whole character is its bytes.
        let piece = String::from_utf8(bytes).map_or_else(|error| json!(error.into_bytes()), Value::from);
        json!({"id": id, "piece": piece})
    };
    Ok(match pieces {
        true => json!({"tokens": ids.iter().map(piece).collect::<Vec<_>>()}),
        false => json!({"tokens": ids}),
    })
}

/// `{"tokens"}` -> `{"content"}`.
///
/// # Errors
/// What is no list of ids of the vocabulary.
pub fn detokenize(text: &Text, mut fields: Fields) -> Result<Value, Reject> {
    let ids = fields.list("tokens", TOKENS_MAX)?;
    let ids = ids.ok_or_else(|| Reject::field("tokens", "tokens: expected, found nothing"))?;
    let ids = tokens("tokens", &ids, text.vocab())?;
    Ok(json!({"content": text.decode(&ids, true)?}))
}
