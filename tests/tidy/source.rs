//! The repository's own files as the lints see them: code, literals and test regions told apart.
//!
//! No parser: it leans on rustfmt's layout, which CI enforces.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One Rust file.
pub struct Source {
    /// Relative to the repository, with `/`.
    pub path: String,
    pub text: String,
    /// The text with comments and the insides of literals blanked, line for line.
    pub code: String,
    /// The text with everything but the insides of literals blanked, line for line.
    pub literals: String,
    /// Lines, from 0, that exist under test only.
    tests: Vec<Range<usize>>,
}

impl Source {
    /// True where line `line`, from 0, is compiled for tests only.
    pub fn is_test(&self, line: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&line))
    }

    /// Lines of code outside tests, numbered from 1.
    pub fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.code.lines().enumerate();
        lines
            .filter(|(line, _)| !self.is_test(*line))
            .map(|(line, text)| (line + 1, text))
    }

    /// The lines of `text` (one of this source's) that belong to tests.
    pub fn of_tests(&self, text: &str) -> String {
        let lines = text.lines().enumerate();
        let lines: Vec<&str> = lines
            .filter(|(line, _)| self.is_test(*line))
            .map(|(_, text)| text)
            .collect();
        lines.join("\n")
    }

    /// Functions: name, first line from 1, lines.
    pub fn functions(&self) -> Vec<(String, usize, usize)> {
        let lines: Vec<&str> = self.code.lines().collect();
        let mut out = Vec::new();
        for (first, line) in lines.iter().enumerate() {
            let Some(name) = function_name(line) else {
                continue;
            };
            let indent = line.len() - line.trim_start().len();
            let closing = format!("{}}}", " ".repeat(indent));
            let body = lines[first..].iter().position(|line| line.ends_with('{'));
            let bodyless = lines[first..].iter().position(|line| line.ends_with(';'));
            let is_short = line.ends_with('}') || bodyless < body && bodyless.is_some();
            if is_short || body.is_none() {
                continue;
            }
            if let Some(length) = lines[first..].iter().position(|line| *line == closing) {
                out.push((name, first + 1, length + 1));
            }
        }
        out
    }
}

fn function_name(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().peekable();
    while let Some(word) = words.next() {
        if word == "fn" {
            let name = words.next()?;
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
            return Some(name[..end.unwrap_or(name.len())].to_owned());
        }
        let is_prefix = word.starts_with("pub")
            || matches!(
                word,
                "const" | "async" | "unsafe" | "extern" | "\" \"" | "\"C\""
            )
            || word.starts_with('"')
            || word == "crate)";
        if !is_prefix {
            return None;
        }
    }
    None
}

/// The repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Text of a file of the repository; `None` where it does not exist.
pub fn read(path: &str) -> Option<String> {
    fs::read_to_string(root().join(path)).ok()
}

/// Paths of all files below `folder`, relative to the repository, sorted; build output is left out.
pub fn files(folder: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_output = matches!(&*name, "target" | "node_modules" | "mutants.out");
            if path.is_dir() && !is_output {
                folders.push(path);
            } else if path.is_file() {
                out.push(relative(&path));
            }
        }
    }
    out.sort();
    out
}

fn relative(path: &Path) -> String {
    let inside = path.strip_prefix(root()).unwrap_or(path);
    inside.to_string_lossy().replace('\\', "/")
}

/// Every Rust file below the folders.
pub fn rust(folders: &[&str]) -> Vec<Source> {
    let mut out: Vec<Source> = folders
        .iter()
        .flat_map(|folder| files(folder))
        .filter(|path| path.ends_with(".rs"))
        .filter_map(|path| {
            let text = read(&path)?;
            let (code, literals) = split(&text);
            let tests = test_ranges(&code);
            Some(Source {
                path,
                text,
                code,
                literals,
                tests,
            })
        })
        .collect();
    let whole: BTreeSet<String> = out.iter().flat_map(test_files).collect();
    for source in &mut out {
        let is_below = |test: &String| {
            source.path == format!("{test}.rs") || source.path.starts_with(&format!("{test}/"))
        };
        if source.path.starts_with("tests/") || whole.iter().any(is_below) {
            source.tests = std::iter::once(0..usize::MAX).collect();
        }
    }
    out
}

