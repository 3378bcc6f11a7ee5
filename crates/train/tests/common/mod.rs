//! What the tests of this crate share: a tiny model, a tokeniser of bytes with a template, and data made of both.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail as the test does")]
#![allow(dead_code, reason = "each test file compiles this module and uses its own part of it")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use apprentice_cpu::{Cpu, CpuOptions};
use apprentice_engine::{Engine, LearnerOptions, Numerics, Objective, Options};
use apprentice_gguf::Gguf;
use apprentice_graph::Element;
use apprentice_models::{Adapter, AdapterRows, Model, Pair, targets};
use apprentice_quant::Format;
use apprentice_testkit::tiny::{self, TinyOptions};
use apprentice_text::{Text, TokenKind, Vocabulary};
use apprentice_train::{Dataset, SampleRules, Settings, TrainError};

/// A conversation's template: marks, role, content, marks.
pub const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A tokeniser of bytes with this template.
pub fn text(template: &str) -> Text {
    let visible = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut tokens: Vec<String> = (0..=u8::MAX).map(|byte| char::from(byte).to_string()).collect();
    for (hidden, byte) in (0..=u8::MAX).filter(|byte| !visible(byte)).enumerate() {
        tokens[usize::from(byte)] = char::from_u32(0x100 + hidden as u32).unwrap().to_string();
    }
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    for mark in ["<|im_start|>", "<|im_end|>"] {
        tokens.push(mark.to_owned());
        kinds.push(TokenKind::Control);
    }
    let vocabulary = Vocabulary {
        model: "gpt2".into(),
        pre: Some("smollm".into()),
        merges: vec!["o u".into(), "Ġ x".into()],
        bos: Some(256),
        eos: Some(257),
        tokens: tokens.into_iter().chain(["ou".to_owned(), "Ġx".to_owned()]).collect(),
        kinds: kinds.into_iter().chain([TokenKind::Normal; 2]).collect(),
        chat_template: Some(template.into()),
        ..Vocabulary::default()
    };
    Text::new(vocabulary).unwrap()
}

/// A tiny engine whose vocabulary is that of [`text()`].
pub fn engine(numerics: Numerics, sequences: usize) -> Engine {
    let tiny = TinyOptions { vocab: text(TEMPLATE).vocab(), ..TinyOptions::small("llama", Format::Q8_0, 7) };
    let model = Model::open(Gguf::from_bytes(tiny::bytes(&tiny).unwrap()).unwrap()).unwrap();
    let cpu = Cpu::new(CpuOptions { threads: Some(2), level: None, poison: true }).unwrap();
    let options = Options { cache: Element::F16, context: 320, sequences, segment: 128, numerics };
    Engine::new(model, Box::new(cpu), options).unwrap()
}

/// An adapter on every linear with random A and B.
pub fn adapter(model: &Model, rows: AdapterRows) -> Adapter {
    let sites = targets::resolve(model, &[targets::ALL_LINEAR]).unwrap();
    let fresh = Adapter::fresh(model, &sites, 3, 6.0, rows, 5).unwrap();
    let other = Adapter::fresh(model, &sites, 3, 6.0, AdapterRows::All, 6).unwrap();
    let pairs = fresh.pairs.into_iter().zip(other.pairs).map(|(pair, other)| {
        let b = pair.b.iter().enumerate().map(|(at, _)| other.a[at % other.a.len()] * 0.1).collect();
        Pair { b, ..pair }
    });
    Adapter { pairs: pairs.collect(), rows: fresh.rows }
}

/// Conversations of several lengths, the longest of more than three blocks of 64 tokens; every third has two replies.
pub fn conversations(count: usize) -> String {
    let line = |index: usize| {
        let long = "because it is so, and ".repeat(index % 4 * 3);
        let again =
            r#", {"role": "user", "content": "And you?"}, {"role": "assistant", "content": "So am I."}"#;
        let again = if index.is_multiple_of(3) { again } else { "" };
        format!(
            r#"{{"messages": [{{"role": "user", "content": "Question {index}?"}}, {{"role": "assistant", "content": "{long}answer {index}."}}{again}]}}"#
        )
    };
    (0..count).map(|index| line(index) + "\n").collect()
}

/// The rules of these tests.
pub fn rules(objective: Objective) -> SampleRules {
    SampleRules { objective, context: 320, unix_seconds: 0 }
}

/// Text read as a data set.
pub fn data(bytes: impl AsRef<[u8]>, objective: Objective) -> Result<Dataset, TrainError> {
    Dataset::parse(Path::new("data.jsonl"), bytes.as_ref(), &text(TEMPLATE), &rules(objective))
}

/// Settings of these tests: a few short epochs.
pub fn settings(objective: Objective) -> Settings {
    Settings {
        objective,
        epochs: 3,
        batch: 2,
        accumulate: 2,
        warmup: None,
        seed: 9,
        optimizer: LearnerOptions { learning_rate: 5e-3, ..LearnerOptions::default() },
    }
}

/// A folder of one test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name =
            format!("apprentice-train-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The bits of an adapter.
pub fn bits(adapter: &Adapter) -> Vec<u32> {
    let values = adapter.pairs.iter().flat_map(|pair| pair.a.iter().chain(&pair.b));
    values.map(|value| value.to_bits()).collect()
}
