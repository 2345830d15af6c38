//! What came out against what must come out: by the oracle's lines, and by a run in which nothing
//! goes wrong.

use super::faults::Fault;
use super::hosts;
use super::oracle::{Expected, Lines};
use super::rows::{RowKey, Sink};
use super::tables::{Counters, Series};
use super::workload::PARTITIONS;
use super::world::{World, comparable, partition_id, source};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tachograph::core::fact::{Fact, FactBody, InvocationFact};
use tachograph::core::pipeline::{Action, Input, Pipeline, Record};
use tachograph::core::sample::Family;
use tachograph::core::{LogTime, Now, Offset};

/// Lines of a difference that are shown.
const SHOWN: usize = 12;

/// What one process makes of the whole log when nothing goes wrong.
pub fn reference(world: &World) -> Result<(Sink, Counters), String> {
    let (mut sink, mut counters) = (Sink::default(), Counters::default());
    let mut pipeline = Pipeline::new(world.settings.clone());
    let mut ms = 0;
    for partition in 0..PARTITIONS {
        let records = &world.log.partitions[partition];
        let id = partition_id(partition);
        let end = Offset(i64::try_from(records.len()).expect("short log"));
        let mut inputs = vec![Input::Assigned {
            partition: id,
            source: source(partition),
            committed: None,
            log: Offset(0)..end,
        }];
        inputs.extend(
            records
                .iter()
                .zip(0..)
                .map(|(record, offset)| Input::Record {
                    partition: id,
                    record: Record {
                        offset: Offset(offset),
                        logged_at: LogTime(record.logged_at),
                        key: Some(record.key.as_bytes()),
                        headers: &[],
                        payload: record.payload.as_deref(),
                    },
                }),
        );
        let log_time = Some(world.settled_at());
        inputs.push(Input::CaughtUp {
            partition: id,
            next: end,
            log_time,
        });
        inputs.push(Input::Drain);
        for input in inputs {
            ms += 1;
            let now = Now(Duration::from_millis(ms));
            pipeline.handle(input, now);
            while let Some(action) = pipeline.poll_action() {
                match action {
                    Action::Insert(batch) => {
                        sink.insert(&comparable(&batch.facts, &world.faults))?;
                        pipeline.handle(Input::Settled { work: batch.work }, now);
                    }
                    Action::DeadLetter(letter) => {
                        pipeline.handle(Input::Settled { work: letter.work }, now);
                    }
                    Action::Observe(sample) => counters.observe(&sample),
                    _ => {}
                }
            }
        }
    }
    Ok((sink, counters))
}

/// Everything that is wrong, in a few lines; empty where all is right.
pub fn verdict(world: &World, expected: &Expected) -> Result<(), String> {
    let (sink, counters) = reference(world)?;
    let (rows, folds) = (row_lines(&sink), fold_lines(&sink));
    differ("reference rows against the oracle", &expected.rows, &rows)?;
    differ(
        "reference folds against the oracle",
        &expected.folds,
        &folds,
    )?;
    let counted = counter_lines(&counters.moved);
    differ(
        "reference counters against the oracle",
        &expected.counters,
        &counted,
    )?;
    if world.faults.has(Fault::Retention) {
        // Of what lost records unread nothing can be said; all others must not notice.
        return same_rows(&sink, &world.sink, &with_children(&world.bereft, &sink));
    }
    differ(
        "rows against the oracle",
        &expected.rows,
        &row_lines(&world.sink),
    )?;
    differ(
        "folds against the oracle",
        &expected.folds,
        &fold_lines(&world.sink),
    )?;
    same_rows(&sink, &world.sink, &BTreeSet::new())?;
    letters(world, expected)?;
    count(world, expected, &counters)
}

