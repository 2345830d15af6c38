//! What a case's world tells, under the names that `expect` uses: the rows as the report shows
//! them, what was noticed, and what is read from ClickHouse.

use super::broker::Place;
use super::engine::ClickHouse;
use super::exposition::Scrapes;
use super::support::rows::{RowKey, row_key};
use super::view::Printed;
use super::world::World;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tachograph::core::fact::{Fact, Table};
use tachograph::core::pipeline::DeadLetter;
use tachograph::replay::{
    LogReader, Quarantined, ReplaySettings, Replayed, facts_text, replay, report, unpriced,
};

/// Status of the only invocation by the rows of now; null where there is none or are several.
fn only_status(view: &Value) -> Value {
    match view["invocations"].as_array().map(Vec::as_slice) {
        Some([row]) => row["status"].clone(),
        _ => Value::Null,
    }
}

impl World {
    /// Notes the status of the invocation at an instant.
    pub fn status_at(&mut self, instant: &str) -> Result<(), String> {
        let replayed = Replayed {
            facts: self.facts(),
            ..Replayed::default()
        };
        let text = report(&replayed, &self.settings());
        let view: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        self.notes
            .status_at
            .insert(instant.to_owned(), only_status(&view));
        Ok(())
    }

    fn settings(&self) -> ReplaySettings {
        let config = self.config.clone();
        ReplaySettings {
            limits: self.config.limits.clone(),
            defaults_of: Arc::new(move |topic| config.topic_defaults(topic)),
            price: Arc::new(unpriced),
            is_strict: true,
        }
    }

    /// The newest version of every row: in the tables, or held.
    fn facts(&self) -> Vec<Fact> {
        let mut rows: BTreeMap<RowKey, Fact> = self.tables.model.rows.clone();
        let processes = self.processes.values();
        for fact in processes.flat_map(|process| process.pipeline.held_facts()) {
            let key = row_key(&fact);
            if rows
                .get(&key)
                .is_none_or(|kept| kept.version <= fact.version)
            {
                rows.insert(key, fact);
            }
        }
        rows.into_values().collect()
    }

    /// The report over the rows of this world. Sums over records are those of the process, where
    /// one process lived through it all, else of the log.
    ///
    /// # Errors
    /// A log that cannot be read.
    pub fn printed(&self, log: &Path) -> Result<Printed, String> {
        let settings = self.settings();
        let failed = |error: tachograph::replay::InputError| error.to_string();
        let files = [log.to_owned()];
        let mut reader = LogReader::new(&files, ProgressBar::hidden()).map_err(failed)?;
        let mut replayed = replay(&mut reader, &settings).map_err(failed)?;
        // Numbers that emitters skipped: told by a whole log alone.
        let skipped = replayed.facts.into_iter();
        let skipped = skipped.filter(|fact| fact.version == 0 && fact.segment.is_empty());
        replayed.facts = self.facts().into_iter().chain(skipped).collect();
        if let Some(process) = self.only_life() {
            replayed.totals = process.pipeline.totals().clone();
        }
        let mut seen = BTreeSet::new();
        let first = |letter: &&DeadLetter| seen.insert(at(letter));
        let letters = self.letters.iter().filter(first);
        replayed.quarantined = letters
            .map(|letter| Quarantined {
                at: letter.at.clone(),
                reason: letter.reason,
            })
            .collect();
        Ok(Printed {
            facts: facts_text(&replayed.facts).into_bytes(),
            ..Printed::of(&report(&replayed, &settings))
        })
    }

