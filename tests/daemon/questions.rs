//! The ten questions of `deploy/queries`, asked of a ClickHouse and a Prometheus that the daemon
//! filled with recorded runs, and their right answers in `answers/`.
//!
//! Instants are compared as seconds after the first run, days as `today`: the runs happen now.
//! `ANSWERS=write` writes what was answered; read the difference before you keep it.

use super::*;
use jiff::Timestamp;
use std::collections::BTreeSet;
use tachograph::demo::corpus::recordings;
use tachograph::demo::ledger::Truth;

/// Between the starts of two recorded runs of a pass.
const APART_NS: i64 = 1_000_000_000;
/// From the start of a pass to the start of the next.
const PASS_NS: i64 = 5 * 60 * 1_000_000_000;
const DAY_NS: i64 = 86_400_000_000_000;

/// The start of the first pass: now, unless both passes would not fit into what is left of the day.
fn started_at() -> i64 {
    let now = Timestamp::now().as_nanosecond();
    let now = i64::try_from(now).expect("before 2262");
    let midnight = now - now % DAY_NS + DAY_NS;
    if midnight - now > 3 * PASS_NS {
        now
    } else {
        midnight
    }
}

/// Every recorded run, one after the other, as one pass of the demo would send it.
fn pass(number: u64, starts_at: i64) -> Vec<Record> {
    let runs = (0..).zip(recordings());
    runs.flat_map(|(i, run)| run.records(number, starts_at + i * APART_NS))
        .map(|record| Record::new(&record.key, record.payload))
        .collect()
}

/// Where the questions stand, by file name.
fn questions(ending: &str) -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/queries");
    let entries = fs::read_dir(&folder).expect("deploy/queries");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut found = BTreeMap::new();
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == ending)) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        found.insert(name, fs::read_to_string(&path).expect("a question"));
    }
    found
}

/// Compares what was answered with the file of answers, or writes it.
fn check(question: &str, answered: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/daemon/answers");
    let file = file.join(format!("{question}.txt"));
    if std::env::var_os("ANSWERS").is_some_and(|word| word == "write") {
        fs::write(&file, answered).expect("the answer is written");
        return;
    }
    let known = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(known, answered, "{question}");
}

/// A SQL question with its parameters put in.
fn ask(database: &Database, sql: &str, from: i64, invocation: &str) -> String {
    let instant = |ns: i64| format!("fromUnixTimestamp64Nano({ns}, 'UTC')");
    let sql = sql
        .replace("{from:DateTime64(9, 'UTC')}", &instant(from))
        .replace("{to:DateTime64(9, 'UTC')}", &instant(from + PASS_NS))
        .replace("{tz:String}", "'UTC'")
        .replace("{invocation:String}", &format!("'{invocation}'"));
    database.query(&format!("{sql} FORMAT TSVWithNames"))
}

/// The answer's rows without what is another in every run of the test.
fn settled(text: &str, from: i64, topic: &str) -> String {
    let cell = |cell: &str| {
        let at: Option<Timestamp> = format!("{}Z", cell.replace(' ', "T")).parse().ok();
        let today = Timestamp::from_nanosecond(from.into())
            .expect("an instant")
            .to_string();
        match at {
            Some(at) => {
                let after = at.as_nanosecond() - i128::from(from);
                format!("+{}.{:09}", after / 1_000_000_000, after % 1_000_000_000)
            }
            None if cell == &today[..10] => "today".to_owned(),
            None => cell.replace(topic, "agent-events"),
        }
    };
    let line = |line: &str| line.split('\t').map(cell).collect::<Vec<_>>().join("\t") + "\n";
    text.lines().map(line).collect()
}

/// The series that answer a PromQL question, a line each.
fn series(prometheus: &Prometheus, promql: &str) -> String {
    let mut lines = BTreeSet::new();
    for one in prometheus.query(promql) {
        let labels: Vec<String> = one
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        lines.insert(format!("{}\t{:.6}\n", labels.join(" "), one.value));
    }
    lines.into_iter().collect()
}

#[test]
fn the_ten_questions_have_their_right_answers() {
    let (database, login) = database("questions");
    let stage = Stage::new("questions", &login);
    let text = fs::read_to_string(&stage.config).expect("the configuration");
    // A run without an end is closed by silence, here within seconds.
    let short = "silence_max = \"4 s\"\ntool_silence_max = \"4 s\"\nquiet_margin = \"1 s\"\n";
    fs::write(&stage.config, text + short).expect("the configuration is written");
    let daemon = stage.start();
    daemon.until_ready();
    let from = started_at();
    let first = pass(1, from);
    kafka::produce(&stage.topic, &first);
    until_settled(&daemon, first.len());

    // `increase` needs a scrape before what it adds up: it sees the second pass only.
    let prometheus = Prometheus::start(&[Target::new("tachograph", &daemon.authority)]);
    prometheus.wait_up("tachograph");
    let second = pass(2, from + PASS_NS);
    kafka::produce(&stage.topic, &second);
    until_settled(&daemon, first.len() + second.len());

    let run = "SELECT invocation_id FROM v_invocations WHERE app = '11_parallel_branches' \
               ORDER BY started_at LIMIT 1";
    let run = database.rows(run)[0][0].clone();
    let sql = questions("sql");
    for (question, sql) in &sql {
        let answer = ask(&database, sql, from, &run);
        check(question, &settled(&answer, from, &stage.topic));
    }
    is_the_truth(&sql, &database, from);
    let calls = daemon.metric("tachograph_model_calls_total", &[]) as f64;
    let read = (first.len() + second.len()) as f64;
    wait::until_eq(
        "all is scraped",
        PATIENCE,
        (Some(calls), Some(read)),
        || {
            let calls = prometheus.value("sum(tachograph_model_calls_total)");
            (
                calls,
                prometheus.value("sum(tachograph_records_read_total)"),
            )
        },
    );
    let promql = questions("promql");
    for (question, promql) in &promql {
        let answer = series(&prometheus, promql);
        if question.starts_with("04_") {
            let seconds: f64 = answer.trim().parse().expect("one number");
            assert!((0.0..600.0).contains(&seconds), "{question}: {seconds}");
        } else {
            check(question, &answer);
        }
    }
    assert_eq!((sql.len(), promql.len()), (10, 9), "ten questions");
    daemon.stop();
}

/// The bill of question 05 is what the scripts of the recordings had the models report.
fn is_the_truth(sql: &BTreeMap<String, String>, database: &Database, from: i64) {
    let bill = &sql["05_tokens_by_day_tenant_and_model.sql"];
    let answer = ask(database, bill, from, "");
    let mut lines = answer
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    let names = lines.next().expect("names");
    let column = names
        .iter()
        .position(|name| *name == "tokens")
        .expect("tokens");
    let billed: u64 = lines
        .filter_map(|row| row[column].parse::<u64>().ok())
        .sum();
    let truth = Truth::of(&recordings());
    let tokens = truth
        .ledger
        .iter()
        .filter(|((figure, _), _)| figure.starts_with("tokens "));
    let truth: u64 = tokens.map(|(_, count)| count).sum();
    assert_eq!(billed, truth, "the bill and the truth");
}
