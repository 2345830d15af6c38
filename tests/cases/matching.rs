//! How `expect` matches what came out (README, section 5).
//!
//! Two passes: every name and word is looked up in the vocabulary first, then what this runner
//! has a harness for is compared.

use super::vocabulary::{FAMILIES, Harness, Kind, Name};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What the first pass found.
#[derive(Debug, Default)]
pub struct Vetted {
    /// Names that are compared.
    pub compared: usize,
    /// Names that only another harness can tell.
    pub skipped: BTreeMap<Harness, BTreeSet<String>>,
    /// Names and words that nobody defines.
    pub errors: Vec<String>,
}

/// The harness whose names stand in the report.
const HARNESS: Harness = Harness::Replay;

/// True of a harness that this runner has.
fn is_had(harness: Harness) -> bool {
    matches!(harness, Harness::Replay | Harness::Prometheus)
}

impl Vetted {
    /// Looks up every name below `path`.
    pub fn object(&mut self, path: &str, expect: &Map<String, Value>, names: &[Name]) {
        for (key, value) in expect {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            match find(names, key) {
                Some(name) if is_had(name.harness) => self.value(&path, value, &name.kind),
                Some(name) => {
                    let mut inner = Vetted::default();
                    inner.value(&path, value, &name.kind);
                    self.errors.append(&mut inner.errors);
                    self.skip(name.harness, &path);
                }
                None if is_prometheus(&path) && is_selector(key) => self.compared += 1,
                None => self.errors.push(format!("unknown name {path}")),
            }
        }
    }

    fn skip(&mut self, harness: Harness, path: &str) {
        self.skipped
            .entry(harness)
            .or_default()
            .insert(path.to_owned());
    }

    fn value(&mut self, path: &str, expect: &Value, kind: &Kind) {
        let mut word = |value: &Value, lists: &[&[&str]]| match value.as_str() {
            Some(word) if lists.is_empty() || lists.iter().any(|words| words.contains(&word)) => {}
            _ if value.is_null() => {}
            _ => self.errors.push(format!("{path}: unknown word {value}")),
        };
        match (kind, expect) {
            // Under `never` a list of values may stand where one is meant.
            (
                Kind::Text
                | Kind::Word(_)
                | Kind::Number
                | Kind::Truth
                | Kind::Instant
                | Kind::Money,
                Value::Array(values),
            ) if path.starts_with("never.") => {
                values
                    .iter()
                    .for_each(|value| self.value(path, value, kind));
            }
            (Kind::Word(words), value) => {
                word(value, &[words]);
                self.compared += 1;
            }
            (Kind::Contains(words), Value::Array(values)) => {
                values.iter().for_each(|value| word(value, words));
                self.compared += 1;
            }
            (Kind::Object(names), Value::Object(expect)) => {
                self.object(path, expect, names);
            }
            (Kind::Rows(names) | Kind::OrderedRows(names), Value::Array(rows)) => {
                self.compared += usize::from(rows.is_empty());
                for row in rows {
                    match row.as_object() {
                        Some(row) => self.object(path, row, names),
                        None => self.errors.push(format!("{path}: {row} is no row")),
                    }
                }
            }
            (Kind::Map(kind), Value::Object(map)) => {
                for (key, value) in map {
                    self.value(&format!("{path}.{key}"), value, kind);
                }
            }
            (Kind::Text, Value::String(_) | Value::Null)
            | (Kind::Instant | Kind::Money, Value::String(_) | Value::Null)
            | (Kind::Number, Value::Number(_) | Value::Null)
            | (Kind::Truth, Value::Bool(_) | Value::Null)
            | (Kind::Exactly | Kind::InOrder, Value::Array(_)) => self.compared += 1,
            (_, Value::Null) => self.compared += 1,
            _ => self.errors.push(format!("{path}: {expect} is no {kind:?}")),
        }
    }
}

fn find<'n>(names: &'n [Name], key: &str) -> Option<&'n Name> {
    names.iter().find(|name| name.name == key)
}

fn is_prometheus(path: &str) -> bool {
    let path = path.strip_prefix("never.").unwrap_or(path);
    path.starts_with("prometheus.")
}

