//! The hard cases: failures of real meters as data, each with the right answer (README.md here).
//!
//! Each case goes through `tachograph replay` as a user would feed it, and its `expect` is matched
//! against what is printed; what it expects of Prometheus is asked of the core and its exporter,
//! on a clock that the case moves. `TACHOGRAPH_CASES=DIR` runs the cases of another directory. The last
//! line counts: passed, failed, skipped (another harness or dialect is needed), exceptions (listed
//! in `exceptions.json` with an argument).

mod exposition;
mod feed;
mod matching;
mod view;
mod vocabulary;
mod words;
mod world;

use exposition::Scrapes;
use feed::{Case, Feed};
use matching::Vetted;
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use view::Printed;
use vocabulary::{Harness, TOP};
use world::World;

const BINARY: &str = env!("CARGO_BIN_EXE_tachograph");
/// Orders of arrival that are tried where there are more of them.
const ORDERS_MAX: usize = 200;

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
    if let Some(lacking) = lacking(case, &feed, &expect, &never) {
        return Outcome::Skipped(lacking);
    }
    if vetted.compared == 0 {
        let reason = "nothing that a replay can tell is expected";
        return Outcome::Failed(vec![reason.to_owned()]);
    }
    let scrapes = match scrapes(case, &feed, &config, scratch) {
        Ok(scrapes) => scrapes,
        Err(reasons) => return Outcome::Failed(reasons),
    };
    let mut reasons = shown(&expect, &never, &scrapes);
    let config_file = scratch.join(format!("{}.toml", case.id));
    fs::write(&config_file, config).expect("a file in the scratch folder");
    let is_any = expect.get("any_order") == Some(&Value::Bool(true));
    let orders = if is_any {
        orders(feed.len())
    } else {
        vec![(0..feed.len()).collect()]
    };
    for order in &orders {
        if !reasons.is_empty() {
            break;
        }
        let log = scratch.join(format!("{}.ndjson", case.id));
        fs::write(&log, feed.lines(order)).expect("a file in the scratch folder");
        let told = judge(&expect, &never, &config_file, &log).into_iter();
        let in_order = |reason| match is_any {
            true => format!("{reason}, in order {order:?}"),
            false => reason,
        };
        reasons.extend(told.map(in_order));
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

/// What the case needs and this runner has not.
fn lacking(
    case: &Case,
    feed: &Feed,
    expect: &Map<String, Value>,
    never: &Map<String, Value>,
) -> Option<String> {
    let needs = [Harness::Replay, Harness::Prometheus].map(Harness::as_str);
    if !needs.contains(&case.needs.as_str()) {
        return Some(case.needs.clone());
    }
    if !feed.dialects.is_empty() {
        let dialects: Vec<&str> = feed.dialects.iter().copied().collect();
        return Some(format!("dialect {}", dialects.join(", ")));
    }
    // A replay has no clock and no crash; what a scrape shows after them is the world's to tell.
    let names = expect.keys().chain(never.keys());
    let is_shown_only = names.clone().all(|name| name == "prometheus");
    let known = if is_shown_only {
        &world::STEPS[..]
    } else {
        &world::STEPS_OF_REPLAY[..]
    };
    let is_lacking = feed
        .steps
        .iter()
        .any(|step| !known.contains(&step.as_str()));
    is_lacking.then(|| Harness::Steps.as_str().to_owned())
}

/// What the daemon shows Prometheus over the case's log.
fn scrapes(case: &Case, feed: &Feed, config: &str, scratch: &Path) -> Result<Scrapes, Vec<String>> {
    let log = scratch.join(format!("{}.world.ndjson", case.id));
    let order: Vec<usize> = (0..feed.len()).collect();
    fs::write(&log, feed.lines(&order)).expect("a file in the scratch folder");
    let world = World::live(config, feed, &log).map_err(|error| vec![error])?;
    if !world.errors.is_empty() {
        return Err(world.errors);
    }
    Scrapes::new(&world.scrapes).map_err(|error| vec![error])
}

/// What of `expect.prometheus`, and of texts that must appear nowhere, does not hold.
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
    let hidden = &expect.get("never_appears_in").cloned().unwrap_or_default();
    let places = hidden["places"].as_array().into_iter().flatten();
    let text = hidden["text"].as_str().unwrap_or_default();
    if places.filter(|place| *place == "prometheus").count() > 0 && scrapes.text().contains(text) {
        reasons.push("never_appears_in: it appears in prometheus".to_owned());
    }
    reasons
}

/// All orders of so many records, or `ORDERS_MAX` of them drawn from a fixed seed.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let all = (1..=count).try_fold(1, |product: usize, n| {
        Some(product * n).filter(|product| *product <= ORDERS_MAX)
    });
    let mut orders = vec![(0..count).collect::<Vec<usize>>()];
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
        let mut order: Vec<usize> = (0..count).collect();
        for i in (1..count).rev() {
            order.swap(i, dice.next_u32() as usize % (i + 1));
        }
        orders.push(order);
    }
    orders
}

/// Everything that is wrong with one replay of the log.
fn judge(
    expect: &Map<String, Value>,
    never: &Map<String, Value>,
    config: &Path,
    log: &Path,
) -> Vec<String> {
    let printed = match replay(config, log) {
        Ok(printed) => printed,
        Err(error) => return vec![error],
    };
    let mut view = match printed.view() {
        Ok(view) => view,
        Err(error) => return vec![error],
    };
    let mut reasons = Vec::new();
    for (key, value) in expect {
        let reason = match key.as_str() {
            "any_order" => continue,
            "never_appears_in" => appears(&printed, value),
            "invocation" => match only_invocation(&view, value) {
                Ok(row) => {
                    view["invocation"] = row;
                    matching::object("", &one(key, value), &view, TOP)
                }
                Err(error) => Err(error),
            },
            _ => matching::object("", &one(key, value), &view, TOP),
        };
        reasons.extend(reason.err());
    }
    if let Some(value) = never.get("invocation") {
        match only_invocation(&view, value) {
            Ok(row) => view["invocation"] = row,
            Err(error) => reasons.push(error),
        }
    }
    reasons.extend(matching::never("never", never, &view, TOP).err());
    reasons
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
    let places = expect["places"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
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
