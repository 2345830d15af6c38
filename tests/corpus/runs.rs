//! Branches, hand-overs and runs against their truth.

use crate::compare::Comparison;
use serde_json::Value;
use std::collections::BTreeSet;
use tachograph::core::fact::{Fact, FactBody, InvocationFact, Status};

impl Comparison {
    pub fn branches(&mut self, truth: &Value, facts: &[Fact]) {
        let told = truth["branches"].as_array().unwrap();
        let want: BTreeSet<&str> = told.iter().filter_map(Value::as_str).collect();
        let (mut named, mut known) = (BTreeSet::new(), BTreeSet::new());
        for fact in facts {
            if let FactBody::Branch(branch) = &fact.body {
                known.insert(&*branch.branch);
                // Of a prefix that no record names the runtime may know nothing; the root always is.
                if branch.records > 0 && !branch.branch.is_empty() {
                    named.insert(&*branch.branch);
                }
            }
        }
        let untold: Vec<&&str> = want.difference(&known).collect();
        self.holds(untold.is_empty(), || {
            format!("branches not told: {untold:?}")
        });
        let strangers: Vec<&&str> = named.difference(&want).collect();
        self.holds(strangers.is_empty(), || {
            format!("branches that never were: {strangers:?}")
        });
    }

    pub fn transfers(&mut self, truth: &Value, facts: &[Fact]) {
        let Some(transfers) = truth["transfers"].as_array() else {
            return;
        };
        let hand_overs = |fact: &Fact| match &fact.body {
            FactBody::AgentRun(run) => {
                let to = run.handoff_to.as_deref()?;
                Some((run.agent.to_string(), to.to_owned()))
            }
            _ => None,
        };
        let got: BTreeSet<(String, String)> = facts.iter().filter_map(hand_overs).collect();
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let pairs = transfers.iter().map(|t| (word(&t["from"]), word(&t["to"])));
        self.equal("transfers", got, pairs.collect());
    }

    pub fn invocations(&mut self, truth: &Value, facts: &[Fact]) {
        for want in truth["invocations"].as_array().into_iter().flatten() {
            let name = format!("run {}", want["n"]);
            let Some(id) = self.invocation_id(&want["n"]) else {
                continue;
            };
            let mut segments: Vec<(&Fact, &InvocationFact)> = facts
                .iter()
                .filter(|fact| *fact.invocation_id == *id)
                .filter_map(|fact| match &fact.body {
                    FactBody::Invocation(segment) => Some((fact, &**segment)),
                    _ => None,
                })
                .collect();
            segments.sort_by_key(|(_, segment)| segment.started_at);
            self.holds(!segments.is_empty(), || format!("{name}: not told"));
            if segments.is_empty() {
                continue;
            }
            self.end(&name, &segments, want, truth);
            if !self.is_native {
                self.run(&name, &segments, want);
            }
        }
        let got: BTreeSet<&str> = facts.iter().map(|fact| &*fact.invocation_id).collect();
        match self.ids() {
            Some(ids) => {
                let is_known = |id: &&str| ids.iter().any(|known| known == id);
                let strangers = got.into_iter().filter(|id| !is_known(id)).count();
                self.equal("invocations that never were", strangers, 0);
            }
            None => {
                let want = truth["invocation_count"].as_u64().unwrap();
                self.equal("invocations", got.len() as u64, want);
                self.end_hook(truth, facts);
            }
        }
    }

    /// What the records around a run say of it.
    fn run(&mut self, name: &str, segments: &[(&Fact, &InvocationFact)], want: &Value) {
        let (fact, first) = segments[0];
        let runs = want["runs"].as_u64().unwrap_or(1);
        self.equal(&format!("{name}: segments"), segments.len() as u64, runs);
        let root = want["root_agent"].as_str();
        let what = format!("{name}: root agent");
        self.equal(&what, first.root_agent.as_deref(), root);
        let parent = self.invocation_id(&want["parent_invocation"]);
        let parent = parent.map(str::to_owned);
        let link = first.parent.as_ref();
        let link = link.and_then(|parent| parent.invocation_id.as_deref());
        self.equal(&format!("{name}: parent"), link.map(str::to_owned), parent);
        if let Some(session) = want["session_id"].as_str().filter(|s| !s.starts_with('<')) {
            let what = format!("{name}: session");
            self.equal(&what, fact.session_id.as_deref(), Some(session));
        }
        if let Some(app) = want["app_name"].as_str() {
            self.equal(&format!("{name}: app"), &*fact.app, app);
        }
        let (_, last) = segments[segments.len() - 1];
        if let Some(limit) = want["limit"].as_str() {
            self.equal(
                &format!("{name}: limit"),
                last.limit.as_deref(),
                Some(limit),
            );
        }
        if let Some(error) = want["error_type"].as_str() {
            // A record with a code of the provider tells that instead.
            let said = last.error_code.as_deref();
            let is_code = said.is_some_and(|said| said.parse::<u32>().is_ok());
            let what = || format!("{name}: error {said:?}, truly {error}");
            self.holds(is_code || said == Some(error), what);
        }
    }

    /// Native events have no end record: there a run stays open, or waits.
    fn end(
        &mut self,
        name: &str,
        segments: &[(&Fact, &InvocationFact)],
        want: &Value,
        truth: &Value,
    ) {
        let (_, last) = segments[segments.len() - 1];
        let ended = want["ended"].as_str().unwrap();
        let pauses = truth["tool_calls"].as_array().unwrap().iter().any(|tool| {
            let outcome = tool["outcome"].as_str().unwrap();
            outcome.starts_with("pending") || outcome.starts_with("confirmation")
        });
        let mut right = match ended {
            "completed" => vec![Status::Completed],
            "error" => vec![Status::Error, Status::Limited],
            "intercepted" => vec![Status::Intercepted],
            _ => vec![Status::Cancelled],
        };
        if pauses && ended == "completed" {
            right.push(Status::Waiting);
        }
        if self.is_native {
            right = vec![Status::Open, Status::Waiting];
        } else if want["end_hook"].is_null() {
            // No hook told the end: open until silence closes it.
            right = vec![Status::Open];
        }
        self.holds(right.contains(&last.status), || {
            format!("{name}: {ended}, told as {}", last.status.as_str())
        });
    }

    /// Where the truth says of the end only whether a hook told it.
    fn end_hook(&mut self, truth: &Value, facts: &[Fact]) {
        let is_ended = !self.is_native && truth["ends_by_hook"] == true;
        for fact in facts {
            if let FactBody::Invocation(segment) = &fact.body {
                let is_open = matches!(segment.status, Status::Open | Status::Waiting);
                let is_right = is_ended != is_open || segment.status == Status::Waiting;
                let status = segment.status.as_str();
                self.holds(is_right, || {
                    format!("run: ended {is_ended}, told as {status}")
                });
            }
        }
    }
}