/// Counters are exact where nobody died or was left behind; else they may be ahead by what was
/// counted again.
fn count(world: &World, expected: &Expected, reference: &Counters) -> Result<(), String> {
    if world.faults.has_state_files() {
        return hosts::verdict(world, &reference.moved);
    }
    let (moved, tally) = (&world.counters.moved, &world.tally);
    if tally.crashes + tally.losses == 0 {
        differ(
            "counters against the oracle",
            &expected.counters,
            &counter_lines(moved),
        )?;
        return differ(
            "all counters",
            &all_lines(&reference.moved),
            &all_lines(moved),
        );
    }
    for (series, least) in &reference.moved {
        let got = moved.get(series).copied().unwrap_or(0);
        let again = world.counters.replayed.get(series).copied().unwrap_or(0);
        // A zombie counts on after its successor began, and a lost commit leaves the word of the
        // one before.
        let is_bounded = tally.losses + tally.commits_lost == 0;
        if got < *least && is_monotone(series.0) {
            return Err(format!("counted too little: {series:?}: {got} of {least}"));
        }
        if is_bounded && got.saturating_sub(again) > *least {
            return Err(format!(
                "{series:?}: {got}, {again} of it said to be again, for {least}"
            ));
        }
    }
    Ok(())
}

/// Histograms restart at zero with their process.
pub fn is_monotone(family: Family) -> bool {
    !matches!(
        family,
        Family::OperationDuration
            | Family::TimeToFirstChunk
            | Family::TokenUsage
            | Family::ExecuteToolDuration
            | Family::InvokeAgentDuration
    )
}

fn letters(world: &World, expected: &Expected) -> Result<(), String> {
    let got: BTreeMap<(usize, i64), &str> = world
        .letters
        .iter()
        .map(|(at, (reason, _))| (*at, reason.as_str()))
        .collect();
    if got != expected.letters {
        return Err(format!(
            "dead letters {got:?}\n  expected {:?}",
            expected.letters
        ));
    }
    for ((partition, offset), (_, payload)) in &world.letters {
        let index = usize::try_from(*offset).expect("not negative");
        if world.log.partitions[*partition][index].payload.as_ref() != Some(payload) {
            return Err(format!(
                "dead letter {partition}/{offset} holds other bytes"
            ));
        }
    }
    Ok(())
}

/// Invocations and those that were started by them: who lost the parent does not find it.
fn with_children(parents: &BTreeSet<String>, sink: &Sink) -> BTreeSet<String> {
    let mut all = parents.clone();
    for fact in sink.rows.values() {
        if let FactBody::Invocation(row) = &fact.body
            && let Some(link) = &row.parent
            && let Some(parent) = &link.invocation_id
            && parents.contains(&**parent)
        {
            all.insert(fact.invocation_id.to_string());
        }
    }
    all
}

/// The same rows in every table, byte for byte and version for version, of all invocations but
/// some.
fn same_rows(right: &Sink, got: &Sink, but: &BTreeSet<String>) -> Result<(), String> {
    let counts = |key: &RowKey| !but.contains(&key.3);
    for (key, fact) in right.rows.iter().filter(|(key, _)| counts(key)) {
        match got.rows.get(key) {
            None => return Err(format!("lost row: {key:?}")),
            Some(other) if other != fact => {
                return Err(format!(
                    "row differs: {key:?}\n  right {fact:?}\n  got   {other:?}"
                ));
            }
            Some(_) => {}
        }
    }
    let mut extra = got.rows.keys().filter(|key| counts(key));
    match extra.find(|key| !right.rows.contains_key(*key)) {
        Some(key) => Err(format!("extra row: {key:?}")),
        None => Ok(()),
    }
}

fn differ(what: &str, right: &Lines, got: &Lines) -> Result<(), String> {
    let mut out = Vec::new();
    for (line, times) in right {
        let found = got.get(line).copied().unwrap_or(0);
        if found < *times {
            out.push(format!("  - {line} x{}", times - found));
        }
    }
    for (line, times) in got {
        let wanted = right.get(line).copied().unwrap_or(0);
        if wanted < *times {
            out.push(format!("  + {line} x{}", times - wanted));
        }
    }
    if out.is_empty() {
        return Ok(());
    }
    let more = out.len().saturating_sub(SHOWN);
    out.truncate(SHOWN);
    Err(format!(
        "{what} (- must be there, + must not; {more} more):\n{}",
        out.join("\n")
    ))
}

fn note(lines: &mut Lines, line: String) {
    *lines.entry(line).or_insert(0) += 1;
}

fn who(fact: &Fact) -> String {
    format!("{}/{}/{}", fact.tenant, fact.app, fact.invocation_id)
}

