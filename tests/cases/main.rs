//! The hard cases: failures of real meters as data, each with the right answer (README.md here).
//!
//! Each case goes through `tachograph replay` as a user would feed it, and its `expect` is matched
//! against what is printed. It is lived through a second time by the daemon's core and exporter, on
//! a clock that the case moves and with the faults that it says (`world.rs`), and everything that
//! it expects is matched against the rows, commits and scrapes of that. Where it asks for
//! ClickHouse, the rows are in the real one. `TACHOGRAPH_CASES=DIR` runs the cases of another
//! directory. The last line counts: passed, failed, skipped (another dialect or a price book is
//! needed), exceptions (listed in `exceptions.json` with an argument).

mod broker;
mod engine;
mod exposition;
mod feed;
mod logs;
mod matching;
mod notes;
mod steps;
#[path = "../support/mod.rs"]
mod support;
mod tables;
mod told;
mod view;
mod vocabulary;
mod words;
mod world;

use engine::ClickHouse;
use exposition::Scrapes;
use feed::{Case, Feed};
use matching::{Matcher, Vetted};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use view::Printed;
use vocabulary::{Harness, TOP};
use world::{Setup, World};

const BINARY: &str = env!("CARGO_BIN_EXE_tachograph");
/// Orders of arrival that are tried where there are more of them.
const ORDERS_MAX: usize = 200;

/// Steps that change nothing of what a replay of the log prints.
const STEPS_OF_REPLAY: [&str; 6] = [
    "start",
    "flush",
    "scrape",
    "generate",
    "no_merge_yet",
    "query",
];
/// What a replay tells.
const REPLAY: Matcher = Matcher(&[Harness::Replay]);
/// What only ClickHouse tells.
const TABLES: Matcher = Matcher(&[Harness::ClickHouse, Harness::Billing]);
/// What a world tells that a replay does not.
const WORLD_ONLY: Matcher = Matcher(&[Harness::Steps, Harness::ClickHouse, Harness::Billing]);
/// What a world tells; scrapes are matched by themselves.
const WORLD: Matcher = Matcher(&[
    Harness::Replay,
    Harness::Steps,
    Harness::ClickHouse,
    Harness::Billing,
]);

/// How a case ended.
enum Outcome {
    Passed,
    Failed(Vec<String>),
    Skipped(String),
}

/// What all cases came to.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    exceptions: usize,
    /// Cases not run, by what they need.
    skipped: BTreeMap<String, Vec<String>>,
    /// Names not compared in the cases that ran, by the harness they need.
    names: BTreeMap<Harness, usize>,
    compared: usize,
}

fn main() -> ExitCode {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let other = std::env::var_os("TACHOGRAPH_CASES").map(PathBuf::from);
    let folder = other.as_deref().unwrap_or(&here);
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cases");
    fs::create_dir_all(&scratch).expect("a folder for the cases");
    let mut is_good = true;
    if other.is_none() {
        is_good = mistakes_are_noticed(&here.join("mistakes"), &scratch);
    }
    let exceptions = exceptions(&here);
    let mut tally = Tally::default();
    let mut cases = files(folder);
    if other.is_none() {
        // Our own, one rule of the contract each.
        cases.extend(files(&here.join("rules")));
    }
    for file in cases {
        is_good &= tally.take(&file, &exceptions, &scratch);
    }
    if other.is_none() {
        let is_stale = |id: &&String| !here.join(format!("{id}.json")).exists();
        for id in exceptions.keys().filter(is_stale) {
            println!("FAILED  exceptions.json lists {id}, which is no case");
            is_good = false;
        }
    }
    is_good &= tally.passed > 0;
    tally.print();
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The case files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            println!("FAILED  {}: {error}", folder.display());
            return Vec::new();
        }
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let is_case = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "json") && !path.ends_with("exceptions.json")
    };
    let mut files: Vec<PathBuf> = paths.filter(is_case).collect();
    files.sort();
    files
}

/// Cases that this build answers otherwise, with the argument for its answer.
fn exceptions(here: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(here.join("exceptions.json")).expect("exceptions.json");
    serde_json::from_str(&text).expect("an object of arguments by case")
}

