//! The figures of one recording against its truth. Each difference is one sentence.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tachograph::core::event::ServedBy;
use tachograph::core::fact::{
    CallStatus, Executed, Fact, FactBody, InvocationFact, ModelCallFact, Status, ToolCallFact,
    ToolStatus,
};
use tachograph::core::usage::UsageState;

/// Scheduling delay that the recordings' READMEs allow, ms.
const LATENCY_MS: std::ops::RangeInclusive<f64> = -2.0..=45.0;

pub struct Comparison {
    pub figures: u32,
    pub differences: Vec<String>,
    ids: Vec<String>,
    is_native: bool,
}

impl Comparison {
    pub fn of(truth: &Value, facts: &[Fact], stream: &str) -> Comparison {
        let lookup = &truth["from_the_recording_for_lookup"];
        let ids = lookup["invocation_ids_in_order_of_appearance"]
            .as_array()
            .unwrap();
        let ids = ids
            .iter()
            .map(|id| id.as_str().unwrap().to_owned())
            .collect();
        let mut this = Comparison {
            figures: 0,
            differences: Vec::new(),
            ids,
            is_native: stream == "native",
        };
        this.model_calls(truth, facts);
        this.tool_calls(truth, facts);
        this.branches(truth, facts);
        this.invocations(truth, facts);
        this
    }

