//! `POST /v1/chat/completions`: a conversation, and replies to it.

use apprentice_text::Message;
use serde_json::Value;

use crate::fields::{Fields, at_most, wrong};
use crate::options::{MESSAGES_MAX, NAME_BYTES_MAX, PARTS_MAX};
use crate::reject::Reject;
use crate::wanted::{Common, Prompt, Sizes, Wanted, chat_logprobs};

/// Reads a request.
///
/// # Errors
/// The first field that is not what it must be, or asks for something that is not built.
pub fn read(mut fields: Fields, sizes: Sizes) -> Result<Wanted, Reject> {
    let messages = messages(&mut fields)?;
    let messages = messages.ok_or_else(|| Reject::field("messages", "messages: expected, found nothing"))?;
    let common = Common::read(&mut fields, sizes)?;
    Ok(common.wanted(Prompt::Messages(messages), chat_logprobs(&mut fields)?))
}

/// The field `messages`, if it is there: at least one message, each with a role and a text.
///
/// # Errors
/// What is not so, by its path.
pub fn messages(fields: &mut Fields) -> Result<Option<Vec<Message>>, Reject> {
    let Some(values) = fields.list("messages", MESSAGES_MAX)? else { return Ok(None) };
    if values.is_empty() {
        return Err(Reject::field("messages", "messages: expected at least one"));
    }
    values
        .into_iter()
        .enumerate()
        .map(|(index, value)| message(index, value))
        .collect::<Result<_, _>>()
        .map(Some)
}

fn message(index: usize, value: Value) -> Result<Message, Reject> {
    let path = format!("messages[{index}]");
    let mut fields = Fields::nested(&*path, value)?;
    let absent = |name: &str| {
        let path = format!("{path}.{name}");
        Reject::field(&*path, format!("{path}: expected, found nothing"))
    };
    let role = fields.name("role", NAME_BYTES_MAX)?.ok_or_else(|| absent("role"))?;
    for name in ["tool_calls", "function_call", "audio"] {
        fields.refuse(name, |value| value == &Value::Array(Vec::new()))?;
    }
    let content = match fields.value("content") {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => joined(&fields.path("content"), parts)?,
        Some(other) => {
            return Err(wrong(&fields.path("content"), "a string or a list of text parts", &other));
        }
        None => return Err(absent("content")),
    };
    Ok(Message::new(role, content))
}

/// Text parts, one after another.
fn joined(path: &str, parts: Vec<Value>) -> Result<String, Reject> {
    let mut text = String::new();
    for (index, part) in at_most(path, parts, PARTS_MAX)?.into_iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut fields = Fields::nested(&*path, part)?;
        fields.refuse("type", |kind| kind == "text")?;
        let part = fields.string("text")?;
        text += &part.ok_or_else(|| Reject::field(&*path, format!("{path}: expected a text part")))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: Value, expected: Result<&[(&str, &str)], &str>) {
        let read = messages(&mut Fields::parse(json!({"messages": value}).to_string().as_bytes()).unwrap());
        let messages = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|(role, content)| Message::new(*role, *content)).collect::<Vec<_>>())
        };
        let found = read.map_err(|reject| reject.param.unwrap());
        assert_eq!(found, expected.map(messages).map_err(str::to_owned), "{value}");
    }

    #[test]
    fn a_content_is_a_string_or_parts_of_text() {
        check(json!([{"role": "user", "content": "hi"}]), Ok(&[("user", "hi")]));
        check(json!([{"role": "user", "content": ""}]), Ok(&[("user", "")]));
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        check(json!([{"role": "user", "content": parts, "name": "x"}]), Ok(&[("user", "ab")]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        check(json!([]), Err("messages"));
        check(json!("hi"), Err("messages"));
        check(json!([1]), Err("messages[0]"));
        check(json!([{"content": "x"}]), Err("messages[0].role"));
        check(json!([{"role": "", "content": "x"}]), Err("messages[0].role"));
        check(json!([{"role": 1, "content": "x"}]), Err("messages[0].role"));
        check(json!([{"role": "user", "content": "x"}, {"role": "user"}]), Err("messages[1].content"));
        check(json!([{"role": "user", "content": null}]), Err("messages[0].content"));
        check(json!([{"role": "user", "content": 7}]), Err("messages[0].content"));
        check(
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
            Err("messages[0].content[0].type"),
        );
        check(json!([{"role": "user", "content": [{"type": "text"}]}]), Err("messages[0].content[0]"));
        check(
            json!([{"role": "assistant", "content": "x", "tool_calls": [{}]}]),
            Err("messages[0].tool_calls"),
        );
        check(json!(vec![json!({"role": "user", "content": "x"}); MESSAGES_MAX + 1]), Err("messages"));
    }
}
