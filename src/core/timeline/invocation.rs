//! One segment of one invocation: what it holds, how it is found, and how it ended.
//!
//! A segment gathers evidence; what follows from it is decided in `export.rs`. It knows no offsets
//! but those of its own records, and no other segment.

use super::anomaly::AnomalySeen;
use super::branch::{self, Branch};
use super::guardrail::Verdict;
use super::model_call::{ModelCall, RunView};
use super::names::Names;
use super::recovery::RecoveryDecision;
use super::row::{RowState, push_tight};
use super::stamp::{Stamp, earliest, latest};
use super::tool_call::ToolCall;
use crate::core::event::{AgentStatus, RunStatus, ServedBy};
use crate::core::fact::{AnomalyKind, Flag, Flags, ParentLink, Status};
use crate::core::usage::UsageReport;
use crate::core::{Limits, LogTime, Name, Offset, TopicDefaults};
use std::collections::{BTreeMap, BTreeSet};

/// What applying one record may use besides the segment.
pub struct Context<'c> {
    pub names: &'c mut Names,
    pub limits: &'c Limits,
    pub defaults: &'c TopicDefaults,
    pub offset: Offset,
    /// Series that a start record announces, at 0.
    pub samples: Vec<crate::core::sample::Sample>,
    /// The limits that this record ran into.
    pub limits_reached: Vec<&'static str>,
}

impl<'c> Context<'c> {
    /// What the record at `offset` may use.
    pub fn new(
        names: &'c mut Names,
        limits: &'c Limits,
        defaults: &'c TopicDefaults,
        offset: Offset,
    ) -> Context<'c> {
        Context {
            names,
            limits,
            defaults,
            offset,
            samples: Vec::new(),
            limits_reached: Vec::new(),
        }
    }

    /// Notes that the record ran into a limit, once.
    pub fn reach(&mut self, limit: &'static str) {
        if !self.limits_reached.contains(&limit) {
            self.limits_reached.push(limit);
        }
    }
}

/// Key and path of the rows into which a run's further calls and branches fold (config.md).
pub const LIMITED: &str = "limited";

/// Rows that a record may cause to be looked through. A run of so many is looked through at each
/// record after its end, a bigger one once in so many records that it comes to the same.
const ROWS_PER_RECORD: usize = 32;

/// A row that may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    Call(usize),
    Answer(usize),
    Tool(usize),
    Verdict(usize),
    Recovery(usize),
    Anomaly(usize),
    Agent(usize),
    Branch(usize),
    Invocation,
}

impl Item {
    /// True for a row that sums over other rows.
    pub fn is_sum(self) -> bool {
        matches!(self, Item::Agent(_) | Item::Branch(_) | Item::Invocation)
    }
}

/// `run.end`.
#[derive(Clone, Debug)]
pub struct RunEnd {
    pub at: Stamp,
    pub status: RunStatus,
    pub limit: Option<Name>,
    pub error_code: Option<Name>,
}

/// One pass of one agent on one branch.
#[derive(Clone, Debug)]
pub struct AgentRun {
    pub row: RowState,
    pub branch: Name,
    pub agent: Name,
    pub occurrence: u32,
    pub node_path: Option<Name>,
    pub agent_kind: Option<Name>,
    /// `agent.start`.
    pub start: Option<Stamp>,
    pub first: Stamp,
    pub last: Stamp,
    pub end: Option<(Stamp, AgentStatus)>,
    pub handoff_to: Option<Name>,
    pub error_code: Option<Name>,
    /// Without agent records: it gave a final answer, so that its next call is another pass.
    pub has_answered: bool,
    pub is_observed: bool,
}

impl AgentRun {
    /// True where a start made at this instant is this pass's: it told none yet, and did not end
    /// before.
    pub fn may_begin_at(&self, at: Stamp) -> bool {
        let ends_before = |(end, _): (Stamp, AgentStatus)| !at.is_before(end);
        self.start.is_none() && !self.end.is_some_and(ends_before)
    }
}

