//! Records and native events of one recording in one log, in the order in which they were made: what a topic holds that
//! an emitter and a bridge both write to.

use serde_json::Value;

/// The lines of both streams. The recorder saw each event in a hook, and so at a known time; where it saw none of the
/// events that there are, the records stand alone. `delay`: by how much events come later, ns.
pub fn lines(recording: &str, lifecycle: &str, native: &str, delay: i64) -> String {
    let seen = recording.lines().filter_map(event_seen_at);
    let seen: Vec<i64> = seen.map(|at| at + delay).collect();
    let mut events: Vec<&str> = native.lines().collect();
    if events.len() != seen.len() {
        events.clear();
    }
    let records = lifecycle.lines().map(|line| {
        let record: Value = serde_json::from_str(line).unwrap();
        (record["at"].as_i64().unwrap(), line)
    });
    let mut all: Vec<(i64, &str)> = records.chain(seen.into_iter().zip(events)).collect();
    // A hook's own record comes before the event that the hook saw.
    all.sort_by_key(|(at, _)| *at);
    all.iter().map(|(_, line)| format!("{line}\n")).collect()
}

/// When the recorder's hook saw an event, ns since 1970.
fn event_seen_at(line: &str) -> Option<i64> {
    let row: Value = serde_json::from_str(line).unwrap();
    let is_own = row["plugin"].is_null() || row["plugin"] == "recorder";
    let is_event = row["hook"] == "onEvent" || row["src"] == "plugin" && row["event"].is_object();
    let at = row["time_ns"]
        .as_i64()
        .or(row["at"].as_i64().map(|ms| ms * 1_000_000));
    at.filter(|_| is_own && is_event)
}
