//! A log in, report, facts or timeline out.
//!
//! `replay` runs the same pipeline as the daemon over a log in files or a topic (facts.md §2). It
//! commits nothing, releases nothing at the end of its input, and decides nothing that the core
//! does not decide.

mod columns;
mod cost;
mod draw;
#[cfg(test)]
mod fixtures;
mod fold;
mod gaps;
mod input;
mod json;
mod place;
mod report;
mod seen;
mod topic;

pub use columns::line as fact_line;
pub use cost::{CallCost, PriceCall, Usd, unpriced};
pub use draw::{Canvas, draw};
pub use input::{InputError, LogReader, LogRecord, Records};
pub use report::report;
pub use seen::{Seen, What, own_time};
pub use topic::TopicReader;

use crate::config::Kafka;
use crate::core::dialect::{DeadLetterReason, DecodeContext, RecordBytes};
use crate::core::fact::{Fact, Table};
use crate::core::invariant::Invariant;
use crate::core::pipeline::{Action, Input, Pipeline, Record, Settings, Totals};
use crate::core::timeline::version_at;
use crate::core::{
    Coordinates, Limits, LogSource, LogTime, Name, Now, Offset, PartitionId, TopicDefaults,
};
use clap::{Args, ValueEnum};
use gaps::Gaps;
use indicatif::{ProgressBar, ProgressStyle};
use place::Places;
use seen::Look;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The one partition that the whole input is.
const PARTITION: PartitionId = PartitionId(0);
/// Bytes of input from which a progress bar is worth its line.
const PROGRESS_BYTES_MIN: u64 = 4 << 20;

/// Arguments of `tachograph replay`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  tachograph replay events.ndjson                      draws each invocation as lanes over time
  tachograph replay --output report log.ndjson.gz | jq .totals
  tachograph replay --topic agent-events --config tachograph.toml
  kcat -C -e -t agent-events | tachograph replay -")]
pub struct ReplayArgs {
    /// Files of records, one a line (plain, gzip or zstd), read as one log; `-` is standard input
    #[arg(required_unless_present = "topic", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Reads this topic from its start to where it ends now; joins no group, commits nothing
    #[arg(long, value_name = "NAME", conflicts_with = "files")]
    pub topic: Option<String>,
    /// Configuration: limits, topic defaults and, for --topic, the brokers are taken from it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What to print [default: timeline on a terminal, else report]
    #[arg(long, value_enum)]
    pub output: Option<OutputForm>,
    /// Colours of the timeline; NO_COLOR is respected
    #[arg(long, value_enum, default_value = "auto")]
    pub color: ColorChoice,
    /// Columns of the timeline [default: the terminal's, else 100]
    #[arg(long, value_name = "COLUMNS")]
    pub width: Option<usize>,
    /// Draws the timeline without characters beyond ASCII
    #[arg(long)]
    pub ascii: bool,
    /// Draws so many invocations, the most recent ones
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
}

/// What `replay` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    /// One JSON object with every row and the sums
    Report,
    /// One fact a line, as JSON
    Facts,
    /// Lanes over time, for a person
    Timeline,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What the configuration says about a replay.
#[derive(Clone)]
pub struct ReplaySettings {
    /// Bounds of the core; those of batches and commits do not matter here.
    pub limits: Limits,
    /// Defaults of a topic by its name. Asked once, for the topic of the first record: the input
    /// is one partition.
    pub defaults_of: Arc<dyn Fn(&str) -> TopicDefaults + Send + Sync>,
    /// Prices one call.
    pub price: PriceCall,
    /// Broken invariants panic (tests).
    pub is_strict: bool,
}

impl Default for ReplaySettings {
    /// The defaults of config.md, no topic defaults and no price book.
    fn default() -> ReplaySettings {
        ReplaySettings {
            limits: Limits::OF_THE_CONTRACT,
            defaults_of: Arc::new(|_| TopicDefaults::default()),
            price: Arc::new(unpriced),
            is_strict: false,
        }
    }
}

/// A record that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    pub at: Coordinates,
    pub reason: DeadLetterReason,
}

/// What a log came to.
#[derive(Debug, Default)]
pub struct Replayed {
    /// The newest version of every row, by table, then by tenant, app, invocation and identity.
    pub facts: Vec<Fact>,
    pub totals: Totals,
    pub quarantined: Vec<Quarantined>,
    /// What the records said, as they arrived; redeliveries aside.
    pub seen: Vec<Seen>,
    /// Usage fields that were no count.
    pub invalid_usage_fields: u64,
    /// Log time at the end.
    pub log_time: Option<LogTime>,
    /// The invariant that broke, where going on could falsify rows.
    pub halted: Option<Invariant>,
}

type RowKey = (Table, Name, Name, Name, Vec<String>);