    /// What was noticed, put among what the report says. `zones` are those of the daily sums.
    ///
    /// # Errors
    /// A part that does not tell.
    pub fn tell_all(
        &mut self,
        view: &mut Value,
        scrapes: &Scrapes,
        zones: &[String],
        comes_to_rest: bool,
    ) -> Result<(), String> {
        self.mark_amended(view);
        let notes = &self.notes;
        let held: usize = self
            .processes
            .values_mut()
            .map(|process| process.pipeline.snapshot())
            .flat_map(|snapshot| snapshot.partitions)
            .map(|partition| partition.segments_held)
            .sum();
        let late = [Table::Invocations, Table::ModelCalls].map(|t| self.tables.amended(t).count());
        view["counters"]["late_amendments"] = json!(late.iter().sum::<usize>());
        view["counters"]["offset_gaps"] = json!(notes.gaps);
        view["counters"]["offset_resets"] = json!(notes.resets);
        view["status_at"] = Value::Object(notes.status_at.clone());
        view["state_entries_left"] = json!(held);
        view["first_offset_read"] = json!(notes.first_offset.map(|offset| offset.0));
        view["reported_lag"] = json!(scrapes.sum("tachograph_lag_records") as i64);
        view["retries_of_bad_records_max"] = json!(retries(&self.letters));
        view["alerts"] = json!(notes.alerts);
        view["readiness_while_behind"] = json!(notes.readiness);
        view["max_delay_to_visible_s"] = json!(notes.delay.as_secs_f64());
        view["on_too_many_parts"] = json!(notes.on_too_many_parts);
        view["process"]["peak_memory_growth_mib_max"] = json!(notes.memory_kib as f64 / 1024.0);
        let at_crash = notes.committed_at_crash.map(|offset| offset.0);
        view["committed_offset_at_crash_max"] = json!(at_crash);
        let resumed = notes.resumed_from.map(|offset| offset.0);
        view["after_restart"] = json!({"rereads_from_offset_max": resumed});
        let missing = self.tables.missing()?;
        view["data_loss"] = json!(notes.has_lost || !missing.is_empty());
        if let Some(real) = &self.tables.real {
            let told = clickhouse(real)?;
            view["after_restart"]["clickhouse"] = told.clone();
            view["clickhouse"] = told;
            let daily = sums(real, "v_usage_daily")?;
            view["rollup"] = daily.clone();
            view["billing"] = daily;
            let by_zone = zones
                .iter()
                .map(|zone| Ok((zone.clone(), days(real, zone)?)));
            view["usage_daily"] = Value::Object(by_zone.collect::<Result<_, String>>()?);
        }
        if comes_to_rest {
            self.come_to_rest()?;
            let committed: Vec<i64> = self
                .broker
                .logs
                .keys()
                .filter_map(|place| self.broker.committed(place))
                .map(|marks| marks.resume_from.0)
                .collect();
            view["committed_offset"] = match committed.as_slice() {
                [one] => json!(one),
                _ => Value::Null,
            };
        }
        Ok(())
    }

    fn only_life(&self) -> Option<&super::world::Process> {
        let mut all = self.processes.values();
        all.next().filter(|_| self.lives == 1)
    }

    /// Rows of invocations and model calls that were written again.
    fn mark_amended(&self, view: &mut Value) {
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        for (word, table) in [
            ("invocations", Table::Invocations),
            ("model_calls", Table::ModelCalls),
        ] {
            let rows = view[word].as_array_mut().into_iter().flatten();
            for row in rows {
                let own = [
                    text(row, "tenant"),
                    text(row, "app"),
                    text(row, "invocation_id"),
                ];
                let call = vec![text(row, "call_key")];
                let is_amended = self.tables.amended(table).any(|key| {
                    let is_run = [&key.1, &key.2, &key.3].into_iter().eq(own.iter());
                    is_run && (table == Table::Invocations || key.4 == call)
                });
                row["amended"] = json!(is_amended);
            }
        }
    }

    /// Places where a text stands that must appear nowhere.
    pub fn shows(&self, text: &str, place: &str, scrapes: &Scrapes) -> Result<bool, String> {
        Ok(match place {
            "prometheus" => scrapes.text().contains(text),
            "logs" => super::logs::text().contains(text),
            "dead_letter_headers" => self.letters.iter().any(|letter| {
                let mut headers = letter.headers.iter();
                headers.any(|(name, value)| {
                    let value = value.as_deref().unwrap_or_default();
                    name.contains(text) || String::from_utf8_lossy(value).contains(text)
                })
            }),
            "clickhouse" => match &self.tables.real {
                Some(real) => {
                    let rows = Table::ALL.map(|table| {
                        real.ask(&format!(
                            "SELECT * FROM {} FORMAT JSONEachRow",
                            table.as_str()
                        ))
                    });
                    let mut rows = rows.into_iter();
                    rows.try_fold(false, |found, rows| {
                        Ok::<_, String>(found | rows?.contains(text))
                    })?
                }
                None => return Err("never_appears_in: no ClickHouse".to_owned()),
            },
            _ => false,
        })
    }
}

fn at(letter: &DeadLetter) -> (Place, i64) {
    let at = &letter.at;
    ((at.topic.clone(), at.partition), at.offset.0)
}

/// Most times that one bad record became a dead letter after the first.
fn retries(letters: &[DeadLetter]) -> usize {
    let mut times: BTreeMap<(Place, i64), usize> = BTreeMap::new();
    for letter in letters {
        *times.entry(at(letter)).or_default() += 1;
    }
    times.into_values().max().unwrap_or(1) - 1
}

