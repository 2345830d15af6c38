//! With a state file: crashes on one host count nothing twice (PRM-03).

use super::*;

/// Adds a state file to the configuration.
pub fn keep_state(stage: &Stage) -> PathBuf {
    let file = stage.folder.join("state");
    let text = fs::read_to_string(&stage.config).expect("the configuration is there");
    let state = format!("{text}[state]\nfile = {file:?}\n");
    fs::write(&stage.config, state).expect("the configuration is written");
    file
}

fn is_at_least(now: Sums, before: Sums) -> bool {
    now.calls >= before.calls && now.input >= before.input && now.output >= before.output
}

const CREATED: &str = "tachograph_counters_created_timestamp_seconds";

#[test]
fn crashes_on_one_host_count_nothing_twice() {
    let (database, login) = database("state");
    let stage = Stage::new("state", &login);
    keep_state(&stage);
    let (records, sums) = workload("st", INVOCATIONS);
    let (mut seen, mut created) = (Sums::default(), 0);
    for part in records.chunks(records.len() / 3) {
        let daemon = stage.start();
        let begun = counted(&daemon);
        assert!(
            is_at_least(begun, seen),
            "{begun:?} after {seen:?} was seen"
        );
        kafka::produce(&stage.topic, part);
        wait::until("counters move on", PATIENCE, || {
            seen = counted(&daemon);
            let is_end = seen == sums && begun == sums;
            (is_end || seen.calls > begun.calls).then_some(())
        });
        let since = daemon.metric(CREATED, &[]);
        assert!(created == 0 || since == created, "counters go on");
        created = since;
        // What the scrape has shown is in no commit yet.
        daemon.kill();
    }
    let last = stage.start();
    assert!(is_at_least(counted(&last), seen));
    until_stored(&database, sums);
    last.until_ready();
    wait::until_eq("counters", PATIENCE, sums, || counted(&last));
    let (_, text) = last.get("/metrics").expect("the daemon answers");
    check_metrics(&text);
    assert_eq!(last.metric("tachograph_state_file_up", &[]), 1);
    last.stop();
    let after = stage.start();
    assert_eq!(counted(&after), sums, "after an orderly end as well");
    after.until_ready();
    assert_eq!(counted(&after), sums);
    assert_eq!(after.metric(CREATED, &[]), created);
    after.stop();
}

#[test]
fn a_state_file_has_one_owner() {
    let (_database, login) = database("owner");
    let stage = Stage::new("owner", &login);
    let file = keep_state(&stage);
    let first = stage.start();
    let mut second = stage.spawn();
    let status = second.end();
    let said = fs::read_to_string(&second.log).expect("a log");
    assert_eq!(status.code(), Some(78), "{said}");
    let file = file.display().to_string();
    assert!(
        said.contains("state.file") && said.contains(&file),
        "{said}"
    );
    assert!(said.contains("in use by another process"), "{said}");
    first.stop();
}

#[test]
fn a_state_file_that_is_torn_is_set_aside() {
    let (database, login) = database("torn");
    let stage = Stage::new("torn", &login);
    let file = keep_state(&stage);
    fs::write(&file, "tachograph state 1 sha256=00\n{\"gro").expect("it is written");
    let daemon = stage.start();
    let (records, sums) = workload("to", 8);
    kafka::produce(&stage.topic, &records);
    until_stored(&database, sums);
    wait::until_eq("counters", PATIENCE, sums, || counted(&daemon));
    let said = fs::read_to_string(&daemon.log).expect("a log");
    assert!(said.contains("its end is missing"), "{said}");
    let aside = fs::read_to_string(file.with_extension("set-aside")).expect("it is kept");
    assert!(aside.ends_with("{\"gro"));
    daemon.stop();
    let text = fs::read_to_string(&file).expect("a new one");
    assert!(text.contains("tachograph_tokens_total"));
}
