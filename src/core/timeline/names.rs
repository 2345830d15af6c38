//! Shared names: an agent, a model or a tool is allocated once, however many records tell of it.

use crate::core::Name;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A bounded table of names.
#[derive(Debug)]
pub struct Names {
    known: BTreeSet<Name>,
    max: usize,
    bytes_max: usize,
    empty: Name,
    /// Names cut since this was last asked.
    cut: u64,
    /// Names not shared since this was last asked.
    unshared: u64,
    /// Names not shared since the table was last cleared of what nobody uses.
    unshared_since: usize,
}

impl Names {
    /// A table of at most `max` names of at most `bytes_max` bytes.
    pub fn new(max: usize, bytes_max: usize) -> Names {
        Names {
            known: BTreeSet::new(),
            max,
            bytes_max,
            empty: Arc::from(""),
            cut: 0,
            unshared: 0,
            unshared_since: 0,
        }
    }

    /// The shared name of `text`, cut to the limit. Beyond the table's bound it is not shared.
    pub fn name(&mut self, text: &str) -> Name {
        if text.is_empty() {
            return self.empty.clone();
        }
        let text = self.bounded(text);
        if let Some(name) = self.known.get(text) {
            return name.clone();
        }
        let name: Name = Arc::from(text);
        if self.has_room() {
            self.known.insert(name.clone());
        } else {
            self.unshared += 1;
        }
        name
    }

    /// The shared name of an optional text; the empty text is none.
    pub fn optional(&mut self, text: Option<&str>) -> Option<Name> {
        text.filter(|text| !text.is_empty())
            .map(|text| self.name(text))
    }

    /// Notes what a record says of something known: the newest word stands, and a record that says
    /// nothing takes nothing back (events.md §2.1).
    pub fn note(&mut self, known: &mut Option<Name>, told: Option<&str>) {
        if let Some(name) = self.optional(told) {
            *known = Some(name);
        }
    }

    /// An id: cut to the limit, not shared.
    pub fn id(&mut self, text: &str) -> Name {
        Arc::from(self.bounded(text))
    }

    /// The empty name.
    pub fn empty(&self) -> Name {
        self.empty.clone()
    }

    /// True where a name was cut since this was last asked.
    pub fn take_cut(&mut self) -> bool {
        std::mem::take(&mut self.cut) > 0
    }

    /// True where a name was not shared since this was last asked.
    pub fn take_unshared(&mut self) -> bool {
        std::mem::take(&mut self.unshared) > 0
    }

    /// A full table forgets the names that nobody else holds; not for each name, that would cost
    /// more than sharing saves.
    fn has_room(&mut self) -> bool {
        if self.known.len() < self.max {
            return true;
        }
        self.unshared_since += 1;
        if self.unshared_since > self.max / 2 {
            self.unshared_since = 0;
            self.known.retain(|name| Arc::strong_count(name) > 1);
        }
        self.known.len() < self.max
    }

    fn bounded<'t>(&mut self, text: &'t str) -> &'t str {
        if text.len() <= self.bytes_max {
            return text;
        }
        self.cut += 1;
        let mut end = self.bytes_max;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        &text[..end]
    }
}
