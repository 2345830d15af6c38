//! The report of `replay`: one JSON object with every row and the sums over them (facts.md §2).
//!
//! It joins what spans segments and leaves every row as the core made it.

use super::cost::{CallCost, Usd};
use super::fold::{self, Invocation, RunKey, ToolRow, run_key};
use super::json::{Object, Unknown, instant_text, push_text, rows};
use super::seen::{self, Entry, Seen};
use super::{Quarantined, ReplaySettings, Replayed, columns};
use crate::core::event::ServedBy;
use crate::core::fact::{BranchFact, Fact, FactBody, Flag, Flags, ModelCallFact, Sums};
use crate::core::usage::TokenUsage;
use crate::core::{Coordinates, EventTime, Name};
use std::collections::BTreeMap;

/// The whole report, as text that ends with a line feed.
pub fn report(replayed: &Replayed, settings: &ReplaySettings) -> String {
    let facts: Vec<&Fact> = in_order(&replayed.facts);
    let tools = fold::tools(&replayed.facts);
    let timeline = seen::timeline(&replayed.seen);
    let invocations = by_first_record(fold::invocations(&replayed.facts, &tools));
    let mut out = String::from("{\"invocations\":");
    let told = Told::new(&invocations, &timeline);
    rows(&mut out, &invocations, |row, o| invocation(row, &told, o));
    let calls = model_calls(&facts, settings);
    let sums = fold::sum_of(invocations.iter().map(|row| &row.own));
    let mut list = |key: &str, write: &dyn Fn(&mut String)| {
        out.push_str(",\n");
        push_text(&mut out, key);
        out.push(':');
        write(&mut out);
    };
    list("branches", &|out| branches(&facts, &replayed.seen, out));
    list("agent_runs", &|out| agent_runs(&facts, out));
    list("model_calls", &|out| rows(out, &calls, model_call));
    list("local_answers", &|out| local_answers(&facts, out));
    list("tools", &|out| {
        rows(out, &tools_in_order(&tools), |tool, o| tool_row(tool, o))
    });
    list("verdicts", &|out| verdicts(&facts, out));
    list("recoveries", &|out| recoveries(&facts, out));
    list("anomalies", &|out| anomalies(&facts, out));
    list("totals", &|out| {
        Object::write(out, Unknown::Null, |o| totals(&sums, &calls, o))
    });
    list("model_call_count", &|out| {
        out.push_str(&sums.model_call_count.to_string())
    });
    list("tool_call_count", &|out| {
        out.push_str(&tools.len().to_string())
    });
    list("cost_usd", &|out| match cost(&calls) {
        Some(sum) => push_text(out, &sum.to_string()),
        None => out.push_str("null"),
    });
    list("counters", &|out| {
        Object::write(out, Unknown::Null, |o| counters(replayed, &sums, o))
    });
    list("quarantined", &|out| {
        rows(out, &replayed.quarantined, quarantined)
    });
    list("flags", &|out| flags(replayed, &facts, out));
    list("events_kept", &|out| {
        out.push_str(&events_kept(&replayed.seen).to_string())
    });
    list("event_times", &|out| event_times(&replayed.seen, out));
    list("timeline", &|out| rows(out, &timeline, timeline_entry));
    out.push_str("}\n");
    out
}

/// Facts by table, then invocation by invocation in the order of their first records, then by
/// time; at one time by offset and identity.
pub fn in_order(facts: &[Fact]) -> Vec<&Fact> {
    let mut first: BTreeMap<RunKey, (i64, i64)> = BTreeMap::new();
    for fact in facts {
        let at = (fact.segment_logged_at.0, fact.first.offset.0);
        let known = first.entry(run_key(fact)).or_insert(at);
        *known = at.min(*known);
    }
    let mut order: Vec<(_, &Fact)> = facts
        .iter()
        .map(|fact| {
            let run = run_key(fact);
            let begun = first.get(&run).copied();
            let key = (
                fact.body.table(),
                begun,
                run,
                time_of(&fact.body).unwrap_or(EventTime(i64::MAX)),
                fact.first.offset,
                fact.identity(),
            );
            (key, fact)
        })
        .collect();
    order.sort_by(|a, b| a.0.cmp(&b.0));
    order.into_iter().map(|(_, fact)| fact).collect()
}

