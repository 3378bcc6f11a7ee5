//! The commands, one file each.

use clap::Subcommand;

use crate::exit::{Failure, Outcome};

mod bench;
mod chat;
mod check;
mod demo;
mod gradients;
mod inspect;
mod logits;
mod plan;
mod prompt;
mod run;
mod serve;
mod tokens;
mod train;

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Answer one prompt.
    Run(run::RunCommand),
    /// Talk with a model, and teach it.
    Chat(Box<chat::ChatCommand>),
    /// Serve a model over HTTP, and teach it there.
    Serve(Box<serve::ServeCommand>),
    /// Show what a file holds: metadata, tensors, and where adapters may sit.
    Inspect(inspect::InspectCommand),
    /// Teach a model a made-up fact, and ask for it in other words.
    Demo(demo::DemoCommand),
    /// Tell how much memory serving and training would take.
    Plan(plan::PlanCommand),
    /// Write the tokens of a text.
    Tokens(tokens::TokensCommand),
    /// Write the logits of every token of a text, as a NumPy array.
    Logits(logits::LogitsCommand),
    /// Write the gradient of an adapter on an example, as safetensors.
    Gradients(gradients::GradientsCommand),
    /// Train an adapter on an example.
    Train(train::TrainCommand),
    /// Measure how many tokens a second a model reads and writes.
    Bench(bench::BenchCommand),
    /// Compare with numbers that independent code computed.
    Check(check::CheckCommand),
}

impl Command {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Failure> {
        match self {
            Command::Run(command) => command.run(),
            Command::Chat(command) => command.run(),
            Command::Serve(command) => command.run(),
            Command::Inspect(command) => command.run(),
            Command::Demo(command) => command.run(),
            Command::Plan(command) => command.run(),
            Command::Tokens(command) => command.run(),
            Command::Logits(command) => command.run(),
            Command::Gradients(command) => command.run(),
            Command::Train(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::Check(command) => command.run(),
        }
    }
}