impl Tally {
    /// Runs one case and says how it ended, unless it passed. False where it failed.
    fn take(&mut self, file: &Path, exceptions: &BTreeMap<String, String>, scratch: &Path) -> bool {
        let name = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut vetted = Vetted::default();
        let outcome = match read(file) {
            Ok(case) => run(&case, &mut vetted, scratch),
            Err(error) => Outcome::Failed(vec![error]),
        };
        let exception = exceptions.get(&name);
        match outcome {
            Outcome::Passed => {
                self.passed += 1;
                self.compared += vetted.compared;
                for (harness, names) in &vetted.skipped {
                    *self.names.entry(*harness).or_default() += names.len();
                }
                if exception.is_some() {
                    println!("FAILED  {name}: passes; take it out of exceptions.json");
                    self.failed += 1;
                }
                exception.is_none()
            }
            Outcome::Skipped(why) => {
                self.skipped.entry(why).or_default().push(name);
                true
            }
            Outcome::Failed(_) if exception.is_some() => {
                self.exceptions += 1;
                true
            }
            Outcome::Failed(reasons) => {
                self.failed += 1;
                for reason in reasons {
                    println!("FAILED  {name}: {reason}");
                }
                false
            }
        }
    }

    fn print(&self) {
        let mut skipped = 0;
        for (why, cases) in &self.skipped {
            println!("skipped, needs {why}: {}", cases.join(" "));
            skipped += cases.len();
        }
        for (harness, count) in &self.names {
            println!("names not compared, need {}: {count}", harness.as_str());
        }
        println!("names compared: {}", self.compared);
        println!(
            "cases: {} passed, {} failed, {skipped} skipped, {} exceptions",
            self.passed, self.failed, self.exceptions
        );
    }
}

fn read(file: &Path) -> Result<Case, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| format!("no case: {error}"))
}

fn run(case: &Case, vetted: &mut Vetted, scratch: &Path) -> Outcome {
    let mut expect = case.expect.clone();
    let never = match expect.remove("never") {
        Some(Value::Object(never)) => never,
        _ => Map::new(),
    };
    let (feed, config) = match vet(case, &expect, &never, vetted) {
        Ok(readable) => readable,
        Err(reasons) => return Outcome::Failed(reasons),
    };
    if let Some(lacking) = lacking(case, &feed, vetted) {
        return Outcome::Skipped(lacking);
    }
    if vetted.compared == 0 {
        let reason = "nothing that a replay can tell is expected";
        return Outcome::Failed(vec![reason.to_owned()]);
    }
    let trial = Trial {
        case,
        feed,
        config,
        expect,
        never,
        scratch,
    };
    let mut reasons = trial.replay();
    if reasons.is_empty() {
        reasons = trial.live().unwrap_or_else(|reason| vec![reason]);
    }
    match reasons.is_empty() {
        true => Outcome::Passed,
        false => Outcome::Failed(reasons),
    }
}

/// Looks up every name, word, step and key, and reads the records and the configuration.
fn vet(
    case: &Case,
    expect: &Map<String, Value>,
    never: &Map<String, Value>,
    vetted: &mut Vetted,
) -> Result<(Feed, String), Vec<String>> {
    for word in case.also.iter().chain([&case.needs]) {
        if Harness::parse(word).is_none() {
            return Err(vec![format!("unknown harness {word}")]);
        }
    }
    vetted.object("", expect, TOP);
    vetted.object("never", never, TOP);
    let feed = Feed::new(case).map_err(|error| vec![error])?;
    let config = feed::config(&case.config).map_err(|error| vec![error])?;
    match vetted.errors.is_empty() {
        true => Ok((feed, config)),
        false => Err(std::mem::take(&mut vetted.errors)),
    }
}

/// What the case needs and this runner has not: a dialect, or a price book where money is its point.
fn lacking(case: &Case, feed: &Feed, vetted: &Vetted) -> Option<String> {
    if !feed.dialects.is_empty() {
        let dialects: Vec<&str> = feed.dialects.iter().copied().collect();
        return Some(format!("dialect {}", dialects.join(", ")));
    }
    let wants_money = vetted.skipped.contains_key(&Harness::Prices);
    let is_of_tables = [Harness::ClickHouse, Harness::Billing]
        .map(Harness::as_str)
        .contains(&case.needs.as_str());
    (wants_money && is_of_tables).then(|| Harness::Prices.as_str().to_owned())
}

/// One case on its way.
struct Trial<'t> {
    case: &'t Case,
    feed: Feed,
    config: String,
    expect: Map<String, Value>,
    never: Map<String, Value>,
    scratch: &'t Path,
}

