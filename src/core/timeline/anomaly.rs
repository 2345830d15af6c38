//! Anomalies of a segment: one of a kind about each thing, however often it was seen.

use super::invocation::{Item, Segment};
use super::row::RowState;
use super::stamp::Stamp;
use crate::core::fact::AnomalyKind;
use crate::core::{Name, Offset};

/// Something that should not be.
#[derive(Clone, Debug)]
pub struct AnomalySeen {
    pub row: RowState,
    pub kind: AnomalyKind,
    pub about: Name,
    pub branch: Name,
    pub agent: Name,
    pub at: Option<Stamp>,
    pub count: Option<u64>,
    pub detail: Option<Name>,
    pub is_counted: bool,
}

impl Segment {
    /// Notes an anomaly about one thing; one of a kind per thing.
    pub fn anomaly(&mut self, seen: AnomalySeen) {
        let key = (seen.kind, seen.about.clone());
        match self.anomalies_by_about.get(&key).copied() {
            Some(index) => {
                let known = &mut self.anomalies[index];
                known.row.speak(seen.row.last);
                known.count = match (known.count, seen.count) {
                    (Some(a), Some(b)) => Some(a.saturating_add(b)),
                    (a, b) => a.or(b),
                };
            }
            None if self.anomalies.len() >= self.rows_max
                && seen.kind != AnomalyKind::LimitReached =>
            {
                self.is_full = true;
            }
            None => {
                self.anomalies_by_about.insert(key, self.anomalies.len());
                self.anomalies.push(seen);
                self.touch(Item::Anomaly(self.anomalies.len() - 1));
            }
        }
    }

    /// Ends without a start, once no start can come any more: a call that no event and no declared
    /// start explains.
    pub fn find_orphans(&mut self) {
        let mut found = Vec::new();
        for call in &self.calls {
            let lacks_start = call.attempts.iter().all(|a| a.request().is_none());
            let is_told = call.has_lifecycle && !call.attempts.is_empty();
            if is_told && lacks_start && call.native.is_none() {
                let about = format!("model_call/{}", call.key);
                found.push((
                    about,
                    call.branch.clone(),
                    call.agent.clone(),
                    call.last_seen,
                ));
            }
        }
        for tool in &self.tools {
            if let Some(end) = tool.end.as_ref().filter(|end| !end.is_not_found)
                && tool.started_at().is_none()
            {
                let about = format!("tool_call/{}", tool.key);
                found.push((about, tool.branch.clone(), tool.agent.clone(), end.at));
            }
        }
        for (about, branch, agent, at) in found {
            let (kind, offset) = (AnomalyKind::OrphanEnd, self.row.last);
            let seen = self.anomaly_at(kind, about, (&branch, &agent), at, offset);
            self.anomaly(seen);
        }
    }

    /// A new anomaly with the least that it needs.
    pub fn anomaly_at(
        &self,
        kind: AnomalyKind,
        about: String,
        place: (&Name, &Name),
        at: Stamp,
        offset: Offset,
    ) -> AnomalySeen {
        let mut row = RowState::new(offset);
        row.speak(offset);
        AnomalySeen {
            row,
            kind,
            about: Name::from(about),
            branch: place.0.clone(),
            agent: place.1.clone(),
            at: Some(at),
            count: None,
            detail: None,
            is_counted: false,
        }
    }
}