/// An answer that a hook or a cache gave instead of the model.
#[derive(Clone, Debug)]
pub struct LocalAnswer {
    pub row: RowState,
    pub branch: Name,
    pub agent: Name,
    pub order: u32,
    pub served_by: ServedBy,
    pub hook: Option<Name>,
    pub actor_type: Option<Name>,
    pub actor_name: Option<Name>,
    pub call_id: Option<Name>,
    pub requested_model: Option<Name>,
    pub at: Stamp,
    pub usage: Option<UsageReport>,
    pub event_id: Option<Name>,
    pub is_counted: bool,
}

/// A proof that the next answer of an agent is no model's (rules.md §8).
#[derive(Clone, Debug)]
pub struct Proof {
    pub branch: Name,
    /// `None`: whichever agent answers.
    pub agent: Option<Name>,
    /// The answer that the proof already made a row of.
    pub answer: Option<usize>,
    /// The verdict it comes from; then the answer must be free of usage.
    pub verdict: Option<usize>,
}

/// One stretch of one invocation in one partition, held in memory.
#[derive(Debug)]
pub struct Segment {
    pub id: Name,
    pub run_id: Option<Name>,
    pub invocation_id: Name,
    pub tenant: Option<Name>,
    pub app: Option<Name>,
    pub session_id: Option<Name>,
    pub user_key: Option<Name>,
    pub row: RowState,
    pub records: u32,
    pub logged_at: LogTime,
    pub last_logged_at: LogTime,
    /// First record of the evidence it needs: its own, or its inferred parent's.
    pub evidence_from: Offset,
    pub is_headless: bool,
    /// Its dialect has start records; without one the row is flagged `start_unseen`.
    pub is_start_due: bool,
    pub start: Option<Stamp>,
    pub first: Stamp,
    pub last: Stamp,
    pub root_agent: Option<Name>,
    pub trigger: Option<Name>,
    pub runtime: Option<Name>,
    pub runtime_version: Option<Name>,
    pub parent: Option<ParentLink>,
    pub end: Option<RunEnd>,
    /// A further run of the invocation began before this one ended.
    pub is_superseded: bool,
    pub is_released: bool,
    pub final_answer: Option<Stamp>,
    pub has_gap: bool,
    /// A `before_run` hook answered; whether anything started afterwards.
    pub intercepted: Option<bool>,
    pub agents: Vec<AgentRun>,
    pub branches: Vec<Branch>,
    pub calls: Vec<ModelCall>,
    pub answers: Vec<LocalAnswer>,
    pub tools: Vec<ToolCall>,
    pub verdicts: Vec<Verdict>,
    /// Those that forbid something, oldest first.
    pub verdicts_forbidding: Vec<usize>,
    pub recoveries: Vec<RecoveryDecision>,
    pub anomalies: Vec<AnomalySeen>,
    /// Each by its kind and what it is about.
    pub anomalies_by_about: BTreeMap<(AnomalyKind, Name), usize>,
    pub proofs: Vec<Proof>,
    /// The rows into which further calls fold.
    pub limited_call: Option<usize>,
    pub limited_tool: Option<usize>,
    /// Rows of one kind (`calls_per_run_max`).
    pub rows_max: usize,
    /// A row did not fit since this was last asked.
    pub is_full: bool,
    pub calls_by_id: BTreeMap<Name, usize>,
    pub tools_by_id: BTreeMap<Name, Vec<usize>>,
    /// Calls by the id of the native event that closed them.
    pub calls_by_event: BTreeMap<Name, usize>,
    /// Calls that failed and may be tried again.
    pub calls_failed: Vec<usize>,
    /// Calls that only native events told of; some of them no longer.
    pub calls_unclaimed: Vec<usize>,
    /// Records told of a call.
    pub has_told_calls: bool,
    /// The newest native call of each (branch, node path, author).
    pub native_calls: Vec<(Name, Name, Name, usize)>,
    /// Requests to a person that ADK made up and nobody answered yet: (request id, tool call id,
    /// tool).
    pub requests: Vec<(Name, Name, Name)>,
    /// The same of earlier stretches of the invocation: a person may answer them here.
    pub requests_before: Vec<(Name, Name, Name)>,
    /// Hashes by which redeliveries are known.
    pub seen: BTreeSet<u64>,
    pub instances: Vec<Name>,
    pub attributes: Vec<(Name, Name)>,
    pub flags: Flags,
    pub events: u64,
    pub user_messages: BTreeSet<u64>,
    pub retries: u64,
    pub dirty: Vec<Item>,
    /// Records of the segment when the rows that sum over others were last made.
    pub summed_at: u32,
    /// Such a row may have changed since, and waits.
    pub is_sum_put_off: bool,
    /// Tools, by index and name, whose execution opened or closed since this was last asked.
    pub tool_changes: Vec<(usize, Name, bool)>,
    pub tools_open: u32,
    /// Long-running calls that wait for their answer.
    pub tools_pending: u32,
    pub counted_status: Option<Status>,
    pub is_wait_counted: bool,
    /// The app under which the open gauge counts it.
    pub open_app: Option<Name>,
}

