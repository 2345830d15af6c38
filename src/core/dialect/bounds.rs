//! The bounds of what one event may carry: the length of its ids, the number of its parts.
//!
//! Ids are cut before anything looks for them, so that what was cut is found again.

use crate::core::event::{EventKind, NativeEvent, RuntimeEvent, Str};

/// Calls, answers and requests of one native event; no model asks for so many at once.
const PARTS_MAX: usize = 1_000;

/// Cuts what is longer or more than the limits say, and notes it in the event.
pub(super) fn bound(event: &mut RuntimeEvent<'_>, id_bytes_max: usize) {
    let mut is_cut = false;
    let mut cut = |text: &mut Str<'_>| is_cut |= shorten(text, id_bytes_max);
    let ids = [
        &mut event.emitter_instance,
        &mut event.app,
        &mut event.tenant,
        &mut event.session_id,
        &mut event.invocation_id,
        &mut event.run_id,
    ];
    ids.into_iter().flatten().for_each(&mut cut);
    let call_id = match &mut event.kind {
        EventKind::ModelStart(said) => &mut said.call_id,
        EventKind::ModelChunk(said) => &mut said.call_id,
        EventKind::ModelEnd(said) => &mut said.call_id,
        EventKind::ModelError(said) => &mut said.call_id,
        EventKind::ToolStart(said) => &mut said.call_id,
        EventKind::ToolEnd(said) => {
            if let Some((invocation, call)) = &mut said.answers {
                cut(invocation);
                cut(call);
            }
            &mut said.call_id
        }
        EventKind::GuardrailDecision(said) => &mut said.target_call_id,
        EventKind::RecoveryDecision(said) => &mut said.call_id,
        EventKind::HookOutcome(said) => &mut said.call_id,
        EventKind::Native(native) => {
            event.reached.parts |= few(native);
            ids_of(native).for_each(&mut cut);
            &mut None
        }
        _ => &mut None,
    };
    call_id.iter_mut().for_each(&mut cut);
    event.reached.ids |= is_cut;
}

/// Forgets the parts beyond the bound; true where there were any.
fn few(native: &mut NativeEvent<'_>) -> bool {
    fn few<T>(parts: &mut Vec<T>) -> bool {
        let is_over = parts.len() > PARTS_MAX;
        parts.truncate(PARTS_MAX);
        is_over
    }
    few(&mut native.function_calls)
        | few(&mut native.function_responses)
        | few(&mut native.long_running_tool_ids)
        | few(&mut native.actions.requested_confirmations)
        | few(&mut native.actions.security_states)
}

/// The ids by which tool calls of a native event are found.
fn ids_of<'e, 'p>(native: &'e mut NativeEvent<'p>) -> impl Iterator<Item = &'e mut Str<'p>> {
    let calls = native.function_calls.iter_mut();
    let answers = native.function_responses.iter_mut();
    let asked = calls.flat_map(|call| {
        let confirmed = call.confirms.as_mut().map(|(id, _)| id);
        call.id.as_mut().into_iter().chain(confirmed)
    });
    let states = native.actions.security_states.iter_mut();
    asked
        .chain(answers.filter_map(|answer| answer.id.as_mut()))
        .chain(&mut native.long_running_tool_ids)
        .chain(&mut native.actions.requested_confirmations)
        .chain(states.map(|(id, _)| id))
}

/// Keeps the beginning that fits, cut between characters; true where something was cut.
pub(super) fn shorten(text: &mut Str<'_>, bytes_max: usize) -> bool {
    if text.len() <= bytes_max {
        return false;
    }
    let end = text.floor_char_boundary(bytes_max);
    match text {
        Str::Borrowed(text) => *text = &text[..end],
        Str::Owned(text) => text.truncate(end),
    }
    true
}
