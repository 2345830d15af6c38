//! What a scrape says after what was told.

use super::*;
use crate::core::ledger::Watermark;
use crate::core::pipeline::{PartitionStatus, Totals};
use crate::core::{LogSource, Offset, PartitionId, TopicDefaults};

const NOW: LogTime = LogTime(1_772_445_600_000);

fn exporter() -> Exporter {
    Exporter::new(&ExporterSettings {
        version: "1.2.3".to_owned(),
        revision: "abc".to_owned(),
        ..ExporterSettings::default()
    })
}

fn sample(family: Family, labels: &[&str], change: Move) -> Sample {
    Sample {
        family,
        labels: labels.iter().map(|value| Name::from(*value)).collect(),
        change,
        logged_at: NOW,
        is_replayed: false,
    }
}

fn partition(number: i32, log_time: i64, complete_up_to: i64) -> PartitionStatus {
    PartitionStatus {
        partition: PartitionId(number.unsigned_abs()),
        source: LogSource {
            topic: "events".into(),
            partition: number,
            defaults: TopicDefaults::default(),
        },
        records_read: 7,
        next: Offset(7),
        log_time: LogTime(log_time),
        is_replaying: false,
        segments_held: 2,
        held_records: 3,
        watermark: Watermark::bare(Offset(4)),
        complete_up_to: LogTime(complete_up_to),
    }
}

fn snapshot(partitions: Vec<PartitionStatus>) -> Snapshot {
    Snapshot {
        totals: Totals::default(),
        partitions,
        work_in_flight: 0,
        facts_waiting: 0,
        is_paused: false,
        invocations_open: [("desk".into(), 2)].into(),
        violations: Vec::new(),
    }
}