impl Segment {
    /// True where evidence says that it ended or paused.
    pub fn has_ended(&self) -> bool {
        self.end.is_some() || self.is_superseded
    }

    /// True where nothing more is expected, by evidence or by silence.
    pub fn is_over(&self) -> bool {
        self.has_ended() || self.is_released
    }

    /// True where a pause was declared: `run.end` yielded, or a long-running call still unanswered.
    pub fn is_paused(&self) -> bool {
        self.end
            .as_ref()
            .is_some_and(|end| end.status == RunStatus::Yielded)
            || self.end.is_none() && (!self.requests.is_empty() || self.tools_pending > 0)
    }

    /// Status (rules.md §6).
    pub fn status(&self) -> Status {
        let inferred = match self.final_answer {
            Some(_) => Status::CompletedInferred,
            None => Status::Incomplete,
        };
        match &self.end {
            Some(end) => match end.status {
                RunStatus::Completed if self.intercepted == Some(false) => Status::Intercepted,
                RunStatus::Completed => Status::Completed,
                RunStatus::Error => Status::Error,
                RunStatus::Cancelled => Status::Cancelled,
                RunStatus::Yielded => Status::Waiting,
                RunStatus::Limited => Status::Limited,
                RunStatus::Intercepted => Status::Intercepted,
                RunStatus::Unknown => inferred,
            },
            None if self.is_paused() => Status::Waiting,
            None if self.is_superseded => Status::Incomplete,
            None if self.is_released => inferred,
            None => Status::Open,
        }
    }

    /// What model calls need to know of the run.
    pub fn run_view(&self, limits: &Limits) -> RunView {
        let well = matches!(
            self.status(),
            Status::Completed | Status::CompletedInferred | Status::Waiting | Status::Intercepted
        );
        RunView {
            ended_well_without_gap: self.is_over() && well && !self.has_gap,
            was_cancelled: self.status() == Status::Cancelled,
            plausible_tokens_max: limits.plausible_tokens_max,
        }
    }

    /// The runtime of its events: as records say, else as the topic's configuration does.
    pub fn runtime_name<'s>(&'s self, defaults: &'s TopicDefaults) -> Option<&'s str> {
        let configured = &*defaults.producer.0;
        self.runtime
            .as_deref()
            .or((!configured.is_empty()).then_some(configured))
    }

    /// The tenant that its rows carry.
    pub fn tenant_name(&self, defaults: &TopicDefaults) -> Name {
        self.tenant
            .clone()
            .unwrap_or_else(|| defaults.tenant.0.clone())
    }

    /// The app that its rows carry.
    pub fn app_name(&self, defaults: &TopicDefaults) -> Name {
        self.app.clone().unwrap_or_else(|| defaults.app.0.clone())
    }

