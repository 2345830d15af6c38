//! Segments to invocations, and rows to the sums that span them (facts.md §1, §8.1).
//!
//! It stores nothing and adds nothing to a fact: the daemon leaves the same fold to views.

use crate::core::fact::{
    BranchFact, Executed, Fact, FactBody, Flags, InvocationFact, ParentLink, Status, Sums,
    ToolCallFact, ToolStatus,
};
use crate::core::{Coordinates, EventTime, LogTime, Name, Nanos, Offset};
use std::collections::{BTreeMap, BTreeSet};

/// (tenant, app, invocation id).
pub type RunKey = (Name, Name, Name);

/// The key of the invocation a fact belongs to.
pub fn run_key(fact: &Fact) -> RunKey {
    let name = Name::clone;
    (
        name(&fact.tenant),
        name(&fact.app),
        name(&fact.invocation_id),
    )
}

/// One invocation, folded over its segments.
#[derive(Clone, Debug)]
pub struct Invocation {
    pub key: RunKey,
    pub session_id: Option<Name>,
    pub user_key: Option<Name>,
    pub status: Status,
    /// Segments, headless ones aside unless there is no other.
    pub segments: u64,
    pub started_at: Option<EventTime>,
    pub ended_at: Option<EventTime>,
    /// From the first start to the last end, waits included.
    pub wall: Option<Nanos>,
    /// Within segments.
    pub active: Option<Nanos>,
    /// Between segments.
    pub wait: Option<Nanos>,
    pub root_agent: Option<Name>,
    pub trigger: Option<Name>,
    pub runtime: Option<Name>,
    pub runtime_version: Option<Name>,
    pub parent: Option<ParentLink>,
    pub limit: Option<Name>,
    pub error_code: Option<Name>,
    pub own: Sums,
    pub with_descendants: Sums,
    pub local_answer_count: u64,
    pub tool_call_count: u64,
    pub records: u64,
    /// Native events among them.
    pub events: u64,
    pub user_messages: u64,
    pub retries: u64,
    pub attributes: Vec<(Name, Name)>,
    pub flags: Flags,
    pub first: Coordinates,
    pub last: Coordinates,
    pub version: u64,
    run_ids: BTreeSet<Name>,
    /// Log time and offset of the first record.
    begun: (LogTime, Offset),
}

impl Invocation {
    /// Orders invocations by their first records.
    pub fn rank(&self) -> (LogTime, Offset, &RunKey) {
        (self.begun.0, self.begun.1, &self.key)
    }
}

/// A tool call, joined over the segments in which it was asked and answered.
#[derive(Clone, Debug)]
pub struct ToolRow<'f> {
    pub fact: &'f Fact,
    pub call: ToolCallFact,
    pub first: Coordinates,
    pub last: Coordinates,
    pub version: u64,
}

/// Adds the sums of other calls: unknown with nothing known stays unknown.
pub fn add_sums(to: &mut Sums, other: &Sums) {
    let add = |to: &mut Option<u64>, other: Option<u64>| {
        *to = match (*to, other) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
    };
    add(&mut to.input_total, other.input_total);
    add(&mut to.input_uncached, other.input_uncached);
    add(&mut to.cache_read, other.cache_read);
    add(&mut to.cache_write, other.cache_write);
    add(&mut to.tool_use_input, other.tool_use_input);
    add(&mut to.output_total, other.output_total);
    add(&mut to.reasoning, other.reasoning);
    add(&mut to.total, other.total);
    to.model_call_count += other.model_call_count;
    to.usage_missing_calls += other.usage_missing_calls;
    to.usage_complete &= other.usage_complete;
}

/// The sum over parts: over no call every count is 0, over calls none of which is known it is
/// unknown (rules.md §4).
pub fn sum_of<'s>(parts: impl IntoIterator<Item = &'s Sums>) -> Sums {
    let mut sum = Sums {
        usage_complete: true,
        ..Sums::default()
    };
    let mut is_empty = true;
    for part in parts {
        // A part without calls has nothing to say, and its zeros must not make the unknown known.
        let says = part.model_call_count > 0 || part.total.is_some_and(|total| total > 0);
        is_empty &= !says;
        if says {
            add_sums(&mut sum, part);
        }
    }
    if is_empty {
        let none = Some(0);
        return Sums {
            input_total: none,
            input_uncached: none,
            cache_read: none,
            cache_write: none,
            tool_use_input: none,
            output_total: none,
            reasoning: none,
            total: none,
            ..sum
        };
    }
    sum
}

