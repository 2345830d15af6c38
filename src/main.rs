//! The command line; so far only the embedded engine and `replay`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    #[cfg(feature = "io")]
    if arguments.first().is_some_and(|word| word == "replay") {
        return replay();
    }
    run(arguments)
}

#[cfg(feature = "io")]
fn replay() -> ExitCode {
    use clap::Parser;
    use tachograph::replay::{ReplayArgs, ReplaySettings};
    #[derive(Parser)]
    enum CommandLine {
        /// Read files of records and print what happened; needs no services
        Replay(ReplayArgs),
    }
    match CommandLine::try_parse() {
        Ok(CommandLine::Replay(args)) => tachograph::replay::run(&args, &ReplaySettings::default()),
        Err(told) => {
            let is_error = told.use_stderr();
            let _ = told.print();
            ExitCode::from(if is_error { 64 } else { 0 })
        }
    }
}

#[cfg(feature = "demo")]
fn run(arguments: Vec<std::ffi::OsString>) -> ExitCode {
    use tachograph::embedded::engine::{self, EngineOptions};
    let mut words = arguments.into_iter();
    let command = words.next().unwrap_or_default();
    if command == engine::CHILD_COMMAND {
        return engine::run_child(words);
    }
    let mut options = EngineOptions::new("clickhouse");
    while let (Some(flag), Some(value)) = (words.next(), words.next()) {
        match flag.to_str() {
            Some("--dir") => options.dir = value.into(),
            Some("--port") => {
                let port = value.to_str().and_then(|text| text.parse().ok());
                options.http_port = port.unwrap_or_default();
            }
            _ => return ExitCode::from(64),
        }
    }
    if command != "clickhouse" {
        return ExitCode::from(64);
    }
    match engine::run_foreground(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(69)
        }
    }
}

#[cfg(not(feature = "demo"))]
fn run(_arguments: Vec<std::ffi::OsString>) -> ExitCode {
    ExitCode::from(64)
}