    /// True once any of its rows was exported: then its identity is fixed.
    pub fn has_exported(&self) -> bool {
        self.row.is_exported()
            || self.calls.iter().any(|c| c.row.is_exported())
            || self.tools.iter().any(|t| t.row.is_exported())
            || self.verdicts.iter().any(|v| v.row.is_exported())
            || self.answers.iter().any(|a| a.row.is_exported())
            || self.recoveries.iter().any(|r| r.row.is_exported())
            || self.anomalies.iter().any(|a| a.row.is_exported())
            || self.agents.iter().any(|a| a.row.is_exported())
    }

    /// Remembers a proof, while there is room.
    pub fn prove(&mut self, proof: Proof) {
        match self.proofs.len() < self.rows_max {
            true => self.proofs.push(proof),
            false => self.is_full = true,
        }
    }

    /// Marks a row as perhaps changed.
    pub fn touch(&mut self, item: Item) {
        self.dirty.push(item);
    }

    /// The number of an emitter instance within the segment; 0 is unknown.
    pub fn instance(&mut self, instance: Option<&str>, names: &mut Names) -> u32 {
        let Some(instance) = instance.filter(|text| !text.is_empty()) else {
            return 0;
        };
        if let Some(at) = self.instances.iter().position(|known| &**known == instance) {
            return at as u32 + 1;
        }
        if self.instances.len() >= 64 {
            return 0;
        }
        self.instances.push(names.name(instance));
        self.instances.len() as u32
    }

    /// The agent run that evidence of (branch, agent) belongs to: the open one, else a new pass.
    /// `None` without agent.
    pub fn agent_run(
        &mut self,
        branch: &Name,
        agent: &Name,
        at: Stamp,
        offset: Offset,
        is_new_call: bool,
    ) -> Option<usize> {
        if agent.is_empty() {
            return None;
        }
        let same = |run: &AgentRun| run.branch == *branch && run.agent == *agent;
        // Of several passes the newest that had begun; template times order nothing.
        let had_begun = |run: &AgentRun| !at.is_arrival || !at.is_before(run.first);
        let last = self
            .agents
            .iter()
            .rposition(|run| same(run) && had_begun(run))
            .or_else(|| self.agents.iter().position(same));
        if let Some(last) = last {
            let run = &mut self.agents[last];
            // What was made before the pass ended is of it, also where it comes after its end.
            let has_ended = run.end.is_some_and(|(end, _)| !at.is_before(end));
            let is_over = has_ended || run.start.is_none() && run.has_answered;
            if !(is_over && is_new_call) {
                run.row.speak(offset);
                run.last = latest(Some(run.last), at).unwrap_or(at);
                run.first = earliest(Some(run.first), at).unwrap_or(at);
                return Some(last);
            }
        }
        Some(self.new_agent_run(branch, agent, at, offset))
    }

    /// Opens a further pass of an agent.
    pub fn new_agent_run(
        &mut self,
        branch: &Name,
        agent: &Name,
        at: Stamp,
        offset: Offset,
    ) -> usize {
        let limited = (Name::from(""), Name::from(LIMITED));
        let is_limited = self.agents.len() >= self.rows_max;
        self.is_full |= is_limited;
        let (branch, agent) = match is_limited {
            true if self.agents.len() > self.rows_max => return self.agents.len() - 1,
            true => (&limited.0, &limited.1),
            false => (branch, agent),
        };
        let same = |run: &&AgentRun| run.branch == *branch && run.agent == *agent;
        let occurrence = self.agents.iter().filter(same).count() as u32;
        let mut row = RowState::new(offset);
        row.speak(offset);
        let run = AgentRun {
            row,
            branch: branch.clone(),
            agent: agent.clone(),
            occurrence,
            node_path: None,
            agent_kind: None,
            start: None,
            first: at,
            last: at,
            end: None,
            handoff_to: None,
            error_code: None,
            has_answered: false,
            is_observed: false,
        };
        push_tight(&mut self.agents, run);
        self.agents.len() - 1
    }

