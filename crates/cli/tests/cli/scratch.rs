//! Files that a test makes: a folder that goes away, and variants of golden files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use apprentice_check::Npy;
use apprentice_gguf::{Gguf, Strings, Value, Writer};
use serde_json::Value as Json;

use crate::program::golden;

/// A folder of one test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("apprentice-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file of these bytes.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A copy of a file.
    pub fn copy(&self, from: &Path, name: &str) -> PathBuf {
        self.file(name, fs::read(from).unwrap())
    }

    /// A JSON file with some keys replaced or, where the value is null, removed.
    pub fn json(&self, name: &str, from: &Path, keys: &[(&str, Json)]) -> PathBuf {
        let mut json: Json = serde_json::from_slice(&fs::read(from).unwrap()).unwrap();
        let object = json.as_object_mut().unwrap();
        for (key, value) in keys {
            match value {
                Json::Null => drop(object.remove(*key)),
                value => drop(object.insert((*key).to_owned(), value.clone())),
            }
        }
        self.file(name, json.to_string())
    }

    /// A model file in which `metadata` and tensors went through: `tensor` gives the name to write, or none.
    pub fn model(
        &self,
        name: &str,
        from: &Path,
        metadata: impl Fn(&str, &Value) -> Option<Value>,
        tensor: impl Fn(&str) -> Option<String>,
    ) -> PathBuf {
        let (gguf, path) = (Gguf::open(from).unwrap(), self.path(name));
        let mut writer = Writer::new();
        for (key, value) in gguf.metadata() {
            if let Some(value) = metadata(key, value) {
                writer.set(key, value).unwrap();
            }
        }
        for entry in gguf.tensors() {
            if let Some(name) = tensor(&entry.name) {
                writer.tensor(&name, &entry.shape, entry.format, gguf.bytes(entry)).unwrap();
            }
        }
        writer.write(&path).unwrap();
        path
    }
}

impl Scratch {
    /// A tiny model that can be talked with: a family of the golden data with a byte for each printable character of
    /// ASCII, and the template of ChatML. It has no newline, so a reply is one line.
    pub fn talker(&self) -> PathBuf {
        let gguf = Gguf::open(&golden("archs/llama.gguf")).unwrap();
        let mut writer = Writer::new();
        for (key, value) in gguf.metadata().filter(|(key, _)| !key.starts_with("tokenizer.")) {
            writer.set(key, value.clone()).unwrap();
        }
        let first = ["Ġ".to_owned(), "th".to_owned(), "<|im_start|>".to_owned(), "<|im_end|>".to_owned()];
        let mut tokens: Vec<String> = first.into_iter().chain(('!'..='~').map(String::from)).collect();
        let ends = tokens.iter().position(|token| token == "<|im_end|>").unwrap();
        tokens.extend((tokens.len()..128).map(|id| format!("[unused{id}]")));
        let kinds: Vec<i32> = (0..128).map(|id| if id == ends || id == ends - 1 { 3 } else { 1 }).collect();
        let template = "{% for m in messages %}<|im_start|>{{ m.role + ' ' + m.content }}<|im_end|>{% endfor %}\
                        {% if add_generation_prompt %}<|im_start|>assistant {% endif %}";
        let strings = |list: &[String]| list.iter().collect::<Strings>();
        for (key, value) in [
            ("model", Value::from("gpt2")),
            ("pre", "smollm".into()),
            ("tokens", strings(&tokens).into()),
            ("token_type", kinds.into()),
            ("merges", strings(&["t h".to_owned()]).into()),
            ("bos_token_id", (ends as u32 - 1).into()),
            ("eos_token_id", (ends as u32).into()),
        ] {
            writer.set(&format!("tokenizer.ggml.{key}"), value).unwrap();
        }
        writer.set("tokenizer.chat_template", template).unwrap();
        for entry in gguf.tensors() {
            writer.tensor(&entry.name, &entry.shape, entry.format, gguf.bytes(entry)).unwrap();
        }
        let path = self.path("talker.gguf");
        writer.write(&path).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Tokens of a family's example, as `--tokens` takes them.
pub fn tokens(json: &Path) -> String {
    let json: Json = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let tokens: Vec<String> = json["tokens"].as_array().unwrap().iter().map(Json::to_string).collect();
    tokens.join(",")
}

/// An array file.
pub fn npy(path: &Path) -> Npy {
    Npy::parse(&fs::read(path).unwrap()).unwrap()
}
