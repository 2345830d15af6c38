//! Kafka for the demo: librdkafka's mock cluster in this process, and who fills it.
//!
//! Deliberately nothing that the daemon could notice: it connects to the cluster as to any other.

use super::corpus::{Recording, Sendable};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The topic that the demo fills.
pub const TOPIC: &str = "agent-events";
/// Its partitions: the cluster keeps no more than 5 MiB of each.
pub const PARTITIONS: i32 = 16;
/// One pass over all recordings at pace 1.
pub const PASS: Duration = Duration::from_secs(25);
/// What one recording is stretched to within a pass, at pace 1.
pub const STRETCH: Duration = Duration::from_secs(5);
/// From how many records on a recording makes a drawing worth its lines.
const DRAWN_FROM: usize = 12;
/// Longest wait without a look at whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// For what is still to be sent at the end.
const FLUSH_MAX: Duration = Duration::from_secs(10);

/// The mock cluster; it ends when dropped.
pub struct Cluster {
    mock: MockCluster<'static, DefaultProducerContext>,
}

impl Cluster {
    /// One broker with the demo's topic and the one for dead letters.
    ///
    /// # Errors
    /// librdkafka has no socket for it.
    pub fn start() -> Result<Cluster, KafkaError> {
        let mock = MockCluster::new(1)?;
        mock.create_topic(TOPIC, PARTITIONS, 1)?;
        mock.create_topic(&format!("{TOPIC}.dead-letters"), 1, 1)?;
        Ok(Cluster { mock })
    }

    /// `host:port` of the broker.
    pub fn brokers(&self) -> String {
        self.mock.bootstrap_servers()
    }
}

/// How the recordings are played.
#[derive(Clone, Copy, Debug)]
pub enum Play {
    /// Over and over, so many times as fast as [`PASS`].
    Looped { pace: f64 },
    /// One pass, without waiting.
    Once,
}

/// The records of a recording that was sent as a whole.
#[derive(Clone, Debug)]
pub struct Played {
    pub name: &'static str,
    pub payloads: Vec<Vec<u8>>,
}

/// How far the producer is; shared with those who watch.
#[derive(Debug, Default)]
pub struct Progress {
    sent: AtomicU64,
    pass: AtomicU64,
    is_done: AtomicBool,
    is_stopping: AtomicBool,
    played: Mutex<Option<Played>>,
}

impl Progress {
    /// Records that the cluster took or will take.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// The pass under way, from 1.
    pub fn pass(&self) -> u64 {
        self.pass.load(Ordering::Acquire)
    }

    /// True after the last record of [`Play::Once`] is in the cluster.
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Asks the producer to end soon.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// The newest recording that was sent as a whole and is worth a drawing.
    pub fn played(&self) -> Option<Played> {
        let played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        played.clone()
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn finished(&self, name: &'static str, payloads: &[Vec<u8>]) {
        if payloads.len() >= DRAWN_FROM {
            let payloads = payloads.to_vec();
            let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
            *played = Some(Played { name, payloads });
        }
    }
}

/// One record and when it is due, since the start of the pass.
struct Due {
    at: Duration,
    recording: usize,
    record: Sendable,
}

/// Plays the recordings into `brokers` until told to stop.
///
/// # Errors
/// The cluster refuses a record for good.
pub fn play(
    brokers: &str,
    recordings: &[Recording],
    play: Play,
    progress: &Progress,
) -> Result<(), KafkaError> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("compression.type", "zstd")
        .set("linger.ms", "20")
        .create()?;
    for pass in 1.. {
        progress.pass.store(pass, Ordering::Release);
        send_pass(&producer, recordings, pass, play, progress)?;
        if progress.is_stopping() || matches!(play, Play::Once) {
            break;
        }
    }
    producer.flush(FLUSH_MAX)?;
    progress.is_done.store(true, Ordering::Release);
    Ok(())
}

fn send_pass(
    producer: &BaseProducer,
    recordings: &[Recording],
    pass: u64,
    play: Play,
    progress: &Progress,
) -> Result<(), KafkaError> {
    let started = Instant::now();
    let mut unsent: Vec<usize> = recordings.iter().map(Recording::record_count).collect();
    let mut payloads: Vec<Vec<Vec<u8>>> = vec![Vec::new(); recordings.len()];
    for due in schedule(recordings, pass, play, wall_ns()) {
        while let Some(left) = due.at.checked_sub(started.elapsed()) {
            if progress.is_stopping() {
                return Ok(());
            }
            producer.poll(left.min(LOOK_EVERY));
        }
        send(producer, &due.record)?;
        progress.sent.fetch_add(1, Ordering::AcqRel);
        payloads[due.recording].push(due.record.payload);
        unsent[due.recording] -= 1;
        if unsent[due.recording] == 0 {
            progress.finished(recordings[due.recording].name, &payloads[due.recording]);
        }
    }
    Ok(())
}

