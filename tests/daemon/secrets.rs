//! Content never leaves the core: secrets are planted wherever a runtime may put content, and
//! looked for wherever anything comes out.

use super::planted::{Planted, planted};
use super::state::keep_state;
use super::*;
use base64::Engine as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tachograph::core::dialect::{DecodeContext, RecordBytes, decode};
use tachograph::core::pipeline::{self, Action, Input, Pipeline, Settings};
use tachograph::core::{Limits, LogSource, LogTime, Now, Offset, PartitionId, TopicDefaults};

const PAYLOAD_BYTES_MAX: usize = 64 << 10;
const NOW: Now = Now(Duration::ZERO);
const TABLES: [&str; 9] = [
    "invocations",
    "branches",
    "agent_runs",
    "model_calls",
    "local_answers",
    "tool_calls",
    "guardrail_decisions",
    "recovery_decisions",
    "anomalies",
];

/// What comes out somewhere, by where.
type Outputs = Vec<(String, String)>;

#[test]
fn content_is_shown_nowhere() {
    let (planted, outputs) = everything_that_comes_out("secrets", false);
    for (place, text) in &outputs {
        assert_eq!(planted.content.within(text), [""; 0], "{place}");
        assert_eq!(planted.reasons.within(text), [""; 0], "{place}");
    }
}

#[test]
fn reasons_are_stored_where_configured_and_shown_nowhere_else() {
    let (planted, outputs) = everything_that_comes_out("reasons", true);
    for (place, text) in &outputs {
        assert_eq!(planted.content.within(text), [""; 0], "{place}");
        let found = planted.reasons.within(text).len();
        match place.as_str() {
            "table guardrail_decisions" | "replay facts" => {
                assert_eq!(found, planted.reasons.0.len(), "{place}");
            }
            "view v_guardrail_audit" | "replay report" => {}
            _ => assert_eq!(found, 0, "{place}"),
        }
    }
}

/// Runs a daemon at its most talkative over planted records, until it is made to crash.
fn everything_that_comes_out(name: &str, store_reasons: bool) -> (Planted, Outputs) {
    let (database, login) = database(name);
    let stage = Stage::new(name, &login);
    let state = keep_state(&stage);
    stage.replace(
        "[limits]",
        &format!("[privacy]\nstore_reasons = {store_reasons}\n[limits]"),
    );
    let bytes_max = format!("[limits]\npayload_bytes_max = {PAYLOAD_BYTES_MAX}");
    stage.replace("[limits]", &bytes_max);
    stage.replace("[kafka.properties]", "[kafka.properties]\ndebug = \"all\"");
    let letters = format!("{}.dead-letters", stage.topic);
    kafka::create_topic_at(brokers(), &letters, 1, &[]);
    // Else an earlier version of a row, which nobody may see either, would be merged away.
    for table in TABLES {
        database.query(&format!("SYSTEM STOP MERGES {table}"));
    }
    let planted = planted(PAYLOAD_BYTES_MAX);
    assert!(planted.content.0.len() > 1_000);
    let log = stage.folder.join("log");
    let mut daemon = Daemon::start_talkative(&stage.config, &log, &stage.password);
    daemon.until_ready();
    kafka::produce(&stage.topic, &planted.records);
    until_read(&[&daemon], planted.records.len());
    let mut outputs = Outputs::new();
    rows(&database, &mut outputs);
    pages(&daemon, &mut outputs);
    dead_letters(&letters, &planted, &mut outputs);
    outputs.push(("state file".to_owned(), saved(&state)));
    replays(&stage, &planted, &mut outputs);
    crash(&mut daemon);
    let log = fs::read(&log).expect("a log");
    let log = String::from_utf8_lossy(&log).into_owned();
    assert!(log.contains("\"TRACE\""), "it was talkative");
    outputs.push(("log and crash".to_owned(), log));
    commands(&stage, &mut outputs);
    for (place, text) in &outputs {
        assert!(!text.contains(&stage.password), "the password: {place}");
    }
    (planted, outputs)
}

