//! The state file: counters and the marks of what they hold, for the next process on this host.
//!
//! Deliberately no part in deciding: the pipeline says when, with which marks, and what waits for
//! it. A file that cannot be read is set aside, one that cannot be written is removed: its counters
//! would be behind what Prometheus has seen, and a counter that falls counts as a whole again.

mod format;
mod place;

pub use format::Stored;
pub use place::{StateError, StateFile};

use crate::clock::Clock;
use crate::core::Now;
use crate::core::ledger::WorkId;
use crate::core::pipeline::{CountedMarks, Save};
use crate::prometheus_exporter::Exporter;
use crate::warn_rarely;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// A scrape is answered from a file so young, and does not ask for another one: bounds the writes
/// that scrapes cause.
const YOUNG: Duration = Duration::from_secs(1);
/// How long a scrape waits for a file; then it shows the newest one. Prometheus gives up after
/// 10 s.
const SCRAPE_MAX: Duration = Duration::from_secs(3);

/// Where scrapes ask for a file, and hear of it.
pub struct ScrapeGate {
    exporter: Arc<Exporter>,
    clock: Clock,
    is_wanted: AtomicBool,
    saved_at: Mutex<Option<Now>>,
    /// Tries to save so far.
    saves: watch::Sender<u64>,
}

impl ScrapeGate {
    /// Returns when a scrape may be answered: its counters are in a file that is young, or it has
    /// waited for long enough and shows an older one, or none can be written.
    pub async fn pass(&self) {
        let mut saves = self.saves.subscribe();
        if self.exporter.is_all_shown() || self.is_young() {
            return;
        }
        self.is_wanted.store(true, Ordering::Relaxed);
        // Out of time is no reason not to answer.
        let _ = tokio::time::timeout(SCRAPE_MAX, saves.changed()).await;
    }

    fn is_young(&self) -> bool {
        let saved_at = *self.saved_at.lock().unwrap_or_else(PoisonError::into_inner);
        saved_at.is_some_and(|at| self.clock.now().0.saturating_sub(at.0) < YOUNG)
    }

    fn saved(&self, taken_at: Option<Now>) {
        *self.saved_at.lock().unwrap_or_else(PoisonError::into_inner) = taken_at;
        self.saves.send_modify(|saves| *saves += 1);
    }
}

/// A file to be written.
struct Order {
    work: WorkId,
    stored: Stored,
    taken_at: Now,
}

/// The driver's end: takes the counters, and leaves the writing to a thread of its own.
pub struct Saver {
    exporter: Arc<Exporter>,
    gate: Arc<ScrapeGate>,
    clock: Clock,
    group: String,
    cluster: Option<String>,
    has_met: bool,
    restored: CountedMarks,
    file: Arc<StateFile>,
    /// `None` at the end.
    orders: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Saver {
    /// Goes on from what was stored, and starts the thread, which says `settled` after each try
    /// to save.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        file: StateFile,
        stored: Option<Stored>,
        group: &str,
        exporter: &Arc<Exporter>,
        settled: SyncSender<WorkId>,
        clock: Clock,
    ) -> io::Result<Saver> {
        let stored = stored.unwrap_or_default();
        exporter.go_on_from(&stored.counters);
        if !stored.counted.is_empty() {
            let (path, partitions) = (file.path().display(), stored.counted.len());
            tracing::info!(file = %path, partitions, "counters go on from the state file");
        }
        let gate = Arc::new(ScrapeGate {
            exporter: Arc::clone(exporter),
            clock,
            is_wanted: AtomicBool::new(false),
            saved_at: Mutex::new(None),
            saves: watch::Sender::new(0),
        });
        // The pipeline has one save on its way at a time.
        let (orders, received) = sync_channel(1);
        let file = Arc::new(file);
        let writer = Writer {
            file: Arc::clone(&file),
            gate: Arc::clone(&gate),
            settled,
        };
        let thread = std::thread::Builder::new().name("state-file".to_owned());
        let thread = thread.spawn(move || writer.write(&received))?;
        Ok(Saver {
            exporter: Arc::clone(exporter),
            gate,
            clock,
            group: group.to_owned(),
            cluster: stored.cluster,
            has_met: false,
            restored: stored.counted,
            file,
            orders: Some(orders),
            thread: Some(thread),
        })
    }

    /// Where scrapes pass.
    pub fn gate(&self) -> Arc<ScrapeGate> {
        Arc::clone(&self.gate)
    }

    /// What an earlier process had counted.
    pub fn restored(&self) -> CountedMarks {
        self.restored.clone()
    }

    /// True where a scrape has asked for a file since the last call.
    pub fn is_wanted(&self) -> bool {
        self.gate.is_wanted.swap(false, Ordering::Relaxed)
    }

    /// Takes the counters as they stand, and has them written with these marks.
    pub fn save(&self, save: Save) {
        let order = Order {
            work: save.work,
            stored: Stored {
                group: self.group.clone(),
                cluster: self.cluster.clone(),
                counted: save.counted,
                counters: self.exporter.counters(),
            },
            taken_at: self.clock.now(),
        };
        let orders = self.orders.as_ref();
        if orders.is_none_or(|orders| orders.try_send(order).is_err()) {
            // Its commits wait for ever: nothing is committed that no file has.
            tracing::error!(work = save.work.0, "the state file takes no save");
        }
    }

    /// Partitions of this cluster come. False where the state file was of another one: it is set
    /// aside, counters begin at zero, and its marks say nothing.
    pub fn meet(&mut self, cluster: Option<String>) -> bool {
        let Some(cluster) = cluster.filter(|_| !self.has_met) else {
            return true;
        };
        self.has_met = true;
        let before = self.cluster.replace(cluster);
        if before.is_none() || before == self.cluster {
            return true;
        }
        let before = before.unwrap_or_default();
        self.file
            .set_aside(&format!("it is of the cluster {before:?}"));
        self.exporter.begin_anew();
        false
    }
}

impl Drop for Saver {
    /// Waits for a save under way, so that the file is free for the next process.
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was said by itself.
            let _ = thread.join();
        }
    }
}

/// What the thread holds.
struct Writer {
    file: Arc<StateFile>,
    gate: Arc<ScrapeGate>,
    settled: SyncSender<WorkId>,
}

impl Writer {
    /// Writes what is ordered until nobody orders any more. A save that failed is settled as well:
    /// commits and scrapes go on as without a file, and the next one tries again.
    fn write(&self, orders: &Receiver<Order>) {
        for order in orders {
            let exporter = &self.gate.exporter;
            match self.file.write(&order.stored.text()) {
                Ok(()) => {
                    exporter.saved(order.stored.counters);
                    self.gate.saved(Some(order.taken_at));
                }
                Err(error) => {
                    let file = self.file.path().display();
                    warn_rarely!("state_file", %file, %error, "the state file cannot be written: \
                        a crash counts again what was counted since the last commit");
                    self.file.remove();
                    exporter.not_saved();
                    self.gate.saved(None);
                }
            }
            // After the driver's end nobody asks.
            let _ = self.settled.send(order.work);
        }
    }
}

#[cfg(test)]
mod tests;