/// The instant that orders a row.
fn time_of(body: &FactBody) -> Option<EventTime> {
    match body {
        FactBody::Invocation(f) => f.started_at,
        FactBody::Branch(f) => f.forked_at,
        FactBody::AgentRun(f) => f.started_at,
        FactBody::ModelCall(f) => f.started_at.or(Some(f.billed_at)),
        FactBody::LocalAnswer(f) => f.answered_at,
        FactBody::ToolCall(f) => f.started_at.or(f.ended_at),
        FactBody::GuardrailDecision(f) => f.decided_at,
        FactBody::RecoveryDecision(f) => f.decided_at,
        FactBody::Anomaly(f) => f.at,
    }
}

fn by_first_record(mut rows: Vec<Invocation>) -> Vec<Invocation> {
    rows.sort_by(|a, b| a.rank().cmp(&b.rank()));
    rows
}

fn of<'f, T>(
    facts: &[&'f Fact],
    pick: impl Fn(&'f FactBody) -> Option<&'f T>,
) -> Vec<(&'f Fact, &'f T)> {
    facts
        .iter()
        .filter_map(|fact| pick(&fact.body).map(|body| (*fact, body)))
        .collect()
}

/// Rows that need nothing but their own columns.
fn plain<T>(told: &[(&Fact, &T)], fill: fn(&T, &mut Object<'_>), out: &mut String) {
    rows(out, told, |(fact, body), o| {
        columns::identity(fact, o);
        o.name("segment", &fact.segment);
        fill(body, o);
        columns::evidence(fact, o);
    });
}

fn agent_runs(facts: &[&Fact], out: &mut String) {
    let told = of(facts, |body| match body {
        FactBody::AgentRun(f) => Some(&**f),
        _ => None,
    });
    plain(&told, columns::agent_run, out);
}

fn local_answers(facts: &[&Fact], out: &mut String) {
    let told = of(facts, |body| match body {
        FactBody::LocalAnswer(f) => Some(&**f),
        _ => None,
    });
    plain(&told, columns::local_answer, out);
}

fn verdicts(facts: &[&Fact], out: &mut String) {
    let told = of(facts, |body| match body {
        FactBody::GuardrailDecision(f) => Some(&**f),
        _ => None,
    });
    plain(&told, columns::verdict, out);
}

fn recoveries(facts: &[&Fact], out: &mut String) {
    let told = of(facts, |body| match body {
        FactBody::RecoveryDecision(f) => Some(&**f),
        _ => None,
    });
    plain(&told, columns::recovery, out);
}

fn anomalies(facts: &[&Fact], out: &mut String) {
    let told = of(facts, |body| match body {
        FactBody::Anomaly(f) => Some(&**f),
        _ => None,
    });
    plain(&told, columns::anomaly, out);
}

/// What the events of each invocation said beside its facts.
struct Told<'t> {
    by_row: BTreeMap<&'t RunKey, Vec<&'t Seen>>,
}

impl<'t> Told<'t> {
    fn new(rows: &'t [Invocation], timeline: &[Entry<'t>]) -> Told<'t> {
        let mut by_id: BTreeMap<&Name, Vec<&'t RunKey>> = BTreeMap::new();
        for row in rows {
            by_id.entry(&row.key.2).or_default().push(&row.key);
        }
        let mut by_row: BTreeMap<&'t RunKey, Vec<&'t Seen>> = BTreeMap::new();
        for entry in timeline {
            let id = entry.seen.invocation_id.as_ref();
            let Some(keys) = id.and_then(|id| by_id.get(id)) else {
                continue;
            };
            let fits = |key: &&&RunKey| {
                let is = |told: &Option<Name>, name: &Name| told.as_ref().is_none_or(|t| t == name);
                is(&entry.seen.tenant, &key.0) && is(&entry.seen.app, &key.1)
            };
            if let Some(key) = keys.iter().find(fits).or(keys.first()) {
                by_row.entry(key).or_default().push(entry.seen);
            }
        }
        Told { by_row }
    }

    fn events(&self, key: &RunKey) -> impl Iterator<Item = &'t Seen> {
        let seen = self.by_row.get(key).map_or(&[][..], Vec::as_slice);
        seen.iter().copied().filter(|seen| seen.is_native())
    }
}

