//! A case's `events` as the lines that `tachograph replay` reads, and its `config` as a file
//! (README, sections 2 and 4).

use super::vocabulary::STEPS;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Topic of records that name none.
pub const TOPIC: &str = "agent-events";

/// One case file. Values of records stay text: numbers and duplicate keys survive.
#[derive(Deserialize)]
pub struct Case {
    pub id: String,
    pub needs: String,
    #[serde(default)]
    pub also: Vec<String>,
    #[serde(default)]
    pub config: Map<String, Value>,
    pub events: Vec<Box<RawValue>>,
    pub expect: Map<String, Value>,
}

/// What stands where in a case.
pub enum Item {
    /// The next record of the log, of a transaction or of none.
    Record {
        txn: Option<String>,
    },
    Step(Value),
}

/// One item of `events`.
#[derive(Deserialize)]
struct Wire<'e> {
    #[serde(rename = "_step")]
    step: Option<String>,
    #[serde(rename = "_kafka")]
    kafka: Option<Map<String, Value>>,
    #[serde(borrow)]
    value: Option<&'e RawValue>,
    value_raw: Option<String>,
    value_b64: Option<String>,
}

/// What a case gives a replay to read.
pub struct Feed {
    /// Each record as its topic, partition and value; the offset is given in the order of reading.
    records: Vec<Record>,
    /// Records and steps as they stand in the case.
    items: Vec<Item>,
    /// Steps that stand among the records.
    pub steps: BTreeSet<String>,
    /// Dialects of records that this build does not read, by the names of events.md §1.
    pub dialects: BTreeSet<&'static str>,
}

struct Record {
    kafka: Map<String, Value>,
    /// The transaction that it belongs to, if any.
    txn: Option<String>,
    /// The rest of the line: `"value":…`.
    value: String,
}

impl Record {
    /// Topic and partition, as far as they are told.
    fn place(&self) -> (Option<String>, Option<String>) {
        let told = |key: &str| self.kafka.get(key).map(Value::to_string);
        (told("topic"), told("partition"))
    }
}

impl Feed {
    /// # Errors
    /// An unknown step, field or shape, named.
    pub fn new(case: &Case) -> Result<Feed, String> {
        let mut feed = Feed {
            records: Vec::new(),
            items: Vec::new(),
            steps: BTreeSet::new(),
            dialects: BTreeSet::new(),
        };
        for (i, raw) in case.events.iter().enumerate() {
            feed.take(raw.get())
                .map_err(|why| format!("events[{i}]: {why}"))?;
        }
        Ok(feed)
    }

    /// Every record, in the order of the log, also those that no consumer is given.
    pub fn all(&self) -> Vec<usize> {
        (0..self.records.len()).collect()
    }

    /// The records that a consumer is given: not those of aborted transactions, and none from the
    /// first record of one that nobody ends.
    pub fn committed(&self) -> Vec<usize> {
        let ends_as = |txn: &Option<String>| {
            let mut markers = self.steps_of("control_record");
            let marker = markers.find(|step| step["txn"].as_str() == txn.as_deref());
            marker.map(|step| step["kind"] == "COMMIT")
        };
        let mut open: BTreeSet<_> = BTreeSet::new();
        let mut given = Vec::new();
        for (i, record) in self.records.iter().enumerate() {
            let is_committed = record.txn.is_none() || ends_as(&record.txn) == Some(true);
            if record.txn.is_some() && ends_as(&record.txn).is_none() {
                open.insert(record.place());
            }
            if is_committed && !open.contains(&record.place()) {
                given.push(i);
            }
        }
        given
    }

    /// How many partitions the records lie in.
    pub fn partitions(&self) -> usize {
        let places: BTreeSet<_> = self.records.iter().map(Record::place).collect();
        places.len()
    }

    /// The steps of one word, in order.
    pub fn steps_of<'f>(&'f self, word: &'f str) -> impl Iterator<Item = &'f Value> {
        self.items.iter().filter_map(move |item| match item {
            Item::Step(step) if step["_step"] == word => Some(step),
            _ => None,
        })
    }

