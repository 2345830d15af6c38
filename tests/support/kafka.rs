//! Real Apache Kafka brokers: one shared by a test binary, or a cluster for a test that kills it.
//!
//! `TEST_KAFKA=host:port` names another broker to use as the shared one. The jars come from
//! `make kafka`; the nodes end with the test process (`KAFKA_OWNER` of tests/kafka/kafka.sh).

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::Offset;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use super::{mark_real_part, scratch, tail, target_folder, unique, wait};

/// Bound on everything a healthy broker does in milliseconds, with a loaded machine in mind.
pub const PATIENCE: Duration = Duration::from_secs(60);

static SHARED: LazyLock<Result<Shared, String>> = LazyLock::new(|| {
    if let Ok(brokers) = std::env::var("TEST_KAFKA") {
        return Ok(Shared {
            brokers,
            cluster: None,
        });
    }
    let cluster = Cluster::start(1)?;
    Ok(Shared {
        brokers: cluster.brokers.clone(),
        cluster: Some(cluster),
    })
});

struct Shared {
    brokers: String,
    /// `None` for a broker that `TEST_KAFKA` named.
    cluster: Option<Cluster>,
}

fn shared() -> &'static Shared {
    SHARED.as_ref().unwrap_or_else(|reason| panic!("{reason}"))
}

/// The bootstrap address of the shared broker, started at the first call.
pub fn brokers() -> &'static str {
    &shared().brokers
}

/// What the shared broker looks like now, so that "broker died" and "message lost" read
/// differently in a failure.
pub fn diagnose() -> String {
    match &shared().cluster {
        Some(cluster) => cluster.diagnose(),
        None => format!("the broker is {}", brokers()),
    }
}

/// Nodes of our own, wiped when dropped.
pub struct Cluster {
    /// The bootstrap address.
    pub brokers: String,
    folder: PathBuf,
}

impl Cluster {
    /// Starts one or three nodes and waits until each answers.
    pub fn start(nodes: u8) -> Result<Cluster, String> {
        Cluster::start_with(nodes, &[])
    }

    /// As [`Cluster::start`], with more of the environment that tests/kafka/kafka.sh reads.
    pub fn start_with(nodes: u8, environment: &[(&str, &str)]) -> Result<Cluster, String> {
        let folder = scratch("kafka");
        let name = folder
            .to_str()
            .ok_or("the target folder's path is no UTF-8")?;
        let arguments = ["start", name, "0", &nodes.to_string()];
        let started = kafka_sh_with(&arguments, environment);
        if !started.status.success() {
            return Err(format!(
                "Kafka did not start; if its jars are missing, fetch them with: make kafka\n{}",
                String::from_utf8_lossy(&started.stderr)
            ));
        }
        let brokers = String::from_utf8_lossy(&started.stdout).trim().to_owned();
        Ok(Cluster { brokers, folder })
    }

    /// Kills node `number` (from 1) as a crash would.
    pub fn kill(&self, number: u8) {
        self.must(&["kill", self.name(), &number.to_string()]);
    }

    /// Starts a killed node again and waits until it answers.
    pub fn revive(&self, number: u8) {
        self.must(&["revive", self.name(), &number.to_string()]);
    }

    /// Whether each node lives, and the end of the first one's log.
    pub fn diagnose(&self) -> String {
        let status = kafka_sh(&["status", self.name()]);
        let log = tail(&self.folder.join("n1/out.log"), 20);
        format!("{}{log}", String::from_utf8_lossy(&status.stdout))
    }

    fn name(&self) -> &str {
        self.folder.to_str().expect("checked at the start")
    }

    fn must(&self, arguments: &[&str]) {
        let done = kafka_sh(arguments);
        let words = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            done.status.success(),
            "kafka.sh {arguments:?}: {words}\n{}",
            self.diagnose()
        );
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        kafka_sh(&["wipe", self.name()]);
    }
}

fn kafka_sh(arguments: &[&str]) -> Output {
    kafka_sh_with(arguments, &[])
}

fn kafka_sh_with(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let libs = std::env::var_os("KAFKA_LIBS")
        .map_or_else(|| target_folder().join("kafka-libs"), PathBuf::from);
    Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kafka/kafka.sh"))
        .args(arguments)
        .env("KAFKA_LIBS", libs)
        .env("KAFKA_OWNER", std::process::id().to_string())
        // With a loaded machine in mind: several nodes beside other tests.
        .env("KAFKA_WAIT", "180")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("kafka.sh is in the repository and bash is installed")
}

