//! A line of a data file: what it may say, and what is wrong with one that says something else.
//!
//! `{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}`, the lines of OpenAI's
//! fine-tuning files: content is a string, or a list of `{"type": "text", "text": "..."}`; an assistant's message may say
//! `"weight": 0`, which takes it as context only. Or `{"prompt": "...", "completion": "..."}`. Other keys of a line, such as
//! an id, are not looked at, but for those that would change what is written.

use apprentice_text::Message;
use serde_json::{Map, Value};

use crate::error::LineError;

/// What a line holds.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Record {
    /// A conversation, and for each of its assistant's messages in order whether it is learnt.
    Conversation {
        /// The messages.
        messages: Vec<Message>,
        /// Whether each reply is learnt.
        learnt: Vec<bool>,
    },
    /// A text and what follows it.
    Completion {
        /// The text.
        prompt: String,
        /// What follows.
        completion: String,
    },
}

/// The role whose messages are learnt.
const ASSISTANT: &str = "assistant";
/// Keys of a line that a template would have to write.
const UNSUPPORTED: [&str; 3] = ["tools", "functions", "documents"];
/// Keys of a message that a template would have to write.
const UNSUPPORTED_IN_MESSAGES: [&str; 3] = ["tool_calls", "function_call", "reasoning_content"];

impl Record {
    /// Reads a line that is not blank.
    pub(crate) fn parse(line: &str) -> Result<Record, LineError> {
        let value: Value =
            serde_json::from_str(line).map_err(|error| LineError::Json { reason: error.to_string() })?;
        let Value::Object(keys) = value else { return Err(wrong("line", "an object", &value)) };
        if let Some(key) = UNSUPPORTED.iter().find(|key| keys.get(**key).is_some_and(|value| !empty(value))) {
            return Err(LineError::Unsupported { place: (*key).to_owned() });
        }
        match (keys.get("messages"), keys.get("prompt"), keys.get("completion")) {
            (Some(messages), None, None) => conversation(messages),
            (None, Some(prompt), Some(completion)) => Ok(Record::Completion {
                prompt: string("prompt", prompt)?,
                completion: string("completion", completion)?,
            }),
            _ => Err(LineError::Value {
                place: "line".to_owned(),
                expected: "the key messages, or the keys prompt and completion",
                found: named(&keys),
            }),
        }
    }
}

fn conversation(messages: &Value) -> Result<Record, LineError> {
    let Value::Array(list) = messages else { return Err(wrong("messages", "a list", messages)) };
    let (mut messages, mut learnt) = (Vec::with_capacity(list.len()), Vec::new());
    for (index, message) in list.iter().enumerate() {
        let place = format!("messages[{index}]");
        let Value::Object(keys) = message else { return Err(wrong(&place, "an object", message)) };
        let unsupported = |key: &&&str| keys.get(**key).is_some_and(|value| !empty(value));
        if let Some(key) = UNSUPPORTED_IN_MESSAGES.iter().find(unsupported) {
            return Err(LineError::Unsupported { place: format!("{place}.{key}") });
        }
        let key = |key: &str| keys.get(key).unwrap_or(&Value::Null);
        let role = string(&format!("{place}.role"), key("role"))?;
        let content = content(&format!("{place}.content"), key("content"))?;
        if role == ASSISTANT {
            learnt.push(weight(&format!("{place}.weight"), keys.get("weight"))?);
        }
        messages.push(Message::new(role, content));
    }
    if learnt.is_empty() {
        return Err(LineError::NoReply);
    }
    Ok(Record::Conversation { messages, learnt })
}

fn content(place: &str, value: &Value) -> Result<String, LineError> {
    let Value::Array(parts) = value else { return string(place, value) };
    let mut text = String::new();
    for (index, part) in parts.iter().enumerate() {
        let place = format!("{place}[{index}]");
        if part.get("type").and_then(Value::as_str) != Some("text") {
            return Err(wrong(&place, "an object of type \"text\"", part));
        }
        text += &string(&format!("{place}.text"), part.get("text").unwrap_or(&Value::Null))?;
    }
    Ok(text)
}

fn weight(place: &str, value: Option<&Value>) -> Result<bool, LineError> {
    match value {
        None | Some(Value::Null) => Ok(true),
        Some(value) if value.as_f64() == Some(1.0) => Ok(true),
        Some(value) if value.as_f64() == Some(0.0) => Ok(false),
        Some(value) => Err(wrong(place, "0 or 1", value)),
    }
}