/// Columns of usage that views and report share.
const USAGE: [&str; 13] = [
    "input_total",
    "input_uncached",
    "cache_read",
    "cache_write",
    "cache_write_5m",
    "cache_write_1h",
    "tool_use_input",
    "output_total",
    "reasoning",
    "audio_input",
    "audio_output",
    "image_input",
    "image_output",
];

fn select(real: &ClickHouse, sql: &str) -> Result<Vec<Value>, String> {
    let settings = "output_format_json_quote_64bit_integers = 0";
    let text = real.ask(&format!("{sql} SETTINGS {settings} FORMAT JSONEachRow"))?;
    let row = |line: &str| serde_json::from_str(line).map_err(|error| error.to_string());
    text.lines().map(row).collect()
}

fn one(real: &ClickHouse, sql: &str) -> Result<Value, String> {
    let rows = select(real, sql)?;
    rows.into_iter()
        .next()
        .ok_or_else(|| format!("{sql}: no row"))
}

fn sums(real: &ClickHouse, from: &str) -> Result<Value, String> {
    let columns = USAGE.map(|name| format!("sum(t.{name}) AS {name}"));
    one(
        real,
        &format!("SELECT {} FROM {from} AS t", columns.join(", ")),
    )
}

/// Daily sums of a time zone, by local day.
fn days(real: &ClickHouse, zone: &str) -> Result<Value, String> {
    let columns = USAGE.map(|name| format!("sum(t.{name}) AS {name}"));
    let between = format!(
        "from = '1900-01-01 00:00:00', to = '2262-04-11 00:00:00.000000001', tz = '{zone}'"
    );
    let rows = select(
        real,
        &format!(
            "SELECT toString(day) AS local_day, {} FROM v_usage_daily_between({between}) AS t \
             GROUP BY local_day",
            columns.join(", ")
        ),
    )?;
    let by_day = rows.into_iter().filter_map(|row| {
        let day = row["local_day"].as_str()?.to_owned();
        Some((day, row))
    });
    Ok(Value::Object(by_day.collect()))
}

/// What is read from ClickHouse under `clickhouse`.
fn clickhouse(real: &ClickHouse) -> Result<Value, String> {
    let mut told = one(
        real,
        "SELECT count() AS rows_visible, sum(input_total) AS sum_input_total, \
         sum(output_total) AS sum_output_total FROM v_model_calls",
    )?;
    told["model_calls"] = model_calls(real)?;
    told["insert_errors"] = json!(real.insert_errors());
    told["inserts_max"] = json!(real.inserts());
    told["partitions_touched_per_insert_max"] = json!(real.partitions_most());
    told["columns_named_in_insert"] = json!(real.names_columns());
    let mut largest = 0;
    for table in Table::ALL {
        let sql = format!("SELECT max(byteSize(*)) AS bytes FROM {}", table.as_str());
        largest = largest.max(one(real, &sql)?["bytes"].as_u64().unwrap_or(0));
    }
    told["row_bytes_max"] = json!(largest);
    told["cost_column"] = cost_column(real)?;
    Ok(told)
}

/// Digits of the column that holds costs.
fn cost_column(real: &ClickHouse) -> Result<Value, String> {
    let row = one(
        real,
        "SELECT numeric_precision AS digits, numeric_scale AS places FROM system.columns \
         WHERE database = currentDatabase() AND table = 'model_calls' AND name = 'cost_usd'",
    )?;
    let number = |key: &str| row[key].as_u64().ok_or(format!("{row}: no {key}"));
    let (digits, places) = (number("digits")?, number("places")?);
    Ok(json!({"decimal_places_min": places, "integer_digits_min": digits - places}))
}

/// Rows of `v_model_calls` under the names of the report.
fn model_calls(real: &ClickHouse) -> Result<Value, String> {
    let rows = select(
        real,
        "SELECT *, row_number() OVER (PARTITION BY tenant, app, invocation_id \
         ORDER BY coalesce(started_at, billed_at), first_offset) - 1 AS seq FROM v_model_calls",
    )?;
    let named = rows.into_iter().map(|mut row| {
        let mut usage: Map<String, Value> = USAGE
            .iter()
            .map(|name| ((*name).to_owned(), row[*name].take()))
            .collect();
        usage.insert("state".to_owned(), row["usage_state"].take());
        for name in ["total", "provider_total", "unattributed"] {
            usage.insert(name.to_owned(), row[name].take());
        }
        row["usage"] = Value::Object(usage);
        row
    });
    Ok(Value::Array(named.collect()))
}