impl Trial<'_> {
    /// A file with these records, in this order.
    fn log(&self, name: &str, order: &[usize]) -> PathBuf {
        let log = self.scratch.join(format!("{}.{name}.ndjson", self.case.id));
        fs::write(&log, self.feed.lines(order)).expect("a file in the scratch folder");
        log
    }

    fn needs(&self, harness: Harness) -> bool {
        let word = harness.as_str();
        self.case.needs == word || self.case.also.iter().any(|also| also == word)
    }

    fn expects(&self, name: &str) -> bool {
        self.expect.contains_key(name) || self.never.contains_key(name)
    }

    /// Lives through the case; everything that is wrong with it.
    fn live(&self) -> Result<Vec<String>, String> {
        logs::listen();
        let mut names = self.expect.keys().chain(self.never.keys());
        let is_stored = self.needs(Harness::ClickHouse) || TABLES.tells_any(&mut names, TOP);
        let clickhouse = match is_stored {
            true => Some(ClickHouse::start(&self.case.id.to_lowercase())?),
            false => None,
        };
        let peak = |limit: &Value| !limit["peak_memory_growth_mib_max"].is_null();
        let mut world = World::live(Setup {
            config: &self.config,
            feed: &self.feed,
            log: &self.log("all", &self.feed.all()),
            clickhouse,
            measures_memory: self.expect.get("process").is_some_and(peak),
            has_too_many_parts: self.expects("on_too_many_parts"),
        })?;
        if !world.errors.is_empty() {
            return Ok(std::mem::take(&mut world.errors));
        }
        let scrapes = Scrapes::new(&world.scrapes)?;
        let mut reasons = shown(&self.expect, &self.never, &scrapes);
        let mut names = self.expect.keys().chain(self.never.keys());
        // A report takes its time, and not every case asks for rows.
        let printed = match REPLAY.tells_any(&mut names, TOP) {
            true => world.printed(&self.log("given", &self.feed.committed()))?,
            false => Printed::of("{}"),
        };
        let mut view = printed.view()?;
        let zones: Vec<String> = match self.case.config.get("reporting_zones") {
            Some(zones) => serde_json::from_value(zones.clone()).map_err(|e| e.to_string())?,
            None => vec!["UTC".to_owned()],
        };
        let rests = self.expects("committed_offset");
        world.tell_all(&mut view, &scrapes, &zones, rests)?;
        // A replay joins a run that is split over partitions; the daemon cannot, and flags it.
        let matcher = match self.case.needs == "replay" && self.feed.partitions() > 1 {
            true => &WORLD_ONLY,
            false => &WORLD,
        };
        reasons.extend(self.compare(matcher, view, &printed));
        let hidden = self.expect.get("never_appears_in").unwrap_or(&Value::Null);
        for place in words(&hidden["places"]) {
            let text = hidden["text"].as_str().unwrap_or_default();
            if world.shows(text, place, &scrapes)? {
                reasons.push(format!("never_appears_in: it appears in {place}"));
            }
        }
        Ok(reasons)
    }

    /// Replays the case where a replay can tell; everything that is wrong with it.
    fn replay(&self) -> Vec<String> {
        let mut steps = self.feed.steps.iter();
        let is_lived_only = steps.any(|step| !STEPS_OF_REPLAY.contains(&step.as_str()));
        let mut names = self.expect.keys().chain(self.never.keys());
        if is_lived_only || !REPLAY.tells_any(&mut names, TOP) {
            return Vec::new();
        }
        let config = self.scratch.join(format!("{}.toml", self.case.id));
        fs::write(&config, &self.config).expect("a file in the scratch folder");
        let is_any = self.expect.get("any_order") == Some(&Value::Bool(true));
        let all = self.feed.committed();
        let orders = match is_any {
            true => orders(&all),
            false => vec![all],
        };
        for order in &orders {
            let log = self.log("log", order);
            let told = replay(&config, &log).and_then(|printed| Ok((printed.view()?, printed)));
            let reasons = match told {
                Ok((view, printed)) => self.compare(&REPLAY, view, &printed),
                Err(error) => vec![error],
            };
            let in_order = |reason| match is_any {
                true => format!("{reason}, in order {order:?}"),
                false => reason,
            };
            if !reasons.is_empty() {
                return reasons.into_iter().map(in_order).collect();
            }
        }
        Vec::new()
    }

    /// Everything of `expect` and `never` that does not hold.
    fn compare(&self, matcher: &Matcher, mut view: Value, printed: &Printed) -> Vec<String> {
        let (expect, never) = (&self.expect, &self.never);
        let mut reasons = Vec::new();
        for (key, value) in expect {
            let reason = match key.as_str() {
                "any_order" => continue,
                "never_appears_in" => appears(printed, value),
                "invocation" => match only_invocation(&view, value) {
                    Ok(row) => {
                        view["invocation"] = row;
                        matcher.object("", &one(key, value), &view, TOP)
                    }
                    Err(error) => Err(error),
                },
                _ => matcher.object("", &one(key, value), &view, TOP),
            };
            reasons.extend(reason.err());
        }
        if let Some(value) = never.get("invocation") {
            match only_invocation(&view, value) {
                Ok(row) => view["invocation"] = row,
                Err(error) => reasons.push(error),
            }
        }
        reasons.extend(matcher.never("never", never, &view, TOP).err());
        reasons
    }
}