/// `family`, `family_count` or `family_sum`, and labels in braces where there are any.
fn is_selector(key: &str) -> bool {
    let (name, labels) = key.split_once('{').unwrap_or((key, "}"));
    let family = ["_count", "_sum", "_bucket"]
        .iter()
        .find_map(|end| {
            name.strip_suffix(end)
                .filter(|family| FAMILIES.contains(family))
        })
        .unwrap_or(name);
    FAMILIES.contains(&family) && labels.ends_with('}')
}

/// Compares an object: each name that this runner can tell must hold.
pub fn object(path: &str, expect: &Map<String, Value>, actual: &Value, names: &[Name]) -> Fits {
    for (key, value) in expect {
        let Some(name) = find(names, key).filter(|name| name.harness == HARNESS) else {
            continue;
        };
        let told = actual.get(key).unwrap_or(&Value::Null);
        fits(&format!("{path}.{key}"), value, told, &name.kind)?;
    }
    Ok(())
}

/// `Err` says what is wrong.
pub type Fits = Result<(), String>;

/// Compares one value.
pub fn fits(path: &str, expect: &Value, actual: &Value, kind: &Kind) -> Fits {
    let wrong = || Err(format!("{path}: expected {expect}, got {}", short(actual)));
    let is_right = match (kind, expect) {
        (_, Value::Null) => actual.is_null(),
        (Kind::Object(names), Value::Object(expect)) => return object(path, expect, actual, names),
        (Kind::Rows(names), Value::Array(rows)) => return self::rows(path, rows, actual, names),
        (Kind::OrderedRows(names), Value::Array(rows)) => {
            return in_order(path, rows, actual, names);
        }
        (Kind::Map(kind), Value::Object(map)) => {
            for (key, value) in map {
                let told = actual.get(key).unwrap_or(&Value::Null);
                fits(&format!("{path}.{key}"), value, told, kind)?;
            }
            return Ok(());
        }
        (Kind::Contains(_), Value::Array(words)) if words.is_empty() => is_empty(actual),
        (Kind::Contains(_), Value::Array(words)) => words.iter().all(|word| holds(actual, word)),
        (Kind::Exactly, Value::Array(words)) => {
            words.iter().all(|word| holds(actual, word))
                && actual.as_array().map_or(0, Vec::len) == words.len()
        }
        (Kind::InOrder, _) => expect == actual,
        (Kind::Number, _) => is_equal_number(expect, actual),
        (Kind::Instant, _) => {
            let instant = |value: &Value| value.as_str()?.parse::<jiff::Timestamp>().ok();
            instant(expect).is_some() && instant(expect) == instant(actual)
        }
        _ => expect == actual,
    };
    if is_right { Ok(()) } else { wrong() }
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

fn holds(list: &Value, word: &Value) -> bool {
    list.as_array().is_some_and(|list| list.contains(word))
}

/// Equal by value: 450 is 450.0.
fn is_equal_number(expect: &Value, actual: &Value) -> bool {
    let both = |a: Option<i128>, b: Option<i128>| a.is_some() && a == b;
    let whole = |value: &Value| {
        let signed = value.as_i64().map(i128::from);
        signed.or(value.as_u64().map(i128::from))
    };
    both(whole(expect), whole(actual))
        || (whole(expect).is_none() || whole(actual).is_none())
            && expect.as_f64().is_some()
            && expect.as_f64() == actual.as_f64()
}

/// Each expected row finds a row of its own; an empty list wants no row.
fn rows(path: &str, expect: &[Value], actual: &Value, names: &[Name]) -> Fits {
    let told = actual.as_array().map_or(&[][..], Vec::as_slice);
    if expect.is_empty() {
        return if told.is_empty() {
            Ok(())
        } else {
            Err(format!("{path}: expected no row, got {}", short(actual)))
        };
    }
    let row_fits = |want: &Value, row: &Value| {
        object(path, want.as_object().unwrap_or(&Map::new()), row, names)
    };
    let fitting = |want: &Value| -> Vec<usize> {
        let is_fitting = |row: &usize| row_fits(want, &told[*row]).is_ok();
        (0..told.len()).filter(is_fitting).collect()
    };
    let edges: Vec<Vec<usize>> = expect.iter().map(fitting).collect();
    let mut taken: Vec<Option<usize>> = vec![None; told.len()];
    for (i, want) in expect.iter().enumerate() {
        if edges[i].is_empty() {
            let near: Vec<String> = told
                .iter()
                .filter_map(|row| row_fits(want, row).err())
                .collect();
            let (rows, near) = (told.len(), near.join("; "));
            return Err(format!("{path}[{i}]: no row of {rows} fits {want}: {near}"));
        }
        if !augment(i, &edges, &mut taken, &mut vec![false; told.len()]) {
            return Err(format!(
                "{path}[{i}]: another expected row needs the only row for {want}"
            ));
        }
    }
    Ok(())
}

/// One step of bipartite matching: finds a row for `want`, moving others where they have a choice.
fn augment(
    want: usize,
    edges: &[Vec<usize>],
    taken: &mut [Option<usize>],
    seen: &mut [bool],
) -> bool {
    for &row in &edges[want] {
        if std::mem::replace(&mut seen[row], true) {
            continue;
        }
        let other = taken[row];
        if other.is_none_or(|other| augment(other, edges, taken, seen)) {
            taken[row] = Some(want);
            return true;
        }
    }
    false
}

fn in_order(path: &str, expect: &[Value], actual: &Value, names: &[Name]) -> Fits {
    if expect.is_empty() {
        return rows(path, expect, actual, names);
    }
    let mut rest = actual.as_array().map_or(&[][..], Vec::as_slice).iter();
    for (i, want) in expect.iter().enumerate() {
        let want_object = want.as_object().cloned().unwrap_or_default();
        if !rest.any(|row| object(path, &want_object, row, names).is_ok()) {
            return Err(format!(
                "{path}[{i}]: {want} does not follow, in {}",
                short(actual)
            ));
        }
    }
    Ok(())
}

/// `never`: the same shape turned round.
pub fn never(path: &str, forbid: &Map<String, Value>, actual: &Value, names: &[Name]) -> Fits {
    for (key, value) in forbid {
        let Some(name) = find(names, key).filter(|name| name.harness == HARNESS) else {
            continue;
        };
        let told = actual.get(key).unwrap_or(&Value::Null);
        let path = format!("{path}.{key}");
        match (&name.kind, value) {
            (Kind::Object(names), Value::Object(forbid)) => never(&path, forbid, told, names)?,
            (Kind::Rows(names) | Kind::OrderedRows(names), Value::Array(rows)) => {
                never_rows(&path, rows, told, names)?;
            }
            (kind, Value::Array(values)) => {
                for value in values {
                    never_value(&path, value, told, kind)?;
                }
            }
            (kind, value) => never_value(&path, value, told, kind)?,
        }
    }
    Ok(())
}

fn never_value(path: &str, forbidden: &Value, actual: &Value, kind: &Kind) -> Fits {
    match fits(path, forbidden, actual, kind) {
        Ok(()) => Err(format!("{path}: must never be {forbidden}")),
        Err(_) => Ok(()),
    }
}

fn never_rows(path: &str, forbidden: &[Value], actual: &Value, names: &[Name]) -> Fits {
    for row in actual.as_array().into_iter().flatten() {
        for forbidden in forbidden.iter().filter_map(Value::as_object) {
            if is_told(forbidden, names) && object_never(path, forbidden, row, names) {
                return Err(format!(
                    "{path}: a row must never be {}",
                    Value::from(forbidden.clone())
                ));
            }
        }
    }
    Ok(())
}

/// True where this runner can tell all of it: a part that it cannot would make anything fit.
fn is_told(forbidden: &Map<String, Value>, names: &[Name]) -> bool {
    forbidden
        .keys()
        .all(|key| find(names, key).is_some_and(|name| name.harness == HARNESS))
}

/// True where the row is what it must never be; a list of values means any of them.
fn object_never(path: &str, forbidden: &Map<String, Value>, row: &Value, names: &[Name]) -> bool {
    forbidden.iter().all(|(key, value)| {
        let Some(name) = find(names, key) else {
            return false;
        };
        let told = row.get(key).unwrap_or(&Value::Null);
        match (&name.kind, value) {
            (Kind::Object(names), Value::Object(inner)) => object_never(path, inner, told, names),
            (Kind::Contains(_) | Kind::Exactly | Kind::InOrder, value) => {
                fits(path, value, told, &name.kind).is_ok()
            }
            (kind, Value::Array(values)) => values
                .iter()
                .any(|value| fits(path, value, told, kind).is_ok()),
            (kind, value) => fits(path, value, told, kind).is_ok(),
        }
    })
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(300) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
