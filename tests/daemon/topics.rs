//! Which topics are read, and what is known of their records beforehand.

use super::*;

/// The partitions that a daemon has, by topic.
fn topics_read(daemon: &Daemon) -> Vec<String> {
    let (_, text) = daemon.get("/metrics").unwrap_or_default();
    let lines = text.lines();
    let ours = lines.filter_map(|line| {
        let rest = line.strip_prefix("tachograph_records_read_total{topic=\"")?;
        Some(rest.split('"').next()?.to_owned())
    });
    let mut topics: Vec<String> = ours.collect();
    topics.sort_unstable();
    topics.dedup();
    topics
}

#[test]
fn a_regex_reads_what_comes_later_and_no_dead_letters() {
    let (database, login) = database("regex");
    let begins = unique("agents");
    let names = ["a", "b"].map(|name| format!("{begins}-{name}"));
    let letters = format!("{}.dead-letters", names[0]);
    kafka::create_topic_at(brokers(), &names[0], PARTITIONS, &[]);
    kafka::create_topic_at(brokers(), &letters, 1, &[]);
    let stage = Stage::on("regex", &login, format!("^{begins}-"));
    let daemon = stage.start();
    daemon.until_ready();
    let (mut records, sums) = workload("x", 8);
    records.push(Record::new("k", "not json").on(0));
    kafka::produce(&names[0], &records);
    until_stored(&database, sums);
    kafka::create_topic_at(brokers(), &names[1], PARTITIONS, &[]);
    let (records, more) = workload("y", 8);
    kafka::produce(&names[1], &records);
    until_stored(&database, sums + more);
    wait::until_eq("the letter", PATIENCE, 1, || letters_of(&letters));
    // Were it read, it would be a dead letter again; the topics are looked for every second.
    assert_eq!(topics_read(&daemon), names);
    daemon.stop();
    assert_eq!(letters_of(&letters), 1);
}

/// One answer of a model, as a runtime's own event without app, tenant or runtime.
fn native(id: &str) -> Record {
    let text = format!(
        "{{\"id\":\"{id}\",\"invocationId\":\"e-{id}\",\"author\":\"desk\",\
         \"timestamp\":1796037992.25,\"modelVersion\":\"claude-1\",\"finishReason\":\"STOP\",\
         \"content\":{{\"role\":\"model\",\"parts\":[{{\"text\":\"hello\"}}]}},\
         \"usageMetadata\":{{\"prompt_tokens\":40,\"completion_tokens\":2,\
         \"total_tokens\":42}}}}"
    );
    Record::new(id, text).on(0)
}

#[test]
fn records_take_from_their_topic_what_they_do_not_say() {
    let (database, login) = database("defaults");
    let begins = unique("defaults");
    let [named, matched, other] = ["named", "matched", "other"].map(|n| format!("{begins}-{n}"));
    for topic in [&named, &matched, &other] {
        kafka::create_topic_at(brokers(), topic, 1, &[]);
        kafka::create_topic_at(brokers(), &format!("{topic}.dead-letters"), 1, &[]);
    }
    let stage = Stage::on("defaults", &login, format!("^{begins}-"));
    stage.replace(
        "[clickhouse]",
        &format!(
            "[[topic]]\nname = \"^{begins}-[mn]\"\ntenant = \"fits\"\napp = \"bots\"\n\
             dialect = \"adk\"\nproducer = \"adk-go\"\n\
             [[topic]]\nname = \"{named}\"\ntenant = \"acme\"\napp = \"shop\"\n\
             producer = \"anima\"\nevent_time_semantics = \"arrival\"\n\
             [clickhouse]"
        ),
    );
    let daemon = stage.start();
    daemon.until_ready();
    for topic in [&named, &matched, &other] {
        kafka::produce(topic, &[native(topic)]);
    }
    // The exact name wins; without one the first regex that fits; else nothing is known.
    // Of the two flags, one follows from whose times they are, the other from whose words.
    let sql = "SELECT tenant, app, has(flags, 'event_time_not_arrival'), \
               has(flags, 'cache_unreported') FROM v_model_calls ORDER BY 1";
    let rows = [
        ["", "", "1", "0"],
        ["acme", "shop", "0", "1"],
        ["fits", "bots", "1", "0"],
    ];
    let rows: Vec<Vec<String>> = rows.map(|row| row.map(str::to_owned).into()).into();
    wait::until_eq("the calls", PATIENCE, rows, || database.rows(sql));
    // Our own records are none of a topic whose dialect is another, and are of one that says none.
    let (records, sums) = workload("d", 1);
    let on_one = |record: &Record| record.clone().on(0);
    let records: Vec<Record> = records.iter().map(on_one).collect();
    for topic in [&matched, &named] {
        kafka::produce(topic, &records);
    }
    let letters = |topic: &str| letters_of(&format!("{topic}.dead-letters"));
    wait::until_eq("letters", PATIENCE, records.len(), || letters(&matched));
    until_read(&[&daemon], 3 + 2 * records.len());
    wait::until_eq("calls", PATIENCE, 3 + sums.calls, || {
        stored(&database).calls
    });
    assert_eq!(letters(&named), 0);
    daemon.stop();
}