    fn equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, got: T, want: T) {
        self.figures += 1;
        if got != want {
            self.differences
                .push(format!("{what}: {got:?}, truly {want:?}"));
        }
    }

    fn invocation_id(&self, number: &Value) -> Option<String> {
        let number = number.as_u64()? as usize;
        self.ids.get(number - 1).cloned()
    }

    fn model_calls(&mut self, truth: &Value, facts: &[Fact]) {
        let mut pool: Vec<(&Fact, &ModelCallFact)> = facts
            .iter()
            .filter_map(|fact| match &fact.body {
                FactBody::ModelCall(call) if call.served_by == ServedBy::Model => {
                    Some((fact, &**call))
                }
                _ => None,
            })
            .collect();
        pool.sort_by_key(|(fact, call)| (call.started_at, fact.first.offset));
        let wanted = truth["model_calls"].as_array().unwrap();
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        // A sum over calls of which some are not told is compared call by call only.
        let mut is_complete = true;
        for (number, want) in wanted.iter().enumerate() {
            let agent = want["agent"]
                .as_str()
                .or(want["made_by"].as_str())
                .unwrap_or("");
            let name = format!("call {} of {agent}", number + 1);
            let branch = want["branch"].as_str().unwrap_or("");
            let invocation = self.invocation_id(&want["invocation"]);
            let fits = |(fact, call): &(&Fact, &ModelCallFact)| {
                *call.agent == *agent
                    && *call.branch == *branch
                    && Some(fact.invocation_id.to_string()) == invocation
            };
            let spent = |(_, call): &(&Fact, &ModelCallFact)| {
                call.usage.input_total == want["billed"]["input"].as_u64()
            };
            let equal = pool
                .iter()
                .position(|candidate| fits(candidate) && spent(candidate));
            let others_are_wanted = wanted[number + 1..].iter().any(|other| {
                other["agent"] == want["agent"] && other["invocation"] == want["invocation"]
            });
            let any = pool.iter().position(fits).filter(|_| !others_are_wanted);
            self.figures += 1;
            let Some(found) = equal.or(any) else {
                self.differences.push(format!("{name}: not told"));
                is_complete = false;
                continue;
            };
            let (_, call) = pool.remove(found);
            is_complete &= call.usage.total.is_some() || want["billed"].is_null();
            self.usage(&name, call, &want["billed"], &mut sums);
            self.status(&name, call, want, truth);
            self.latency(&name, call, want);
        }
        for (_, call) in pool {
            self.differences
                .push(format!("a call of {} that never was", call.agent));
        }
        for (class, want) in truth["tokens_billed"].as_object().unwrap() {
            if let Some(got) = sums.get(&**class).filter(|_| is_complete) {
                self.equal(&format!("tokens {class}"), *got, want.as_u64().unwrap());
            }
        }
    }

    fn usage<'t>(
        &mut self,
        name: &str,
        call: &ModelCallFact,
        billed: &Value,
        sums: &mut BTreeMap<&'t str, u64>,
    ) {
        let usage = &call.usage;
        if billed.is_null() {
            self.equal(&format!("{name}: usage"), usage.state, UsageState::Missing);
            self.equal(&format!("{name}: input"), usage.input_total, None);
            return;
        }
        let classes: [(&'t str, Option<u64>); 7] = [
            ("input", usage.input_total),
            ("output", usage.output_total),
            ("thoughts", usage.reasoning),
            ("cached", usage.cache_read),
            ("tool_use", usage.tool_use_input),
            ("cache_creation", usage.cache_write),
            ("total", usage.total),
        ];
        for (class, got) in classes {
            let want = billed[class].as_u64().unwrap();
            let is_part = !matches!(class, "input" | "output" | "total");
            // A part that nobody told is unknown, and the truth writes 0 for it.
            let got = if is_part && want == 0 {
                Some(got.unwrap_or(0))
            } else {
                got
            };
            self.equal(&format!("{name}: {class}"), got, Some(want));
            *sums.entry(class).or_insert(0) += got.unwrap_or(0);
        }
    }

    fn status(&mut self, name: &str, call: &ModelCallFact, want: &Value, truth: &Value) {
        let refusals = truth["guardrail_verdicts"].as_array().unwrap();
        let is_refused = refusals.iter().any(|verdict| {
            verdict["decider"] == "model_provider" && verdict["invocation"] == want["invocation"]
        });
        let has_end = !self.is_native && truth["invocations"][0]["end_hook"].is_string();
        let want = match want["outcome"].as_str().unwrap() {
            "error" => CallStatus::Error,
            // Nothing tells that the caller left: the call never ended.
            "cancelled" | "abandoned" if !has_end => CallStatus::Incomplete,
            "cancelled" | "abandoned" => CallStatus::Cancelled,
            "blocked" => CallStatus::Blocked,
            "hanging" => CallStatus::Incomplete,
            // The provider answered, by refusing (rules.md §6).
            _ if is_refused => CallStatus::Blocked,
            _ => CallStatus::Ok,
        };
        self.equal(&format!("{name}: status"), call.status, want);
    }

    fn latency(&mut self, name: &str, call: &ModelCallFact, want: &Value) {
        if self.is_native {
            self.equal(&format!("{name}: first chunk"), call.ttfc, None);
            self.equal(&format!("{name}: completion"), call.completion, None);
            return;
        }
        let measured = &want["as_the_first_plugin_measures"];
        let truth = if measured.is_object() { measured } else { want };
        let is_streamed = want["streamed"].as_bool().unwrap();
        let first = truth["first_chunk_ms"].as_f64().filter(|_| is_streamed);
        self.near(
            &format!("{name}: first chunk"),
            call.ttfc.map(|n| n.0),
            first,
        );
        let has_end = call.status != CallStatus::Cancelled;
        let completion = truth["completion_ms"].as_f64().filter(|_| has_end);
        self.near(
            &format!("{name}: completion"),
            call.completion.map(|n| n.0),
            completion,
        );
    }

    fn near(&mut self, what: &str, got: Option<i64>, want_ms: Option<f64>) {
        self.figures += 1;
        let got_ms = got.map(|nanos| nanos as f64 / 1e6);
        let is_near = match (got_ms, want_ms) {
            (Some(got), Some(want)) => LATENCY_MS.contains(&(got - want)),
            // What the script does not say is free.
            (_, None) => true,
            (None, Some(_)) => false,
        };
        if !is_near {
            let got = got_ms.map_or("unknown".to_owned(), |ms| format!("{ms:.0} ms"));
            let want = want_ms.unwrap_or_default();
            self.differences
                .push(format!("{what}: {got}, truly {want} ms"));
        }
    }

    fn tool_calls(&mut self, truth: &Value, facts: &[Fact]) {
        let mut pool: Vec<(&Fact, &ToolCallFact)> = facts
            .iter()
            .filter_map(|fact| match &fact.body {
                FactBody::ToolCall(call) => Some((fact, &**call)),
                _ => None,
            })
            .collect();
        pool.sort_by_key(|(fact, call)| (fact.first.offset, call.execution));
        for (number, want) in truth["tool_calls"].as_array().unwrap().iter().enumerate() {
            let tool = want["tool"].as_str().unwrap();
            let name = format!("tool {} {tool}", number + 1);
            let invocation = self.invocation_id(&want["invocation"]);
            let id = want["function_call_id"].as_str();
            let found = pool.iter().position(|(fact, call)| {
                *call.tool == *tool
                    && Some(fact.invocation_id.to_string()) == invocation
                    && id.is_none_or(|id| call.call_id.as_deref() == Some(id))
            });
            self.figures += 1;
            let Some(found) = found else {
                self.differences.push(format!("{name}: not told"));
                continue;
            };
            let (_, call) = pool.remove(found);
            let outcome = want["outcome"].as_str().unwrap();
            if outcome == "pending_then_answered_by_user" {
                // The answer is another row where it came in another segment; view and report join them.
                pool.retain(|(_, other)| other.call_id != call.call_id);
            }
            self.tool(&name, call, outcome, want);
        }
        for (_, call) in pool {
            self.differences
                .push(format!("a call of tool {} that never was", call.tool));
        }
    }

    fn tool(&mut self, name: &str, call: &ToolCallFact, outcome: &str, want: &Value) {
        let fits: &[ToolStatus] = match outcome {
            "ok" => &[ToolStatus::Ok],
            "error" | "not_found" => &[ToolStatus::Error],
            "blocked" => &[ToolStatus::Refused],
            "cancelled" => &[ToolStatus::Cancelled],
            "delegated" => &[ToolStatus::Ok, ToolStatus::Deferred],
            "confirmation_requested" => &[ToolStatus::Deferred],
            _ => &[ToolStatus::Deferred, ToolStatus::Ok],
        };
        self.figures += 1;
        if !fits.contains(&call.status) {
            self.differences.push(format!(
                "{name}: {outcome}, told as {}",
                call.status.as_str()
            ));
        }
        if let Some(executed) = want["executed"].as_bool() {
            let wrong = if executed {
                Executed::No
            } else {
                Executed::Yes
            };
            // A promise of a long-running tool does not tell whether it ran.
            let is_promise = call.status == ToolStatus::Deferred;
            self.figures += 1;
            if call.executed == wrong && !is_promise {
                let said = call.executed.as_str();
                self.differences
                    .push(format!("{name}: executed {executed}, told as {said}"));
            }
        }
        if self.is_native {
            self.equal(&format!("{name}: duration"), call.duration, None);
        } else if want["executed"].as_bool() == Some(true) {
            let got = call.duration.map(|n| n.0);
            self.near(
                &format!("{name}: duration"),
                got,
                want["planned_ms"].as_f64(),
            );
        }
    }

    fn branches(&mut self, truth: &Value, facts: &[Fact]) {
        let want: BTreeSet<&str> = truth["branches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|branch| branch.as_str().unwrap_or(""))
            .collect();
        let got: BTreeSet<&str> = facts
            .iter()
            .filter_map(|fact| match &fact.body {
                // A prefix that no record names is no branch of the truth; the root always is.
                FactBody::Branch(branch) if branch.records > 0 || branch.branch.is_empty() => {
                    Some(&*branch.branch)
                }
                _ => None,
            })
            .collect();
        self.equal("branches", got, want);
    }

    fn invocations(&mut self, truth: &Value, facts: &[Fact]) {
        let wanted = truth["invocations"].as_array().unwrap();
        for want in wanted {
            let name = format!("run {}", want["n"]);
            let Some(id) = self.invocation_id(&want["n"]) else {
                continue;
            };
            let mut segments: Vec<&InvocationFact> = facts
                .iter()
                .filter(|fact| *fact.invocation_id == *id)
                .filter_map(|fact| match &fact.body {
                    FactBody::Invocation(segment) => Some(&**segment),
                    _ => None,
                })
                .collect();
            segments.sort_by_key(|segment| segment.started_at);
            self.figures += 1;
            let Some(last) = segments.last() else {
                self.differences.push(format!("{name}: not told"));
                continue;
            };
            self.end(&name, last, want, truth);
            if !self.is_native {
                let runs = want["runs"].as_u64().unwrap_or(1);
                self.equal(&format!("{name}: segments"), segments.len() as u64, runs);
                let root = want["root_agent"].as_str();
                self.equal(
                    &format!("{name}: root agent"),
                    segments[0].root_agent.as_deref(),
                    root,
                );
                let parent = self.invocation_id(&want["parent_invocation"]);
                let link = segments[0]
                    .parent
                    .as_ref()
                    .and_then(|p| p.invocation_id.clone());
                self.equal(
                    &format!("{name}: parent"),
                    link.map(|id| id.to_string()),
                    parent,
                );
            }
        }
        let strangers: BTreeSet<&str> = facts
            .iter()
            .map(|fact| &*fact.invocation_id)
            .filter(|id| !self.ids.iter().any(|known| known == id))
            .collect();
        self.equal("invocations that never were", strangers, BTreeSet::new());
    }

    /// Native events have no end record: there a run stays open, or waits.
    fn end(&mut self, name: &str, last: &InvocationFact, want: &Value, truth: &Value) {
        let ended = want["ended"].as_str().unwrap();
        let pauses = truth["tool_calls"].as_array().unwrap().iter().any(|tool| {
            let outcome = tool["outcome"].as_str().unwrap();
            outcome.starts_with("pending") || outcome.starts_with("confirmation")
        });
        let mut fits = match ended {
            "completed" => vec![Status::Completed],
            "error" => vec![Status::Error, Status::Limited],
            "intercepted" => vec![Status::Intercepted],
            _ => vec![Status::Cancelled],
        };
        if pauses && ended == "completed" {
            fits.push(Status::Waiting);
        }
        if self.is_native {
            fits = vec![Status::Open, Status::Waiting];
        } else if want["end_hook"].is_null() {
            // No hook told the end: open until silence closes it.
            fits = vec![Status::Open];
        }
        self.figures += 1;
        if !fits.contains(&last.status) {
            self.differences
                .push(format!("{name}: {ended}, told as {}", last.status.as_str()));
        }
    }
}
