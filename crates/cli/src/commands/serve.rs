//! `apprentice serve`: the model for programs that speak OpenAI's HTTP, a page for people, and lessons for both.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use apprentice_engine::{
    AdapterShape, Engine, LearnerShape, MicroBatch, StepShape, Workload, teaching_adapter,
};
use apprentice_models::Model;
use apprentice_server::{Server, ServerError, ServerOptions};
use clap::Args;

use crate::backend::{Cache, Numerics, RunArgs};
use crate::commands::prompt::read_text_tables;
use crate::exit::{Failure, Outcome};
use crate::setup::{ModelArgs, context};

/// Positions of a slot unless they are given, where the model has so many.
const CONTEXT: usize = 4096;
/// Slots that may be asked for.
const SLOTS_MAX: u64 = 256;
/// Tokens of a taught reply that the memory is told for; a longer one takes more.
const LESSON_TOKENS: usize = 256;

/// Serve a model over HTTP, and teach it there.
#[derive(Args)]
pub struct ServeCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Name of the model for clients; the name of its file without .gguf, unless given.
    #[arg(long, value_name = "NAME")]
    alias: Option<String>,
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on; 0 takes any that is free.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// A key that requests must carry as `Authorization: Bearer KEY`; may be given again, or as a list with commas.
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    api_key: Vec<String>,
    /// File with such keys, a line each.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Tokens of a slot, at most; 4096 or what the model has, unless given.
    #[arg(short = 'c', long, value_name = "TOKENS")]
    ctx_size: Option<usize>,
    /// Requests served at the same time, and conversations remembered.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=SLOTS_MAX))]
    slots: u64,
    /// Folder of adapters: all are loaded at the start, and each is written there after every lesson.
    #[arg(long, value_name = "DIR")]
    adapters: Option<PathBuf>,
    /// Adapter of requests that name none, as soon as there is one of this name.
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,
    /// Requests that may wait for a slot.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65536))]
    queue: u64,
    /// Bytes of a request's body, at most.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    max_body: u64,
    /// Seconds that a request may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
    #[command(flatten)]
    run: RunArgs,
}

impl ServeCommand {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Failure> {
        self.run.check()?;
        let api_keys = self.keys()?;
        let model = self.model.open()?;
        let text = read_text_tables(model.gguf(), &self.model.model)?;
        let context = match self.ctx_size {
            Some(0) => return Err(Failure::input("--ctx-size 0: expected at least 1")),
            Some(tokens) => context(&model, "--ctx-size", tokens, 0)?,
            None => CONTEXT.min(model.hyper().context),
        };
        let slots = self.slots as usize; // at most SLOTS_MAX
        let engine_options = self.run.options(context, slots, Cache::F16, Numerics::Q8);
        let account = self.run.afford(&model, &engine_options, &workload(&model)?)?;
        eprintln!("memory {account}");
        let backend = self.run.backend(&model)?;
        let engine = Engine::new(model, backend, engine_options)?;
        let name = self.model.model.file_stem().unwrap_or_default().to_string_lossy();
        let options = ServerOptions {
            address: format!("{}:{}", bracketed(self.host), self.port),
            api_keys,
            slots,
            queue: self.queue as usize,         // at most 65536
            body_bytes: self.max_body as usize, // at most 2^30
            timeout: Duration::from_secs(self.timeout),
            adapters: self.adapters,
            adapter: self.adapter,
            force: self.run.force,
            ..ServerOptions::new(self.alias.unwrap_or_else(|| name.replace(':', "-")))
        };
        let model = options.model.clone();
        let mut server = Server::bind(engine, text, options).map_err(refused)?;
        server.stop_on_signals();
        let (address, adapters) = (server.address(), server.adapters());
        eprintln!("{model}: {slots} slots of {context} tokens, adapters loaded: {adapters}");
        eprintln!("listening on http://{address}");
        server.run().map_err(refused)?;
        Ok(Outcome::Done)
    }

    fn keys(&self) -> Result<Vec<String>, Failure> {
        let mut keys = self.api_key.clone();
        if let Some(path) = &self.api_key_file {
            let text = fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
            keys.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
            if keys.is_empty() {
                return Err(Failure::input("a file of keys without a key lets nobody in").at(path));
            }
        }
        Ok(keys)
    }
}

/// Replies, and a lesson: the adapter that it makes while replies still use the one before, and a step on a reply.
fn workload(model: &Model) -> Result<Workload, Failure> {
    let adapter = teaching_adapter(model)?;
    let shape = AdapterShape::of(&adapter);
    let tokens = LESSON_TOKENS.min(model.hyper().context);
    let step = StepShape::of_samples(&shape, &[(tokens, tokens)], model.hyper().vocab, MicroBatch::default());
    Ok(Workload {
        serving: true,
        adapters: vec![shape; 2],
        learners: vec![LearnerShape::of(&adapter)],
        steps: vec![step],
        ..Workload::default()
    })
}

/// An address as it stands before a port.
fn bracketed(host: IpAddr) -> String {
    match host {
        IpAddr::V4(host) => host.to_string(),
        IpAddr::V6(host) => format!("[{host}]"),
    }
}

fn refused(error: ServerError) -> Failure {
    Failure::Refused { kind: error.kind(), message: error.to_string() }
}
