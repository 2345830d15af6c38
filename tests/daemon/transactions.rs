//! What a transaction keeps from us, and for how long.

use super::*;
use std::time::Duration;
use support::kafka::OpenTransaction;

/// What the clock of a quiet partition takes to pass the deadline of a run, twice over.
const LONG_ENOUGH: Duration = Duration::from_secs(10);

#[test]
fn an_open_transaction_stops_the_clock_of_its_partition() {
    let (database, login) = database("open");
    let stage = Stage::new("open", &login);
    let text = fs::read_to_string(&stage.config).expect("the configuration");
    let short = "silence_max = \"4 s\"\ntool_silence_max = \"4 s\"\nquiet_margin = \"1 s\"\n";
    fs::write(&stage.config, text + short).expect("the configuration is written");
    let daemon = stage.start();
    daemon.until_ready();
    let runs = 4;
    let (records, sums) = workload("o", runs);
    let (before, ends) = records.split_at(records.len() - runs);
    let mut open = OpenTransaction::begin(brokers());
    kafka::produce(&stage.topic, before);
    // The ends are in the log in time, and nobody may see them yet.
    open.write(&stage.topic, ends);
    until_read(&[&daemon], before.len());
    wait::until("time for the clock to pass", PATIENCE, || {
        (open.since() > LONG_ENOUGH).then_some(())
    });
    open.end(true);
    until_settled(&daemon, records.len());
    let sql = "SELECT status, segments, count() FROM v_invocations GROUP BY ALL ORDER BY ALL";
    let row = ["completed", "1", "4"].map(str::to_owned).to_vec();
    assert_eq!(database.rows(sql), [row], "as a replay of the log has them");
    assert_eq!(stored(&database), sums);
    daemon.stop();
}