fn invocation(row: &Invocation, told: &Told<'_>, o: &mut Object<'_>) {
    o.name("tenant", &row.key.0);
    o.name("app", &row.key.1);
    o.name("invocation_id", &row.key.2);
    o.text("status", Some(row.status.as_str()));
    o.count("segments", Some(row.segments));
    o.instant("started_at", row.started_at);
    o.instant("ended_at", row.ended_at);
    o.millis("wall_ms", row.wall);
    o.millis("active_ms", row.active);
    o.millis("wait_ms", row.wait);
    o.text("root_agent", row.root_agent.as_deref());
    o.text("trigger", row.trigger.as_deref());
    o.text("runtime", row.runtime.as_deref());
    o.text("runtime_version", row.runtime_version.as_deref());
    columns::parent(row.parent.as_ref(), o);
    o.text("limit", row.limit.as_deref());
    o.text("error_code", row.error_code.as_deref());
    columns::sums("own", &row.own, o);
    columns::sums("with_descendants", &row.with_descendants, o);
    o.truth("usage_complete", Some(row.own.usage_complete));
    o.count("local_answer_count", Some(row.local_answer_count));
    o.count("tool_call_count", Some(row.tool_call_count));
    o.count("records", Some(row.records));
    let ids = told.events(&row.key).filter_map(|seen| seen.id.as_deref());
    o.words("order", ids);
    o.count("events", Some(row.events));
    o.count("user_messages", Some(row.user_messages));
    o.count("retries", Some(row.retries));
    columns::attributes(&row.attributes, o);
    columns::flags(row.flags, o);
    o.text("session_id", row.session_id.as_deref());
    o.text("user_key", row.user_key.as_deref());
    columns::coordinates("first", &row.first, o);
    columns::coordinates("last", &row.last, o);
    o.count("schema_version", Some(columns::SCHEMA_VERSION));
    o.count("version", Some(row.version));
}

fn branches(facts: &[&Fact], seen: &[Seen], out: &mut String) {
    let branches: Vec<(&Fact, &BranchFact)> = of(facts, |body| match body {
        FactBody::Branch(f) => Some(&**f),
        _ => None,
    });
    let mut events: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for entry in seen.iter().filter(|entry| entry.is_native()) {
        let id = entry.invocation_id.as_deref().unwrap_or("");
        *events.entry((id, &*entry.branch)).or_default() += 1;
    }
    let sums = fold::branch_sums(&branches);
    let told: Vec<_> = branches.iter().zip(&sums).collect();
    rows(out, &told, |((fact, branch), sums), o| {
        columns::identity(fact, o);
        o.name("segment", &fact.segment);
        columns::branch(branch, o);
        columns::sums("with_descendants", sums, o);
        let key = (&*fact.invocation_id, &*branch.branch);
        o.count("events", Some(events.get(&key).copied().unwrap_or(0)));
        columns::evidence(fact, o);
    });
}

/// A model call with what it cost and its place in its invocation.
struct Call<'f> {
    fact: &'f Fact,
    call: &'f ModelCallFact,
    cost: CallCost,
    seq: u64,
}

fn model_calls<'f>(facts: &[&'f Fact], settings: &ReplaySettings) -> Vec<Call<'f>> {
    let calls = of(facts, |body| match body {
        FactBody::ModelCall(f) => Some(&**f),
        _ => None,
    });
    let mut seqs: BTreeMap<RunKey, u64> = BTreeMap::new();
    calls
        .into_iter()
        .map(|(fact, call)| {
            let next = seqs.entry(run_key(fact)).or_default();
            let seq = *next;
            *next += 1;
            let cost = (settings.price)(call);
            Call {
                fact,
                call,
                cost,
                seq,
            }
        })
        .collect()
}

