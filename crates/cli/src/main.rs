//! The command line of Apprentice.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Command, CommandFactory, FromArgMatches, Parser};

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
    let read = numbers_may_be_negative(CommandLine::command()).try_get_matches();
    match read.and_then(|matches| CommandLine::from_arg_matches(&matches)) {
        Ok(line) => exit::finish(line.command.run()),
        Err(error) => exit::misread(&error),
    }
}

/// A `-1` after a flag that takes a value is its value, so that it is refused as one and not as a flag of its own.
fn numbers_may_be_negative(command: Command) -> Command {
    let flags = |arg: clap::Arg| {
        let takes_value = !arg.is_positional() && arg.get_action().takes_values();
        if takes_value { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(flags).mut_subcommands(numbers_may_be_negative)
}