fn send(producer: &BaseProducer, record: &Sendable) -> Result<(), KafkaError> {
    loop {
        let sent = producer.send(
            BaseRecord::to(TOPIC)
                .key(&record.key)
                .payload(&record.payload),
        );
        match sent {
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                producer.poll(LOOK_EVERY);
            }
            other => return other.map_err(|(error, _)| error),
        }
    }
}

/// All records of a pass in the order in which they are due. Recordings begin one after the other,
/// evenly, and are stretched so that several are under way at any time; their own times are not.
fn schedule(recordings: &[Recording], pass: u64, play: Play, wall_ns: i64) -> Vec<Due> {
    let (length, stretch) = match play {
        Play::Looped { pace } => (PASS.div_f64(pace), STRETCH.div_f64(pace)),
        Play::Once => (Duration::ZERO, Duration::ZERO),
    };
    let count = u32::try_from(recordings.len().max(1)).unwrap_or(u32::MAX);
    let mut out = Vec::new();
    for (number, recording) in recordings.iter().enumerate() {
        let begins = (length / count) * u32::try_from(number).unwrap_or(u32::MAX);
        let starts_at = wall_ns.saturating_add(nanos(begins));
        // Sent at once, a recording has just ended: nothing claims to come from the future.
        let starts_at = match play {
            Play::Looped { .. } => starts_at,
            Play::Once => starts_at.saturating_sub(nanos(recording.span)),
        };
        let records = recording.records(pass, starts_at);
        out.extend(records.into_iter().map(|record| {
            let part = record.after.as_secs_f64() / recording.span.as_secs_f64().max(1e-9);
            let at = begins
                + stretch.mul_f64(part.clamp(0.0, 1.0)).max(match play {
                    Play::Looped { .. } => record.after,
                    Play::Once => Duration::ZERO,
                });
            Due {
                at,
                recording: number,
                record,
            }
        }));
    }
    // Stable: records that are due together stay in their order.
    out.sort_by_key(|due| due.at);
    out
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

fn wall_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    nanos(since.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::corpus::recordings;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_pass_keeps_each_recording_in_order_and_interleaves_them() {
        let recordings = recordings();
        let due = schedule(&recordings, 1, Play::Looped { pace: 1.0 }, 0);
        assert!(due.is_sorted_by_key(|due| due.at));
        let last = due.last().unwrap().at;
        assert!(
            last > PASS.mul_f64(0.8) && last < PASS + STRETCH,
            "{last:?}"
        );
        let mut most = 0;
        for now in (0..25).map(Duration::from_secs) {
            let around = |due: &&Due| due.at <= now + STRETCH / 2 && due.at + STRETCH / 2 >= now;
            let open: BTreeSet<usize> =
                due.iter().filter(around).map(|due| due.recording).collect();
            most = most.max(open.len());
        }
        assert!(most > 3, "{most} at a time");
        for (number, recording) in recordings.iter().enumerate() {
            let own: Vec<&Due> = due.iter().filter(|due| due.recording == number).collect();
            assert_eq!(own.len(), recording.record_count());
            assert!(
                own.is_sorted_by_key(|due| due.record.after),
                "{}",
                recording.name
            );
        }
    }

    #[test]
    fn a_faster_pace_takes_less_time_and_once_takes_none() {
        let recordings = recordings();
        let last = |play| schedule(&recordings, 1, play, 0).last().unwrap().at;
        assert!(last(Play::Looped { pace: 5.0 }) < last(Play::Looped { pace: 1.0 }) / 3);
        assert_eq!(last(Play::Once), Duration::ZERO);
    }

    #[test]
    fn the_cluster_takes_a_pass() {
        let cluster = Cluster::start().unwrap();
        let progress = Progress::default();
        let recordings = recordings();
        play(&cluster.brokers(), &recordings, Play::Once, &progress).unwrap();
        let records: usize = recordings.iter().map(Recording::record_count).sum();
        assert_eq!(progress.sent(), records as u64);
        assert!(progress.is_done());
        assert!(progress.played().is_some());
    }
}