/// One replay in progress.
struct Run {
    pipeline: Pipeline,
    context: DecodeContext,
    defaults_of: Arc<dyn Fn(&str) -> TopicDefaults + Send + Sync>,
    is_assigned: bool,
    places: Places,
    gaps: Gaps,
    rows: BTreeMap<RowKey, Fact>,
    quarantined: Vec<Quarantined>,
    seen: Vec<Seen>,
    invalid_usage_fields: u64,
    log_time: Option<LogTime>,
    halted: Option<Invariant>,
}

/// Reads a whole log as one partition.
///
/// # Errors
/// What [`Records::next_record`] says; what was read so far is dropped.
pub fn replay(reader: &mut dyn Records, settings: &ReplaySettings) -> Result<Replayed, InputError> {
    let mut run = Run::new(settings);
    while let Some(record) = reader.next_record()? {
        run.record(&record);
        if run.halted.is_some() {
            break;
        }
    }
    Ok(run.finish())
}

impl Run {
    fn new(settings: &ReplaySettings) -> Run {
        let mut limits = settings.limits.clone();
        // Batches are sealed by their size only, and nothing is ever committed.
        limits.batch_age_max = Duration::MAX;
        limits.commit_interval = Duration::MAX;
        let hash_key = rand::random();
        Run {
            context: DecodeContext {
                dialect: None,
                payload_bytes_max: limits.payload_bytes_max,
                hash_key,
                id_bytes_max: limits.id_bytes_max,
                attributes_max: limits.attributes_max,
                attribute_bytes_max: limits.attribute_bytes_max,
                store_reasons: limits.store_reasons,
            },
            pipeline: Pipeline::new(Settings {
                limits,
                hash_key,
                is_strict: settings.is_strict,
                has_state_file: false,
            }),
            defaults_of: Arc::clone(&settings.defaults_of),
            is_assigned: false,
            places: Places::default(),
            gaps: Gaps::default(),
            rows: BTreeMap::new(),
            quarantined: Vec::new(),
            seen: Vec::new(),
            invalid_usage_fields: 0,
            log_time: None,
            halted: None,
        }
    }

    fn record(&mut self, told: &LogRecord) {
        if !self.is_assigned {
            self.assign(told);
        }
        let offset = self.places.take(&told.topic, told.partition, told.offset);
        let headers: Vec<(&str, Option<&[u8]>)> = told
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect();
        let mut look = told
            .payload
            .as_deref()
            .map_or_else(Look::default, |payload| {
                let headers = &headers;
                Look::at(RecordBytes { payload, headers }, &self.context)
            });
        if let Some(at) = self.places.find(offset) {
            self.gaps.note(std::mem::take(&mut look.stretches), &at);
        }
        // Never backwards; before the first known time the log stands at 1970.
        self.log_time = self.log_time.max(told.timestamp.or(look.own_time));
        let logged_at = self.log_time.unwrap_or_default();
        look.settle(logged_at);
        let applied = self.pipeline.totals().outcomes.applied;
        self.handle(Input::Record {
            partition: PARTITION,
            record: Record {
                offset,
                logged_at,
                key: told.key.as_deref(),
                headers: &headers,
                payload: told.payload.as_deref(),
            },
        });
        if self.pipeline.totals().outcomes.applied > applied {
            self.seen.append(&mut look.entries);
            self.invalid_usage_fields += look.invalid_usage_fields;
        }
    }

    fn assign(&mut self, first: &LogRecord) {
        self.is_assigned = true;
        let defaults = (self.defaults_of)(&first.topic);
        self.context.dialect = defaults.dialect;
        self.handle(Input::Assigned {
            partition: PARTITION,
            source: LogSource {
                topic: Name::clone(&first.topic),
                partition: first.partition,
                defaults,
            },
            committed: None,
            log: Offset(0)..Offset(i64::MAX),
        });
    }

    /// Tells the pipeline something and does what it says. No clock runs: whatever must wait
    /// waits for more records.
    fn handle(&mut self, input: Input<'_>) {
        let now = Now::default();
        self.pipeline.handle(input, now);
        while let Some(action) = self.pipeline.poll_action() {
            let work = match action {
                Action::Insert(batch) => {
                    for fact in batch.facts {
                        self.keep(fact);
                    }
                    batch.work
                }
                Action::DeadLetter(letter) => {
                    let at = self.places.find(letter.at.offset);
                    self.quarantined.push(Quarantined {
                        at: at.unwrap_or(letter.at),
                        reason: letter.reason,
                    });
                    letter.work
                }
                Action::Halt(invariant) => {
                    self.halted.get_or_insert(invariant);
                    continue;
                }
                Action::SaveState(save) => save.work,
                Action::Observe(_) | Action::Commit { .. } | Action::Pause | Action::Resume => {
                    continue;
                }
            };
            self.pipeline.handle(Input::Settled { work }, now);
        }
    }