/// Makes a topic with a unique name on the shared broker and returns that name. Timestamps are the
/// broker's (`LogAppendTime`) unless `config` says otherwise.
pub fn create_topic(name: &str, partitions: i32, config: &[(&str, &str)]) -> String {
    let topic = unique(name);
    create_topic_at(brokers(), &topic, partitions, config);
    mark_real_part("kafka");
    topic
}

/// Makes exactly `topic` on any cluster, with one replica a partition on a single node and as many
/// as the cluster's default elsewhere, and waits until each partition has a leader.
pub fn create_topic_at(brokers: &str, topic: &str, partitions: i32, config: &[(&str, &str)]) {
    let admin: AdminClient<DefaultClientContext> = client_config(brokers)
        .create()
        .expect("a client can be made");
    // -1: the broker's default.
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
    if !config
        .iter()
        .any(|(key, _)| *key == "message.timestamp.type")
    {
        new = new.set("message.timestamp.type", "LogAppendTime");
    }
    for (key, value) in config {
        new = new.set(key, value);
    }
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    let results = block_on(admin.create_topics([&new], &options));
    let result = results
        .unwrap_or_else(|error| panic!("{topic}: {error}"))
        .remove(0);
    result.unwrap_or_else(|(topic, code)| panic!("topic {topic} was not made: {code}"));
    wait::until(&format!("{topic} has leaders"), PATIENCE, || {
        let seen = admin.inner().fetch_metadata(Some(topic), PATIENCE).ok()?;
        let listed = seen.topics().first()?.partitions();
        let has_leaders = listed.iter().all(|partition| partition.leader() >= 0);
        (has_leaders && listed.len() == partitions as usize).then_some(())
    });
}

/// The number of the node that leads a partition; `None` while none does.
pub fn leader_of(brokers: &str, topic: &str, partition: i32) -> Option<u8> {
    let consumer: BaseConsumer = client_config(brokers).create().ok()?;
    let seen = consumer.fetch_metadata(Some(topic), PATIENCE).ok()?;
    let partitions = seen.topics().first()?.partitions();
    let found = partitions.iter().find(|one| one.id() == partition)?;
    u8::try_from(found.leader()).ok()
}

/// Waits until every partition of every topic is on as many nodes as it should be.
pub fn until_whole(brokers: &str) {
    let consumer: BaseConsumer = client_config(brokers)
        .create()
        .expect("a client can be made");
    wait::until("every replica is in step", 2 * PATIENCE, || {
        let seen = consumer.fetch_metadata(None, PATIENCE).ok()?;
        let all = seen.topics().iter().flat_map(|topic| topic.partitions());
        let mut all = all.map(|one| one.leader() >= 0 && one.isr().len() == one.replicas().len());
        all.all(|is_whole| is_whole).then_some(())
    });
}

/// Removes the records of a partition below an offset, as retention would.
pub fn delete_records(brokers: &str, topic: &str, partition: i32, below: i64) {
    let admin: AdminClient<DefaultClientContext> = client_config(brokers)
        .create()
        .expect("a client can be made");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, KafkaOffset::Offset(below))
        .expect("an offset");
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    let deleted = block_on(admin.delete_records(&list, &options));
    let deleted = deleted.unwrap_or_else(|error| panic!("{topic}: {error}"));
    for element in deleted.elements() {
        assert!(element.error().is_ok(), "{topic}: {:?}", element.error());
    }
}

/// Produces `records` in one transaction, which is committed or aborted. Retries what a broker that
/// goes away meanwhile makes fail, as a whole: what was tried before is aborted.
pub fn transact(brokers: &str, topic: &str, records: &[Record], is_committed: bool) {
    let id = unique("transaction");
    wait::until(&format!("a transaction in {topic}"), PATIENCE, || {
        try_transact(brokers, topic, records, is_committed, &id).ok()
    });
}

fn try_transact(
    brokers: &str,
    topic: &str,
    records: &[Record],
    is_committed: bool,
    id: &str,
) -> Result<(), KafkaError> {
    let mut transaction = OpenTransaction::try_begin(brokers, id)?;
    transaction.try_write(topic, records)?;
    transaction.try_end(is_committed)
}

