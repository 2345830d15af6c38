//! What a replay printed, under the names that `expect` uses: the report, and what the README's
//! section 7.3 derives from it.

use serde_json::{Map, Value, json};

/// What one run of `tachograph replay` left behind, in its three forms.
#[derive(Debug, Default)]
pub struct Printed {
    pub report: Vec<u8>,
    pub facts: Vec<u8>,
    pub timeline: Vec<u8>,
    pub errors: Vec<u8>,
}

impl Printed {
    /// A report, and nothing else.
    pub fn of(report: &str) -> Printed {
        Printed {
            report: report.as_bytes().to_vec(),
            ..Printed::default()
        }
    }

    fn outputs(&self) -> [&[u8]; 3] {
        [&self.report, &self.facts, &self.timeline]
    }

    fn is_strict_json(&self) -> bool {
        let is_json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).is_ok();
        let mut lines = self
            .facts
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        is_json(&self.report) && lines.all(is_json)
    }

    /// True where none of the places that a replay has shows the text.
    pub fn hides(&self, text: &str, place: &str) -> bool {
        let shows = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(text);
        match place {
            "report" => !self.outputs().into_iter().any(shows),
            "logs" => !shows(&self.errors),
            _ => true,
        }
    }

    /// The report with every derived name beside its own.
    ///
    /// # Errors
    /// The report is no JSON object.
    pub fn view(&self) -> Result<Value, String> {
        let report: Value = serde_json::from_slice(&self.report)
            .map_err(|error| format!("the report is no JSON: {error}"))?;
        let mut view = match report {
            Value::Object(view) => view,
            _ => return Err("the report is no object".to_owned()),
        };
        flag(&mut view);
        derive(&mut view);
        let is_utf8 = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
        let is_valid = self.outputs().into_iter().all(is_utf8);
        view.insert(
            "exported_json_is_strict".to_owned(),
            json!(self.is_strict_json()),
        );
        view.insert("output_is_valid_utf8".to_owned(), json!(is_valid));
        // A run that ended otherwise has no view.
        view.insert("process".to_owned(), json!({"alive": true}));
        Ok(Value::Object(view))
    }
}

fn rows(view: &Map<String, Value>, table: &str) -> Vec<Value> {
    view.get(table)
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
}

/// Tables by their word in the report, with the words by which anomalies name their rows.
const ABOUT: [(&str, &str, &str); 3] = [
    ("model_calls", "model_call", "call_key"),
    ("tools", "tool_call", "call_key"),
    ("verdicts", "guardrail_decision", "order"),
];

/// Puts the kinds of anomalies among the flags of the rows that they are about, and of the report.
fn flag(view: &mut Map<String, Value>) {
    let anomalies = rows(view, "anomalies");
    let of = |row: &Value, is_about: &dyn Fn(&str) -> bool| -> Vec<Value> {
        let same = |a: &Value| {
            ["tenant", "app", "invocation_id"]
                .iter()
                .all(|key| a[*key] == row[*key])
        };
        let about = |a: &&Value| same(a) && a["about"].as_str().is_some_and(is_about);
        anomalies
            .iter()
            .filter(about)
            .map(|a| a["kind"].clone())
            .collect()
    };
    for table in [
        "branches",
        "agent_runs",
        "local_answers",
        "recoveries",
        "anomalies",
    ] {
        each(view, table, &|_| Vec::new());
    }
    for (table, word, column) in ABOUT {
        each(view, table, &|row| {
            let key = match &row[column] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            of(row, &|about| about == format!("{word}/{key}"))
        });
    }
    each(view, "invocations", &|row| {
        of(row, &|about| {
            about == "invocation" || about.starts_with("emitter/")
        })
    });
    let mut flags = rows(view, "flags");
    flags.extend(anomalies.iter().map(|a| a["kind"].clone()));
    let odd = [
        "invalid_usage_fields",
        "invalid_utf8_records",
        "nonstandard_json",
    ];
    let counters = view.entry("counters").or_insert(json!({}));
    let is_odd = odd.iter().any(|name| counters[*name].as_u64() > Some(0));
    view.insert("flagged".to_owned(), json!(is_odd || !flags.is_empty()));
    view.insert("flags".to_owned(), Value::Array(flags));
}

fn each(view: &mut Map<String, Value>, table: &str, further: &dyn Fn(&Value) -> Vec<Value>) {
    for row in view
        .get_mut(table)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let mut flags = row["flags"].as_array().cloned().unwrap_or_default();
        flags.extend(further(row));
        row["flagged"] = json!(!flags.is_empty());
        row["flags"] = Value::Array(flags);
    }
}

fn derive(view: &mut Map<String, Value>) {
    let calls = rows(view, "model_calls");
    let known = |column: &str| calls.iter().filter(|row| !row[column].is_null()).count();
    let samples = known("ttfc_ms") + known("completion_ms");
    let completions: f64 = calls
        .iter()
        .filter_map(|row| row["completion_ms"].as_f64())
        .sum();
    let answers = rows(view, "local_answers");
    let cached: Vec<&Value> = answers
        .iter()
        .filter(|row| row["served_by"] == "cache")
        .collect();
    let replayed = sum(cached.iter().map(|row| &row["replayed_usage"]));
    let mut agents: Map<String, Value> = Map::new();
    for call in &calls {
        let agent = call["agent"].as_str().unwrap_or_default();
        let known = agents.remove(agent).unwrap_or_default();
        agents.insert(agent.to_owned(), sum([&known, &call["usage"]].into_iter()));
    }
    let kinds: Vec<Value> = rows(view, "timeline")
        .iter()
        .map(|entry| entry["kind"].clone())
        .collect();
    for (name, value) in [
        ("invocation_count", json!(rows(view, "invocations").len())),
        ("branch_count", json!(rows(view, "branches").len())),
        ("latency_samples", json!(samples)),
        ("sum_of_completion_ms", json!(completions)),
        ("served_from_cache", json!(cached.len())),
        ("replayed_usage", replayed),
        ("by_agent", Value::Object(agents)),
        ("timeline_contains", Value::Array(kinds)),
    ] {
        view.insert(name.to_owned(), value);
    }
}

/// Adds up usage objects, name by name; what none of them knows stays unknown.
fn sum<'v>(usages: impl Iterator<Item = &'v Value>) -> Value {
    let mut total: Map<String, Value> = Map::new();
    for (name, count) in usages.filter_map(Value::as_object).flatten() {
        let Some(count) = count.as_u64() else {
            continue;
        };
        let known = total.get(name).and_then(Value::as_u64).unwrap_or(0);
        total.insert(name.clone(), json!(known + count));
    }
    Value::Object(total)
}
