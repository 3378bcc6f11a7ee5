//! The command line of Apprentice.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

mod backend;
mod commands;
mod exit;
mod files;
mod interrupt;
mod memory;
mod reply;
mod sampling;
mod setup;

/// Reads a quantised language model, serves it, and trains it at the same time.
#[derive(Parser)]
#[command(name = "apprentice", version, about, propagate_version = true)]
struct CommandLine {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    exit::finish(CommandLine::parse().command.run())
}