fn model_call(row: &Call<'_>, o: &mut Object<'_>) {
    let money = |amount: Option<Usd>| amount.map(|usd| usd.to_string());
    columns::identity(row.fact, o);
    o.name("segment", &row.fact.segment);
    o.count("seq", Some(row.seq));
    columns::model_call(row.call, o);
    o.text("cost_usd", money(row.cost.cost_usd).as_deref());
    o.text("list_cost_usd", money(row.cost.list_cost_usd).as_deref());
    o.text(
        "provider_cost_usd",
        money(row.cost.provider_cost_usd).as_deref(),
    );
    let state = if row.cost.cost_usd.is_some() {
        "priced"
    } else {
        "unpriced"
    };
    o.text("cost_state", Some(state));
    o.truth("cost_is_lower_bound", Some(row.cost.is_lower_bound));
    o.text("price_id", row.cost.price_id.as_deref());
    o.text("price_tier", row.cost.price_tier.as_deref());
    columns::evidence(row.fact, o);
}

fn tools_in_order<'t, 'f>(tools: &'t [ToolRow<'f>]) -> Vec<&'t ToolRow<'f>> {
    let mut order: Vec<&ToolRow<'_>> = tools.iter().collect();
    order.sort_by_key(|tool| {
        let time = tool.call.started_at.or(tool.call.ended_at);
        let at = (tool.fact.segment_logged_at, tool.first.offset);
        (run_key(tool.fact), time, at, tool.fact.identity())
    });
    order
}

fn tool_row(row: &ToolRow<'_>, o: &mut Object<'_>) {
    columns::identity(row.fact, o);
    o.name("segment", &row.fact.segment);
    columns::tool_call(&row.call, o);
    o.text("session_id", row.fact.session_id.as_deref());
    o.text("user_key", row.fact.user_key.as_deref());
    columns::coordinates("first", &row.first, o);
    columns::coordinates("last", &row.last, o);
    o.count("schema_version", Some(columns::SCHEMA_VERSION));
    o.count("version", Some(row.version));
}