fn string(place: &str, value: &Value) -> Result<String, LineError> {
    value.as_str().map(str::to_owned).ok_or_else(|| wrong(place, "a string", value))
}

fn wrong(place: &str, expected: &'static str, found: &Value) -> LineError {
    let found = match found {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(keys) => named(keys),
    };
    LineError::Value { place: place.to_owned(), expected, found }
}

/// The keys of an object, as many as a message shows.
fn named(keys: &Map<String, Value>) -> String {
    const SHOWN: usize = 6;
    let mut names: Vec<String> = keys.keys().take(SHOWN).map(|key| format!("{key:.40?}")).collect();
    if keys.len() > SHOWN {
        names.push("...".to_owned());
    }
    if names.is_empty() { "no keys".to_owned() } else { names.join(", ") }
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str, expected: &str) {
        let error = Record::parse(line).unwrap_err().to_string();
        assert!(error.contains(expected), "{line}: {error}");
    }

    #[test]
    fn lines_of_both_kinds() {
        let line = r#"{"id": 7, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;
        let messages = vec![Message::new("user", "a"), Message::new("assistant", "b")];
        assert_eq!(Record::parse(line).unwrap(), Record::Conversation { messages, learnt: vec![true] });
        let line = r#"{"completion": " b", "prompt": "a"}"#;
        let completion = Record::Completion { prompt: "a".to_owned(), completion: " b".to_owned() };
        assert_eq!(Record::parse(line).unwrap(), completion);
    }

    #[test]
    fn content_in_parts_and_weights() {
        let line = r#"{"messages": [{"role": "assistant", "content": "x", "weight": 0},
            {"role": "assistant", "weight": 1, "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}"#;
        let messages = vec![Message::new("assistant", "x"), Message::new("assistant", "ab")];
        let expected = Record::Conversation { messages, learnt: vec![false, true] };
        assert_eq!(Record::parse(line).unwrap(), expected);
    }

    #[test]
    fn what_is_no_record() {
        refused("{", "expected JSON, found EOF");
        refused("{} {}", "expected JSON, found trailing characters");
        refused("[1]", "line: expected an object, found a list");
        refused("1e999", "expected JSON");
        refused("{}", "expected the key messages, or the keys prompt and completion, found no keys");
        refused(r#"{"text": "a"}"#, "found \"text\"");
        refused(r#"{"prompt": "a"}"#, "found \"prompt\"");
        refused(
            r#"{"prompt": "a", "completion": "b", "messages": []}"#,
            "found \"prompt\", \"completion\", \"messages\"",
        );
        refused(r#"{"prompt": 1, "completion": "b"}"#, "prompt: expected a string, found 1");
        refused(r#"{"prompt": "a", "completion": null}"#, "completion: expected a string, found nothing");
        refused(&"[".repeat(100_000), "expected JSON, found recursion limit");
    }

    #[test]
    fn what_is_no_conversation() {
        let refused = |messages: &str, expected| refused(&format!(r#"{{"messages": {messages}}}"#), expected);
        refused("7", "messages: expected a list, found 7");
        refused("[]", "messages: expected at least one of the assistant, found none");
        refused(r#"[{"role": "user", "content": "a"}]"#, "at least one of the assistant");
        refused("[[]]", "messages[0]: expected an object, found a list");
        refused(r#"[{"content": "a"}]"#, "messages[0].role: expected a string, found nothing");
        refused(r#"[{"role": "user"}]"#, "messages[0].content: expected a string, found nothing");
        refused(
            r#"[{"role": "user", "content": {"a": 1}}]"#,
            "messages[0].content: expected a string, found \"a\"",
        );
        let image = r#"[{"role": "user", "content": [{"type": "image_url"}]}]"#;
        refused(image, "messages[0].content[0]: expected an object of type \"text\"");
        let text = r#"[{"role": "user", "content": [{"type": "text", "text": 4}]}]"#;
        refused(text, "messages[0].content[0].text: expected a string, found 4");
        let weight = r#"[{"role": "assistant", "content": "a", "weight": 0.5}]"#;
        refused(weight, "messages[0].weight: expected 0 or 1, found 0.5");
        let calls = r#"[{"role": "assistant", "content": "a", "tool_calls": [1]}]"#;
        refused(calls, "messages[0].tool_calls: not supported");
    }

    #[test]
    fn empty_lists_of_tools_say_nothing() {
        let line = r#"{"tools": [], "prompt": "a", "completion": "b"}"#;
        assert!(Record::parse(line).is_ok());
        refused(r#"{"tools": [1], "prompt": "a", "completion": "b"}"#, "tools: not supported");
    }
}