    fn keep(&mut self, mut fact: Fact) {
        let name = Name::clone;
        let key = (
            fact.body.table(),
            name(&fact.tenant),
            name(&fact.app),
            name(&fact.invocation_id),
            fact.identity(),
        );
        for at in [&mut fact.first, &mut fact.last] {
            if let Some(place) = self.places.find(at.offset) {
                *at = place;
            }
        }
        match self.rows.get(&key) {
            Some(known) if known.version > fact.version => {}
            _ => {
                self.rows.insert(key, fact);
            }
        }
    }

    fn finish(mut self) -> Replayed {
        self.handle(Input::Drain);
        for fact in self.pipeline.held_facts() {
            self.keep(fact);
        }
        // The rows of the daemon, which reads partition by partition, end with their own offsets.
        let rows = self.rows.into_values().map(|mut fact| {
            fact.version = version_at(fact.version, fact.last.offset);
            fact
        });
        Replayed {
            facts: rows.chain(self.gaps.facts()).collect(),
            totals: self.pipeline.totals().clone(),
            quarantined: self.quarantined,
            seen: self.seen,
            invalid_usage_fields: self.invalid_usage_fields,
            log_time: self.log_time,
            halted: self.halted,
        }
    }
}

/// `tachograph replay`: the exit codes are those of config.md.
pub fn run(args: &ReplayArgs, kafka: &Kafka, settings: &ReplaySettings) -> ExitCode {
    let progress = progress_bar(args);
    let replayed = match &args.topic {
        Some(topic) => TopicReader::open(kafka, topic, progress.clone())
            .and_then(|mut reader| replay(&mut reader, settings)),
        None => LogReader::new(&args.files, progress.clone())
            .and_then(|mut reader| replay(&mut reader, settings)),
    };
    progress.finish_and_clear();
    let replayed = match replayed {
        Ok(replayed) => replayed,
        Err(error) => {
            complain(&format!("tachograph: {error}"));
            return ExitCode::from(error.exit_code());
        }
    };
    if let Some(invariant) = replayed.halted {
        complain(&format!(
            "tachograph: broken invariant {}",
            invariant.as_str()
        ));
        return ExitCode::from(70);
    }
    let is_terminal = io::stdout().is_terminal();
    let form = args.output.unwrap_or(if is_terminal {
        OutputForm::Timeline
    } else {
        OutputForm::Report
    });
    let written = match form {
        OutputForm::Report => print(&report(&replayed, settings)),
        OutputForm::Facts => print_facts(&replayed),
        OutputForm::Timeline => print(&draw(&replayed, &canvas(args, settings, is_terminal))),
    };
    match replayed.quarantined.len() {
        0 => {}
        1 => complain("tachograph: 1 record quarantined (the report says why)"),
        n => complain(&format!(
            "tachograph: {n} records quarantined (the report says why)"
        )),
    }
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("tachograph: cannot write: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Facts as `--output facts` prints them, one a line.
pub fn facts_text(facts: &[Fact]) -> String {
    let mut out = String::new();
    for fact in report::in_order(facts) {
        out.push_str(&columns::line(fact));
        out.push('\n');
    }
    out
}

fn print_facts(replayed: &Replayed) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for fact in report::in_order(&replayed.facts) {
        out.write_all(columns::line(fact).as_bytes())?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Says something on standard error; nobody can be told where that fails.
fn complain(words: &str) {
    let _ = writeln!(io::stderr(), "{words}");
}

fn progress_bar(args: &ReplayArgs) -> ProgressBar {
    let sizes = args
        .files
        .iter()
        .map(|file| std::fs::metadata(file).map_or(0, |m| m.len()));
    let bytes: u64 = sizes.sum();
    let is_worth_it = args.topic.is_some() || bytes >= PROGRESS_BYTES_MIN;
    if !is_worth_it || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(bytes);
    let template = match args.topic {
        Some(_) => "reading {pos}/{len} offsets [{wide_bar}] {per_sec}, {eta} left",
        None => "reading {bytes}/{total_bytes} [{wide_bar}] {bytes_per_sec}, {eta} left",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

fn canvas(args: &ReplayArgs, settings: &ReplaySettings, is_terminal: bool) -> Canvas {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Canvas {
        width: args.width.unwrap_or_else(terminal_width),
        has_color: match args.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => is_terminal && !wants_none && !is_dumb,
        },
        is_ascii: args.ascii || (is_terminal && is_dumb),
        limit: args.limit,
        price: Arc::clone(&settings.price),
    }
}

/// Columns of the terminal behind standard output, `COLUMNS` where it is none, else 100.
fn terminal_width() -> usize {
    // SAFETY: `winsize` is plain data, and the call writes no more than one of it.
    let told = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) == 0).then_some(size.ws_col)
    };
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    told.filter(|columns| *columns > 0)
        .map(usize::from)
        .or_else(columns)
        .unwrap_or(100)
}
