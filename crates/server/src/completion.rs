//! `POST /v1/completions`: a text or tokens, and how they might go on.

use serde_json::Value;

use crate::fields::{Fields, tokens, wrong};
use crate::reject::Reject;
use crate::wanted::{Common, Prompt, Sizes, Wanted, completion_logprobs};

/// Reads a request.
///
/// # Errors
/// The first field that is not what it must be, or asks for something that is not built.
pub fn read(mut fields: Fields, sizes: Sizes) -> Result<Wanted, Reject> {
    let prompt = prompt(&mut fields, sizes.vocab)?;
    let common = Common::read(&mut fields, sizes)?;
    Ok(common.wanted(prompt, completion_logprobs(&mut fields)?))
}

/// A string, token ids, or a list of one of these.
fn prompt(fields: &mut Fields, vocab: usize) -> Result<Prompt, Reject> {
    let expected = "a string or token ids";
    match fields.value("prompt") {
        None => Err(Reject::field("prompt", format!("prompt: expected {expected}, found nothing"))),
        Some(Value::Array(values)) => match values.as_slice() {
            [] => Err(Reject::field("prompt", format!("prompt: expected {expected}, found an empty list"))),
            [Value::Array(ids)] if !ids.is_empty() => Ok(Prompt::Tokens(tokens("prompt[0]", ids, vocab)?)),
            [Value::String(text)] => Ok(Prompt::Text(text.clone())),
            [Value::String(_) | Value::Array(_), ..] => {
                Err(Reject::unsupported("prompt", "prompt: several prompts in one request are not supported"))
            }
            ids => Ok(Prompt::Tokens(tokens("prompt", ids, vocab)?)),
        },
        Some(Value::String(text)) => Ok(Prompt::Text(text)),
        Some(other) => Err(wrong("prompt", expected, &other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_prompt_is_text_or_tokens() {
        let check = |value: Value, expected: Result<Prompt, &str>| {
            let mut fields = Fields::parse(json!({"prompt": value}).to_string().as_bytes()).unwrap();
            let found = prompt(&mut fields, 10).map_err(|reject| reject.param.unwrap());
            assert_eq!(found, expected.map_err(str::to_owned), "{value}");
        };
        check(json!("x"), Ok(Prompt::Text("x".to_owned())));
        check(json!(["x"]), Ok(Prompt::Text("x".to_owned())));
        check(json!([1, 2]), Ok(Prompt::Tokens(vec![1, 2])));
        check(json!([[1, 2]]), Ok(Prompt::Tokens(vec![1, 2])));
        check(json!([]), Err("prompt"));
        check(json!([[]]), Err("prompt"));
        check(json!(["x", "y"]), Err("prompt"));
        check(json!([[1], [2]]), Err("prompt"));
        check(json!([1, "x"]), Err("prompt[1]"));
        check(json!([1, 10]), Err("prompt[1]"));
        check(json!(7), Err("prompt"));
        check(json!(null), Err("prompt"));
    }
}
