//! Rules that compare documents with code: the picture, the metrics table, the limits table.

use crate::require;
use crate::source::read;
use std::collections::BTreeSet;

fn readme() -> String {
    read("README.md").expect("README.md exists: write it, with the picture and both tables")
}

/// The fenced block that holds the picture: the first with a box.
fn picture(text: &str, path: &str) -> String {
    text.split("```")
        .skip(1)
        .step_by(2)
        .find(|block| block.contains("+---"))
        .unwrap_or_else(|| {
            panic!("{path} shows the picture (architecture.md §2) in a fenced block")
        })
        .to_owned()
}

/// Names of boxes: the first word under each top border, with the column of the box.
fn boxes(picture: &str) -> Vec<(usize, usize, String)> {
    let lines: Vec<Vec<char>> = picture.lines().map(|line| line.chars().collect()).collect();
    let mut out = Vec::new();
    for (row, pair) in lines.windows(2).enumerate() {
        let corners: Vec<usize> = (0..pair[0].len())
            .filter(|at| pair[0][*at] == '+')
            .collect();
        for ends in corners.windows(2) {
            let (from, to) = (ends[0], ends[1]);
            let is_border = pair[0][from + 1..to]
                .iter()
                .all(|c| matches!(c, '-' | 'v' | '^'));
            let has_sides = pair[1].get(from) == Some(&'|') && pair[1].get(to) == Some(&'|');
            if is_border && has_sides && to > from + 4 {
                let inside: String = pair[1][from + 1..to].iter().collect();
                let name = inside.split_whitespace().next().unwrap_or("").to_owned();
                out.push((from, row, name));
            }
        }
    }
    out
}

/// Names that arrows connect inside a box: `a -> b -> c`, and `-> d <-`.
fn chained(picture: &str) -> Vec<String> {
    let mut out = Vec::new();
    for line in picture.lines() {
        let words: Vec<&str> = line
            .split([' ', '|'])
            .filter(|word| !word.is_empty())
            .collect();
        for (at, word) in words.iter().enumerate() {
            let is_name = word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            let before = at > 0 && words[at - 1].ends_with("->") && !words[at - 1].contains("---");
            let after = words.get(at + 1).is_some_and(|next| *next == "->");
            if is_name && (before || after) {
                out.push((*word).to_owned());
            }
        }
    }
    out
}

