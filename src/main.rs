//! The command line; so far only the embedded engine.

use std::process::ExitCode;

fn main() -> ExitCode {
    run(std::env::args_os().skip(1).collect())
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
