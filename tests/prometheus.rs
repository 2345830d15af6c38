//! A real Prometheus scrapes the exporter through the HTTP server; promtool judges the text.
//!
//! Deliberately no Kafka and no pipeline: samples go in by hand, so that what is counted is known.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use support::prometheus::{Prometheus, Series, Target, check_metrics};
use support::wait;
use tachograph::clock::Clock;
use tachograph::core::invariant::Violations;
use tachograph::core::ledger::Watermark;
use tachograph::core::pipeline::{Outcomes, PartitionStatus, Snapshot, Totals};
use tachograph::core::sample::{Family, Move, Sample};
use tachograph::core::{LogSource, LogTime, Name, Offset, PartitionId, TopicDefaults};
use tachograph::embedded::http::{self, Request};
use tachograph::http_server::{Liveness, Readiness, Server, ServerState};
use tachograph::prometheus_exporter::catalogue::{FAMILIES, Kind, Source};
use tachograph::prometheus_exporter::{CommitResult, Exporter, ExporterSettings, LabelLimits};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

const PATIENCE: Duration = Duration::from_secs(30);
const TOKENS: &str = "tachograph_tokens_total";

/// An exporter that is served on loopback until this is dropped.
struct Served {
    exporter: Arc<Exporter>,
    authority: String,
    _stop: oneshot::Sender<()>,
    _runtime: Runtime,
}

fn serve(known_models: &[&str]) -> Served {
    let exporter = Arc::new(Exporter::new(&ExporterSettings {
        labels: LabelLimits {
            known_models: known_models.iter().map(|m| (*m).to_owned()).collect(),
            ..LabelLimits::default()
        },
        version: "0.0.0".to_owned(),
        revision: "test".to_owned(),
    }));
    let state = ServerState {
        exporter: Arc::clone(&exporter),
        liveness: Arc::new(Liveness::new(PATIENCE)),
        readiness: Arc::new(Readiness::starting(&[])),
        clock: Clock::new(),
        gate: None,
        version: "0.0.0",
    };
    let runtime = Runtime::new().unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let bound = runtime.block_on(Server::bind(address)).unwrap();
    let authority = bound.address().to_string();
    let (stop, stopped) = oneshot::channel::<()>();
    runtime.spawn(Server::serve(bound, state, async move {
        let _ = stopped.await;
    }));
    Served {
        exporter,
        authority,
        _stop: stop,
        _runtime: runtime,
    }
}

impl Served {
    fn tell(&self, family: Family, labels: &[&str], change: Move) {
        let sample = Sample {
            family,
            labels: labels.iter().map(|value| Name::from(*value)).collect(),
            change,
            logged_at: Clock::new().wall(),
            is_replayed: false,
        };
        self.exporter.observe(&sample, sample.logged_at);
    }

    fn prometheus(&self) -> Prometheus {
        let prometheus = Prometheus::start(&[Target::new("tachograph", &self.authority)]);
        prometheus.wait_up("tachograph");
        prometheus
    }
}

/// The sum that a query gives, 0 for no series.
fn sum(prometheus: &Prometheus, promql: &str) -> f64 {
    prometheus
        .query(promql)
        .iter()
        .map(|series| series.value)
        .sum()
}

/// Every value of `label` in the answer.
fn values(series: &[Series], label: &str) -> BTreeSet<String> {
    let values = series.iter().filter_map(|one| one.labels.get(label));
    values.cloned().collect()
}

fn snapshot(topic: &str, partitions: &[i32]) -> Snapshot {
    let partitions = partitions.iter().map(|partition| PartitionStatus {
        partition: PartitionId(partition.unsigned_abs()),
        source: LogSource {
            topic: topic.into(),
            partition: *partition,
            defaults: TopicDefaults::default(),
        },
        records_read: 12,
        next: Offset(12),
        log_time: LogTime(1_772_445_600_250),
        is_replaying: false,
        segments_held: 1,
        held_records: 4,
        watermark: Watermark::bare(Offset(8)),
        complete_up_to: LogTime(1_772_445_600_000),
    });
    let outcomes = Outcomes {
        read: 24,
        applied: 24,
        ..Outcomes::default()
    };
    Snapshot {
        totals: Totals {
            outcomes,
            ..Totals::default()
        },
        partitions: partitions.collect(),
        work_in_flight: 0,
        facts_waiting: 0,
        is_paused: false,
        invocations_open: BTreeMap::from([(Name::from("desk"), 1)]),
        violations: Violations::counting().iter().collect(),
    }
}

/// Moves every family once, so that each is in the exposition.
fn fill(served: &Served) {
    for family in Family::ALL {
        let labels: Vec<&str> = family.labels().iter().map(|_| "x").collect();
        let mut rows = FAMILIES.iter();
        let row = rows
            .find(|entry| entry.source == Source::Fact(family))
            .unwrap();
        let change = match row.kind {
            Kind::Histogram(_) => Move::Observe(1),
            _ => Move::Add(1),
        };
        served.tell(family, &labels, change);
    }
    let exporter = &served.exporter;
    exporter.set_snapshot(snapshot("events", &[0, 1]));
    exporter.lag(&"events".into(), 0, Some(3));
    exporter.records_lost(&"events".into(), 0, 7);
    exporter.lag_seconds(Some(0.5));
    exporter.up(true);
    exporter.failed("timeout");
    exporter.commit(CommitResult::Ok);
    exporter.saved(exporter.counters());
    exporter.inserted(
        tachograph::core::fact::Table::Invocations,
        1,
        Duration::from_millis(9),
    );
}