/// What of `expect.prometheus` does not hold.
fn shown(
    expect: &Map<String, Value>,
    never: &Map<String, Value>,
    scrapes: &Scrapes,
) -> Vec<String> {
    let of = |names: &Map<String, Value>| {
        names
            .get("prometheus")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let mut reasons = scrapes.judge(&of(expect), false);
    reasons.extend(scrapes.judge(&of(never), true));
    reasons
}

fn words(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// All orders of these records, or `ORDERS_MAX` of them drawn from a fixed seed.
fn orders(records: &[usize]) -> Vec<Vec<usize>> {
    let count = records.len();
    let all = (1..=count).try_fold(1, |product: usize, n| {
        Some(product * n).filter(|product| *product <= ORDERS_MAX)
    });
    let mut orders = vec![records.to_vec()];
    if all.is_some() {
        for i in 1..count {
            // Each order of the first i records, with the next one put at every place.
            orders = orders
                .iter()
                .flat_map(|order| {
                    (0..=i).map(move |place| {
                        let mut order = order.clone();
                        order[place..=i].rotate_right(1);
                        order
                    })
                })
                .collect();
        }
        return orders;
    }
    let mut dice = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    while orders.len() < ORDERS_MAX {
        let mut order = records.to_vec();
        for i in (1..count).rev() {
            order.swap(i, dice.next_u32() as usize % (i + 1));
        }
        orders.push(order);
    }
    orders
}

fn one(key: &str, value: &Value) -> Map<String, Value> {
    Map::from_iter([(key.to_owned(), value.clone())])
}

/// The row with the `invocation_id` given, without one the only row.
fn only_invocation(view: &Value, expect: &Value) -> Result<Value, String> {
    let rows = view["invocations"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let id = &expect["invocation_id"];
    let fitting: Vec<&Value> = rows
        .iter()
        .filter(|row| id.is_null() || row["invocation_id"] == *id)
        .collect();
    match fitting.as_slice() {
        [row] => Ok((*row).clone()),
        rows => Err(format!(
            "invocation: {} rows where one is meant",
            rows.len()
        )),
    }
}

fn appears(printed: &Printed, expect: &Value) -> Result<(), String> {
    let text = expect["text"].as_str().unwrap_or_default();
    let places = words(&expect["places"]);
    let shows = |place: &&str| text.is_empty() || !printed.hides(text, place);
    let shown: Vec<&str> = places.filter(shows).collect();
    if shown.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "never_appears_in: it appears in {}",
            shown.join(", ")
        ))
    }
}

/// `tachograph replay` in its three forms.
fn replay(config: &Path, log: &Path) -> Result<Printed, String> {
    let mut printed = Printed::default();
    for form in ["report", "facts", "timeline"] {
        let output = Command::new(BINARY)
            .args(["replay", "--output", form, "--config"])
            .args([config, log])
            .output()
            .map_err(|error| format!("replay did not start: {error}"))?;
        if output.status.code() != Some(0) {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "replay --output {form} ended with {}: {errors}",
                output.status
            ));
        }
        printed.errors.extend(output.stderr);
        match form {
            "report" => printed.report = output.stdout,
            "facts" => printed.facts = output.stdout,
            _ => printed.timeline = output.stdout,
        }
    }
    Ok(printed)
}

/// Each case in `mistakes` is wrong in one way, and must fail with the words in its `fails_with`.
fn mistakes_are_noticed(folder: &Path, scratch: &Path) -> bool {
    let mut is_good = true;
    let files = files(folder);
    for file in &files {
        let text = fs::read_to_string(file).expect("a case");
        let told: Value = serde_json::from_str(&text).expect("a case");
        let words = told["fails_with"].as_str().expect("fails_with");
        let case: Case = serde_json::from_str(&text).expect("a case");
        let reasons = match run(&case, &mut Vetted::default(), scratch) {
            Outcome::Failed(reasons) => reasons.join("; "),
            Outcome::Passed => "it passed".to_owned(),
            Outcome::Skipped(why) => format!("it was skipped: {why}"),
        };
        if !reasons.contains(words) {
            println!(
                "FAILED  mistake {}: wanted {words:?}, got: {reasons}",
                file.display()
            );
            is_good = false;
        }
    }
    is_good && !files.is_empty()
}