/// Every version of every row, and what the views make of them.
fn rows(database: &Database, outputs: &mut Outputs) {
    let counts = || {
        let count = |table| format!("(SELECT count() FROM {table})");
        let counts: Vec<String> = TABLES.iter().map(count).collect();
        database
            .rows(&format!("SELECT {}", counts.join(", ")))
            .remove(0)
    };
    wait::until("rows in every table", PATIENCE, || {
        (!counts().contains(&"0".to_owned())).then_some(())
    });
    wait::until("every run's row", PATIENCE, || {
        let ended = "SELECT uniq(invocation_id) FROM invocations WHERE status = 'completed'";
        (database.rows(ended)[0][0].parse::<u64>().ok()? >= 4).then_some(())
    });
    for table in TABLES {
        let text = database.query(&format!("SELECT * FROM {table} FORMAT JSONEachRow"));
        outputs.push((format!("table {table}"), text));
    }
    let views = "SELECT name FROM system.tables WHERE database = currentDatabase() \
                 AND name LIKE 'v\\_%' AND name NOT LIKE '%\\_between'";
    let views = database.rows(views);
    assert!(views.len() >= 7, "{views:?}");
    for view in views.into_iter().flatten() {
        let text = database.query(&format!("SELECT * FROM {view} FORMAT JSONEachRow"));
        outputs.push((format!("view {view}"), text));
    }
}

fn pages(daemon: &Daemon, outputs: &mut Outputs) {
    for page in [
        "/",
        "/metrics",
        "/healthz/live",
        "/healthz/ready",
        "/debug/pipeline",
        "/nowhere",
    ] {
        let (_, text) = daemon.get(page).expect("the daemon answers");
        assert!(page != "/metrics" || text.contains("tachograph_tokens_total{"));
        outputs.push((format!("page {page}"), text));
    }
}

/// A dead letter's value, key and own headers are what they were; ours hold no content.
fn dead_letters(topic: &str, planted: &Planted, outputs: &mut Outputs) {
    let letters = kafka::read_all(topic, planted.letters);
    let kept = letters
        .iter()
        .map(|letter| String::from_utf8_lossy(&letter.1));
    let kept: String = kept.collect();
    assert!(
        planted.content.within(&kept).len() >= planted.letters,
        "values stay"
    );
    let headers = letters.into_iter().flat_map(|letter| letter.3);
    let ours = headers.filter(|(name, _)| name.starts_with("tachograph_"));
    let text: Vec<String> = ours
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert!(text.len() >= 6 * planted.letters, "{text:?}");
    outputs.push(("headers of dead letters".to_owned(), text.join("\n")));
}

/// The state file, which only its owner can read.
fn saved(file: &Path) -> String {
    let text = wait::until("a state file with counters", PATIENCE, || {
        let text = fs::read_to_string(file).ok()?;
        text.contains("tachograph_tokens_total").then_some(text)
    });
    for path in [file.to_owned(), file.with_extension("lock")] {
        let mode = fs::metadata(&path)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    text
}

fn tachograph(stage: &Stage, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tachograph"))
        .args(arguments)
        .arg("--config")
        .arg(&stage.config)
        .env("TEST_PASSWORD", &stage.password)
        .env("RUST_LOG", "trace")
        .stdin(Stdio::null())
        .output()
        .expect("the binary starts")
}

fn both(output: &Output) -> String {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    text.concat()
}

/// The same records from a file, in every form that `replay` prints.
fn replays(stage: &Stage, planted: &Planted, outputs: &mut Outputs) {
    let file = stage.folder.join("records.ndjson");
    let line = |record: &Record| {
        let value = record.value.as_deref().unwrap_or_default();
        let value = base64::engine::general_purpose::STANDARD.encode(value);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = record.headers.iter();
        let headers: Vec<_> = headers.map(|(name, value)| (name, text(value))).collect();
        let key = record.key.as_deref().map(text);
        let kafka = serde_json::json!({"key": key, "headers": headers});
        serde_json::json!({"_kafka": kafka, "value_b64": value}).to_string() + "\n"
    };
    let text: String = planted.records.iter().map(line).collect();
    fs::write(&file, text).expect("the folder can be written");
    let file = file.to_str().expect("a path in UTF-8");
    for form in ["report", "facts", "timeline"] {
        let output = tachograph(stage, &["replay", "--output", form, file]);
        let text = both(&output);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("desk"), "{form}: {text}");
        outputs.push((format!("replay {form}"), text));
    }
}

