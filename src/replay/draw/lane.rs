//! What happened on each branch, by agent: the items of a lane, and the tree of lanes.
//!
//! Where something stands on paper is not decided here.

use super::ink::{Glyphs, Ink, clean, count, duration};
use crate::core::event::{DecisionWord, ServedBy};
use crate::core::fact::{
    AnomalyFact, CallStatus, Fact, FactBody, GuardrailFact, LocalAnswerFact, ModelCallFact,
    RecoveryFact, ToolCallFact, ToolStatus,
};
use crate::core::{EventTime, Name};
use crate::replay::cost::PriceCall;
use crate::replay::fold::{self, ToolRow};
use std::collections::BTreeMap;

/// How an item is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A model call whose latency is known.
    Model {
        from: EventTime,
        first_chunk: Option<EventTime>,
        to: EventTime,
    },
    Tool {
        from: EventTime,
        to: EventTime,
    },
    /// Waiting for a person or a long-running tool.
    Wait {
        from: EventTime,
        to: EventTime,
    },
    /// Something at an instant, or whose duration is unknown.
    Point {
        at: EventTime,
        glyph: char,
        ink: Ink,
    },
    /// No time is known.
    Nowhere,
}

/// One call, verdict, answer or anomaly.
#[derive(Clone, Debug)]
pub struct Item {
    pub shape: Shape,
    pub label: String,
    /// Short words beside the bar, most telling first.
    pub notes: Vec<(Ink, String)>,
}

impl Item {
    /// When it begins.
    pub fn at(&self) -> Option<EventTime> {
        match self.shape {
            Shape::Model { from, .. } | Shape::Tool { from, .. } | Shape::Wait { from, .. } => {
                Some(from)
            }
            Shape::Point { at, .. } => Some(at),
            Shape::Nowhere => None,
        }
    }
}

/// One agent on one branch; inner nodes of the tree may have nothing but a name.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    pub name: String,
    /// How deep in the tree, from 0.
    pub depth: usize,
    /// True where no sibling follows, by depth from 1 to the lane's own.
    pub is_last: Vec<bool>,
    /// When the agent or branch was there at all.
    pub present: Vec<(EventTime, EventTime)>,
    pub items: Vec<Item>,
}

#[derive(Default)]
struct Node {
    lane: Lane,
    begun: Option<EventTime>,
    below: BTreeMap<String, Node>,
}

/// The lanes of one invocation, each parent before its children, siblings by their beginning.
pub fn lanes(facts: &[&Fact], price: &PriceCall, glyphs: &Glyphs) -> Vec<Lane> {
    let mut root = Node::default();
    for fact in facts {
        match &fact.body {
            FactBody::Branch(f) if !f.branch.is_empty() => {
                root.at(&f.branch, "").stay(f.forked_at, f.joined_at);
            }
            FactBody::AgentRun(f) => {
                root.at(&f.branch, &f.agent).stay(f.started_at, f.ended_at);
            }
            FactBody::ModelCall(f) => {
                root.at(&f.branch, &f.agent)
                    .add(model_item(f, price, glyphs));
            }
            FactBody::LocalAnswer(f) => {
                root.at(&f.branch, &f.agent).add(answer_item(f, glyphs));
            }
            FactBody::GuardrailDecision(f) => {
                root.at(&f.branch, &f.agent).add(verdict_item(f, glyphs));
            }
            FactBody::RecoveryDecision(f) => {
                root.at(&f.branch, &f.agent).add(recovery_item(f, glyphs));
            }
            FactBody::Branch(_)
            | FactBody::Invocation(_)
            | FactBody::ToolCall(_)
            | FactBody::Anomaly(_) => {}
        }
    }
    // At one instant: the model call, what was decided, the tool that it asked for, what was wrong.
    for tool in fold::tools(facts.iter().copied()) {
        let item = tool_item(&tool, glyphs);
        root.at(&tool.call.branch, &tool.call.agent).add(item);
    }
    for fact in facts {
        if let FactBody::Anomaly(f) = &fact.body {
            root.at(&f.branch, &f.agent).add(anomaly_item(f, glyphs));
        }
    }
    let mut lanes = Vec::new();
    root.settle();
    if !root.lane.items.is_empty() {
        lanes.push(std::mem::take(&mut root.lane));
    }
    root.flatten(&mut Vec::new(), &mut lanes);
    lanes
}

impl Node {
    /// The node of an agent on a branch: the branch's path, and the agent where it is not the
    /// branch's own.
    fn at(&mut self, branch: &str, agent: &str) -> &mut Node {
        let mut path: Vec<&str> = branch.split('.').filter(|part| !part.is_empty()).collect();
        if !agent.is_empty() && path.last() != Some(&agent) {
            path.push(agent);
        }
        path.into_iter().fold(self, |node, name| {
            let below = node.below.entry(name.to_owned()).or_default();
            below.lane.name = clean(name);
            below
        })
    }

