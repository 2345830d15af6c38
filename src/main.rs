//! The binary: parses, runs, says how it went.

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tachograph::replay::{ReplayArgs, ReplaySettings};

/// A flight recorder and taximeter for AI agents
#[derive(Parser)]
#[command(version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Read files of records and print what happened; needs no services
    Replay(ReplayArgs),
}

fn main() -> ExitCode {
    match CommandLine::try_parse() {
        Ok(CommandLine {
            command: Command::Replay(args),
        }) => tachograph::replay::run(&args, &ReplaySettings::default()),
        Err(told) => {
            let is_error = told.use_stderr();
            let _ = told.print();
            ExitCode::from(if is_error { 64 } else { 0 })
        }
    }
}