/// `#[cfg(test)] mod name { … }`, and single items under the attribute.
fn test_ranges(code: &str) -> Vec<Range<usize>> {
    let lines: Vec<&str> = code.lines().collect();
    let attributes = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.trim() == "#[cfg(test)]");
    attributes
        .map(|(first, line)| {
            let indent = " ".repeat(line.len() - line.trim_start().len());
            let rest = &lines[first..];
            let opens = rest.iter().position(|line| line.ends_with('{'));
            let ends = rest.iter().position(|line| line.ends_with(';'));
            let length = match (opens, ends) {
                (Some(opens), ends) if ends.is_none_or(|ends| opens < ends) => {
                    let closing = [format!("{indent}}}"), format!("{indent}}};")];
                    rest.iter()
                        .position(|line| closing.iter().any(|c| c == line))
                }
                (_, ends) => ends,
            };
            first..first + length.map_or(rest.len(), |length| length + 1)
        })
        .collect()
}

/// Files that `#[cfg(test)] mod name;` brings in, without `.rs`.
fn test_files(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.code.lines().collect();
    let own = source.path.trim_end_matches(".rs");
    let folder = match own.rsplit_once('/') {
        Some((folder, "mod" | "lib" | "main")) => folder,
        _ => own,
    };
    let pairs = lines
        .windows(2)
        .filter(|pair| pair[0].trim() == "#[cfg(test)]");
    pairs
        .filter_map(|pair| {
            let module = pair[1]
                .trim()
                .trim_start_matches("pub ")
                .strip_prefix("mod ")?;
            Some(format!("{folder}/{}", module.strip_suffix(';')?))
        })
        .collect()
}

/// Code and literals, each with the other blanked.
fn split(text: &str) -> (String, String) {
    let (mut code, mut literals) = (String::new(), String::new());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, kind) = next(rest, code.chars().next_back());
        let (piece, after) = rest.split_at(length.max(first.len_utf8()));
        for (position, c) in piece.char_indices() {
            let is_mark = c == '\n' || kind == Kind::Code;
            let is_quote = kind == Kind::Literal && (position == 0 || position + 1 == piece.len());
            code.push(if is_mark || is_quote { c } else { ' ' });
            let is_inside = kind == Kind::Literal && !is_quote || c == '\n';
            literals.push(if is_inside { c } else { ' ' });
        }
        rest = after;
    }
    // Blanked comments would leave blanks at the ends of lines.
    let trimmed: Vec<&str> = code.lines().map(str::trim_end).collect();
    (trimmed.join("\n"), literals)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Length in bytes and kind of the piece that `rest` begins with.
fn next(rest: &str, before: Option<char>) -> (usize, Kind) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), Kind::Comment);
    }
    if rest.starts_with("/*") {
        let end = rest.find("*/").map_or(rest.len(), |end| end + 2);
        return (end, Kind::Comment);
    }
    let is_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with('r') && !is_word {
        let hashes = rest[1..].bytes().take_while(|b| *b == b'#').count();
        if rest[1 + hashes..].starts_with('"') {
            let closing = format!("\"{}", "#".repeat(hashes));
            let end = rest[2 + hashes..].find(&closing);
            let end = end.map_or(rest.len(), |end| 2 + hashes + end + closing.len());
            return (end, Kind::Literal);
        }
    }
    if rest.starts_with('"') {
        return (quoted(rest, '"'), Kind::Literal);
    }
    let mut chars = rest.chars();
    if chars.next() == Some('\'') {
        let (one, two) = (chars.next(), chars.next());
        if one == Some('\\') || two == Some('\'') {
            return (quoted(rest, '\''), Kind::Literal);
        }
    }
    (0, Kind::Code)
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (position, c) in rest.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return position + c.len_utf8();
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    rest.len()
}

/// True where `word` stands in `text` with no letter, digit or underscore beside it.
pub fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(is_part)
            && !text[at + word.len()..].chars().next().is_some_and(is_part)
    })
}
