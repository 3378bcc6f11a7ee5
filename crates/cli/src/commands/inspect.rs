//! `apprentice inspect`: what a file holds. Metadata and tensors of any GGUF file; of a model that is supported, where
//! adapters may sit.

use std::io::{self, Write};
use std::path::PathBuf;

use apprentice_gguf::{Array, Gguf, Value};
use apprentice_models::Model;
use clap::Args;
use serde_json::json;

use crate::exit::{Failure, Outcome};

/// Elements of an array that are shown.
const ELEMENTS_SHOWN: usize = 8;
/// Characters of a string that are shown in text.
const CHARACTERS_SHOWN: usize = 80;

/// Show what a file holds.
#[derive(Args)]
pub struct InspectCommand {
    /// A GGUF file.
    file: PathBuf,
    /// Write it as JSON.
    #[arg(long)]
    json: bool,
}

impl InspectCommand {
    /// Does it. What can be told of a file that is no supported model is told before it is refused.
    pub fn run(self) -> Result<Outcome, Failure> {
        let gguf = Gguf::open(&self.file)?;
        // A second look at the same file costs a memory map.
        let is_adapter = gguf.str("general.type")? == Some("adapter");
        let model = match is_adapter {
            true => Ok(None),
            false => {
                Gguf::open(&self.file).map_err(Failure::from).and_then(|gguf| Ok(Some(Model::open(gguf)?)))
            }
        };
        let shown = model.as_ref().ok().and_then(Option::as_ref);
        let mut out = io::stdout().lock();
        match self.json {
            true => writeln!(out, "{}", as_json(&gguf, shown))?,
            false => as_text(&gguf, shown, &mut out)?,
        }
        out.flush()?;
        model.map(|_| Outcome::Done).map_err(|failure| failure.at(&self.file))
    }
}

fn as_text(gguf: &Gguf, model: Option<&Model>, out: &mut impl Write) -> io::Result<()> {
    let (keys, tensors) = (gguf.metadata().len(), gguf.tensors().len());
    writeln!(out, "GGUF version {}, {keys} keys, {tensors} tensors", gguf.version())?;
    writeln!(out, "fingerprint {}", gguf.fingerprint())?;
    if let Some(model) = model {
        let (hyper, family) = (model.hyper(), model.family().architecture);
        writeln!(
            out,
            "{family}, {} parameters, context {}, vocabulary {}",
            model.parameters(),
            hyper.context,
            hyper.vocab
        )?;
    }
    writeln!(out, "\nmetadata")?;
    for (key, value) in gguf.metadata() {
        writeln!(out, "  {}  {}  {}", key.escape_debug(), value.type_name(), shown(value))?;
    }
    writeln!(out, "\ntensors")?;
    for tensor in gguf.tensors() {
        let (name, bytes) = (tensor.name.escape_debug(), tensor.byte_count());
        writeln!(out, "  {name}  {}  {:?}  {bytes} bytes", tensor.format, tensor.shape)?;
    }
    if let Some(model) = model {
        writeln!(out, "\nadaptable layers")?;
        for site in model.sites() {
            let head = if site.head { "  (head)" } else { "" };
            writeln!(out, "  {}  {}  [{}, {}]{head}", site.name, site.module, site.output, site.input)?;
        }
    }
    Ok(())
}

fn as_json(gguf: &Gguf, model: Option<&Model>) -> serde_json::Value {
    let metadata: serde_json::Map<String, serde_json::Value> =
        gguf.metadata().map(|(key, value)| (key.to_owned(), value_json(value))).collect();
    let tensors = gguf.tensors().iter().map(|tensor| {
        let (format, bytes) = (tensor.format.name(), tensor.byte_count());
        json!({ "name": tensor.name, "shape": tensor.shape, "format": format, "bytes": bytes })
    });
    let model = model.map(|model| {
        let sites = model.sites().iter().map(|site| {
            let (name, module) = (&site.name, &site.module);
            json!({ "name": name, "module": module, "shape": [site.output, site.input], "head": site.head })
        });
        json!({
            "architecture": model.family().architecture,
            "parameters": model.parameters(),
            "context": model.hyper().context,
            "vocabulary": model.hyper().vocab,
            "adaptable": sites.collect::<Vec<_>>(),
        })
    });
    json!({
        "version": gguf.version(),
        "alignment": gguf.alignment(),
        "fingerprint": gguf.fingerprint(),
        "metadata": metadata,
        "tensors": tensors.collect::<Vec<_>>(),
        "model": model,
    })
}

/// A value in a line.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(array) => {
            let first = first_elements(array);
            let more = if array.len() > first.len() { ", .." } else { "" };
            let first: Vec<String> = first.iter().map(serde_json::Value::to_string).collect();
            format!("{} elements: [{}{more}]", array.len(), shortened(&first.join(", ")))
        }
        Value::String(text) => format!("{:?}", shortened(text)),
        other => plain(other).to_string(),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(CHARACTERS_SHOWN) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}

/// An array as its length and its first elements, anything else as it is.
fn value_json(value: &Value) -> serde_json::Value {
    let of = value.type_name();
    match value {
        Value::Array(array) => json!({ "type": of, "count": array.len(), "first": first_elements(array) }),
        other => json!({ "type": of, "value": plain(other) }),
    }
}

fn plain(value: &Value) -> serde_json::Value {
    match value {
        Value::U8(value) => json!(value),
        Value::I8(value) => json!(value),
        Value::U16(value) => json!(value),
        Value::I16(value) => json!(value),
        Value::U32(value) => json!(value),
        Value::I32(value) => json!(value),
        Value::F32(value) => json!(value),
        Value::Bool(value) => json!(value),
        Value::String(value) => json!(value),
        Value::Array(array) => json!(first_elements(array)),
        Value::U64(value) => json!(value),
        Value::I64(value) => json!(value),
        Value::F64(value) => json!(value),
    }
}

fn first_elements(array: &Array) -> Vec<serde_json::Value> {
    fn of<T: serde::Serialize>(items: &[T]) -> Vec<serde_json::Value> {
        items.iter().take(ELEMENTS_SHOWN).map(|item| json!(item)).collect()
    }
    match array {
        Array::U8(items) => of(items),
        Array::I8(items) => of(items),
        Array::U16(items) => of(items),
        Array::I16(items) => of(items),
        Array::U32(items) => of(items),
        Array::I32(items) => of(items),
        Array::F32(items) => of(items),
        Array::Bool(items) => of(items),
        Array::Strings(items) => items.iter().take(ELEMENTS_SHOWN).map(|item| json!(item)).collect(),
        Array::Arrays(items) => {
            items.iter().take(ELEMENTS_SHOWN).map(|item| json!(first_elements(item))).collect()
        }
        Array::U64(items) => of(items),
        Array::I64(items) => of(items),
        Array::F64(items) => of(items),
    }
}
