//! How a record that came before is known again (rules.md §1).

use crate::core::event::{EventKind, NativeEvent, RuntimeEvent};
use ahash::AHasher;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// The hashes by which one record is known; any of them already seen means that it came before.
#[derive(Debug, Default)]
pub struct Keys {
    hashes: [u64; 4],
    count: usize,
}

impl Keys {
    /// True where one of the hashes was seen.
    pub fn are_in(&self, seen: &BTreeSet<u64>) -> bool {
        self.known().any(|key| seen.contains(key))
    }

    /// Remembers the record.
    pub fn remember(&self, seen: &mut BTreeSet<u64>) {
        seen.extend(self.known());
    }

    fn known(&self) -> impl Iterator<Item = &u64> {
        self.hashes.iter().take(self.count)
    }

    fn add(&mut self, hash: u64) {
        self.hashes[self.count] = hash;
        self.count += 1;
    }
}

fn hash(parts: impl Hash) -> u64 {
    let mut hasher = AHasher::default();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// The same `record_id` or `seq` of one emitter instance; of native events the same id and body,
/// or, non-partial ones only, the same author, time and body under another id. The time is the
/// event's own, however implausible: the clock that stands in for it differs between deliveries,
/// and is one for all events of a batch. An unknown time is equal to none.
pub fn keys(event: &RuntimeEvent<'_>) -> Keys {
    let mut keys = Keys::default();
    let instance = event.emitter_instance.as_deref().unwrap_or("");
    if let Some(id) = event.record_id.as_deref() {
        keys.add(hash(("record", instance, id)));
    }
    if let Some(seq) = event.seq
        && !instance.is_empty()
    {
        keys.add(hash(("seq", instance, seq)));
    }
    if let EventKind::Native(native) = &event.kind {
        let body = body(native, event);
        if let Some(id) = native.id.as_deref() {
            keys.add(hash(("id", id, native.partial == Some(true), body)));
        }
        if native.partial != Some(true) && event.at.is_some() {
            keys.add(hash(("body", body)));
        }
    }
    keys
}

fn body(native: &NativeEvent<'_>, event: &RuntimeEvent<'_>) -> u64 {
    let author = native.author.as_deref().unwrap_or("");
    let calls: Vec<(&str, u64)> = native
        .function_calls
        .iter()
        .map(|call| (&*call.name, call.args_hash))
        .collect();
    hash((
        (&*event.branch, &*event.node_path, author, event.at),
        (
            native.content_hash,
            &native.usage,
            native.error_code.as_deref(),
        ),
        (
            native.finish_reason.as_deref(),
            calls,
            native.function_responses.len(),
        ),
        (
            native.actions.transfer_to_agent.as_deref(),
            native.actions.escalate,
        ),
    ))
}
