//! `/debug/pipeline`: the pipeline as it stands, as JSON.

use crate::core::LogTime;
use crate::core::PartitionId;
use crate::core::ledger::Watermark;
use crate::core::pipeline::{PartitionStatus, Snapshot};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The pipeline as it stands; log times in milliseconds since 1970, unknown ones `null`.
pub(super) fn pipeline_json(snapshot: &Snapshot) -> Value {
    let totals = &snapshot.totals;
    let outcomes = &totals.outcomes;
    let dead_letters = totals.dead_letters.iter();
    let dead_letters: BTreeMap<&str, u64> = dead_letters.map(|(r, n)| (r.as_str(), *n)).collect();
    let facts = totals.facts.iter();
    let facts: BTreeMap<&str, u64> = facts.map(|(table, n)| (table.as_str(), *n)).collect();
    let open = snapshot.invocations_open.iter();
    let open: BTreeMap<&str, u64> = open.map(|(app, n)| (&**app, *n)).collect();
    let violations = snapshot.violations.iter();
    let violations: BTreeMap<&str, u64> = violations.map(|(i, n)| (i.as_str(), *n)).collect();
    json!({
        "is_paused": snapshot.is_paused,
        "work_in_flight": snapshot.work_in_flight,
        "facts_waiting": snapshot.facts_waiting,
        "invocations_open": open,
        "partitions": snapshot.partitions.iter().map(partition_json).collect::<Vec<_>>(),
        "totals": {
            "records": {
                "read": outcomes.read,
                "applied": outcomes.applied,
                "ignored": outcomes.ignored,
                "tombstone": outcomes.tombstones,
                "duplicate": outcomes.duplicates,
                "dead_lettered": outcomes.dead_lettered,
            },
            "dead_letters": dead_letters,
            "facts": facts,
            "facts_late": totals.facts_late,
            "facts_replayed": totals.facts_replayed,
            "limits_reached": totals.limits_reached,
            "schema_prefixes": totals.schema_prefixes,
            "boms": totals.boms,
            "duplicate_keys": totals.duplicate_keys,
            "invalid_utf8": totals.invalid_utf8,
            "lone_surrogates": totals.lone_surrogates,
            "nonstandard_json": totals.nonstandard_json,
        },
        "invariant_violations": violations,
    })
}

fn partition_json(status: &PartitionStatus) -> Value {
    let PartitionId(id) = status.partition;
    let Watermark {
        resume_from,
        exported_below,
        abandoned_before,
        observed_below,
        observed_before,
        is_clean,
    } = status.watermark;
    json!({
        "id": id,
        "topic": &*status.source.topic,
        "partition": status.source.partition,
        "records_read": status.records_read,
        "next": status.next.0,
        "log_time_ms": known_ms(status.log_time),
        "complete_up_to_ms": known_ms(status.complete_up_to),
        "is_replaying": status.is_replaying,
        "segments_held": status.segments_held,
        "held_records": status.held_records,
        "watermark": {
            "resume_from": resume_from.0,
            "exported_below": exported_below.0,
            "abandoned_before_ms": known_ms(abandoned_before),
            "observed_below": observed_below.0,
            "observed_before_ms": known_ms(observed_before),
            "is_clean": is_clean,
        },
    })
}

fn known_ms(time: LogTime) -> Option<i64> {
    (time.0 > i64::MIN).then_some(time.0)
}