/// A transaction that was not ended yet.
pub struct OpenTransaction {
    producer: BaseProducer,
    written: Instant,
}

impl OpenTransaction {
    /// # Panics
    /// Where it cannot be begun within a minute.
    pub fn begin(brokers: &str) -> OpenTransaction {
        let id = unique("transaction");
        wait::until("a transaction", PATIENCE, || {
            OpenTransaction::try_begin(brokers, &id).ok()
        })
    }

    fn try_begin(brokers: &str, id: &str) -> Result<OpenTransaction, KafkaError> {
        let producer: BaseProducer = client_config(brokers)
            .set("transactional.id", id)
            .set("message.timeout.ms", "30000")
            .create()?;
        producer.init_transactions(PATIENCE)?;
        producer.begin_transaction()?;
        let written = Instant::now();
        Ok(OpenTransaction { producer, written })
    }

    /// Writes records that nobody may see yet, and waits until they are in the log.
    ///
    /// # Panics
    /// Where they cannot be written.
    pub fn write(&mut self, topic: &str, records: &[Record]) {
        let written = self.try_write(topic, records);
        written.unwrap_or_else(|error| panic!("{topic}: {error}"));
    }

    fn try_write(&mut self, topic: &str, records: &[Record]) -> Result<(), KafkaError> {
        for record in records {
            let mut base = BaseRecord::<[u8], [u8]>::to(topic);
            base.partition = record.partition;
            base.key = record.key.as_deref();
            base.payload = record.value.as_deref();
            self.producer.send(base).map_err(|(error, _)| error)?;
        }
        self.producer.flush(PATIENCE)?;
        self.written = Instant::now();
        Ok(())
    }

    /// How long its records have been in the log.
    pub fn since(&self) -> Duration {
        self.written.elapsed()
    }

    /// # Panics
    /// Where it cannot be ended.
    pub fn end(self, is_committed: bool) {
        let ended = self.try_end(is_committed);
        ended.unwrap_or_else(|error| panic!("a transaction: {error}"));
    }

    fn try_end(self, is_committed: bool) -> Result<(), KafkaError> {
        match is_committed {
            true => self.producer.commit_transaction(PATIENCE),
            false => self.producer.abort_transaction(PATIENCE),
        }
    }
}

/// Where partition 0 of a topic begins and ends.
pub fn ends(brokers: &str, topic: &str) -> (i64, i64) {
    let consumer: BaseConsumer = client_config(brokers)
        .create()
        .expect("a client can be made");
    let ends = consumer.fetch_watermarks(topic, 0, PATIENCE);
    ends.unwrap_or_else(|error| panic!("{topic}: {error}"))
}

/// The names of all groups.
pub fn groups(brokers: &str) -> Vec<String> {
    let consumer: BaseConsumer = client_config(brokers)
        .create()
        .expect("a client can be made");
    let groups = consumer.fetch_group_list(None, PATIENCE);
    let groups = groups.unwrap_or_else(|error| panic!("{error}"));
    let names = groups.groups().iter().map(|group| group.name().to_owned());
    names.collect()
}

/// A record as it is read back: key, value, milliseconds since 1970, headers.
pub type Read = (Vec<u8>, Vec<u8>, Option<i64>, Vec<(String, String)>);

/// The first `count` records in partition 0 of a topic of the shared broker.
pub fn read_all(topic: &str, count: usize) -> Vec<Read> {
    let consumer: BaseConsumer = client_config(brokers())
        .set("group.id", "unused")
        .create()
        .expect("a consumer can be made");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Beginning)
        .expect("an offset");
    consumer.assign(&list).expect("assigned");
    let mut read = Vec::new();
    let started = Instant::now();
    while read.len() < count {
        assert!(started.elapsed() < PATIENCE, "{count} records of {topic}");
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) else {
            continue;
        };
        let headers = message.headers().map_or_else(Vec::new, |headers| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let pair = headers
                .iter()
                .map(|h| (h.key.to_owned(), h.value.map_or_else(String::new, text)));
            pair.collect()
        });
        read.push((
            message.key().unwrap_or_default().to_vec(),
            message.payload().unwrap_or_default().to_vec(),
            message.timestamp().to_millis(),
            headers,
        ));
    }
    read
}

