//! A server of a tiny random model that spells every byte, on a thread of the test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use apprentice_cpu::{Cpu, CpuOptions};
use apprentice_engine::{Engine, Numerics, Options, SEGMENT_KEYS};
use apprentice_gguf::Gguf;
use apprentice_graph::Element;
use apprentice_models::{Model, list};
use apprentice_quant::Format;
use apprentice_server::{Server, ServerOptions, Stop};
use apprentice_testkit::tiny::{self, TinyOptions};
use apprentice_text::{Text, TokenKind, Vocabulary};
use serde_json::Value;

use crate::client::{Answer, Exchange, send};

/// The model's name.
pub const NAME: &str = "tiny";
/// Positions of a sequence.
pub const CONTEXT: usize = 512;

const TEMPLATE: &str = "{% for m in messages %}{% if m.role == 'loop' %}{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}{% endif %}\
{% if m.role == 'refuse' %}{{ raise_exception('no such role') }}{% endif %}\
{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// A running server. Dropped, it stops.
pub struct House {
    pub address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl House {
    /// A server with eight slots, as `change` has it.
    pub fn open(change: impl FnOnce(&mut ServerOptions)) -> House {
        let mut options = ServerOptions::new(NAME);
        options.address = "127.0.0.1:0".to_owned();
        options.slots = 8;
        change(&mut options);
        let server = Server::bind(engine(options.slots), text(), options).unwrap();
        let (address, stop) = (server.address(), server.stop());
        let thread = std::thread::spawn(move || server.run().unwrap());
        House { address, stop, thread: Some(thread) }
    }

    pub fn begin(&self, method: &str, path: &str, body: &[u8]) -> Exchange {
        send(self.address, method, path, &["Content-Type: application/json"], body)
    }
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.begin("POST", path, body.to_string().as_bytes()).answer()
    }
    pub fn get(&self, path: &str) -> Answer {
        self.begin("GET", path, b"").answer()
    }
    pub fn chat(&self, body: &Value) -> Answer {
        self.post("/v1/chat/completions", body)
    }
    /// A number of `/metrics`.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let line = text.lines().find(|line| line.starts_with(&format!("apprentice_{name} ")));
        line.and_then(|line| line.rsplit(' ').next()).unwrap_or_else(|| panic!("{name}")).parse().unwrap()
    }
    /// Waits until a number of `/metrics` is as wanted.
    pub fn wait(&self, name: &str, wanted: impl Fn(f64) -> bool) {
        for _ in 0..2000 {
            if wanted(self.metric(name)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("{name} stays at {}", self.metric(name));
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
    }
}

/// The tiny model at work on the processor.
pub fn engine(sequences: usize) -> Engine {
    let family = list::FAMILIES[0].architecture;
    let tiny = TinyOptions { vocab: text().vocab(), ..TinyOptions::small(family, Format::Q8_0, 7) };
    let model = Model::open(Gguf::from_bytes(tiny::bytes(&tiny).unwrap()).unwrap()).unwrap();
    let cpu = Cpu::new(CpuOptions { threads: Some(2), level: None, poison: false }).unwrap();
    let options = Options {
        cache: Element::F16,
        context: CONTEXT,
        sequences,
        segment: SEGMENT_KEYS,
        numerics: Numerics::Q8,
    };
    Engine::new(model, Box::new(cpu), options).unwrap()
}

/// A tokeniser of bytes, with the marks of a conversation.
pub fn text() -> Text {
    let visible = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut tokens: Vec<String> = (0..=u8::MAX).map(|byte| char::from(byte).to_string()).collect();
    for (hidden, byte) in (0..=u8::MAX).filter(|byte| !visible(byte)).enumerate() {
        tokens[usize::from(byte)] = char::from_u32(0x100 + hidden as u32).unwrap().to_string();
    }
    tokens.push("zq".to_owned());
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    for mark in ["<|im_start|>", "<|im_end|>"] {
        tokens.push(mark.to_owned());
        kinds.push(TokenKind::Control);
    }
    let vocabulary = Vocabulary {
        model: "gpt2".into(),
        pre: Some("smollm".into()),
        merges: vec!["z q".to_owned()],
        bos: Some(257),
        eos: Some(258),
        tokens,
        kinds,
        chat_template: Some(TEMPLATE.into()),
        ..Vocabulary::default()
    };
    Text::new(vocabulary).unwrap()
}

/// A folder of its own, gone when dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("apprentice-server-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
