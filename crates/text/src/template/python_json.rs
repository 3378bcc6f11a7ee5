//! `tojson` as the training side writes it: Python's `json.dumps(value, ensure_ascii=False)`, nothing escaped for HTML.

use std::io::{self, Write};

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// The filter: `indent` gives a layout of lines, `ensure_ascii` escapes all else, `sort_keys` is what maps do anyway.
pub(super) fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    let _sorted: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let mut json = Vec::new();
    match indent {
        Some(indent) => {
            let spaces = " ".repeat(indent.min(16));
            let pretty = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut json, pretty))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut json, OneLine)),
    }
    .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let json = String::from_utf8(json)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(if ensure_ascii == Some(true) { escape(&json) } else { json })
}

/// One line, a space after each comma and colon.
struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// Only strings hold other characters than ASCII, so each may be escaped where it stands.
fn escape(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() {
            escaped.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}
