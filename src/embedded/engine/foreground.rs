//! `tachograph clickhouse`: an engine for a developer's machine, until Ctrl-C.
//!
//! Deliberately prints where the password is, never the password.

use std::io::{self, Write as _};

use super::{Engine, EngineError, EngineOptions};

/// Starts a supervised engine, prints how to reach it, and returns after SIGINT or SIGTERM, with
/// the engine stopped. Call it outside of any async runtime.
///
/// # Errors
/// As [`Engine::start`].
pub fn run_foreground(options: EngineOptions) -> Result<(), EngineError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(EngineError::at("runtime"))?;
    let _entered = runtime.enter();
    // Registered before the engine starts: a signal from then on ends it in order.
    let (mut interrupted, mut terminated) = signals().map_err(EngineError::at("signals"))?;
    let database = options.database.clone();
    let mut engine = Engine::start(options)?;
    engine.supervise()?;
    tell(&engine, &database).map_err(EngineError::at("standard output"))?;
    runtime.block_on(async {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    });
    engine.stop();
    Ok(())
}

fn signals() -> io::Result<(tokio::signal::unix::Signal, tokio::signal::unix::Signal)> {
    use tokio::signal::unix::{SignalKind, signal};
    Ok((
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    ))
}

fn tell(engine: &Engine, database: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "url       {}", engine.url())?;
    writeln!(out, "user      {}", engine.user())?;
    writeln!(out, "password  in {}", engine.password_file().display())?;
    writeln!(out, "database  {database}")?;
    out.flush()
}