fn sums(row: &InvocationFact) -> (u64, u64, u64, u64) {
    let own = &row.own;
    let (input, output) = (own.input_total.unwrap_or(0), own.output_total.unwrap_or(0));
    (own.model_call_count, input, output, row.tool_call_count)
}

/// The rows of the tables that the oracle knows, in its words.
fn row_lines(sink: &Sink) -> Lines {
    let mut lines = Lines::new();
    for fact in sink.rows.values() {
        let (who, id) = (who(fact), &fact.segment);
        match &fact.body {
            FactBody::Invocation(row) => {
                let (calls, input, output, tools) = sums(row);
                let mark = if row.headless { " headless" } else { "" };
                let sums = format!("calls={calls} in={input} out={output} tools={tools}");
                let status = row.status.as_str();
                note(
                    &mut lines,
                    format!("invocation {who} {id} {status}{mark} {sums}"),
                );
            }
            FactBody::ModelCall(row) => {
                let usage = &row.usage;
                let reasoning = usage.reasoning.unwrap_or(0);
                let usage = format!(
                    "{}+{} {}+{reasoning}",
                    usage.input_uncached.unwrap_or(0),
                    usage.cache_read.unwrap_or(0),
                    usage.output_total.unwrap_or(0) - reasoning,
                );
                let (agent, status) = (&row.agent, row.status.as_str());
                let model = row.model.as_deref().unwrap_or("");
                note(
                    &mut lines,
                    format!("model_call {who} {agent} {model} {status} {usage}"),
                );
            }
            FactBody::ToolCall(row) => {
                let status = row.status.as_str();
                note(
                    &mut lines,
                    format!("tool_call {who} {id} {} {status}", row.tool),
                );
            }
            FactBody::GuardrailDecision(row) => {
                let decision = row.decision.map_or("null", |word| word.as_str());
                let enforced = row.enforced.map_or("null".to_owned(), |is| is.to_string());
                let stage = row.stage.as_str();
                let line = format!("verdict {who} {id} {stage} {decision} enforced={enforced}");
                note(&mut lines, line);
            }
            FactBody::LocalAnswer(_) => note(&mut lines, format!("local_answer {who} {id}")),
            _ => {}
        }
    }
    lines
}

/// The fold over segments as the view makes it: sums over all, status from the last that is not
/// headless.
fn fold_lines(sink: &Sink) -> Lines {
    let mut invocations: BTreeMap<String, Vec<(&Fact, &InvocationFact)>> = BTreeMap::new();
    for fact in sink.rows.values() {
        if let FactBody::Invocation(row) = &fact.body {
            invocations.entry(who(fact)).or_default().push((fact, row));
        }
    }
    let mut lines = Lines::new();
    for (who, mut segments) in invocations {
        segments.sort_by_key(|(fact, _)| fact.first.offset);
        let last = segments
            .iter()
            .rev()
            .find(|(_, row)| !row.headless)
            .or(segments.last());
        let status = last.map_or("", |(_, row)| row.status.as_str());
        let mut all = (0, 0, 0, 0);
        for (_, row) in &segments {
            let (calls, input, output, tools) = sums(row);
            all = (all.0 + calls, all.1 + input, all.2 + output, all.3 + tools);
        }
        let (calls, input, output, tools) = all;
        let sums = format!("calls={calls} in={input} out={output} tools={tools}");
        note(&mut lines, format!("{who} {status} {sums}"));
    }
    lines
}

/// The counters that the oracle knows.
fn counter_lines(moved: &BTreeMap<Series, u64>) -> Lines {
    let known = |family: &Family| {
        matches!(
            family,
            Family::Tokens
                | Family::ModelCalls
                | Family::ToolCalls
                | Family::LocalAnswers
                | Family::GuardrailDecisions
                | Family::GuardrailBypassed
                | Family::Invocations
                | Family::InvocationWaits
        )
    };
    let mut lines = all_lines(moved);
    lines.retain(|line, _| {
        let family = line.split(' ').next().unwrap_or("");
        Family::ALL
            .iter()
            .filter(|f| known(f))
            .any(|f| format!("{f:?}") == family)
    });
    lines
}

fn all_lines(moved: &BTreeMap<Series, u64>) -> Lines {
    moved
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|((family, labels), count)| (format!("{family:?} {}", labels.join(",")), *count))
        .collect()
}