    fn take(&mut self, text: &str) -> Result<(), String> {
        let item: Wire<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if let Some(step) = item.step {
            let told = vet_step(&step, text)?;
            if step == "generate" {
                self.generate(&told)?;
            }
            self.items.push(Item::Step(told));
            self.steps.insert(step);
            return Ok(());
        }
        let Some(mut kafka) = item.kafka else {
            let value: Value = serde_json::from_str(text).unwrap_or_default();
            self.dialects.extend(unread(&value));
            let key = ["session_id", "sessionId"]
                .iter()
                .find_map(|k| value[k].as_str());
            let kafka = key.map(|key| ("key".to_owned(), json!(key)));
            let value = format!("\"value\":{}", one_line(&filled(text)));
            self.push(kafka.into_iter().collect(), None, value);
            return Ok(());
        };
        if let Some(unknown) = kafka.keys().find(|key| !KAFKA.contains(&key.as_str())) {
            return Err(format!("unknown coordinate _kafka.{unknown}"));
        }
        // Transactions are the broker's business: no line of a log names one.
        let txn = kafka.remove("txn");
        let txn = txn.and_then(|txn| txn.as_str().map(str::to_owned));
        let value = match (item.value, item.value_raw, item.value_b64) {
            (Some(value), None, None) => {
                self.dialects.extend(unread(
                    &serde_json::from_str(value.get()).unwrap_or_default(),
                ));
                format!("\"value\":{}", one_line(&filled(value.get())))
            }
            (None, Some(raw), None) => format!("\"value_raw\":{}", json!(filled(&raw))),
            (None, None, Some(bytes)) => format!("\"value_b64\":{}", json!(bytes)),
            // serde reads a null as an absent value.
            (None, None, None) if text.contains("\"value\"") => "\"value\":null".to_owned(),
            _ => return Err("neither value, value_raw nor value_b64".to_owned()),
        };
        self.push(kafka, txn, value);
        Ok(())
    }

    fn push(&mut self, kafka: Map<String, Value>, txn: Option<String>, value: String) {
        self.items.push(Item::Record { txn: txn.clone() });
        self.records.push(Record { kafka, txn, value });
    }

    /// `count` records from a template: `<n>` in any string is the number, and the time goes on by
    /// a step, computed in decimals.
    fn generate(&mut self, step: &Value) -> Result<(), String> {
        let number = |key: &str| {
            step[key]
                .as_f64()
                .ok_or(format!("generate.{key}: a number"))
        };
        let count = step["count"].as_u64().ok_or("generate.count: a count")?;
        let template = step["template"].to_string();
        let field = step["time_field"].as_str().unwrap_or("at");
        let partitions = step["partitions"].as_u64().unwrap_or(1).max(1);
        let (start, step) = (number("time_start")?, number("time_step")?);
        let micros = |seconds: f64| (seconds * 1e6).round() as i64;
        for n in 0..count {
            let text = template.replace("<n>", &n.to_string());
            let mut value: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
            let at = micros(start) + i64::try_from(n).unwrap_or(0) * micros(step);
            value[field] = json!(at as f64 / 1e6);
            let kafka = Map::from_iter([("partition".to_owned(), json!(n % partitions))]);
            self.push(kafka, None, format!("\"value\":{value}"));
        }
        Ok(())
    }

    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The lines of the log where the records arrive in `order`.
    pub fn lines(&self, order: &[usize]) -> String {
        let mut next: BTreeMap<(String, i64), i64> = BTreeMap::new();
        let mut lines = String::new();
        for record in order.iter().map(|i| &self.records[*i]) {
            let mut kafka = record.kafka.clone();
            let topic = kafka
                .get("topic")
                .and_then(Value::as_str)
                .unwrap_or(TOPIC)
                .to_owned();
            let partition = kafka.get("partition").and_then(Value::as_i64).unwrap_or(0);
            let next = next.entry((topic.clone(), partition)).or_insert(0);
            let told = kafka.get("offset").and_then(Value::as_i64);
            // In another order than the log's, records take the offsets in the order they arrive.
            let offset = told.filter(|_| order.is_sorted()).unwrap_or(*next);
            *next = offset + 1;
            kafka.insert("topic".to_owned(), json!(topic));
            kafka.insert("partition".to_owned(), json!(partition));
            kafka.insert("offset".to_owned(), json!(offset));
            lines += &format!("{{\"_kafka\":{},{}}}\n", Value::Object(kafka), record.value);
        }
        lines
    }
}

