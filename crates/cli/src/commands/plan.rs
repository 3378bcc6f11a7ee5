//! `apprentice plan`: the bytes that serving and training would take, by name, before anything is allocated.

use std::io::{self, Write};

use apprentice_engine::{
    Account, AdapterShape, Kind, LearnerShape, MicroBatch, Options, PlanAccount, StepShape, Workload,
    readable,
};
use apprentice_models::{Model, targets};
use clap::Args;
use serde_json::{Value as Json, json};

use crate::backend::{Cache, Numerics, RunArgs};
use crate::exit::{Failure, Outcome};
use crate::setup::{ModelArgs, context};

/// Positions of a slot unless they are given, where the model has so many.
const CONTEXT: usize = 4096;
/// Slots that may be asked for.
const SLOTS_MAX: u64 = 256;
/// Ranks and batches that may be asked for.
const COUNT_MAX: u64 = 1 << 16;

/// Tell how much memory serving and training would take.
#[derive(Args)]
pub struct PlanCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens of a slot; 4096 or what the model has, unless given.
    #[arg(short = 'c', long, value_name = "TOKENS")]
    ctx_size: Option<usize>,
    /// Sequences held at the same time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=SLOTS_MAX))]
    slots: u64,
    /// Adapters loaded at the same time, each of `--rank` on `--targets`.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=64))]
    adapters: u64,
    /// Tokens of a training sample; without it nothing is trained.
    #[arg(long, value_name = "TOKENS")]
    train_context: Option<usize>,
    /// Samples of a training step.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=COUNT_MAX))]
    batch: u64,
    /// Rank of the adapters.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=COUNT_MAX))]
    rank: u64,
    /// Where adapters sit: PEFT or GGUF names, a list with commas.
    #[arg(long, value_delimiter = ',', default_value = targets::ALL_LINEAR)]
    targets: Vec<String>,
    /// Also name this many of the largest things, and of the largest values of each program.
    #[arg(long, value_name = "N", default_value_t = 0)]
    largest: usize,
    /// Write it as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run: RunArgs,
}

impl PlanCommand {
    /// Does it. What is over budget is shown before it is refused.
    pub fn run(self) -> Result<Outcome, Failure> {
        self.run.check()?;
        let model = self.model.open()?;
        let context = match self.ctx_size {
            Some(0) => return Err(Failure::input("--ctx-size 0: expected at least 1")),
            Some(tokens) => context(&model, "--ctx-size", tokens, 0)?,
            None => CONTEXT.min(model.hyper().context),
        };
        let slots = self.slots as usize; // at most SLOTS_MAX
        let options = self.run.options(context, slots, Cache::F16, Numerics::Q8);
        let work = self.workload(&model)?;
        let account =
            apprentice_engine::account(&model, &options, &work, self.run.backend(&model)?.as_ref())?;
        let mut out = io::stdout().lock();
        match self.json {
            true => writeln!(out, "{}", as_json(&account, self.largest))?,
            false => self.as_text(&account, &options, &mut out)?,
        }
        out.flush()?;
        self.run.within(&account).map(|()| Outcome::Done)
    }

    fn workload(&self, model: &Model) -> Result<Workload, Failure> {
        let sites = targets::resolve(model, &self.targets)?;
        let shape = AdapterShape { sites, rank: self.rank as usize }; // at most COUNT_MAX
        let mut work = Workload { serving: true, ..Workload::default() };
        work.adapters = vec![shape.clone(); self.adapters as usize]; // at most 64
        if let Some(tokens) = self.train_context {
            let tokens = context(model, "--train-context", tokens, 0)?;
            let samples = vec![(tokens, tokens); self.batch as usize]; // at most COUNT_MAX
            let limit = MicroBatch::default();
            work.steps.push(StepShape::of_samples(&shape, &samples, model.hyper().vocab, limit));
            work.learners.push(LearnerShape { sites: shape.sites, rank: shape.rank });
        }
        Ok(work)
    }

    fn as_text(&self, account: &Account, options: &Options, out: &mut impl Write) -> io::Result<()> {
        let Options { context, sequences, cache, .. } = options;
        writeln!(out, "{sequences} slots of {context} tokens, pages of {cache}")?;
        for kind in Kind::ALL {
            let bytes = account.of(kind);
            if bytes > 0 {
                line(out, kind.name(), bytes)?;
            }
        }
        line(out, "sum", account.total())?;
        if self.largest == 0 {
            return Ok(());
        }
        writeln!(out, "\nlargest")?;
        for item in largest(account, self.largest) {
            line(out, &format!("{} {}", item.kind.name(), item.name), item.bytes)?;
        }
        for plan in &account.plans {
            writeln!(out, "\n{}", plan.name)?;
            for value in plan.largest.iter().take(self.largest) {
                line(out, &format!("{} {} {}", value.site, value.output, value.ty), value.bytes)?;
            }
            line(out, "peak", plan.bytes)?;
        }
        Ok(())
    }
}

fn line(out: &mut impl Write, name: &str, bytes: u64) -> io::Result<()> {
    writeln!(out, "  {bytes:>15}  {:>10}  {name}", readable(bytes))
}

fn largest(account: &Account, count: usize) -> Vec<&apprentice_engine::Item> {
    let mut items: Vec<&apprentice_engine::Item> = account.items.iter().collect();
    items.sort_by_key(|item| std::cmp::Reverse(item.bytes));
    items.truncate(count);
    items
}

fn as_json(account: &Account, count: usize) -> Json {
    let kinds: serde_json::Map<String, Json> =
        Kind::ALL.into_iter().map(|kind| (kind.name().replace(' ', "_"), json!(account.of(kind)))).collect();
    let items = largest(account, count)
        .into_iter()
        .map(|item| json!({ "kind": item.kind.name(), "name": item.name, "bytes": item.bytes }));
    let plan = |plan: &PlanAccount| {
        let values = plan.largest.iter().take(count).map(|value| {
            let ty = value.ty.to_string();
            json!({ "site": value.site, "output": value.output, "type": ty, "bytes": value.bytes })
        });
        json!({ "name": plan.name, "bytes": plan.bytes, "largest": values.collect::<Vec<_>>() })
    };
    json!({
        "sum": account.total(),
        "bytes": kinds,
        "largest": items.collect::<Vec<_>>(),
        "programs": account.plans.iter().map(plan).collect::<Vec<_>>(),
    })
}
