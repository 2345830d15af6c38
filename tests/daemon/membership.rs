//! Who is in the group: instances with fixed ids, and KIP-848.

use super::*;

/// Seconds after which the brokers give up a member that is away; longer than a restart takes.
const SESSION: &str = "\"session.timeout.ms\" = 30000";

/// Two instances with fixed ids that share a topic.
struct Pair {
    stage: Stage,
    database: Database,
    sums: Sums,
    records: Vec<Record>,
}

impl Pair {
    fn new(name: &str) -> Pair {
        let (database, login) = database(name);
        let stage = Stage::new(name, &login);
        stage.replace("\"session.timeout.ms\" = 6000", SESSION);
        let (records, sums) = workload(name, INVOCATIONS);
        Pair {
            stage,
            database,
            sums,
            records,
        }
    }

    fn start(&self, id: &str) -> Daemon {
        self.stage.start_with(&["--instance-id", id])
    }
}

/// Changes of the assignment so far.
fn rebalances(daemon: &Daemon) -> u64 {
    daemon.metric("tachograph_rebalances_total", &[])
}

/// The partitions that a daemon has.
fn partitions(daemon: &Daemon) -> Vec<String> {
    let (_, text) = daemon.get("/metrics").unwrap_or_default();
    let lines = text.lines();
    let ours = lines.filter(|line| line.starts_with("tachograph_records_read_total{"));
    let mut labels: Vec<String> = ours
        .filter_map(|line| Some(line.rsplit_once("} ")?.0.to_owned()))
        .collect();
    labels.sort_unstable();
    labels
}

#[test]
fn an_instance_that_comes_back_in_time_moves_no_partition() {
    let pair = Pair::new("static");
    let first = pair.start("one");
    let second = pair.start("two");
    for daemon in [&first, &second] {
        wait::until_eq("half of the partitions", PATIENCE, 2, || {
            partitions(daemon).len()
        });
        daemon.until_ready();
    }
    let (before, after) = pair.records.split_at(pair.records.len() / 2);
    kafka::produce(&pair.stage.topic, before);
    until_read(&[&first, &second], before.len());
    let (held, moved) = (partitions(&first), rebalances(&second));
    let share = counted(&first);

    first.stop();
    let first = pair.start("one");
    wait::until_eq("its partitions again", PATIENCE, held.clone(), || {
        partitions(&first)
    });
    kafka::produce(&pair.stage.topic, after);
    until_stored(&pair.database, pair.sums);
    wait::until_eq("counters", PATIENCE, pair.sums, || {
        share + counted(&first) + counted(&second)
    });
    assert_eq!(rebalances(&second), moved, "the other saw nothing");
    assert_eq!(partitions(&first), held);
    first.stop();
    second.stop();
}

#[test]
fn a_second_instance_of_an_id_ends_the_first_in_clear_words() {
    let pair = Pair::new("fenced");
    let mut first = pair.start("one");
    first.until_ready();
    let second = pair.start("one");
    kafka::produce(&pair.stage.topic, &pair.records);
    let status = first.end();
    let said = fs::read_to_string(&first.log).expect("a log");
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(said.contains("instance_id \"one\""), "{said}");
    assert!(said.contains("--instance-id"), "{said}");
    until_stored(&pair.database, pair.sums);
    second.until_ready();
    second.stop();
}

#[test]
fn kip_848_keeps_marks_over_rebalances_and_restarts() {
    let (database, login) = database("kip");
    let stage = Stage::new("kip", &login);
    stage.replace(
        "\"session.timeout.ms\" = 6000\n\"heartbeat.interval.ms\" = 1000\n",
        "",
    );
    stage.replace(
        "[kafka.properties]",
        "group_protocol = \"consumer\"\n[kafka.properties]",
    );
    let (records, sums) = workload("k", INVOCATIONS);
    let third = records.len() / 3;
    let first = stage.start();
    first.until_ready();
    kafka::produce(&stage.topic, &records[..third]);
    until_read(&[&first], third);
    let second = stage.start();
    wait::until("the second has partitions", PATIENCE, || {
        (!partitions(&second).is_empty()).then_some(())
    });
    kafka::produce(&stage.topic, &records[third..2 * third]);
    let ends = ends_of_calls(&records[..2 * third]);
    wait::until_eq("calls", PATIENCE, ends, || {
        counted(&first).calls + counted(&second).calls
    });
    let share = counted(&first);
    first.stop();
    kafka::produce(&stage.topic, &records[2 * third..]);
    until_stored(&database, sums);
    wait::until_eq("counters", PATIENCE, sums, || share + counted(&second));
    assert_eq!(second.metric("tachograph_facts_replayed_total", &[]), 0);
    second.stop();
}
