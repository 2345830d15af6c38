//! What error handlers decided: which failure each decision is about, and when it is one more.

use super::apply::{Place, code_of};
use super::invocation::{Context, Item, Segment};
use super::model_records::RETRIES_MAX;
use super::row::{RowState, push_tight};
use super::stamp::Stamp;
use crate::core::Name;
use crate::core::event::Recovery;
use crate::core::fact::AnomalyKind;

/// One decision of one handler (events.md §2.2 `recovery.decision`).
#[derive(Clone, Debug)]
pub struct RecoveryDecision {
    pub row: RowState,
    pub at: Stamp,
    pub phase: Name,
    /// The call's id; of a call that was found without one its key.
    pub call_id: Option<Name>,
    /// From 1.
    pub attempt: u32,
    pub handler: Option<Name>,
    pub action: Name,
    pub branch: Name,
    pub agent: Name,
    pub error_code: Option<Name>,
    pub is_counted: bool,
}

impl Segment {
    /// `recovery.decision`: one row per phase, call, attempt and handler. What is told of one of
    /// them again is no further decision; the later word holds.
    pub(super) fn recover(&mut self, said: &Recovery<'_>, place: &Place, cx: &mut Context<'_>) {
        let phase = cx.names.name(said.phase.as_deref().unwrap_or("unknown"));
        let action = cx.names.name(said.action.as_deref().unwrap_or("unknown"));
        let handler = cx.names.optional(said.handler.as_deref());
        let mut call_id = match said.call_id.as_deref() {
            Some(id) => Some(cx.names.id(id)),
            None => self.failed_call(&phase, place),
        };
        let attempt = said
            .attempt
            .or_else(|| self.failed_attempt(&phase, call_id.as_ref()))
            .unwrap_or_else(|| self.next_attempt(&phase, call_id.as_ref(), handler.as_ref()));
        self.note_cap(&phase, call_id.as_ref(), attempt, place, cx);
        let known = self.recoveries.iter().position(|known| {
            let is_of_call = known.phase == phase && known.call_id == call_id;
            is_of_call && known.attempt == attempt && known.handler == handler
        });
        if let Some(known) = known.filter(|_| call_id.is_some()) {
            self.recover_again(known, action, place, cx);
            return;
        }
        if known.is_some() {
            // Of no call that anybody names: another failure than the one before.
            let (branch, agent, order) = (&place.branch, &place.agent, self.recoveries.len());
            call_id = Some(Name::from(format!("{}/{branch}/{agent}/{order}", self.id)));
        }
        if self.recoveries.len() >= self.rows_max {
            self.is_full = true;
            return;
        }
        let mut row = RowState::new(cx.offset);
        row.speak(cx.offset);
        let decision = RecoveryDecision {
            row,
            at: place.at,
            phase,
            call_id,
            attempt,
            handler,
            action,
            branch: place.branch.clone(),
            agent: place.agent.clone(),
            error_code: said.error.as_ref().and_then(|error| code_of(error, cx)),
            is_counted: false,
        };
        push_tight(&mut self.recoveries, decision);
        self.touch(Item::Recovery(self.recoveries.len() - 1));
    }

    fn recover_again(&mut self, known: usize, action: Name, place: &Place, cx: &Context<'_>) {
        let known_row = &mut self.recoveries[known];
        known_row.row.speak(cx.offset);
        if !place.at.is_before(known_row.at) {
            (known_row.at, known_row.action) = (place.at, action);
        }
        self.touch(Item::Recovery(known));
    }

    /// The failure that a decision without call id is about: the newest of its agent and branch
    /// (events.md §2.2).
    fn failed_call(&self, phase: &str, place: &Place) -> Option<Name> {
        let is_here = |branch: &Name, agent: &Name| {
            *branch == place.branch && (*agent == place.agent || place.agent.is_empty())
        };
        match phase {
            "model" => {
                let mut calls = self.calls.iter().rev();
                let call = calls.find(|call| {
                    is_here(&call.branch, &call.agent) && call.failed_attempt().is_some()
                })?;
                Some(call.call_id.clone().unwrap_or_else(|| call.key.clone()))
            }
            "tool" => {
                let mut tools = self.tools.iter().rev();
                let call =
                    tools.find(|call| is_here(&call.branch, &call.agent) && call.has_failed())?;
                Some(call.key.clone())
            }
            _ => None,
        }
    }

    /// The attempt that failed, as the records of the call number it.
    fn failed_attempt(&self, phase: &str, call_id: Option<&Name>) -> Option<u32> {
        let index = self
            .calls_by_id
            .get(call_id.filter(|_| phase == "model")?)?;
        self.calls[*index].failed_attempt()
    }

    /// One more than the attempts of which the handler decided so far.
    fn next_attempt(&self, phase: &Name, call: Option<&Name>, handler: Option<&Name>) -> u32 {
        let before = self.recoveries.iter().filter(|known| {
            let is_of_call = known.phase == *phase && known.call_id.as_ref() == call;
            is_of_call && known.handler.as_ref() == handler
        });
        let most = before.map(|known| known.attempt).max();
        most.unwrap_or(0).saturating_add(1)
    }

    /// A decision about the last attempt that runtimes make tells of the cap (mission.md §5), also
    /// where no record of the attempts does.
    fn note_cap(
        &mut self,
        phase: &str,
        call: Option<&Name>,
        attempt: u32,
        place: &Place,
        cx: &Context<'_>,
    ) {
        let Some(id) = call.filter(|_| attempt as usize >= RETRIES_MAX) else {
            return;
        };
        let about = match phase {
            "model" => {
                let known = self
                    .calls_by_id
                    .get(id)
                    .map(|index| &self.calls[*index].key);
                format!("model_call/{}", known.unwrap_or(id))
            }
            "tool" => format!("tool_call/{id}"),
            _ => return,
        };
        let (kind, of) = (AnomalyKind::RetryCap, (&place.branch, &place.agent));
        let seen = self.anomaly_at(kind, about, of, place.at, cx.offset);
        self.anomaly(seen);
    }
}
