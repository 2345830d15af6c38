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

/// True of a harness that this runner has.
fn is_had(harness: Harness) -> bool {
    harness != Harness::Prices
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

/// `Err` says what is wrong.
pub type Fits = Result<(), String>;

/// Compares what some harnesses tell: names of others are passed over.
pub struct Matcher(pub &'static [Harness]);

impl Matcher {
    fn tells(&self, name: &Name) -> bool {
        self.0.contains(&name.harness)
    }

    /// True where it tells one of these names.
    pub fn tells_any<'k>(
        &self,
        mut keys: impl Iterator<Item = &'k String>,
        names: &[Name],
    ) -> bool {
        keys.any(|key| find(names, key).is_some_and(|name| self.tells(name)))
    }

    /// Compares an object: each name that this runner can tell must hold.
    pub fn object(
        &self,
        path: &str,
        expect: &Map<String, Value>,
        actual: &Value,
        names: &[Name],
    ) -> Fits {
        for (key, value) in expect {
            let Some(name) = find(names, key).filter(|name| self.tells(name)) else {
                continue;
            };
            let told = actual.get(key).unwrap_or(&Value::Null);
            let path = format!("{path}.{key}");
            match is_within(key, value, told) {
                Some(true) => {}
                Some(false) => {
                    return Err(format!("{path}: the bound is {value}, got {}", short(told)));
                }
                None => self.fits(&path, value, told, &name.kind)?,
            }
        }
        Ok(())
    }

    /// Compares one value.
    pub fn fits(&self, path: &str, expect: &Value, actual: &Value, kind: &Kind) -> Fits {
        let wrong = || Err(format!("{path}: expected {expect}, got {}", short(actual)));
        let is_right = match (kind, expect) {
            (_, Value::Null) => actual.is_null(),
            (Kind::Object(names), Value::Object(expect)) => {
                return self.object(path, expect, actual, names);
            }
            (Kind::Rows(names), Value::Array(rows)) => return self.rows(path, rows, actual, names),
            (Kind::OrderedRows(names), Value::Array(rows)) => {
                return self.in_order(path, rows, actual, names);
            }
            (Kind::Map(kind), Value::Object(map)) => {
                for (key, value) in map {
                    let told = by_instant(actual, key).unwrap_or(&Value::Null);
                    self.fits(&format!("{path}.{key}"), value, told, kind)?;
                }
                return Ok(());
            }
            (Kind::Contains(_), Value::Array(words)) if words.is_empty() => is_empty(actual),
            (Kind::Contains(_), Value::Array(words)) => {
                words.iter().all(|word| holds(actual, word))
            }
            (Kind::Exactly, Value::Array(words)) => {
                words.iter().all(|word| holds(actual, word))
                    && actual.as_array().map_or(0, Vec::len) == words.len()
            }
            (Kind::InOrder, _) => expect == actual,
            (Kind::Number, _) => is_equal_number(expect, actual),
            (Kind::Instant, _) => {
                let instant = |value: &Value| instant(value.as_str()?);
                instant(expect).is_some() && instant(expect) == instant(actual)
            }
            _ => expect == actual,
        };
        if is_right { Ok(()) } else { wrong() }
    }

    /// Each expected row finds a row of its own; an empty list wants no row.
    fn rows(&self, path: &str, expect: &[Value], actual: &Value, names: &[Name]) -> Fits {
        let told = actual.as_array().map_or(&[][..], Vec::as_slice);
        if expect.is_empty() {
            return if told.is_empty() {
                Ok(())
            } else {
                Err(format!("{path}: expected no row, got {}", short(actual)))
            };
        }
        let row_fits = |want: &Value, row: &Value| {
            self.object(path, want.as_object().unwrap_or(&Map::new()), row, names)
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

    fn in_order(&self, path: &str, expect: &[Value], actual: &Value, names: &[Name]) -> Fits {
        if expect.is_empty() {
            return self.rows(path, expect, actual, names);
        }
        let mut rest = actual.as_array().map_or(&[][..], Vec::as_slice).iter();
        for (i, want) in expect.iter().enumerate() {
            let want_object = want.as_object().cloned().unwrap_or_default();
            if !rest.any(|row| self.object(path, &want_object, row, names).is_ok()) {
                return Err(format!(
                    "{path}[{i}]: {want} does not follow, in {}",
                    short(actual)
                ));
            }
        }
        Ok(())
    }

    /// `never`: the same shape turned round.
    pub fn never(
        &self,
        path: &str,
        forbid: &Map<String, Value>,
        actual: &Value,
        names: &[Name],
    ) -> Fits {
        for (key, value) in forbid {
            let Some(name) = find(names, key).filter(|name| self.tells(name)) else {
                continue;
            };
            let told = actual.get(key).unwrap_or(&Value::Null);
            let path = format!("{path}.{key}");
            match (&name.kind, value) {
                (Kind::Object(names), Value::Object(forbid)) => {
                    self.never(&path, forbid, told, names)?
                }
                (Kind::Rows(names) | Kind::OrderedRows(names), Value::Array(rows)) => {
                    self.never_rows(&path, rows, told, names)?;
                }
                (kind, Value::Array(values)) => {
                    for value in values {
                        self.never_value(&path, value, told, kind)?;
                    }
                }
                (kind, value) => self.never_value(&path, value, told, kind)?,
            }
        }
        Ok(())
    }

    fn never_value(&self, path: &str, forbidden: &Value, actual: &Value, kind: &Kind) -> Fits {
        match self.fits(path, forbidden, actual, kind) {
            Ok(()) => Err(format!("{path}: must never be {forbidden}")),
            Err(_) => Ok(()),
        }
    }

    fn never_rows(&self, path: &str, forbidden: &[Value], actual: &Value, names: &[Name]) -> Fits {
        for row in actual.as_array().into_iter().flatten() {
            for forbidden in forbidden.iter().filter_map(Value::as_object) {
                if self.is_told(forbidden, names) && self.object_never(path, forbidden, row, names)
                {
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
    fn is_told(&self, forbidden: &Map<String, Value>, names: &[Name]) -> bool {
        forbidden
            .keys()
            .all(|key| find(names, key).is_some_and(|name| self.tells(name)))
    }

    /// True where the row is what it must never be; a list of values means any of them.
    fn object_never(
        &self,
        path: &str,
        forbidden: &Map<String, Value>,
        row: &Value,
        names: &[Name],
    ) -> bool {
        forbidden.iter().all(|(key, value)| {
            let Some(name) = find(names, key) else {
                return false;
            };
            let told = row.get(key).unwrap_or(&Value::Null);
            match (&name.kind, value) {
                (Kind::Object(names), Value::Object(inner)) => {
                    self.object_never(path, inner, told, names)
                }
                (Kind::Contains(_) | Kind::Exactly | Kind::InOrder, value) => {
                    self.fits(path, value, told, &name.kind).is_ok()
                }
                (kind, Value::Array(values)) => values
                    .iter()
                    .any(|value| self.fits(path, value, told, kind).is_ok()),
                (kind, value) => self.fits(path, value, told, kind).is_ok(),
            }
        })
    }
}

fn instant(text: &str) -> Option<jiff::Timestamp> {
    text.parse().ok()
}

/// The value of a key; keys that are instants are equal as such.
fn by_instant<'v>(map: &'v Value, key: &str) -> Option<&'v Value> {
    let same = || {
        let wanted = instant(key)?;
        let mut entries = map.as_object()?.iter();
        entries.find_map(|(key, value)| (instant(key) == Some(wanted)).then_some(value))
    };
    map.get(key).or_else(same)
}

/// Whether a bound holds, where the name is that of one. What nobody measured is within none.
fn is_within(key: &str, bound: &Value, actual: &Value) -> Option<bool> {
    let both = || Some((bound.as_f64()?, actual.as_f64()?));
    match key {
        // The longest that may be, by its meaning and not by its name.
        "max_delay_to_visible_s" => Some(both().is_some_and(|(most, got)| got <= most)),
        key if key.ends_with("_max") => Some(both().is_some_and(|(most, got)| got <= most)),
        key if key.ends_with("_min") => Some(both().is_some_and(|(least, got)| got >= least)),
        _ => None,
    }
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

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(300) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
