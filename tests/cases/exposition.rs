//! What a scrape shows, read as Prometheus reads it, and compared with `expect.prometheus`
//! (README, sections 5 and 7.3).

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const INPUT_CLASSES: [&str; 4] = [
    "input_uncached",
    "cache_read",
    "cache_write",
    "tool_use_input",
];
const DURATION: &str = "gen_ai_client_operation_duration_seconds";

/// One sample line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Series {
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }

    /// The family, without what a histogram or summary appends.
    fn family(&self) -> &str {
        let ends = ["_bucket", "_sum", "_count"];
        ends.iter()
            .find_map(|end| self.name.strip_suffix(end))
            .unwrap_or(&self.name)
    }
}

/// Every sample of an exposition; `Err` names the line that is none.
pub fn parse(text: &str) -> Result<Vec<Series>, String> {
    let is_sample = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let read = |line: &str| sample(line).ok_or_else(|| format!("no sample: {line}"));
    text.lines().filter(is_sample).map(read).collect()
}

fn sample(line: &str) -> Option<Series> {
    let (name, rest) = line.split_at(line.find(['{', ' '])?);
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = match value.trim() {
        "+Inf" => f64::INFINITY,
        "NaN" => f64::NAN,
        number => number.parse().ok()?,
    };
    Some(Series {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// `name="value",…}` with the three escapes of the format, and what follows.
fn labels(text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.insert(name.to_owned(), value);
        rest = &quoted[end + 1..];
    }
}

/// `tachograph_tokens_total` over the four classes of input.
pub fn input_tokens(text: &str) -> f64 {
    let series = parse(text).unwrap_or_default();
    let of_class = |class: &str| {
        let selector = format!("tachograph_tokens_total{{token_class=\"{class}\"}}");
        sum(&series, &selector)
    };
    INPUT_CLASSES.iter().map(|class| of_class(class)).sum()
}

/// What all scrapes of a case showed.
pub struct Scrapes {
    text: String,
    scrapes: Vec<Vec<Series>>,
}

impl Scrapes {
    /// # Errors
    /// A line that is no sample.
    pub fn new(texts: &[String]) -> Result<Scrapes, String> {
        let scrapes = texts
            .iter()
            .map(|text| parse(text))
            .collect::<Result<_, _>>()?;
        Ok(Scrapes {
            text: texts.last().cloned().unwrap_or_default(),
            scrapes,
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The sum over the last scrape.
    pub fn sum(&self, selector: &str) -> f64 {
        sum(self.last(), selector)
    }

    fn last(&self) -> &[Series] {
        self.scrapes.last().map_or(&[], Vec::as_slice)
    }

    /// Everything of `expect.prometheus` that does not hold; with `is_never` turned round.
    pub fn judge(&self, expect: &Map<String, Value>, is_never: bool) -> Vec<String> {
        let mut reasons = Vec::new();
        for (key, value) in expect {
            let told = match (key.as_str(), value) {
                ("sum_of_increases", Value::Object(selectors)) => {
                    let increase = |selector: &String| self.increases(selector);
                    each(selectors, increase, is_never)
                }
                (key, Value::Array(values)) if is_never => {
                    let got = self.number(key);
                    let hits = values.iter().filter(|value| is_near(value.as_f64(), got));
                    hits.map(|value| format!("{key}: must never be {value}"))
                        .collect()
                }
                (key, value) if value.is_number() => {
                    let one = Map::from_iter([(key.to_owned(), value.clone())]);
                    each(&one, |key| self.number(key), is_never)
                }
                (key, value) => self.words(key, value),
            };
            reasons.extend(
                told.into_iter()
                    .map(|reason| format!("prometheus.{reason}")),
            );
        }
        reasons
    }

    /// A number by its name: a bound of the README, or the sum over a selector.
    fn number(&self, key: &str) -> f64 {
        match key {
            "series_per_metric_max" => self.series_per_metric(),
            "distinct_model_label_values_max" => self.models(),
            "series_folded_min" => sum(self.last(), "tachograph_series_folded_total"),
            "observations_only_in_inf_bucket" => {
                let bucket =
                    |le: &str| sum(self.last(), &format!("{DURATION}_bucket{{le=\"{le}\"}}"));
                bucket("+Inf") - bucket("655.36")
            }
            selector => sum(self.last(), selector),
        }
    }

    fn words(&self, key: &str, value: &Value) -> Vec<String> {
        let words: Vec<&str> = value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let names = || self.last().iter().flat_map(|one| one.labels.keys());
        let values = || self.last().iter().flat_map(|one| one.labels.values());
        let wrong = |word: &&str, is_so: bool| is_so.then(|| format!("{key}: {word}"));
        match key {
            // Both hold where this could be read at all.
            "scrape_parses" | "output_is_valid_utf8" => Vec::new(),
            "label_names_never" => words
                .iter()
                .filter_map(|word| wrong(word, names().any(|name| name == word)))
                .collect(),
            "label_values_never" => words
                .iter()
                .filter_map(|word| wrong(word, values().any(|value| value == word)))
                .collect(),
            "text_contains" => words
                .iter()
                .filter_map(|word| wrong(word, !self.text.contains(word)))
                .collect(),
            "finite_bucket_bounds" => self.bounds(value),
            _ => vec![format!("{key}: {value} cannot be compared")],
        }
    }

    fn bounds(&self, expect: &Value) -> Vec<String> {
        let bucket = format!("{DURATION}_bucket");
        let of = self.last().iter().filter(|one| one.name == bucket);
        let shown: BTreeSet<String> = of
            .filter_map(|one| one.label("le"))
            .filter(|le| *le != "+Inf")
            .map(number_text)
            .collect();
        let wanted: BTreeSet<String> = expect
            .as_array()
            .into_iter()
            .flatten()
            .map(|bound| number_text(&bound.to_string()))
            .collect();
        if shown == wanted {
            Vec::new()
        } else {
            vec![format!(
                "finite_bucket_bounds: expected {wanted:?}, got {shown:?}"
            )]
        }
    }

    /// Most label sets of one family; buckets and quantiles of one set count once.
    fn series_per_metric(&self) -> f64 {
        let mut sets: BTreeMap<&str, BTreeSet<Vec<(&str, &str)>>> = BTreeMap::new();
        for one in self.last() {
            let labels = one
                .labels
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()));
            let labels = labels
                .filter(|(name, _)| !["le", "quantile"].contains(name))
                .collect();
            sets.entry(one.family()).or_default().insert(labels);
        }
        sets.values().map(BTreeSet::len).max().unwrap_or(0) as f64
    }

    fn models(&self) -> f64 {
        let of = |label: &str| {
            let values: BTreeSet<&str> = self
                .last()
                .iter()
                .filter_map(|one| one.label(label))
                .collect();
            values.len()
        };
        of("model").max(of("gen_ai_response_model")) as f64
    }

    /// Increases from scrape to scrape; a fall is a restart at zero, as `increase()` sees it.
    fn increases(&self, selector: &str) -> f64 {
        let mut known: BTreeMap<String, f64> = BTreeMap::new();
        let mut total = 0.0;
        for scrape in &self.scrapes {
            for one in scrape.iter().filter(|one| fits(one, selector)) {
                let key = format!("{} {:?}", one.name, one.labels);
                let before = known.insert(key, one.value).unwrap_or(0.0);
                total += if one.value < before {
                    one.value
                } else {
                    one.value - before
                };
            }
        }
        total
    }
}

fn each(expect: &Map<String, Value>, got: impl Fn(&String) -> f64, is_never: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    for (key, value) in expect {
        let (wanted, got) = (value.as_f64(), got(key));
        let holds = match key {
            key if key.ends_with("_max") => wanted.is_some_and(|wanted| got <= wanted),
            key if key.ends_with("_min") => wanted.is_some_and(|wanted| got >= wanted),
            _ => is_near(wanted, got),
        };
        if holds == is_never {
            let never = if is_never {
                "must never be"
            } else {
                "expected"
            };
            reasons.push(format!("{key}: {never} {value}, got {got}"));
        }
    }
    reasons
}

/// Floats may differ by one part in 10⁹.
fn is_near(wanted: Option<f64>, got: f64) -> bool {
    wanted.is_some_and(|wanted| (wanted - got).abs() <= 1e-9 * wanted.abs().max(got.abs()))
}

fn number_text(text: &str) -> String {
    text.parse::<f64>()
        .map_or_else(|_| text.to_owned(), |number| number.to_string())
}

fn sum(series: &[Series], selector: &str) -> f64 {
    series
        .iter()
        .filter(|one| fits(one, selector))
        .map(|one| one.value)
        .sum()
}

/// `name` or `name{label="value",…}`.
fn fits(one: &Series, selector: &str) -> bool {
    let (name, wanted) = match selector.split_once('{') {
        Some((name, rest)) => (
            name,
            labels(rest).map(|(labels, _)| labels).unwrap_or_default(),
        ),
        None => (selector, BTreeMap::new()),
    };
    one.name == name
        && wanted
            .iter()
            .all(|(label, value)| one.label(label) == Some(value))
}