/// Lines of the exposition that begin with `start`.
fn lines(exporter: &Exporter, start: &str) -> Vec<String> {
    let text = exporter.render(NOW);
    let lines = text.lines().filter(|line| line.starts_with(start));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_index_of_a_family_is_its_place() {
    for (at, family) in Family::ALL.into_iter().enumerate() {
        assert_eq!(family as usize, at);
        assert_eq!(entry_of(family).labels(), family.labels());
    }
}

#[test]
fn a_series_is_at_0_before_it_moves() {
    let exporter = exporter();
    let labels = ["app", "", "m1", "desk", "model", "ok"];
    let moved = |change| exporter.observe(&sample(Family::ModelCalls, &labels, change), NOW);
    moved(Move::Create);
    let series = "tachograph_model_calls_total{app=\"app\",tenant=\"\",model=\"m1\",\
                  agent=\"desk\",served_by=\"model\",status=\"ok\"}";
    let start = "tachograph_model_calls_total";
    assert_eq!(lines(&exporter, start), [format!("{series} 0")]);
    moved(Move::Add(2));
    moved(Move::Add(1));
    assert_eq!(lines(&exporter, start), [format!("{series} 3")]);
}

#[test]
fn what_strangers_say_is_escaped() {
    let exporter = exporter();
    let labels = ["", "", "m1", "he said \"hi\"\nback\\slash\u{0}", "answer"];
    exporter.observe(&sample(Family::Tokens, &labels, Move::Add(1)), NOW);
    assert_eq!(
        lines(&exporter, "tachograph_tokens_total"),
        ["tachograph_tokens_total{app=\"\",tenant=\"\",model=\"m1\",\
          agent=\"he said \\\"hi\\\"\\nback\\\\slash\u{fffd}\",token_class=\"answer\"} 1"]
    );
}

#[test]
fn durations_come_in_seconds() {
    let exporter = exporter();
    let labels = ["a", "t", ""];
    let family = Family::ExecuteToolDuration;
    exporter.observe(&sample(family, &labels, Move::Observe(1_500_000_000)), NOW);
    let start = "gen_ai_execute_tool_duration_seconds";
    let lines = lines(&exporter, start);
    let with = |part: &str| {
        lines
            .iter()
            .find(|line| line.contains(part))
            .unwrap()
            .clone()
    };
    assert!(with("_sum").ends_with(" 1.5"), "{lines:?}");
    assert!(with("le=\"1.28\"").ends_with(" 0"), "{lines:?}");
    assert!(with("le=\"2.56\"").ends_with(" 1"), "{lines:?}");
    assert!(with("le=\"+Inf\"").ends_with(" 1"), "{lines:?}");
}

#[test]
fn what_is_unknown_has_no_series() {
    let exporter = exporter();
    for start in [
        "tachograph_lag",
        "tachograph_sink_up",
        "tachograph_complete_up_to",
        "tachograph_log_time",
    ] {
        assert_eq!(lines(&exporter, start), [""; 0]);
    }
    exporter.set_snapshot(snapshot(vec![
        partition(0, 5_000, 4_500),
        partition(1, i64::MIN, i64::MIN),
    ]));
    let complete = "tachograph_complete_up_to_timestamp_seconds";
    assert_eq!(lines(&exporter, complete), [""; 0]);
    // The second partition is known to be empty: nothing of it can be missing.
    exporter.lag(&"events".into(), 1, Some(0));
    assert_eq!(lines(&exporter, complete), [format!("{complete} 4.5")]);
    assert_eq!(
        lines(&exporter, "tachograph_log_time"),
        ["tachograph_log_time_seconds{topic=\"events\",partition=\"0\"} 5"]
    );
}

#[test]
fn a_partition_that_is_gone_leaves_no_series() {
    let exporter = exporter();
    exporter.set_snapshot(snapshot(vec![partition(0, 1, 1), partition(1, 1, 1)]));
    exporter.lag(&"events".into(), 0, Some(4));
    exporter.lag(&"events".into(), 1, Some(5));
    assert!(exporter.render(NOW).contains("partition=\"0\""));
    exporter.forget_partition(&"events".into(), 0);
    let text = exporter.render(NOW);
    assert!(!text.contains("partition=\"0\""), "{text}");
    assert!(text.contains("tachograph_lag_records{topic=\"events\",partition=\"1\"} 5\n"));
    assert!(text.contains("tachograph_records_read_total{topic=\"events\",partition=\"1\"} 7"));
}

#[test]
fn the_process_and_the_build_show_themselves() {
    let exporter = exporter();
    assert_eq!(
        lines(&exporter, "tachograph_build_info"),
        ["tachograph_build_info{version=\"1.2.3\",revision=\"abc\"} 1"]
    );
    let text = exporter.render(NOW);
    for entry in FAMILIES.iter().filter(|e| e.source == Source::Process) {
        let head = format!(
            "# HELP {} {}\n# TYPE {} {}\n",
            entry.name,
            entry.help,
            entry.name,
            entry.kind.as_str()
        );
        assert!(text.contains(&head), "{head}");
    }
}

#[test]
fn the_edges_are_counted() {
    let exporter = exporter();
    exporter.inserted(Table::ToolCalls, 20, Duration::from_millis(3));
    exporter.failed("timeout");
    exporter.up(false);
    exporter.commit(CommitResult::Ok);
    exporter.rebalance(Rebalance::Lost);
    exporter.limit_reached("drain_max");
    exporter.lag_seconds(Some(1.5));
    let text = exporter.render(NOW);
    for line in [
        "tachograph_rows_inserted_total{table=\"tool_calls\"} 20",
        "tachograph_rows_inserted_total{table=\"branches\"} 0",
        "tachograph_insert_seconds_sum{table=\"tool_calls\"} 0.003",
        "tachograph_insert_errors_total{reason=\"timeout\"} 1",
        "tachograph_sink_up 0",
        "tachograph_commits_total{result=\"ok\"} 1",
        "tachograph_commits_total{result=\"failed\"} 0",
        "tachograph_rebalances_total{kind=\"lost\"} 1",
        "tachograph_limit_reached_total{limit=\"drain_max\"} 1",
        "tachograph_lag_seconds 1.5",
    ] {
        assert!(text.lines().any(|have| have == line), "{line}\n{text}");
    }
}
