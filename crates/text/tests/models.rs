//! The real vocabularies: ids equal to those of the reference tokeniser, and the published example from its text.
//!
//! Models are read from `$APPRENTICE_CACHE` or `~/.cache/apprentice`, as `scripts/models` leaves them; expected ids
//! from `tests/golden` at the root.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::{Path, PathBuf};

use apprentice_gguf::Gguf;
use apprentice_text::{Conversation, EncodeOptions, Message, Text};
use serde::Deserialize;

#[derive(Deserialize)]
struct Entry {
    text: String,
    special: bool,
    bos: bool,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Example {
    tokens: Vec<u32>,
    reply_runs: Vec<[usize; 2]>,
}

fn open(name: &str) -> Text {
    let cache = std::env::var_os("APPRENTICE_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        let home = std::env::var_os("HOME").expect("HOME or APPRENTICE_CACHE is set");
        Path::new(&home).join(".cache/apprentice")
    });
    let path = cache.join(name).with_extension("gguf");
    let file = Gguf::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Text::from_gguf(&file).unwrap()
}

fn golden<T: for<'de> Deserialize<'de>>(path: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(path);
    let json = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&json).unwrap()
}

/// All ids equal, and the text comes back from them.
fn check(name: &str) {
    let text = open(name);
    let entries: Vec<Entry> = golden(&format!("tokens/{name}.json"));
    assert!(entries.len() >= 50);
    for entry in entries {
        let ids = text.encode(&entry.text, EncodeOptions { special: entry.special, bos: entry.bos });
        assert_eq!(ids, entry.ids, "{name}: {:?} special {} bos {}", entry.text, entry.special, entry.bos);
        let plain = text.encode(&entry.text, EncodeOptions { special: entry.special, bos: false });
        // A metaspace of the text itself comes back as a space.
        let expected = if name == "gemma3" { entry.text.replace('▁', " ") } else { entry.text };
        assert_eq!(text.decode(&plain, true).unwrap(), expected, "{name}");
    }
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn smollm2_ids() {
    check("smollm2");
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn qwen25c05_ids() {
    check("qwen25c05");
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn gemma3_ids() {
    check("gemma3");
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn ends_of_generation() {
    let ends = |name| open(name).end_ids().to_vec();
    assert_eq!(ends("smollm2"), [0, 2]);
    assert_eq!(ends("qwen25c05"), [151_643, 151_645, 151_662, 151_663, 151_664]);
    assert_eq!(ends("gemma3"), [1, 106]);
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn example_from_its_text() {
    let text = open("smollm2");
    let example: Example = golden("smollm2/example.json");
    let rendered = text.decode(&example.tokens, true).unwrap();
    let messages = rendered.split("<|im_start|>").skip(1).map(|turn| {
        let (role, rest) = turn.split_once('\n').unwrap();
        Message::new(role, rest.strip_suffix("<|im_end|>\n").unwrap())
    });
    let conversation = Conversation::new(messages.collect());
    assert_eq!(text.render(&conversation, false).unwrap(), rendered);
    let encoded = text.conversation(&conversation).unwrap();
    assert_eq!(encoded.tokens, example.tokens);
    let runs: Vec<[usize; 2]> = encoded.replies.iter().map(|run| [run.start, run.end]).collect();
    assert_eq!(runs, example.reply_runs);
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn templates_of_the_files() {
    let turns =
        vec![Message::new("user", "Hi"), Message::new("assistant", "Hello."), Message::new("user", "Bye")];
    let chat = |name| open(name).render(&Conversation::new(turns.clone()), true).unwrap();
    let rest = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n\
                <|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n";
    let smollm = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
    assert_eq!(chat("smollm2"), format!("<|im_start|>system\n{smollm}<|im_end|>\n{rest}"));
    let qwen = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
    assert_eq!(chat("qwen25c05"), format!("<|im_start|>system\n{qwen}<|im_end|>\n{rest}"));
    assert!(!open("gemma3").has_template());
    let runs = open("qwen25c05").conversation(&Conversation::new(turns)).unwrap().replies;
    assert_eq!(runs.len(), 1);
}