const KAFKA: &[&str] = &[
    "topic",
    "partition",
    "offset",
    "key",
    "headers",
    "timestamp",
    "timestamp_type",
    "txn",
];

/// Dialects that are recognised by events.md §1 and not read by this build.
fn unread(value: &Value) -> Option<&'static str> {
    let has = |key: &str| value.get(key).is_some();
    if has("resourceSpans") || has("resourceLogs") {
        Some("otlp_json")
    } else if has("event_type") && has("invocation_id") {
        Some("bigquery")
    } else if has("type") && has("createdAt") {
        Some("anima")
    } else {
        None
    }
}

fn vet_step(step: &str, text: &str) -> Result<Value, String> {
    let Some((_, fields)) = STEPS.iter().find(|(name, _)| *name == step) else {
        return Err(format!("unknown step {step}"));
    };
    let told: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let unknown = told
        .keys()
        .find(|key| *key != "_step" && !fields.contains(&key.as_str()));
    match unknown {
        Some(key) => Err(format!("step {step} has no field {key}")),
        None => Ok(Value::Object(told)),
    }
}

/// White space between tokens of JSON may be line feeds; inside strings it cannot.
fn one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

/// `@@FILL:c*n@@` stands for n times c, `@@NEST:[*n@@` for n times `[`.
pub fn filled(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("@@") {
        out += &rest[..at];
        let filling = rest[at + 2..].find("@@").and_then(|end| {
            let (word, told) = rest[at + 2..at + 2 + end].split_once(':')?;
            let (what, times) = told.rsplit_once('*')?;
            let times: usize = times.parse().ok()?;
            (word == "FILL" || word == "NEST").then(|| (what.repeat(times), at + 4 + end))
        });
        match filling {
            Some((filling, end)) => {
                out += &filling;
                rest = &rest[end..];
            }
            None => {
                out += "@@";
                rest = &rest[at + 2..];
            }
        }
    }
    out + rest
}

/// The case's settings as a configuration file.
///
/// # Errors
/// A key that the README does not have, or a value of another type.
pub fn config(settings: &Map<String, Value>) -> Result<String, String> {
    let (mut topic, mut limits, mut labels) = (String::new(), String::new(), String::new());
    for (key, value) in settings {
        let number = || {
            value
                .as_u64()
                .ok_or(format!("config.{key}: a count is wanted"))
        };
        match key.as_str() {
            "producer" | "event_time_semantics" => topic += &format!("{key} = {value}\n"),
            "invocation_idle_timeout_s" => {
                limits += &format!("silence_max = \"{} s\"\n", number()?);
            }
            "max_plausible_tokens_per_call" => {
                limits += &format!("plausible_tokens_max = {}\n", number()?);
            }
            "max_label_values" => labels += &format!("max_values = {}\n", number()?),
            "known_models" => labels += &format!("known_models = {value}\n"),
            // Money and days are the price book's and the views'.
            "reporting_zones" | "prices_usd_per_million" => {}
            _ => return Err(format!("unknown config key {key}")),
        }
    }
    Ok(format!(
        "[kafka]\nbrokers = \"localhost:9092\"\n[[topic]]\nname = \"^.*\"\n{topic}\
         [clickhouse]\nurl = \"http://localhost:8123\"\n[labels]\n{labels}[limits]\n{limits}"
    ))
}
