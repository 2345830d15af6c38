//! What a state file says, as text and back.
//!
//! One line with a checksum over the rest, then JSON. Deliberately strict about the whole and
//! forgiving about its parts: a file that was torn is refused, a family that this build does not
//! have is left out.

use crate::core::ledger::Counted;
use crate::core::pipeline::CountedMarks;
use crate::core::sample::Family;
use crate::core::{LogTime, Name, Offset};
use crate::prometheus_exporter::catalogue::{FAMILIES, Source};
use crate::prometheus_exporter::{Counter, Counters};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

const HEAD: &str = "tachograph state 1 sha256=";

/// The content of a state file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The consumer group whose offsets the marks are.
    pub group: String,
    /// The cluster, where it was known.
    pub cluster: Option<String>,
    pub counted: CountedMarks,
    pub counters: Counters,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    group: String,
    cluster: Option<String>,
    counted: Vec<WireMark>,
    counters: Vec<WireFamily>,
}

#[derive(Serialize, Deserialize)]
struct WireMark {
    topic: String,
    partition: i32,
    below: i64,
    /// Milliseconds since 1970; none where no log time was reached.
    before_ms: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct WireFamily {
    name: String,
    labels: Vec<String>,
    series: Vec<WireCounter>,
}

#[derive(Serialize, Deserialize)]
struct WireCounter {
    values: Vec<String>,
    count: u64,
    created_ms: i64,
}

impl Stored {
    /// The file's text. The same content gives the same text.
    pub fn text(&self) -> String {
        let counted = self.counted.iter().map(|((topic, partition), counted)| {
            let before = counted.before.0;
            WireMark {
                topic: topic.to_string(),
                partition: *partition,
                below: counted.below.0,
                before_ms: (before != i64::MIN).then_some(before),
            }
        });
        let families = self.counters.families.iter();
        let wire = Wire {
            group: self.group.clone(),
            cluster: self.cluster.clone(),
            counted: counted.collect(),
            counters: families.map(family_of).collect(),
        };
        let body = serde_json::to_string(&wire).expect("strings and integers are JSON");
        format!("{HEAD}{}\n{body}\n", checksum(&body))
    }

    /// The content of a file's text.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn read(text: &str) -> Result<Stored, String> {
        let rest = text.strip_prefix(HEAD);
        let rest = rest.ok_or("it does not begin as a state file of this build")?;
        let parts = rest.split_once('\n');
        let (sum, body) = parts.ok_or("it ends within its first line")?;
        let body = body.strip_suffix('\n').ok_or("its end is missing")?;
        if sum != checksum(body) {
            return Err("its checksum is another one".to_owned());
        }
        let wire: Wire = serde_json::from_str(body).map_err(|error| error.to_string())?;
        let counted = wire.counted.into_iter().map(|mark| {
            let counted = Counted {
                below: Offset(mark.below),
                before: LogTime(mark.before_ms.unwrap_or(i64::MIN)),
            };
            ((Name::from(mark.topic), mark.partition), counted)
        });
        Ok(Stored {
            group: wire.group,
            cluster: wire.cluster,
            counted: counted.collect(),
            counters: Counters::of(wire.counters.into_iter().filter_map(counters_of).collect()),
        })
    }
}

fn family_of((family, counters): &(Family, Vec<Counter>)) -> WireFamily {
    let entry = FAMILIES
        .iter()
        .find(|row| row.source == Source::Fact(*family));
    let series = counters.iter().map(|counter| WireCounter {
        values: counter
            .labels
            .iter()
            .map(|label| label.to_string())
            .collect(),
        count: counter.count,
        created_ms: counter.created.0,
    });
    let mut series: Vec<WireCounter> = series.collect();
    series.sort_by(|a, b| a.values.cmp(&b.values));
    WireFamily {
        name: entry.map_or("", |row| row.name).to_owned(),
        labels: family
            .labels()
            .iter()
            .map(|label| (*label).to_owned())
            .collect(),
        series,
    }
}

/// `None` for a family of another build, or with other labels.
fn counters_of(wire: WireFamily) -> Option<(Family, Vec<Counter>)> {
    let row = FAMILIES.iter().find(|row| row.name == wire.name);
    let family = row.and_then(|row| match row.source {
        Source::Fact(family) => Some(family),
        _ => None,
    });
    let Some(family) = family.filter(|family| *family.labels() == *wire.labels) else {
        tracing::warn!(
            family = wire.name,
            "the state file has counters that this build has not"
        );
        return None;
    };
    let of_width = |counter: &WireCounter| counter.values.len() == family.labels().len();
    let series = wire
        .series
        .into_iter()
        .filter(of_width)
        .map(|counter| Counter {
            labels: counter.values.into_iter().map(Name::from).collect(),
            count: counter.count,
            created: LogTime(counter.created_ms),
        });
    Some((family, series.collect()))
}

fn checksum(body: &str) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(body.as_bytes()) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Stored {
        let counter = |agent: &str, count| Counter {
            labels: ["shop", "", "m", agent, "answer"].map(Name::from).into(),
            count,
            created: LogTime(1_772_445_600_123),
        };
        let mark = |below, before| Counted {
            below: Offset(below),
            before: LogTime(before),
        };
        let counters = vec![counter("a \"b\"\n", u64::MAX), counter("c", 0)];
        Stored {
            group: "g".to_owned(),
            cluster: Some("c1".to_owned()),
            counted: [
                (("t".into(), 0), mark(7, 1_772_445_600_000)),
                (("t".into(), 1), mark(0, i64::MIN)),
            ]
            .into(),
            counters: Counters::of(vec![(Family::Tokens, counters)]),
        }
    }

    #[test]
    fn reads_what_it_writes() {
        let text = stored().text();
        assert_eq!(Stored::read(&text), Ok(stored()));
        assert_eq!(
            Stored::read(&Stored::default().text()),
            Ok(Stored::default())
        );
    }

    #[test]
    fn whatever_is_torn_or_changed_is_refused() {
        let text = stored().text();
        for end in 0..text.len() {
            assert!(Stored::read(&text[..end]).is_err(), "cut at {end}");
        }
        let changed = text.replacen("\"count\":0", "\"count\":1", 1);
        assert_eq!(
            Stored::read(&changed),
            Err("its checksum is another one".to_owned())
        );
        let other = text.replacen("state 1", "state 2", 1);
        assert!(Stored::read(&other).is_err());
    }

    #[test]
    fn families_of_another_build_are_left_out() {
        for (from, to) in [
            ("tachograph_tokens_total", "x_total"),
            ("\"agent\"", "\"who\""),
        ] {
            let text = stored().text();
            let body = text.split_once('\n').unwrap().1.replacen(from, to, 1);
            let text = format!("{HEAD}{}\n{body}", checksum(body.trim_end()));
            let read = Stored::read(&text).unwrap();
            assert!(read.counters.families.is_empty());
            assert_eq!(read.counted, stored().counted);
        }
    }
}