/// A client's configuration for `brokers`; add a group and the like.
pub fn client_config(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    config
}

/// One record to produce.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// `None` lets the key decide.
    pub partition: Option<i32>,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a null.
    pub value: Option<Vec<u8>>,
    /// Milliseconds since 1970; the broker overrides it under `LogAppendTime`.
    pub timestamp_ms: Option<i64>,
    /// Headers in order.
    pub headers: Vec<(String, Vec<u8>)>,
}

impl Record {
    /// A record with a key and a value.
    pub fn new(key: &str, value: impl Into<Vec<u8>>) -> Record {
        Record {
            key: Some(key.into()),
            value: Some(value.into()),
            ..Record::default()
        }
    }

    /// The same, on one partition.
    pub fn on(mut self, partition: i32) -> Record {
        self.partition = Some(partition);
        self
    }
}

/// Produces to `topic` of the shared broker and returns partition and offset of each record, as
/// acknowledged, in the order given. Within a partition that is also the log's order.
pub fn produce(topic: &str, records: &[Record]) -> Vec<(i32, i64)> {
    produce_at(brokers(), topic, records)
}

/// As [`produce`], on any cluster.
///
/// # Panics
/// If a record is refused, or not acknowledged within a minute.
pub fn produce_at(brokers: &str, topic: &str, records: &[Record]) -> Vec<(i32, i64)> {
    let reports = Reports::default();
    let producer: BaseProducer<Reports> = client_config(brokers)
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .set("message.timeout.ms", "60000")
        .set("message.max.bytes", "16777216")
        .create_with_context(reports)
        .expect("a producer can be made");
    for (index, record) in records.iter().enumerate() {
        let mut waiting = Some(base_record(topic, record, index));
        while let Some(next) = waiting.take() {
            match producer.send(next) {
                Ok(()) => {}
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    producer.poll(Duration::from_millis(10));
                    waiting = Some(back);
                }
                Err((error, _)) => panic!("{topic}: {error}"),
            }
        }
        producer.poll(Duration::ZERO);
    }
    let flushed = producer.flush(PATIENCE);
    assert!(flushed.is_ok(), "{topic}: {flushed:?}\n{}", diagnose());
    let mut seen = std::mem::take(&mut *producer.context().seen.lock().expect("no panic inside"));
    seen.sort_by_key(|(index, _)| *index);
    assert_eq!(
        seen.len(),
        records.len(),
        "a delivery report for each record"
    );
    let place = |(_, report): (usize, Report)| match report {
        Ok(place) => place,
        Err(reason) => panic!("{topic}: {reason}"),
    };
    seen.into_iter().map(place).collect()
}

fn base_record<'a>(
    topic: &'a str,
    record: &'a Record,
    index: usize,
) -> BaseRecord<'a, [u8], [u8], Box<usize>> {
    let mut base = BaseRecord::with_opaque_to(topic, Box::new(index));
    base.partition = record.partition;
    base.key = record.key.as_deref();
    base.payload = record.value.as_deref();
    base.timestamp = record.timestamp_ms;
    if !record.headers.is_empty() {
        let headers = record
            .headers
            .iter()
            .fold(OwnedHeaders::new(), |all, (key, value)| {
                all.insert(Header {
                    key,
                    value: Some(value.as_slice()),
                })
            });
        base.headers = Some(headers);
    }
    base
}

/// Partition and offset of an acknowledged record, or why there is none.
type Report = Result<(i32, i64), String>;

/// Collects delivery reports by the record's place in the list.
#[derive(Default)]
struct Reports {
    seen: Mutex<Vec<(usize, Report)>>,
}

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, index: Box<usize>) {
        let report = match result {
            Ok(message) => Ok((message.partition(), message.offset())),
            Err((error, _)) => Err(error.to_string()),
        };
        self.seen
            .lock()
            .expect("no panic inside")
            .push((*index, report));
    }
}

/// Runs a future to its end, also when the calling test is itself inside a runtime.
pub fn block_on<F: Future<Output: Send> + Send>(future: F) -> F::Output {
    thread::scope(|scope| {
        let run = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime can be made").block_on(future)
        };
        scope.spawn(run).join().expect("the client does not panic")
    })
}
