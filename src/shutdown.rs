//! Signals to `Running → Draining → Stopped`.
//!
//! Deliberately no clean-up of its own: a second signal exits at once, since a crash is a supported
//! way to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// How far the process has come on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Running,
    /// A signal came: finish what is in hand and leave.
    Draining,
    /// The group is left; the servers may go.
    Stopped,
}

/// The state, shared by all who act on it.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    state: Arc<AtomicU8>,
    changed: Arc<Notify>,
}

impl Shutdown {
    /// Where the process stands now.
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Running,
            1 => State::Draining,
            _ => State::Stopped,
        }
    }

    /// Asks for an orderly end, as the first signal does.
    pub fn drain(&self) {
        self.advance(State::Draining);
    }

    /// Says that the loop has ended.
    pub fn stop(&self) {
        self.advance(State::Stopped);
    }

    /// Waits until the loop has ended.
    pub async fn stopped(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.state() == State::Stopped {
                return;
            }
            changed.await;
        }
    }

    /// Listens for SIGTERM and SIGINT, on the runtime this is called in.
    ///
    /// # Errors
    /// When the process may not install signal handlers.
    pub fn listen(&self) -> std::io::Result<()> {
        for (kind, code) in [
            (SignalKind::interrupt(), 130),
            (SignalKind::terminate(), 143),
        ] {
            let mut signals = signal(kind)?;
            let shutdown = self.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    if shutdown.state() > State::Running {
                        tracing::warn!("a second signal: leaving at once, without a commit");
                        std::process::exit(code);
                    }
                    tracing::info!("a signal: finishing what is in hand");
                    shutdown.drain();
                }
            });
        }
        Ok(())
    }

    fn advance(&self, to: State) {
        self.state.fetch_max(to as u8, Ordering::AcqRel);
        self.changed.notify_waiters();
    }
}
