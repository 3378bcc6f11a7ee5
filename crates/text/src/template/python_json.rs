//! `tojson` as the training side writes it: Python's `json.dumps(value, ensure_ascii=False)`, nothing escaped for HTML.

use std::io::{self, Write};

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind, State};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// The filter: `indent` gives a layout of lines, `ensure_ascii` escapes all else, `sort_keys` is what maps do anyway.
///
/// What it writes is paid for as it is written: a deep value takes the square of its depth with `indent`.
pub(super) fn to_json(state: &State, value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    let _sorted: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let mut json = Paid { state, bytes: Vec::new(), paid: 0 };
    let written = match indent {
        Some(indent) => {
            let spaces = " ".repeat(indent.min(16));
            let pretty = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut json, pretty))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut json, OneLine)),
    };
    state.consume_fuel(0)?; // an error of its own where the fuel is used up
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let json = String::from_utf8(json.bytes)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(if ensure_ascii == Some(true) { escape(&json) } else { json })
}

/// Bytes that the budget of a template pays for, 64 a unit.
struct Paid<'a, 'env, 'state> {
    state: &'a State<'env, 'state>,
    bytes: Vec<u8>,
    /// Bytes that are paid for.
    paid: usize,
}

impl Write for Paid<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        let units = (self.bytes.len() - self.paid) / 64;
        self.paid += units * 64;
        self.state.consume_fuel(units as u64).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