/// Modules that a file declares, in order.
fn modules(path: &str) -> Vec<String> {
    let text = read(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("pub mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_picture_is_the_code() {
    let (edges, core) = (modules("src/lib.rs"), modules("src/core/mod.rs"));
    let mut problems = Vec::new();
    for path in ["README.md", "src/ARCHITECTURE.md"] {
        let text =
            read(path).unwrap_or_else(|| panic!("{path} exists: write it, with the picture"));
        let picture = picture(&text, path);
        let mut boxes = boxes(&picture);
        // The data's way: top to bottom where boxes stand in one column, else left to right.
        boxes.sort();
        let names: Vec<&str> = boxes.iter().map(|(_, _, name)| name.as_str()).collect();
        for name in names
            .iter()
            .filter(|name| !edges.iter().any(|edge| edge == **name))
        {
            problems.push(format!("{path}: box `{name}` is no module of src/lib.rs"));
        }
        let drawn = |name: &&String| names.contains(&name.as_str()) && **name != "core";
        let declared: Vec<&String> = edges.iter().filter(drawn).collect();
        let pictured: Vec<&&str> = names.iter().filter(|name| **name != "core").collect();
        if !declared.iter().eq(pictured.iter()) {
            problems.push(format!(
                "{path}: boxes {pictured:?}, src/lib.rs declares {declared:?}"
            ));
        }
        let inside = chained(&picture);
        for name in inside.iter().filter(|name| !core.contains(name)) {
            problems.push(format!("{path}: `{name}` is no module of src/core/mod.rs"));
        }
        for name in [
            "kafka_source",
            "core",
            "clickhouse_sink",
            "prometheus_exporter",
            "http_server",
        ] {
            if !names.contains(&name) {
                problems.push(format!("{path}: the picture has no box `{name}`"));
            }
        }
        for name in ["dialect", "timeline", "batch", "ledger"] {
            if !inside.iter().any(|drawn| drawn == name) {
                problems.push(format!("{path}: the core's box does not show `{name}`"));
            }
        }
    }
    require(
        &problems,
        "Every box is a module of that name, in that order: change the picture or the modules.",
    );
}

#[cfg(feature = "io")]
#[test]
fn the_metrics_table_is_the_catalogue() {
    let table = tachograph::prometheus_exporter::catalogue::markdown();
    let readme = readme();
    let missing: Vec<String> = table
        .lines()
        .filter(|line| !readme.lines().any(|known| known.trim() == line.trim()))
        .map(str::to_owned)
        .collect();
    let names: BTreeSet<&str> = table.lines().filter_map(metric).collect();
    let stale = readme
        .lines()
        .filter_map(metric)
        .filter(|name| !names.contains(name));
    let stale = stale.map(|name| format!("no longer a metric: {name}"));
    let problems: Vec<String> = missing.into_iter().chain(stale).collect();
    require(
        &problems,
        "README.md holds catalogue::markdown() as it is: replace the rows of its metrics table by \
         the lines below.",
    );
}

/// The metric that a row of a table begins with.
#[cfg(feature = "io")]
fn metric(line: &str) -> Option<&str> {
    let name = line.trim().strip_prefix("| `")?.split('`').next()?;
    (name.starts_with("tachograph_") || name.starts_with("gen_ai_")).then_some(name)
}

/// Fields of `Limits` that are no key of `[limits]`.
const NO_LIMITS: &[(&str, &str)] = &[
    (
        "attributes_max",
        "fixed by events.md §2.1; stands beside attribute_bytes_max",
    ),
    ("store_reasons", "a choice, of [privacy]"),
];

#[test]
fn limits_are_documented_and_exemplified() {
    let text = read("src/core/limits.rs").unwrap_or_default();
    let fields: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_prefix("pub ")
                .filter(|field| !field.starts_with("const "))?
                .split_once(": ")
        })
        .map(|(name, _)| name)
        .filter(|name| !NO_LIMITS.iter().any(|(listed, _)| listed == name))
        .collect();
    let example = "deploy/tachograph.example.toml";
    let toml = read(example).unwrap_or_else(|| panic!("{example} exists: write it"));
    let section = toml.split("\n[limits]\n").nth(1).unwrap_or_default();
    let keys: BTreeSet<&str> = section
        .lines()
        .take_while(|line| !line.starts_with('['))
        .map(|line| line.trim_start_matches("# "))
        .filter_map(|line| line.split_once(" = "))
        .map(|(key, _)| key)
        .filter(|key| !key.contains(' '))
        .collect();
    let readme = readme();
    let rows: BTreeSet<&str> = readme.lines().filter_map(limit_cell).flatten().collect();
    let mut problems = Vec::new();
    for (place, known) in [(example, &keys), ("README.md", &rows)] {
        for name in fields.difference(known) {
            problems.push(format!("{place}: `{name}` is missing"));
        }
        for name in known.difference(&fields) {
            problems.push(format!("{place}: `{name}` is no field of core::Limits"));
        }
    }
    require(
        &problems,
        "Fields of core::Limits = [limits] of the example = rows of the README's limits table.",
    );
}

/// The keys in the first cell of a row of the limits table: a table whose keys end like limits.
fn limit_cell(line: &str) -> Option<Vec<&str>> {
    let cell = line.trim().strip_prefix("| `")?.split('|').next()?;
    let keys: Vec<&str> = cell
        .split('`')
        .step_by(2)
        .filter(|key| key.len() > 2)
        .collect();
    let is_limit = |key: &&str| {
        let ends = ["_max", "_interval", "_margin"];
        ends.iter().any(|end| key.ends_with(end))
    };
    keys.iter().all(is_limit).then_some(keys)
}