#[test]
fn promtool_finds_nothing_in_the_text_of_every_family() {
    let served = serve(&[]);
    check_metrics(&served.exporter.render(Clock::new().wall()));
    fill(&served);
    let text = served.exporter.render(Clock::new().wall());
    for entry in FAMILIES {
        let is_there = text.contains(&format!("# TYPE {} {}\n", entry.name, entry.kind.as_str()));
        assert!(is_there, "{} is missing", entry.name);
    }
    check_metrics(&text);
}

#[test]
fn totals_stay_exact_beyond_every_budget() {
    // PRM-01: 10,000 invented models, one known one.
    let served = serve(&["gemini-2.5-flash"]);
    for n in 0..10_000 {
        let model = format!("gpt-typo-{n}");
        let labels = |class| ["a", "", &model, "d", class];
        let (input, answer) = (labels("input_uncached"), labels("answer"));
        served.tell(Family::Tokens, &input, Move::Add(1));
        served.tell(Family::Tokens, &answer, Move::Add(1));
    }
    let known = ["a", "", "gemini-2.5-flash", "desk", "input_uncached"];
    served.tell(Family::Tokens, &known, Move::Add(5));
    // No label has more than 90 values, but there are more combinations than a family may have.
    for n in 0..100_000u32 {
        let (policy, stage, actor) = (n % 90, n % 7, n / 90 % 90);
        let labels = [
            "a",
            "",
            &format!("p{policy}"),
            &format!("stage{stage}"),
            "deny",
            "",
            &format!("h{actor}"),
        ];
        served.tell(Family::GuardrailDecisions, &labels, Move::Add(1));
    }
    let prometheus = served.prometheus();
    let total = |class: &str| sum(&prometheus, &format!("{TOKENS}{{token_class=\"{class}\"}}"));
    assert_eq!(total("input_uncached"), 10_005.0);
    assert_eq!(total("answer"), 10_000.0);
    let flash = format!("{TOKENS}{{model=\"gemini-2.5-flash\"}}");
    assert_eq!(sum(&prometheus, &flash), 5.0);
    let series = prometheus.query(TOKENS);
    assert_eq!(values(&series, "model").len(), 101);
    assert!(series.len() <= 606);
    let folded = format!("tachograph_series_folded_total{{family=\"{TOKENS}\"}}");
    assert_eq!(prometheus.value(&folded), Some(2.0 * 9_901.0));

    let decisions = prometheus.query("tachograph_guardrail_decisions_total");
    assert!(
        decisions.len() <= 5_000 && decisions.len() > 4_800,
        "{}",
        decisions.len()
    );
    assert_eq!(
        decisions.iter().map(|one| one.value).sum::<f64>(),
        100_000.0
    );
    let deny = "tachograph_guardrail_decisions_total{decision=\"deny\"}";
    assert_eq!(sum(&prometheus, deny), 100_000.0);
    let labels: BTreeSet<&String> = series.iter().flat_map(|one| one.labels.keys()).collect();
    for never in [
        "invocation_id",
        "session_id",
        "user_id",
        "trace_id",
        "branch",
    ] {
        assert!(!labels.contains(&never.to_owned()));
    }
}

#[test]
fn strange_bytes_come_back_equal() {
    // PRM-02: each would break a careless exposition.
    let strange = [
        "he said \"hi\"\nback\\slash",
        "bad\u{fffd}\u{fffd}name",
        "} 1\ntachograph_tokens_total 99\n# EOF",
        "\\",
        "\\n is no line feed",
        "\"",
        "日本語 🚕 \u{202e}rtl\u{feff}",
        "{a=\"b\",} #",
        " leading and trailing ",
    ];
    let served = serve(&[]);
    for agent in strange {
        served.tell(
            Family::Tokens,
            &["a", "", "m1", agent, "answer"],
            Move::Add(3),
        );
    }
    let controls: String = (0u8..=0x9f)
        .map(char::from)
        .filter(|c| c.is_control())
        .collect();
    let replaced: String = controls
        .chars()
        .map(|c| if c == '\n' { c } else { '\u{fffd}' })
        .collect();
    served.tell(
        Family::Tokens,
        &["a", "", "m1", &controls, "answer"],
        Move::Add(3),
    );
    check_metrics(&served.exporter.render(Clock::new().wall()));
    let prometheus = served.prometheus();
    let series = prometheus.query(TOKENS);
    let mut expected: BTreeSet<String> = strange.iter().map(|s| (*s).to_owned()).collect();
    expected.insert(replaced);
    assert_eq!(values(&series, "agent"), expected);
    assert_eq!(series.len(), expected.len());
    assert!(series.iter().all(|one| one.value == 3.0));
}

