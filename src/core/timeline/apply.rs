//! Lifecycle records to evidence: what each kind of events.md §2.2 says about its segment.

use super::invocation::{Context, Item, RunEnd, Segment};
use super::stamp::{Stamp, earliest};
use crate::core::Name;
use crate::core::event::{AgentStatus, ErrorSaid, EventKind, RuntimeEvent};
use crate::core::fact::{Basis, Flag, ParentLink};

/// Where in the run a record stands.
#[derive(Clone, Debug)]
pub struct Place {
    pub branch: Name,
    pub node_path: Option<Name>,
    pub agent: Name,
    pub at: Stamp,
}

impl Place {
    /// The place of each of `count` tool calls or answers that share one event. Its time is one
    /// call's, or none's (runtimes.md §1, fact 6): it orders them all, and gives no duration.
    pub fn shared_by(&self, count: usize) -> Place {
        let mut shared = self.clone();
        shared.at.is_arrival &= count <= 1;
        shared
    }
}

impl Segment {
    /// Takes one event as evidence. Envelope fields are noted by [`Segment::note_envelope`] before.
    pub fn apply(&mut self, event: &RuntimeEvent<'_>, at: Stamp, cx: &mut Context<'_>) {
        let agent = match &event.kind {
            EventKind::Native(native) => native.author.as_deref(),
            _ => event.agent.as_deref(),
        };
        let place = Place {
            branch: cx.names.name(&event.branch),
            node_path: cx.names.optional(Some(&event.node_path)),
            agent: cx.names.name(agent.unwrap_or("")),
            at,
        };
        let is_end = matches!(event.kind, EventKind::RunEnd { .. });
        if self.records > cx.limits.records_per_run_max && !is_end {
            self.reach("records_per_run_max", cx);
        } else {
            self.apply_kind(event, &place, cx);
        }
        if std::mem::take(&mut self.is_full) || event.reached.parts {
            self.reach("calls_per_run_max", cx);
        }
        if cx.names.take_cut() || event.reached.ids {
            self.reach("id_bytes_max", cx);
        }
        if event.reached.attributes {
            self.reach("attribute_bytes_max", cx);
        }
        if cx.names.take_unshared() {
            cx.reach("names_interned_max");
        }
        if self.is_over() && self.is_sum_due() {
            self.touch_all();
        }
    }

    fn apply_kind(&mut self, event: &RuntimeEvent<'_>, place: &Place, cx: &mut Context<'_>) {
        match &event.kind {
            EventKind::RunStart {
                root_agent,
                trigger,
            } => {
                self.start = earliest(self.start, place.at);
                if self.root_agent.is_none() {
                    self.root_agent = cx.names.optional(root_agent.as_deref());
                }
                if self.trigger.is_none() {
                    self.trigger = cx.names.optional(trigger.as_deref());
                }
                self.touch_branch(&place.branch, place.at, cx.offset, false, cx);
                self.touch(Item::Invocation);
            }
            EventKind::RunEnd {
                status,
                limit,
                error,
            } => {
                let end = RunEnd {
                    at: place.at,
                    status: *status,
                    limit: cx.names.optional(limit.as_deref()),
                    error_code: error.as_ref().and_then(|error| code_of(error, cx)),
                };
                self.touch_branch(&place.branch, place.at, cx.offset, false, cx);
                self.end_run(end);
            }
            EventKind::AgentStart { agent_kind } => {
                self.agent_start(agent_kind.as_deref(), place, cx);
            }
            EventKind::AgentEnd { status, handoff_to } => {
                self.agent_end(*status, handoff_to.as_deref(), place, cx);
            }
            EventKind::AgentError { error } => self.agent_error(error, place, cx),
            EventKind::ModelStart(start) => self.model_start(start, event, place, cx),
            EventKind::ModelChunk(chunk) => self.model_chunk(chunk, event, place, cx),
            EventKind::ModelEnd(end) => self.model_end(end, event, place, cx),
            EventKind::ModelError(error) => self.model_error(error, event, place, cx),
            EventKind::ToolStart(start) => self.tool_start(start, event, place, cx),
            EventKind::ToolEnd(end) => self.tool_end(end, place, cx),
            EventKind::GuardrailDecision(decision) => self.decide(decision, place, cx),
            EventKind::RecoveryDecision(recovery) => self.recover(recovery, place, cx),
            EventKind::HookOutcome(outcome) => self.hook(outcome, place, cx),
            EventKind::Native(native) => self.native(native, event, place, cx),
            EventKind::EmitterGap { .. } | EventKind::Unknown => {}
        }
    }

