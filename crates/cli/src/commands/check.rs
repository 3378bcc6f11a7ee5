//! `apprentice check`: comparisons with numbers that independent code computed.

use std::io::Write;
use std::path::PathBuf;

use apprentice_check::{Report, archs, golden, quants};
use clap::{Args, Subcommand};

use crate::backend::RunArgs;
use crate::exit::{Failure, Outcome};
use crate::setup::{FlagBench, ModelArgs};

/// Compare with numbers that independent code computed.
#[derive(Args)]
pub struct CheckCommand {
    #[command(subcommand)]
    what: What,
}

/// What is compared.
#[derive(Subcommand)]
enum What {
    /// A folder of a real model: logits, training example, steps, replies.
    Golden(GoldenCommand),
    /// A folder of tiny models of many families, and its folder extra.
    Archs(FolderCommand),
    /// A folder of blocks of many formats.
    Quants(FolderCommand),
}

#[derive(Args)]
struct GoldenCommand {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    common: FolderCommand,
}

#[derive(Args)]
struct FolderCommand {
    /// The folder.
    folder: PathBuf,
    /// Write the report as JSON.
    #[arg(long)]
    json: bool,
    /// Fail where something is not built, too.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    run: RunArgs,
}

impl CheckCommand {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Failure> {
        match self.what {
            What::Golden(GoldenCommand { model, common }) => {
                common.run(|folder, bench| Ok(golden(bench, folder, &model.model)?))
            }
            What::Archs(common) => common.run(|folder, bench| Ok(archs(bench, folder)?)),
            What::Quants(common) => common.run(|folder, _| Ok(quants(folder)?)),
        }
    }
}

impl FolderCommand {
    fn run(
        &self,
        check: impl FnOnce(&std::path::Path, &FlagBench<'_>) -> Result<Report, Failure>,
    ) -> Result<Outcome, Failure> {
        self.run.check()?;
        let report = check(&self.folder, &FlagBench { args: &self.run })?;
        let mut out = std::io::stdout().lock();
        match self.json {
            true => writeln!(out, "{}", report.json(self.all))?,
            false => write!(out, "{}", report.table())?,
        }
        out.flush()?;
        Ok(if report.passed(self.all) { Outcome::Done } else { Outcome::Missed })
    }
}