/// Usage over all model calls: what the invocations sum up, and the parts that they do not.
fn totals(sums: &Sums, calls: &[Call<'_>], o: &mut Object<'_>) {
    let counted = || {
        calls
            .iter()
            .filter(|row| row.call.served_by == ServedBy::Model && row.call.usage.is_countable())
            .map(|row| &row.call.usage)
    };
    let is_empty = sums.model_call_count == 0;
    let sum = |pick: fn(&TokenUsage) -> Option<u64>| {
        let known = counted().filter_map(pick).reduce(u64::saturating_add);
        known.or(is_empty.then_some(0))
    };
    o.count("input_total", sums.input_total);
    o.count("input_uncached", sums.input_uncached);
    o.count("cache_read", sums.cache_read);
    o.count("cache_write", sums.cache_write);
    o.count("cache_write_5m", sum(|u| u.cache_write_5m));
    o.count("cache_write_1h", sum(|u| u.cache_write_1h));
    o.count("tool_use_input", sums.tool_use_input);
    o.count("output_total", sums.output_total);
    o.count(
        "output_text",
        columns::answer(sums.output_total, sums.reasoning),
    );
    o.count("reasoning", sums.reasoning);
    o.count("audio_input", sum(|u| u.audio_input));
    o.count("audio_output", sum(|u| u.audio_output));
    o.count("image_input", sum(|u| u.image_input));
    o.count("image_output", sum(|u| u.image_output));
    o.count("total", sums.total);
    o.count("provider_total", sum(|u| u.provider_total));
    let unattributed = counted().filter_map(|u| u.unattributed);
    o.signed("unattributed", unattributed.reduce(i64::saturating_add));
    o.truth("usage_complete", Some(sums.usage_complete));
}

/// What the calls cost together: 0 over no call, unknown over calls none of which has a price
/// (rules.md §4).
fn cost(calls: &[Call<'_>]) -> Option<Usd> {
    let counted = || {
        calls
            .iter()
            .filter(|row| row.call.served_by == ServedBy::Model)
    };
    if counted().next().is_none() {
        return Some(Usd::default());
    }
    counted()
        .filter_map(|row| row.cost.cost_usd)
        .reduce(Usd::plus)
}

fn counters(replayed: &Replayed, sums: &Sums, o: &mut Object<'_>) {
    let totals = &replayed.totals;
    let ended = &totals.outcomes;
    o.count("records", Some(ended.read));
    o.count("records_applied", Some(ended.applied));
    o.count("records_ignored", Some(ended.ignored));
    o.count("records_quarantined", Some(ended.dead_lettered));
    o.count("tombstones", Some(ended.tombstones));
    o.count("duplicates_dropped", Some(ended.duplicates));
    o.count("usage_missing_calls", Some(sums.usage_missing_calls));
    o.count("invalid_usage_fields", Some(replayed.invalid_usage_fields));
    o.count("invalid_utf8_records", Some(totals.invalid_utf8));
    o.count("nonstandard_json", Some(totals.nonstandard_json));
    o.count("lone_surrogates", Some(totals.lone_surrogates));
    o.count("duplicate_keys", Some(totals.duplicate_keys));
    o.count("boms", Some(totals.boms));
    o.count("schema_prefix_stripped", Some(totals.schema_prefixes));
    o.count("facts_late", Some(totals.facts_late));
    let limits = |o: &mut Object<'_>| {
        for (limit, times) in &totals.limits_reached {
            o.count(limit, Some(*times));
        }
    };
    o.object("limits_reached", Some(limits));
}

fn quarantined(row: &Quarantined, o: &mut Object<'_>) {
    let Coordinates {
        topic,
        partition,
        offset,
    } = &row.at;
    o.text("topic", Some(topic));
    o.signed("partition", Some(i64::from(*partition)));
    o.signed("offset", Some(offset.0));
    o.text("reason", Some(row.reason.as_str()));
}

/// Every flag of any row, in the order of rules.md §9, then what was odd about the bytes of
/// records.
fn flags(replayed: &Replayed, facts: &[&Fact], out: &mut String) {
    let mut all = Flags::default();
    for fact in facts {
        all.extend(flags_of(&fact.body));
    }
    let mut words: Vec<&str> = all.iter().map(Flag::as_str).collect();
    let totals = &replayed.totals;
    for (count, word) in [
        (totals.boms, "read_bom"),
        (totals.duplicate_keys, "read_duplicate_keys"),
        (totals.invalid_utf8, "read_invalid_utf8"),
        (totals.lone_surrogates, "read_lone_surrogate"),
        (totals.nonstandard_json, "read_nonstandard_json"),
    ] {
        if count > 0 {
            words.push(word);
        }
    }
    out.push('[');
    for (i, word) in words.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        push_text(out, word);
    }
    out.push(']');
}

fn flags_of(body: &FactBody) -> Flags {
    match body {
        FactBody::Invocation(f) => f.flags,
        FactBody::Branch(f) => f.flags,
        FactBody::AgentRun(f) => f.flags,
        FactBody::ModelCall(f) => f.flags,
        FactBody::LocalAnswer(f) => f.flags,
        FactBody::ToolCall(f) => f.flags,
        FactBody::GuardrailDecision(f) => f.flags,
        FactBody::RecoveryDecision(f) => f.flags,
        FactBody::Anomaly(_) => Flags::default(),
    }
}

fn events_kept(seen: &[Seen]) -> usize {
    seen.iter().filter(|entry| entry.is_native()).count()
}

/// The instant given to each native event, by its id; of several events under one id the first.
fn event_times(seen: &[Seen], out: &mut String) {
    let mut times: BTreeMap<&str, EventTime> = BTreeMap::new();
    for entry in seen {
        if let Some(id) = &entry.id {
            times.entry(id).or_insert(entry.at);
        }
    }
    Object::write(out, Unknown::Null, |o| {
        for (id, at) in times {
            o.text(id, Some(&instant_text(at)));
        }
    });
}

fn timeline_entry(entry: &Entry<'_>, o: &mut Object<'_>) {
    let seen = entry.seen;
    o.instant("at", Some(seen.at));
    o.text("id", seen.id.as_deref());
    o.text("kind", Some(entry.kind));
    o.text("echo_of", entry.echo_of.as_deref());
    o.text("invocation_id", seen.invocation_id.as_deref());
    o.text("branch", Some(&seen.branch));
    o.text("author", seen.author.as_deref());
}

#[cfg(test)]
mod tests;
