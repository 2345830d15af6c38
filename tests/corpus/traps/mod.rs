//! What each runtime does that a reader of its events would not expect (runtimes.md), by name: which recording, which
//! facts, why. The truth of every recording is compared besides, in `main.rs`.

mod answers;
mod calls;
mod runs;
mod tools;

use crate::{facts, lines, sets::SETS};
use std::collections::BTreeSet;

/// What a stream of a recording tells: a line for each fact, as `lines.rs` writes it, behind its kind. Of every kind that
/// is named all facts must be there; `no call` says that there is none.
fn tells(place: &str, told: &str) {
    let parts: Vec<&str> = place.split('/').collect();
    let [set, stream, recording] = parts[..] else {
        panic!("{place}: set/stream/recording");
    };
    let set = SETS.iter().find(|known| known.name == set).unwrap();
    let facts = facts(set, stream, &format!("{recording}.ndjson"));
    let want: Vec<&str> = told.lines().map(str::trim).collect();
    let mut got = Vec::new();
    let mut kinds = BTreeSet::new();
    for line in &want {
        let (kind, rest) = line.split_once(' ').unwrap();
        let kind = if kind == "no" { rest } else { kind };
        if kinds.insert(kind) {
            let lines = lines::of(&facts, kind);
            match lines.is_empty() {
                true => got.push(format!("no {kind}")),
                false => got.extend(lines.iter().map(|line| format!("{kind} {line}"))),
            }
        }
    }
    assert_eq!(got, want, "{place} tells\n{}", got.join("\n"));
}
