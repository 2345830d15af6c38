//! The binary `tachograph`; everything it can do stands in `cli`.

#[cfg(feature = "io")]
mod cli;

#[cfg(feature = "io")]
fn main() -> std::process::ExitCode {
    cli::main()
}

/// Without its edges there is no daemon: `cargo check --no-default-features` builds the core alone.
#[cfg(not(feature = "io"))]
fn main() {}
