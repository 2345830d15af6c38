//! Tool calls against their truth.

use crate::compare::{Comparison, fits};
use serde_json::Value;
use tachograph::core::fact::{Executed, Fact, FactBody, ToolCallFact, ToolStatus};

impl Comparison {
    pub fn tool_calls(&mut self, truth: &Value, facts: &[Fact]) {
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
            let id = want["function_call_id"].as_str();
            let found = pool.iter().position(|(fact, call)| {
                *call.tool == *tool
                    && self.is_of(fact, &want["invocation"])
                    && fits(&want["agent"], &call.agent)
                    && fits(&want["branch"], &call.branch)
                    && id.is_none_or(|id| call.call_id.as_deref() == Some(id))
            });
            self.holds(found.is_some(), || format!("{name}: not told"));
            let Some(found) = found else {
                continue;
            };
            let (_, call) = pool.remove(found);
            let outcome = want["outcome"].as_str().unwrap();
            if outcome.starts_with("pending") {
                // The answer is another row where it came in another segment; view and report join them.
                pool.retain(|(_, other)| other.call_id != call.call_id);
            }
            self.tool(&name, call, outcome, want);
        }
        let scripted = truth["tools_scripted"].as_array();
        for (_, call) in pool {
            match scripted {
                None => self.holds(false, || {
                    format!("a call of tool {} that never was", call.tool)
                }),
                // The truth lists runs of scripted functions only: a call beside them did not run.
                Some(names) if names.iter().any(|name| name == &*call.tool) => {
                    let may_have_run = matches!(call.status, ToolStatus::Ok | ToolStatus::Error);
                    let status = call.status.as_str();
                    self.holds(!may_have_run, || {
                        format!("tool {}: never ran, told as {status}", call.tool)
                    });
                }
                Some(_) => {}
            }
        }
    }

    fn tool(&mut self, name: &str, call: &ToolCallFact, outcome: &str, want: &Value) {
        let right: &[ToolStatus] = match outcome {
            "ok" => &[ToolStatus::Ok],
            "error" | "not_found" => &[ToolStatus::Error],
            "blocked" => &[ToolStatus::Refused],
            "cancelled" => &[ToolStatus::Cancelled],
            "delegated" => &[ToolStatus::Ok, ToolStatus::Deferred],
            "confirmation_requested" => &[ToolStatus::Deferred],
            _ => &[ToolStatus::Deferred, ToolStatus::Ok],
        };
        self.holds(right.contains(&call.status), || {
            format!("{name}: {outcome}, told as {}", call.status.as_str())
        });
        if let Some(executed) = want["executed"].as_bool() {
            let wrong = if executed {
                Executed::No
            } else {
                Executed::Yes
            };
            // A promise of a long-running tool does not tell whether it ran.
            let is_promise = call.status == ToolStatus::Deferred;
            let said = call.executed.as_str();
            self.holds(call.executed != wrong || is_promise, || {
                format!("{name}: executed {executed}, told as {said}")
            });
        }
        if self.is_arrival && call.duration.is_some() {
            let planned = want["planned_ms"].as_f64();
            self.near(&format!("{name}: duration"), call.duration, planned);
        } else if self.is_native {
            self.equal(&format!("{name}: duration"), call.duration, None);
        } else if outcome.starts_with("pending") {
            // The time of a call that waits for a person is waiting (facts.md §4).
            self.equal(&format!("{name}: duration"), call.duration, None);
        } else if want["executed"] == true {
            let planned = want["planned_ms"].as_f64();
            self.near(&format!("{name}: duration"), call.duration, planned);
        }
    }
}
