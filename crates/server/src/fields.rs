//! Fields of a JSON object, read one by one: each read says what it expects, and names the field where it finds something
//! else. `null` is as good as absent. What nobody reads is ignored.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::reject::Reject;

/// Characters of a value that a message quotes.
const QUOTED_CHARACTERS: usize = 40;

/// An object of a request.
#[derive(Debug, Default)]
pub struct Fields {
    /// Path of the object, with a dot at its end, or nothing for the request itself.
    path: String,
    map: Map<String, Value>,
}

impl Fields {
    /// The object that a body is.
    ///
    /// # Errors
    /// Anything else, malformed JSON, and JSON nested deeper than 127 levels.
    pub fn parse(body: &[u8]) -> Result<Fields, Reject> {
        let value = serde_json::from_slice(body).map_err(|error| {
            Reject::new(
                axum::http::StatusCode::BAD_REQUEST,
                "invalid_json",
                format!("the body is no JSON: {error}"),
            )
        })?;
        match value {
            Value::Object(map) => Ok(Fields { path: String::new(), map }),
            other => Err(Reject::new(
                axum::http::StatusCode::BAD_REQUEST,
                "invalid_json",
                format!("the body: expected an object, found {}", found(&other)),
            )),
        }
    }

    /// The object that a value at `path` is.
    ///
    /// # Errors
    /// Any other value.
    pub fn nested(path: impl Into<String>, value: Value) -> Result<Fields, Reject> {
        let path = path.into();
        match value {
            Value::Object(map) => Ok(Fields { path: format!("{path}."), map }),
            other => Err(wrong(&path, "an object", &other)),
        }
    }

    /// Path of a field.
    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// A field as it is; absent where it is `null`.
    pub fn value(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    /// A whole number within `range`.
    ///
    /// # Errors
    /// Another number, and what is no whole number.
    pub fn integer(&mut self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, Reject> {
        let Some(value) = self.value(name) else { return Ok(None) };
        match value.as_i64().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(
                &self.path(name),
                format_args!("a whole number from {} to {}", range.start(), range.end()),
                &value,
            )),
        }
    }

    /// A number within `range`.
    ///
    /// # Errors
    /// Another number, and what is no number.
    pub fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, Reject> {
        let Some(value) = self.value(name) else { return Ok(None) };
        match value.as_f64().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(
                &self.path(name),
                format_args!("a number from {} to {}", range.start(), range.end()),
                &value,
            )),
        }
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// Any other value.
    pub fn boolean(&mut self, name: &str) -> Result<Option<bool>, Reject> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(wrong(&self.path(name), "true or false", &other)),
        }
    }

    /// A string.
    ///
    /// # Errors
    /// Any other value.
    pub fn string(&mut self, name: &str) -> Result<Option<String>, Reject> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(&self.path(name), "a string", &other)),
        }
    }

    /// A string of 1 to `bytes` bytes.
    ///
    /// # Errors
    /// Any other string, and any other value.
    pub fn name(&mut self, name: &str, bytes: usize) -> Result<Option<String>, Reject> {
        let text = self.string(name)?;
        match text.as_ref().map(String::len) {
            None => Ok(None),
            Some(length) if (1..=bytes).contains(&length) => Ok(text),
            Some(length) => {
                let path = self.path(name);
                Err(Reject::field(&*path, format!("{path}: expected 1 to {bytes} bytes, found {length}")))
            }
        }
    }

    /// A list.
    ///
    /// # Errors
    /// Any other value, and a list of more than `limit` entries.
    pub fn list(&mut self, name: &str, limit: usize) -> Result<Option<Vec<Value>>, Reject> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Array(values)) => at_most(&self.path(name), values, limit).map(Some),
            Some(other) => Err(wrong(&self.path(name), "a list", &other)),
        }
    }

    /// Refuses a field unless it asks for nothing: absent, `null`, or what `neutral` accepts.
    ///
    /// # Errors
    /// The field, by name.
    pub fn refuse(&mut self, name: &str, neutral: fn(&Value) -> bool) -> Result<(), Reject> {
        match self.value(name) {
            Some(value) if !neutral(&value) => {
                let path = self.path(name);
                Err(Reject::unsupported(&*path, format!("{path}: {} is not supported", quoted(&value))))
            }
            _ => Ok(()),
        }
    }
}