/// An end as by a fault of the process, with everything in its hands. It leaves no image of its
/// memory behind.
fn crash(daemon: &mut Daemon) {
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.child.id()));
    let limits = limits.expect("it runs");
    let cores = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let soft = cores.and_then(|line| line.split_whitespace().nth(4));
    assert_eq!(soft, Some("0"), "{limits}");
    daemon.signal(libc::SIGABRT);
    assert_eq!(daemon.end().signal(), Some(libc::SIGABRT));
}

/// What the other commands print.
fn commands(stage: &Stage, outputs: &mut Outputs) {
    for arguments in [
        &["config", "print"] as &[&str],
        &["check"],
        &["schema", "check"],
    ] {
        let output = tachograph(stage, arguments);
        let text = both(&output);
        assert!(!text.is_empty(), "{arguments:?}");
        outputs.push((arguments.join(" "), text));
    }
}

/// What a crash of our own making prints: whatever holds content says nothing of it in words.
#[test]
fn what_holds_content_prints_none_of_it() {
    let planted = planted(PAYLOAD_BYTES_MAX);
    let partition = PartitionId(1);
    let mut pipeline = strict_pipeline(partition);
    let mut printed = String::new();
    for (number, record) in planted.records.iter().enumerate() {
        let headers = record.headers.iter();
        let headers: Vec<_> = headers
            .map(|(name, value)| (name.as_str(), Some(value.as_slice())))
            .collect();
        let at = i64::try_from(number).expect("few");
        let record = pipeline::Record {
            offset: Offset(at),
            logged_at: LogTime(at),
            key: record.key.as_deref(),
            headers: &headers,
            payload: record.value.as_deref(),
        };
        let input = Input::Record { partition, record };
        printed += &format!("{input:?}\n");
        events(&record, &mut printed);
        pipeline.handle(input, NOW);
        while let Some(action) = pipeline.poll_action() {
            printed += &format!("{action:?}\n");
            let work = match action {
                Action::DeadLetter(letter) => letter.work,
                Action::Insert(batch) => batch.work,
                _ => continue,
            };
            pipeline.handle(Input::Settled { work }, NOW);
        }
    }
    let again = pipeline::Record {
        offset: Offset(0),
        logged_at: LogTime(0),
        key: None,
        headers: &[],
        payload: planted.records[0].value.as_deref(),
    };
    let again = Input::Record {
        partition,
        record: again,
    };
    let violated = catch_unwind(AssertUnwindSafe(|| pipeline.handle(again, NOW)));
    let words = violated.expect_err("offsets rise, or it is strict in vain");
    let words = words.downcast_ref::<String>().expect("composed words");
    assert!(words.contains("offsets_rise"), "{words}");
    printed += words;
    for word in ["ModelEnd", "Native", "DeadLetter", "Observe"] {
        assert!(printed.contains(word), "{word} was not printed");
    }
    assert_eq!(planted.content.within(&printed), [""; 0]);
    assert_eq!(planted.reasons.within(&printed), [""; 0]);
}

/// A pipeline that panics at a broken invariant, with an empty partition.
fn strict_pipeline(partition: PartitionId) -> Pipeline {
    let limits = Limits {
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        ..Limits::OF_THE_CONTRACT
    };
    let mut pipeline = Pipeline::new(Settings {
        limits,
        hash_key: 7,
        is_strict: true,
        has_state_file: false,
    });
    let source = LogSource {
        topic: "t".into(),
        partition: 0,
        defaults: TopicDefaults::default(),
    };
    let assigned = Input::Assigned {
        partition,
        source,
        committed: None,
        log: Offset(0)..Offset(0),
    };
    pipeline.handle(assigned, NOW);
    pipeline
}

/// Prints the events of a record.
fn events(record: &pipeline::Record<'_>, printed: &mut String) {
    let bytes = RecordBytes {
        payload: record.payload.unwrap_or_default(),
        headers: record.headers,
    };
    let context = DecodeContext {
        dialect: None,
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        hash_key: 7,
        id_bytes_max: 256,
        attributes_max: 16,
        attribute_bytes_max: 128,
        store_reasons: false,
    };
    let decoded = decode(bytes, &context, &mut |event| {
        *printed += &format!("{event:?}\n")
    });
    *printed += &format!("{decoded:?}\n");
}