    /// Notes what the envelope says about the segment as a whole.
    pub fn note_envelope(&mut self, event: &RuntimeEvent<'_>, at: Stamp, cx: &mut Context<'_>) {
        self.records = self.records.saturating_add(1);
        self.row.speak(cx.offset);
        if at.is_valid {
            self.first = earliest(Some(self.first), at).unwrap_or(at);
            self.last = super::stamp::latest(Some(self.last), at).unwrap_or(at);
        } else {
            self.flags.insert(Flag::InvalidEventTime);
        }
        if self.session_id.is_none() {
            self.session_id = event.session_id.as_deref().map(|id| cx.names.id(id));
        }
        if self.user_key.is_none() {
            self.user_key = event.user_key.as_deref().map(|key| cx.names.id(key));
        }
        if self.run_id.is_none() {
            self.run_id = event.run_id.as_deref().map(|id| cx.names.id(id));
        }
        if self.runtime.is_none() {
            self.runtime = cx.names.optional(event.runtime.as_deref());
            self.runtime_version = cx.names.optional(event.runtime_version.as_deref());
        }
        if let Some(parent) = &event.parent {
            self.parent = Some(ParentLink {
                invocation_id: parent.invocation_id.as_deref().map(|id| cx.names.id(id)),
                run_id: parent.run_id.as_deref().map(|id| cx.names.id(id)),
                call_id: parent.call_id.as_deref().map(|id| cx.names.id(id)),
                basis: Basis::Declared,
            });
        }
        for (key, value) in event.attributes.iter().take(cx.limits.attributes_max) {
            self.attribute(key, value, cx);
        }
    }

    fn attribute(&mut self, key: &str, value: &str, cx: &mut Context<'_>) {
        if self.attributes.iter().any(|(known, _)| &**known == key) {
            return;
        }
        if self.attributes.len() >= cx.limits.attributes_max {
            self.reach("attribute_bytes_max", cx);
            return;
        }
        self.attributes
            .push((cx.names.name(key), cx.names.name(value)));
    }

    /// `run.end`; of two ends the later one holds.
    fn end_run(&mut self, end: RunEnd) {
        let is_first = !self.has_ended();
        if self
            .end
            .as_ref()
            .is_none_or(|known| !end.at.is_before(known.at))
        {
            self.end = Some(end);
        }
        if is_first {
            self.settle_calls();
            self.touch_all();
        }
    }

    fn agent_start(&mut self, kind: Option<&str>, place: &Place, cx: &mut Context<'_>) {
        self.something_started();
        let same = |run: &super::invocation::AgentRun| {
            run.branch == place.branch && run.agent == place.agent
        };
        let adopted = self
            .agents
            .iter()
            .rposition(|run| same(run) && run.may_begin_at(place.at));
        let index = match adopted {
            Some(index) => {
                self.agents[index].row.speak(cx.offset);
                index
            }
            None => self.new_agent_run(&place.branch, &place.agent, place.at, cx.offset),
        };
        let run = &mut self.agents[index];
        run.start = earliest(run.start, place.at);
        run.node_path = run.node_path.take().or_else(|| place.node_path.clone());
        cx.names.note(&mut run.agent_kind, kind);
        self.touch_branch(&place.branch, place.at, cx.offset, false, cx);
        self.touch(Item::Agent(index));
    }

    fn agent_end(
        &mut self,
        status: AgentStatus,
        handoff_to: Option<&str>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let same = |run: &super::invocation::AgentRun| {
            run.branch == place.branch && run.agent == place.agent
        };
        let open = self
            .agents
            .iter()
            .rposition(|run| same(run) && run.end.is_none());
        let index = match open {
            Some(index) => {
                self.agents[index].row.speak(cx.offset);
                index
            }
            None => self.new_agent_run(&place.branch, &place.agent, place.at, cx.offset),
        };
        let run = &mut self.agents[index];
        run.end = Some((place.at, status));
        run.last = place.at;
        cx.names.note(&mut run.handoff_to, handoff_to);
        self.settle_failed(&place.branch, &place.agent);
        self.touch_branch(&place.branch, place.at, cx.offset, true, cx);
        self.touch(Item::Agent(index));
    }

    fn agent_error(&mut self, error: &ErrorSaid<'_>, place: &Place, cx: &mut Context<'_>) {
        let run = self.agent_run(&place.branch, &place.agent, place.at, cx.offset, false);
        if let Some(index) = run {
            self.agents[index].error_code = code_of(error, cx);
            self.touch(Item::Agent(index));
        }
    }
}

/// `code`, else `type`, of an error.
pub fn code_of(error: &ErrorSaid<'_>, cx: &mut Context<'_>) -> Option<Name> {
    let code = error.code.as_deref().or(error.kind.as_deref());
    cx.names.optional(code.map(code_word))
}

/// A code as it is written, but for ADK Java's sentence (rules.md §6).
pub fn code_word(code: &str) -> &str {
    match code {
        "Unknown error." => "UNKNOWN_ERROR",
        code => code,
    }
}