#[test]
fn a_series_is_at_0_before_its_first_count() {
    let served = serve(&[]);
    let labels = ["a", "t", "m1", "desk", "answer"];
    served.tell(Family::Tokens, &labels, Move::Create);
    let prometheus = served.prometheus();
    assert_eq!(prometheus.value(TOKENS), Some(0.0));
    served.tell(Family::Tokens, &labels, Move::Add(100));
    wait::until_eq("the count arrives", PATIENCE, Some(100.0), || {
        prometheus.value(TOKENS)
    });
    // The first count is seen as an increase only because the series was there before.
    let increase = sum(&prometheus, "increase(tachograph_tokens_total[1m])");
    assert!(increase > 0.0, "{increase}");
}

#[test]
fn series_of_a_partition_that_is_gone_vanish() {
    let served = serve(&[]);
    let exporter = &served.exporter;
    let topic = Name::from("events");
    exporter.set_snapshot(snapshot("events", &[0, 1]));
    exporter.lag(&topic, 0, Some(3));
    exporter.lag(&topic, 1, Some(4));
    let prometheus = served.prometheus();
    let of = |partition: i32| {
        let query = format!("{{topic=\"events\",partition=\"{partition}\"}}");
        prometheus.query(&query).len()
    };
    let each = 5;
    assert_eq!((of(0), of(1)), (each, each));
    assert_eq!(
        prometheus.value("tachograph_complete_up_to_timestamp_seconds"),
        Some(1_772_445_600.0)
    );
    exporter.forget_partition(&topic, 1);
    wait::until_eq("partition 1 is gone", PATIENCE, (each, 0), || {
        (of(0), of(1))
    });
}

/// Status and body of a `GET` at the server.
fn ask(served: &Served, target: &str) -> (u16, String) {
    let answer = http::exchange(&served.authority, &Request::get(target, PATIENCE)).unwrap();
    (answer.status, answer.text())
}

#[test]
fn the_pipeline_can_be_read_as_json() {
    let served = serve(&[]);
    assert_eq!(ask(&served, "/debug/pipeline").0, 503);
    let mut stands = snapshot("events", &[3]);
    stands.invocations_open = BTreeMap::from([("a \"quoted\" app".into(), 1)]);
    served.exporter.set_snapshot(stands);
    let (status, body) = ask(&served, "/debug/pipeline");
    assert_eq!(status, 200);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["totals"]["records"]["applied"], 24);
    assert_eq!(body["invocations_open"]["a \"quoted\" app"], 1);
    assert_eq!(
        body["partitions"],
        json!([{
            "id": 3,
            "topic": "events",
            "partition": 3,
            "records_read": 12,
            "next": 12,
            "log_time_ms": 1_772_445_600_250i64,
            "complete_up_to_ms": 1_772_445_600_000i64,
            "is_replaying": false,
            "segments_held": 1,
            "held_records": 4,
            "watermark": {
                "resume_from": 8,
                "exported_below": 8,
                "abandoned_before_ms": null,
                "observed_below": 8,
                "observed_before_ms": null,
                "is_clean": false,
            },
        }])
    );
}

#[test]
fn idle_connections_do_not_lock_others_out() {
    let served = serve(&[]);
    let mut silent: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(&served.authority).unwrap())
        .collect();
    // One begins to ask and never ends.
    silent[0].write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
    assert_eq!(ask(&served, "/healthz/live").0, 200);
    let mut answer = String::new();
    silent[0].set_read_timeout(Some(PATIENCE)).unwrap();
    // The server hangs up, with or without a word.
    let ended = silent[0].read_to_string(&mut answer);
    assert!(ended.is_ok(), "{ended:?}");
    assert!(!answer.contains("200 OK"), "{answer}");
}

#[test]
fn long_calls_lie_in_finite_buckets() {
    // PRM-04.
    let served = serve(&[]);
    let labels = ["a", "chat", "gcp.gen_ai", "m", ""];
    for nanos in [40_000_000, 12_500_000_000, 420_000_000_000] {
        served.tell(Family::OperationDuration, &labels, Move::Observe(nanos));
    }
    let prometheus = served.prometheus();
    let name = "gen_ai_client_operation_duration_seconds";
    assert_eq!(prometheus.value(&format!("{name}_sum")), Some(432.54));
    assert_eq!(prometheus.value(&format!("{name}_count")), Some(3.0));
    let bucket = |le: &str| prometheus.value(&format!("{name}_bucket{{le=\"{le}\"}}"));
    for (le, count) in [
        ("0.02", 0.0),
        ("0.04", 1.0),
        ("10.24", 1.0),
        ("20.48", 2.0),
        ("327.68", 2.0),
        ("655.36", 3.0),
        ("+Inf", 3.0),
    ] {
        assert_eq!(bucket(le), Some(count), "{le}");
    }
    assert_eq!(prometheus.query(&format!("{name}_bucket")).len(), 18);
    let quantile = format!("histogram_quantile(0.99, {name}_bucket)");
    let seconds = prometheus.value(&quantile).unwrap();
    assert!((327.68..655.36).contains(&seconds), "{seconds}");
}