/// A list of at most `limit` entries.
pub fn at_most(path: &str, values: Vec<Value>, limit: usize) -> Result<Vec<Value>, Reject> {
    match values.len() {
        found if found > limit => {
            Err(Reject::field(path, format!("{path}: expected at most {limit} entries, found {found}")))
        }
        _ => Ok(values),
    }
}

/// A list of token ids of a vocabulary.
///
/// # Errors
/// What is no id below `vocab`, by its index.
pub fn tokens(path: &str, values: &[Value], vocab: usize) -> Result<Vec<u32>, Reject> {
    let id = |(index, value): (usize, &Value)| match value.as_u64() {
        Some(id) if (id as usize) < vocab && id <= u64::from(u32::MAX) => Ok(id as u32),
        _ => Err(wrong(&format!("{path}[{index}]"), format_args!("a token id below {vocab}"), value)),
    };
    values.iter().enumerate().map(id).collect()
}

/// The refusal of a value: what was expected where, and what was found.
pub fn wrong(path: &str, expected: impl Display, value: &Value) -> Reject {
    Reject::field(path, format!("{path}: expected {expected}, found {}", found(value)))
}

/// What a value is, in few words.
fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Array(values) => format!("a list of {}", values.len()),
        Value::Object(_) => "an object".to_owned(),
        _ => quoted(value),
    }
}

/// The beginning of a value as JSON.
fn quoted(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(QUOTED_CHARACTERS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(value: Value) -> Fields {
        Fields { path: String::new(), map: value.as_object().cloned().unwrap() }
    }

    #[test]
    fn an_integer_is_whole_and_in_range() {
        let check = |value: Value, expected: Result<Option<i64>, &str>| {
            let found = fields(json!({"n": value})).integer("n", 1..=16);
            assert_eq!(found.map_err(|reject| reject.message), expected.map_err(str::to_owned), "{value}");
        };
        check(json!(1), Ok(Some(1)));
        check(json!(null), Ok(None));
        check(json!(0), Err("n: expected a whole number from 1 to 16, found 0"));
        check(json!(-1), Err("n: expected a whole number from 1 to 16, found -1"));
        check(json!(2147483648u64), Err("n: expected a whole number from 1 to 16, found 2147483648"));
        check(
            json!(9223372036854775808u64),
            Err("n: expected a whole number from 1 to 16, found 9223372036854775808"),
        );
        check(json!(1e308), Err("n: expected a whole number from 1 to 16, found 1e+308"));
        check(json!("3"), Err("n: expected a whole number from 1 to 16, found \"3\""));
        check(json!([1, 2]), Err("n: expected a whole number from 1 to 16, found a list of 2"));
        check(
            json!("é".repeat(99)),
            Err(&format!("n: expected a whole number from 1 to 16, found \"{}...", "é".repeat(39))),
        );
    }

    #[test]
    fn a_body_is_an_object() {
        let check = |body: &str, expected: &str| {
            let reject = Fields::parse(body.as_bytes()).map(|_| ()).unwrap_err();
            assert!(reject.message.contains(expected), "{body:.20}: {}", reject.message);
            assert_eq!(reject.code, "invalid_json");
        };
        check("", "the body is no JSON: EOF");
        check("{", "the body is no JSON: EOF");
        check("[1]", "expected an object, found a list of 1");
        check("null", "expected an object, found null");
        check("{\"a\": 1e999}", "number out of range");
        check(&"[".repeat(100_000), "recursion limit");
        check(&"{\"a\":".repeat(100_000), "recursion limit");
    }

    #[test]
    fn what_is_not_built_is_refused_unless_it_asks_for_nothing() {
        let refuse =
            |value: Value| fields(json!({"tools": value})).refuse("tools", |value| value == &json!([]));
        assert_eq!(refuse(json!(null)), Ok(()));
        assert_eq!(refuse(json!([])), Ok(()));
        let reject = refuse(json!([{"type": "function"}])).unwrap_err();
        assert_eq!(reject.message, "tools: [{\"type\":\"function\"}] is not supported");
        assert_eq!(reject.param.as_deref(), Some("tools"));
    }

    #[test]
    fn token_ids_are_below_the_vocabulary() {
        assert_eq!(tokens("prompt", &[json!(0), json!(9)], 10), Ok(vec![0, 9]));
        let check = |value: Value| {
            assert_eq!(
                tokens("prompt", &[json!(0), value], 10).unwrap_err().param.as_deref(),
                Some("prompt[1]")
            )
        };
        let _ = [json!(10), json!(-1), json!(1.5), json!("1"), json!(4294967296u64), json!(null)].map(check);
    }
}
