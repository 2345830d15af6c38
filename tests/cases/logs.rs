//! What the daemon's parts say in their log while a case is lived through.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static LISTENS: Once = Once::new();

/// Forgets what was said, and listens from now on.
pub fn listen() {
    LISTENS.call_once(|| {
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(|| Pen)
            .init();
    });
    lines().clear();
}

/// What was said since.
pub fn text() -> String {
    String::from_utf8_lossy(&lines()).into_owned()
}

fn lines() -> MutexGuard<'static, Vec<u8>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Pen;

impl Write for Pen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lines().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
