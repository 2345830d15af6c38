//! Model calls against their truth: usage, status, latencies, and the sums.

use crate::compare::{Comparison, fits};
use serde_json::Value;
use std::collections::BTreeMap;
use tachograph::core::event::ServedBy;
use tachograph::core::fact::{CallStatus, Fact, FactBody, ModelCallFact};
use tachograph::core::usage::UsageState;

type Told<'f> = (&'f Fact, &'f ModelCallFact);

impl Comparison {
    pub fn model_calls(&mut self, truth: &Value, facts: &[Fact]) {
        let mut pool: Vec<Told> = facts
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
            let agent = want["agent"].as_str().or(want["made_by"].as_str());
            let name = match agent {
                Some(agent) => format!("call {} of {agent}", number + 1),
                None => format!("call {}", number + 1),
            };
            let found = self.find_call(want, &wanted[number + 1..], &pool);
            self.holds(found.is_some(), || format!("{name}: not told"));
            let Some(found) = found else {
                is_complete = false;
                continue;
            };
            let (_, call) = pool.remove(found);
            let total = &want["billed"]["total"];
            let is_lower_bound =
                call.usage.state == UsageState::Partial && call.usage.total != total.as_u64();
            is_complete &= total.is_null() || call.usage.total.is_some() && !is_lower_bound;
            self.usage(&name, call, &want["billed"], &mut sums);
            self.words(&name, call, want, truth);
            self.latency(&name, call, want, truth);
        }
        let mut strangers: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, call) in pool {
            *strangers.entry(&call.agent).or_insert(0) += 1;
        }
        self.figures += u32::from(strangers.is_empty());
        for (agent, count) in strangers {
            self.holds(false, || match count {
                1 => format!("a call of {agent} that never was"),
                _ => format!("{count} calls of {agent} that never were"),
            });
        }
        self.error_codes(truth, facts);
        for (class, want) in truth["tokens_billed"].as_object().unwrap() {
            if let Some(got) = sums.get(&**class).filter(|_| is_complete) {
                self.equal(&format!("tokens {class}"), *got, want.as_u64().unwrap());
            }
        }
    }

    /// Codes of events, where the truth lists them: a call tells no other.
    fn error_codes(&mut self, truth: &Value, facts: &[Fact]) {
        let Some(known) = truth["error_codes"].as_array().filter(|_| self.is_native) else {
            return;
        };
        for fact in facts {
            if let FactBody::ModelCall(call) = &fact.body
                && let Some(code) = call.error_code.as_deref()
            {
                let is_known = known.iter().any(|known| known == code);
                self.holds(is_known, || format!("error code {code} that no event had"));
            }
        }
    }

    /// The call of the same place that spent the same; else, where no further call is of that place, any of it.
    fn find_call(&self, want: &Value, later: &[Value], pool: &[Told]) -> Option<usize> {
        let is_branch = |branch: &str| match want.get("branch") {
            Some(want) => want.as_str().unwrap_or("") == branch,
            None => true,
        };
        let is_same = |(fact, call): &Told| {
            let is_hidden = want["hidden"] == true;
            !is_hidden
                && fits(&want["agent"], &call.agent)
                && is_branch(&call.branch)
                && self.is_of(fact, &want["invocation"])
        };
        let has_spent =
            |(_, call): &Told| call.usage.input_total == want["billed"]["input"].as_u64();
        let equal = pool
            .iter()
            .position(|told| is_same(told) && has_spent(told));
        let is_of_place = |other: &Value| {
            other["agent"] == want["agent"] && other["invocation"] == want["invocation"]
        };
        let is_last = !later.iter().any(is_of_place);
        equal.or_else(|| pool.iter().position(is_same).filter(|_| is_last))
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
            let Some(want) = billed[class].as_u64() else {
                continue;
            };
            let is_part = !matches!(class, "input" | "output" | "total");
            // A part that nobody told is unknown, and the truth writes 0 for it.
            let got = if is_part && want == 0 {
                Some(got.unwrap_or(0))
            } else {
                got
            };
            let what = format!("{name}: {class}");
            match (usage.state, got) {
                (UsageState::Partial, Some(least)) => self.holds(least == want, || {
                    let word = if least < want { "at least " } else { "" };
                    format!("{what}: {word}{least}, truly {want}")
                }),
                _ => self.equal(&what, got, Some(want)),
            }
            *sums.entry(class).or_insert(0) += got.unwrap_or(0);
        }
    }

    fn words(&mut self, name: &str, call: &ModelCallFact, want: &Value, truth: &Value) {
        let refusals = truth["guardrail_verdicts"].as_array().unwrap();
        let is_refused = refusals.iter().any(|verdict| {
            verdict["decider"] == "model_provider" && verdict["invocation"] == want["invocation"]
        });
        let has_end = !self.is_native && truth["invocations"][0]["end_hook"].is_string();
        let status = match want["outcome"].as_str().unwrap() {
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
        self.equal(&format!("{name}: status"), call.status, status);
        if let Some(partials) = want["partials"].as_u64() {
            let chunks = call.chunks.unwrap_or(0);
            self.equal(&format!("{name}: chunks"), chunks, partials);
        }
        if let Some(word) = want["finish_reason"].as_str() {
            let got = call.finish_reason_raw.as_deref();
            self.equal(&format!("{name}: finish reason"), got, Some(word));
        }
        let code = match &want["error_code"] {
            Value::Number(code) => Some(code.to_string()),
            // The contract's word for ADK Java's sentence (rules.md §6).
            code => code
                .as_str()
                .map(|code| code.replace("Unknown error.", "UNKNOWN_ERROR")),
        };
        // Where a record or event has no code of the provider, it has the error's type.
        let kind = want["error_type"].as_str();
        if code.is_some() || kind.is_some() {
            let got = call.error_code.as_deref();
            let is_right = got.is_some() && (got == code.as_deref() || got == kind);
            self.holds(is_right, || {
                let truly = code.as_deref().or(kind).unwrap();
                format!("{name}: error {}, truly {truly}", got.unwrap_or("unknown"))
            });
        }
        if !self.is_native && want["recovered_by"].is_string() {
            self.equal(&format!("{name}: recovered"), call.recovered, true);
        }
        let details = &truth["usage_details"];
        if let Some(tokens) = details["prompt_by_modality"]["IMAGE"].as_u64() {
            self.equal(
                &format!("{name}: image"),
                call.usage.image_input,
                Some(tokens),
            );
            self.equal(
                &format!("{name}: tier"),
                call.tier.as_deref(),
                Some("standard"),
            );
        }
    }

    fn latency(&mut self, name: &str, call: &ModelCallFact, want: &Value, file: &Value) {
        if self.is_native {
            self.equal(&format!("{name}: first chunk"), call.ttfc, None);
            self.equal(&format!("{name}: completion"), call.completion, None);
            return;
        }
        let measured = &want["as_the_first_plugin_measures"];
        let truth = if measured.is_object() { measured } else { want };
        let is_streamed = want["streamed"].as_bool().unwrap();
        let what = format!("{name}: first chunk");
        match is_streamed {
            true => self.near(&what, call.ttfc, truth["first_chunk_ms"].as_f64()),
            // Streaming calls only (facts.md §4).
            false => self.equal(&what, call.ttfc, None),
        }
        if let Some(visible) = file["first_text_chunk_ms"].as_f64() {
            let what = format!("{name}: first text");
            self.near(&what, call.ttft_visible, Some(visible));
        }
        // Completion is the last response with content (facts.md §4).
        let whole = truth["content_complete_ms"].as_f64();
        let completion = whole.or(truth["completion_ms"].as_f64());
        let what = format!("{name}: completion");
        match call.status {
            // Of a call without an end there is none (rules.md §5).
            CallStatus::Cancelled | CallStatus::Incomplete => {
                self.equal(&what, call.completion, None);
            }
            _ => self.near(&what, call.completion, completion),
        }
    }
}