    fn add(&mut self, item: Item) {
        self.lane.items.push(item);
    }

    fn stay(&mut self, from: Option<EventTime>, to: Option<EventTime>) {
        if let (Some(from), Some(to)) = (from, to) {
            self.lane.present.push((from, to));
        }
        self.begun = self.begun.or(from).min(from.or(self.begun));
    }

    /// Sorts items and finds when each subtree begins.
    fn settle(&mut self) {
        let by_time = |item: &Item| item.at().unwrap_or(EventTime(i64::MAX));
        self.lane.items.sort_by_key(by_time);
        let first = self.lane.items.first().and_then(Item::at);
        self.below.values_mut().for_each(Node::settle);
        let below = self.below.values().filter_map(|node| node.begun);
        self.begun = self.begun.into_iter().chain(first).chain(below).min();
    }

    fn flatten(self, is_last: &mut Vec<bool>, lanes: &mut Vec<Lane>) {
        let mut below: Vec<Node> = self.below.into_values().collect();
        below.sort_by_key(|node| node.begun.unwrap_or(EventTime(i64::MAX)));
        let count = below.len();
        for (i, mut node) in below.into_iter().enumerate() {
            is_last.push(i + 1 == count);
            let mut lane = std::mem::take(&mut node.lane);
            lane.depth = is_last.len() - 1;
            lane.is_last = is_last[1..].to_vec();
            lanes.push(lane);
            node.flatten(is_last, lanes);
            is_last.pop();
        }
    }
}

fn name_or(name: Option<&Name>, otherwise: &str) -> String {
    name.map_or_else(|| otherwise.to_owned(), |name| clean(name))
}

fn model_item(f: &ModelCallFact, price: &PriceCall, glyphs: &Glyphs) -> Item {
    let shape = match (f.started_at, f.completion) {
        (Some(from), Some(took)) if took.0 >= 0 => Shape::Model {
            from,
            first_chunk: f.ttfc.map(|ttfc| EventTime(from.0.saturating_add(ttfc.0))),
            to: EventTime(from.0.saturating_add(took.0)),
        },
        _ => Shape::Point {
            at: f.ended_at.or(f.first_chunk_at).unwrap_or(f.billed_at),
            glyph: glyphs.point,
            ink: Ink::Model,
        },
    };
    let usage = &f.usage;
    let (input, output) = (count(usage.input_total), count(usage.output_total));
    let tokens = format!("{input}/{output}");
    let has_tokens = usage.input_total.is_some() && usage.output_total.is_some();
    let mut notes = vec![
        (if has_tokens { Ink::Plain } else { Ink::Warn }, tokens),
        (Ink::Dim, latency(f)),
    ];
    if f.status != CallStatus::Ok {
        let code = f.error_code.as_ref().or(f.finish_reason_raw.as_ref());
        let words = f.status.as_str().to_owned();
        let words = code.map_or(words.clone(), |code| format!("{words} {}", clean(code)));
        notes.push((Ink::Bad, words));
    }
    if f.attempts > 1 {
        notes.push((Ink::Warn, format!("{} attempts", f.attempts)));
    }
    if f.served_by == ServedBy::Unknown {
        notes.push((Ink::Warn, "served by ?".to_owned()));
    }
    if let Some(usd) = price(f).cost_usd {
        notes.push((Ink::Dim, format!("${usd}")));
    }
    Item {
        shape,
        label: name_or(f.model.as_ref(), "model ?"),
        notes,
    }
}

/// First chunk and whole call; the first chunk only of a call that may have streamed.
fn latency(f: &ModelCallFact) -> String {
    match (f.ttfc, f.completion, f.streaming) {
        (None, None, _) => "time ?".to_owned(),
        (None, whole, Some(false)) => duration(whole),
        (None, whole, None) => duration(whole),
        (first, whole, _) => format!("{} / {}", duration(first), duration(whole)),
    }
}