/// The invocations of `facts`, in the order of their first records; `facts` holds one version of
/// each row.
pub fn invocations(facts: &[Fact], tools: &[ToolRow<'_>]) -> Vec<Invocation> {
    let mut segments: BTreeMap<RunKey, Vec<(&Fact, &InvocationFact)>> = BTreeMap::new();
    for fact in facts {
        if let FactBody::Invocation(body) = &fact.body {
            segments
                .entry(run_key(fact))
                .or_default()
                .push((fact, body));
        }
    }
    let mut rows: Vec<Invocation> = segments
        .into_iter()
        .map(|(key, segments)| fold_segments(key, segments))
        .collect();
    let mut asked: BTreeMap<RunKey, u64> = BTreeMap::new();
    for tool in tools {
        *asked.entry(run_key(tool.fact)).or_default() += 1;
    }
    for row in &mut rows {
        row.tool_call_count = asked.get(&row.key).copied().unwrap_or(0);
    }
    add_descendants(&mut rows, tools);
    rows
}

fn fold_segments(key: RunKey, mut all: Vec<(&Fact, &InvocationFact)>) -> Invocation {
    all.sort_by(|a, b| log_order(a.0).cmp(&log_order(b.0)));
    let whole: Vec<_> = all.iter().filter(|(_, s)| !s.headless).copied().collect();
    let told = if whole.is_empty() { &all } else { &whole };
    // `all` holds at least the fact for which it was made, and `told` is `all` where it would be
    // empty.
    let ((first_fact, first), (_, last)) = (told[0], told[told.len() - 1]);
    let mut flags = Flags::default();
    for (_, segment) in &all {
        flags.extend(segment.flags);
    }
    let newest = |pick: fn(&InvocationFact) -> &Option<Name>| {
        told.iter().rev().find_map(|(_, s)| pick(s).clone())
    };
    let oldest =
        |pick: fn(&InvocationFact) -> &Option<Name>| told.iter().find_map(|(_, s)| pick(s).clone());
    let (wall, active, wait) = spans(told);
    let own = sum_of(all.iter().map(|(_, segment)| &segment.own));
    Invocation {
        session_id: all.iter().find_map(|(f, _)| f.session_id.clone()),
        user_key: all.iter().find_map(|(f, _)| f.user_key.clone()),
        status: last.status,
        segments: told.len() as u64,
        started_at: first.started_at,
        ended_at: last.ended_at,
        wall,
        active,
        wait,
        root_agent: oldest(|s| &s.root_agent),
        trigger: first.trigger.clone(),
        runtime: newest(|s| &s.runtime),
        runtime_version: newest(|s| &s.runtime_version),
        parent: all.iter().find_map(|(_, s)| s.parent.clone()),
        limit: last.limit.clone(),
        error_code: last.error_code.clone(),
        with_descendants: own.clone(),
        own,
        local_answer_count: all.iter().map(|(_, s)| s.local_answer_count).sum(),
        tool_call_count: 0,
        records: all.iter().map(|(_, s)| s.records).sum(),
        events: all.iter().map(|(_, s)| s.events).sum(),
        user_messages: all.iter().map(|(_, s)| s.user_messages).sum(),
        retries: all.iter().map(|(_, s)| s.retries).sum(),
        attributes: attributes(&all),
        flags,
        first: all
            .first()
            .map_or_else(|| first_fact.first.clone(), |(f, _)| f.first.clone()),
        last: newest_evidence(&all),
        version: all.iter().map(|(f, _)| f.version).max().unwrap_or(0),
        run_ids: run_ids(&all),
        begun: all
            .iter()
            .map(|(f, _)| (f.segment_logged_at, f.first.offset))
            .min()
            .unwrap_or_default(),
        key,
    }
}

/// Segments in the order of the log; offsets of several partitions have none, so log time goes
/// first.
fn log_order(fact: &Fact) -> (i64, &str, i32, i64, &str) {
    let at = &fact.first;
    let logged = fact.segment_logged_at.0;
    (logged, &at.topic, at.partition, at.offset.0, &fact.segment)
}

fn newest_evidence(all: &[(&Fact, &InvocationFact)]) -> Coordinates {
    // Called with at least one segment.
    let newest = all
        .iter()
        .max_by_key(|(f, _)| (f.segment_logged_at, f.last.offset));
    newest.map_or_else(|| all[0].0.last.clone(), |(f, _)| f.last.clone())
}

fn run_ids(all: &[(&Fact, &InvocationFact)]) -> BTreeSet<Name> {
    all.iter()
        .flat_map(|(fact, s)| s.run_id.iter().chain([&fact.segment]))
        .cloned()
        .collect()
}

fn attributes(all: &[(&Fact, &InvocationFact)]) -> Vec<(Name, Name)> {
    let told: BTreeMap<Name, Name> = all
        .iter()
        .flat_map(|(_, s)| s.attributes.iter().cloned())
        .collect();
    told.into_iter().collect()
}

/// Wall, active and waiting time over segments in order.
fn spans(told: &[(&Fact, &InvocationFact)]) -> (Option<Nanos>, Option<Nanos>, Option<Nanos>) {
    if let [(_, only)] = told {
        return (only.wall, only.wall, Some(Nanos(0)));
    }
    let active = told.iter().try_fold(0_i64, |sum, (_, s)| {
        s.wall.map(|wall| sum.saturating_add(wall.0))
    });
    let wait = told.windows(2).try_fold(0_i64, |sum, pair| {
        let gap = pair[1].1.started_at?.since(pair[0].1.ended_at?).0;
        (gap >= 0).then_some(sum.saturating_add(gap))
    });
    let is_begun = told.first().is_some_and(|(_, s)| s.wall.is_some());
    let wall = match (told.first(), told.last()) {
        (Some((_, first)), Some((_, last))) if is_begun => last
            .ended_at
            .zip(first.started_at)
            .map(|(end, start)| end.since(start))
            .filter(|wall| wall.0 >= 0),
        _ => None,
    };
    (wall, active.map(Nanos), wait.map(Nanos))
}

fn add_descendants(rows: &mut [Invocation], tools: &[ToolRow<'_>]) {
    let index = Index::new(rows, tools);
    let parents: Vec<Option<usize>> = (0..rows.len())
        .map(|child| index.parent_of(child, rows))
        .collect();
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
    for child in 0..rows.len() {
        // Each ancestor once, so that a circle of links ends.
        let mut seen = BTreeSet::from([child]);
        let mut at = parents[child];
        while let Some(parent) = at.filter(|parent| seen.insert(*parent)) {
            below[parent].push(child);
            at = parents[parent];
        }
    }
    let sums: Vec<Sums> = (0..rows.len())
        .map(|row| {
            let all = below[row].iter().chain([&row]);
            sum_of(all.map(|member| &rows[*member].own))
        })
        .collect();
    for (row, sum) in rows.iter_mut().zip(sums) {
        row.with_descendants = sum;
    }
}

/// What a parent link can name, each within a tenant.
struct Index {
    by_invocation: BTreeMap<(Name, Name), Vec<usize>>,
    by_run: BTreeMap<(Name, Name), Vec<usize>>,
    by_call: BTreeMap<(Name, Name), Vec<usize>>,
}

impl Index {
    fn new(rows: &[Invocation], tools: &[ToolRow<'_>]) -> Index {
        let mut index = Index {
            by_invocation: BTreeMap::new(),
            by_run: BTreeMap::new(),
            by_call: BTreeMap::new(),
        };
        let mut row_of: BTreeMap<&RunKey, usize> = BTreeMap::new();
        for (i, row) in rows.iter().enumerate() {
            let within = |id: &Name| (Name::clone(&row.key.0), Name::clone(id));
            row_of.insert(&row.key, i);
            let named = index.by_invocation.entry(within(&row.key.2));
            named.or_default().push(i);
            for run_id in &row.run_ids {
                index.by_run.entry(within(run_id)).or_default().push(i);
            }
        }
        for tool in tools {
            let asker = row_of.get(&run_key(tool.fact));
            if let (Some(&i), Some(call_id)) = (asker, &tool.call.call_id) {
                let key = (Name::clone(&tool.fact.tenant), Name::clone(call_id));
                index.by_call.entry(key).or_default().push(i);
            }
        }
        index
    }

    fn parent_of(&self, child: usize, rows: &[Invocation]) -> Option<usize> {
        let link = rows[child].parent.as_ref()?;
        let (tenant, app, _) = &rows[child].key;
        let (named, id) = match (&link.invocation_id, &link.run_id, &link.call_id) {
            (Some(id), _, _) => (&self.by_invocation, id),
            (None, Some(id), _) => (&self.by_run, id),
            (None, None, Some(id)) => (&self.by_call, id),
            (None, None, None) => return None,
        };
        let found = named.get(&(Name::clone(tenant), Name::clone(id)))?;
        let others = || found.iter().copied().filter(|row| *row != child);
        let same_app = others().find(|row| rows[*row].key.1 == *app);
        same_app.or_else(|| others().next())
    }
}

/// The tool calls of `facts`, joined over segments: last status, first start, last end, the wait
/// between (facts.md §1).
pub fn tools<'f>(facts: impl IntoIterator<Item = &'f Fact>) -> Vec<ToolRow<'f>> {
    let mut all: Vec<(&Fact, &ToolCallFact)> = facts
        .into_iter()
        .filter_map(|fact| match &fact.body {
            FactBody::ToolCall(call) => Some((fact, &**call)),
            _ => None,
        })
        .collect();
    all.sort_by(|a, b| log_order(a.0).cmp(&log_order(b.0)));
    let mut rows: Vec<ToolRow<'_>> = Vec::new();
    let mut newest: BTreeMap<(RunKey, &Name, u32), usize> = BTreeMap::new();
    for (fact, call) in all {
        let key = (run_key(fact), &call.call_key, call.execution);
        let earlier = newest
            .get(&key)
            .copied()
            .filter(|row| is_unanswered(rows[*row].call.status));
        if let Some(row) = earlier {
            join(&mut rows[row], fact, call);
            continue;
        }
        newest.insert(key, rows.len());
        rows.push(ToolRow {
            fact,
            call: call.clone(),
            first: fact.first.clone(),
            last: fact.last.clone(),
            version: fact.version,
        });
    }
    rows
}

fn is_unanswered(status: ToolStatus) -> bool {
    matches!(
        status,
        ToolStatus::Open | ToolStatus::Deferred | ToolStatus::Unanswered
    )
}

fn join(row: &mut ToolRow<'_>, fact: &Fact, later: &ToolCallFact) {
    let call = &mut row.call;
    call.status = later.status;
    call.started_at = call.started_at.or(later.started_at);
    call.ended_at = later.ended_at.or(call.ended_at);
    call.duration = later.duration.or(call.duration);
    call.wait = call
        .ended_at
        .zip(call.started_at)
        .map(|(end, start)| end.since(start))
        .filter(|wait| wait.0 >= 0)
        .or(later.wait)
        .or(call.wait);
    if later.executed == Executed::Yes || call.executed != Executed::Yes {
        call.executed = later.executed;
    }
    call.long_running |= later.long_running;
    call.retries = later.retries.or(call.retries);
    call.error_code = later.error_code.clone();
    call.flags.extend(later.flags);
    if call.tool.is_empty() {
        call.tool = Name::clone(&later.tool);
    }
    row.last = fact.last.clone();
    row.version = row.version.max(fact.version);
}

/// Sums of each branch over its own calls and those of its sub-branches, in the order of
/// `branches`.
pub fn branch_sums(branches: &[(&Fact, &BranchFact)]) -> Vec<Sums> {
    let mut members: BTreeMap<(RunKey, &Name), Vec<usize>> = BTreeMap::new();
    for (i, (fact, _)) in branches.iter().enumerate() {
        let key = (run_key(fact), &fact.segment);
        members.entry(key).or_default().push(i);
    }
    let mut below: Vec<Vec<usize>> = (0..branches.len()).map(|i| vec![i]).collect();
    for segment in members.values() {
        for &inner in segment {
            for outer in ancestors(inner, segment, branches) {
                below[outer].push(inner);
            }
        }
    }
    below
        .iter()
        .map(|all| sum_of(all.iter().map(|i| &branches[*i].1.own)))
        .collect()
}

/// One row for each path above a branch: of a path that was passed several times, the pass in
/// which the branch forked.
fn ancestors(inner: usize, segment: &[usize], branches: &[(&Fact, &BranchFact)]) -> Vec<usize> {
    let branch = branches[inner].1;
    let mut passes: BTreeMap<&Name, Vec<usize>> = BTreeMap::new();
    for &outer in segment {
        if is_within(&branch.branch, &branches[outer].1.branch) {
            passes
                .entry(&branches[outer].1.branch)
                .or_default()
                .push(outer);
        }
    }
    passes
        .into_values()
        .filter_map(|mut rows| {
            rows.sort_by_key(|row| branches[*row].1.occurrence);
            let begun = |row: &usize| {
                let forked_at = branches[*row].1.forked_at;
                forked_at.is_none() || branch.forked_at.is_none_or(|at| forked_at <= Some(at))
            };
            rows.iter()
                .rev()
                .find(|row| begun(row))
                .or(rows.first())
                .copied()
        })
        .collect()
}

/// True where `inner` is a proper part of `outer`, segment by segment: `a.b` is in `a`, `ab` is
/// not.
fn is_within(inner: &str, outer: &str) -> bool {
    if outer.is_empty() {
        return !inner.is_empty();
    }
    inner
        .strip_prefix(outer)
        .is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests;