    /// Notes evidence on a branch, and that its prefixes exist. `goes_on`: work begins or ends
    /// there, so that branches below it have joined.
    pub fn touch_branch(
        &mut self,
        path: &Name,
        at: Stamp,
        offset: Offset,
        goes_on: bool,
        cx: &mut Context<'_>,
    ) {
        if goes_on {
            for branch in &mut self.branches {
                if branch::is_ancestor(path, &branch.path) {
                    branch.is_joined = true;
                }
            }
        }
        let position = self
            .branches
            .iter()
            .rposition(|b| b.path == *path && !b.is_joined);
        let position = match position {
            Some(position) => position,
            None => self.new_branch(path.clone(), offset, cx),
        };
        let branch = &mut self.branches[position];
        branch.row.speak(offset);
        branch.records += 1;
        branch.first = earliest(branch.first, at);
        branch.last = latest(branch.last, at);
        self.touch(Item::Branch(position));
    }

    fn new_branch(&mut self, path: Name, offset: Offset, cx: &mut Context<'_>) -> usize {
        if self.branches.len() >= cx.limits.branches_per_run_max {
            return self.limited_branch(offset, cx);
        }
        let mut above = branch::parent(&path);
        while let Some(parent) = above {
            if !self.branches.iter().any(|b| &*b.path == parent) {
                let name = cx.names.name(parent);
                self.push_branch(name, offset);
            }
            above = branch::parent(parent);
        }
        self.push_branch(path, offset)
    }

    /// The one row into which further branches fold.
    fn limited_branch(&mut self, offset: Offset, cx: &mut Context<'_>) -> usize {
        self.reach("branches_per_run_max", cx);
        let known = self
            .branches
            .iter()
            .position(|branch| &*branch.path == LIMITED);
        known.unwrap_or_else(|| self.push_branch(Name::from(LIMITED), offset))
    }

    /// Notes that a limit of the run was reached: the row is flagged, the limit counted.
    pub fn reach(&mut self, limit: &'static str, cx: &mut Context<'_>) {
        self.flags.insert(Flag::Limited);
        cx.reach(limit);
        self.touch(Item::Invocation);
    }

    fn push_branch(&mut self, path: Name, offset: Offset) -> usize {
        let occurrence = self.branches.iter().filter(|b| b.path == path).count() as u32;
        let branch = Branch {
            row: RowState::new(offset),
            path,
            occurrence,
            first: None,
            last: None,
            is_joined: false,
            records: 0,
        };
        push_tight(&mut self.branches, branch);
        self.branches.len() - 1
    }

    /// Anything of the run began: a hook that answered for the whole run did not end it.
    pub fn something_started(&mut self) {
        if self.intercepted.is_some() {
            self.intercepted = Some(true);
        }
    }

    /// True where so many records came since the rows that sum over others were last made that
    /// making them again costs no more a record than in a small run.
    pub fn is_sum_due(&self) -> bool {
        let rows = self.calls.len()
            + self.tools.len()
            + self.verdicts.len()
            + self.answers.len()
            + self.anomalies.len()
            + self.recoveries.len()
            + self.agents.len()
            + self.branches.len();
        (self.records - self.summed_at) as usize * ROWS_PER_RECORD >= rows
    }

    /// Marks everything as perhaps changed: the segment ended, was released, or was amended after
    /// its end.
    pub fn touch_all(&mut self) {
        self.summed_at = self.records;
        self.is_sum_put_off = false;
        self.dirty.clear();
        self.dirty.extend((0..self.calls.len()).map(Item::Call));
        self.dirty.extend((0..self.answers.len()).map(Item::Answer));
        self.dirty.extend((0..self.tools.len()).map(Item::Tool));
        self.dirty
            .extend((0..self.verdicts.len()).map(Item::Verdict));
        self.dirty
            .extend((0..self.recoveries.len()).map(Item::Recovery));
        self.dirty
            .extend((0..self.anomalies.len()).map(Item::Anomaly));
        self.dirty.extend((0..self.agents.len()).map(Item::Agent));
        self.dirty
            .extend((0..self.branches.len()).map(Item::Branch));
        self.dirty.push(Item::Invocation);
    }
}