fn tool_item(row: &ToolRow<'_>, glyphs: &Glyphs) -> Item {
    let f: &ToolCallFact = &row.call;
    let point = |at| Shape::Point {
        at,
        glyph: glyphs.tool_point,
        ink: Ink::Tool,
    };
    let shape = match (f.started_at, f.ended_at, f.duration) {
        (Some(from), _, Some(took)) if took.0 >= 0 => Shape::Tool {
            from,
            to: EventTime(from.0.saturating_add(took.0)),
        },
        (None, Some(to), Some(took)) if took.0 >= 0 => Shape::Tool {
            from: EventTime(to.0.saturating_sub(took.0)),
            to,
        },
        (Some(from), Some(to), _) if f.wait.is_some() && to >= from => Shape::Wait { from, to },
        (from, to, _) => from.or(to).map_or(Shape::Nowhere, point),
    };
    let ink = match f.status {
        ToolStatus::Ok => Ink::Good,
        ToolStatus::Error | ToolStatus::Timeout => Ink::Bad,
        _ => Ink::Warn,
    };
    let mut notes = vec![(ink, f.status.as_str().to_owned())];
    notes.push(match (f.wait, f.duration) {
        (Some(wait), None) => (Ink::Dim, format!("waited {}", duration(Some(wait)))),
        (_, Some(took)) => (Ink::Dim, duration(Some(took))),
        (None, None) => (Ink::Dim, "time ?".to_owned()),
    });
    if let Some(code) = &f.error_code {
        notes.push((Ink::Bad, clean(code)));
    }
    if f.execution > 1 {
        notes.push((Ink::Warn, format!("execution {}", f.execution)));
    }
    Item {
        shape,
        label: format!("{}()", clean(&f.tool)),
        notes,
    }
}

fn point(at: Option<EventTime>, glyph: char, ink: Ink) -> Shape {
    at.map_or(Shape::Nowhere, |at| Shape::Point { at, glyph, ink })
}

fn verdict_item(f: &GuardrailFact, glyphs: &Glyphs) -> Item {
    let ink = match f.decision {
        Some(DecisionWord::Deny) => Ink::Bad,
        Some(DecisionWord::Allow) => Ink::Good,
        Some(DecisionWord::Modify | DecisionWord::Warn | DecisionWord::Escalate) => Ink::Verdict,
        None => Ink::Warn,
    };
    let decision = f.decision.map_or("?", DecisionWord::as_str);
    let who = f.policy.as_ref().or(f.actor_name.as_ref());
    let who = who.or(f.actor_type.as_ref());
    let mut notes = vec![(ink, f.stage.as_str().to_owned())];
    if f.decision == Some(DecisionWord::Deny) {
        notes.push(match f.enforced {
            Some(true) => (Ink::Good, "enforced".to_owned()),
            Some(false) => (Ink::Bad, "NOT enforced".to_owned()),
            None => (Ink::Warn, "enforced ?".to_owned()),
        });
    }
    if f.mode.as_deref() == Some("monitor") {
        notes.push((Ink::Dim, "monitor".to_owned()));
    }
    if let Some(outcome) = f.outcome.as_deref().filter(|word| *word != "decided") {
        notes.push((Ink::Bad, clean(outcome)));
    }
    if let Some(code) = &f.reason_code {
        notes.push((Ink::Dim, clean(code)));
    }
    Item {
        shape: point(f.decided_at, glyphs.verdict, ink),
        label: format!("{decision} {}", name_or(who, ""))
            .trim_end()
            .to_owned(),
        notes,
    }
}

fn answer_item(f: &LocalAnswerFact, glyphs: &Glyphs) -> Item {
    let mut notes = vec![(Ink::Verdict, "no model call".to_owned())];
    if let Some(hook) = &f.hook {
        notes.push((Ink::Dim, clean(hook)));
    }
    if f.replayed.total.is_some() {
        let (input, output) = (f.replayed.input_total, f.replayed.output_total);
        notes.push((
            Ink::Dim,
            format!("repeats {}/{}", count(input), count(output)),
        ));
    }
    let who = name_or(f.actor_name.as_ref(), "");
    Item {
        shape: point(f.answered_at, glyphs.answer, Ink::Verdict),
        label: format!("{} {who}", f.served_by.as_str())
            .trim_end()
            .to_owned(),
        notes,
    }
}

fn recovery_item(f: &RecoveryFact, glyphs: &Glyphs) -> Item {
    let mut notes = vec![(
        Ink::Warn,
        format!("{} attempt {}", clean(&f.phase), f.attempt),
    )];
    if let Some(code) = &f.error_code {
        notes.push((Ink::Bad, clean(code)));
    }
    let handler = name_or(f.handler.as_ref(), "");
    Item {
        shape: point(f.decided_at, glyphs.recovery, Ink::Warn),
        label: format!("{} {handler}", clean(&f.action))
            .trim_end()
            .to_owned(),
        notes,
    }
}

fn anomaly_item(f: &AnomalyFact, glyphs: &Glyphs) -> Item {
    let mut notes = vec![(Ink::Dim, clean(&f.about))];
    if let Some(n) = f.count {
        notes.insert(0, (Ink::Bad, count(Some(n))));
    }
    if let Some(detail) = &f.detail {
        notes.push((Ink::Dim, clean(detail)));
    }
    Item {
        shape: point(f.at, glyphs.anomaly, Ink::Bad),
        label: f.kind.as_str().to_owned(),
        notes,
    }
}
