//! The text of `/metrics`, read back.
//!
//! Deliberately no more of the format than our own exporter writes: one sample a line, no
//! exemplars.

use crate::embedded::http::{Request, exchange};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Bound on one scrape.
const SCRAPE_MAX: Duration = Duration::from_secs(10);

/// One scrape.
#[derive(Debug, Default)]
pub struct Scrape {
    samples: Vec<Series>,
}

/// One series and its value.
#[derive(Debug, PartialEq)]
pub struct Series {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

impl Series {
    /// The value of a label; empty where there is none.
    pub fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(label, _)| label == name);
        found.map_or("", |(_, value)| value)
    }
}

impl Scrape {
    /// Asks `address` for `/metrics`.
    ///
    /// # Errors
    /// No connection, or no status 200.
    pub fn of(address: SocketAddr) -> io::Result<Scrape> {
        let request = Request::get("/metrics", SCRAPE_MAX);
        let answer = exchange(&address.to_string(), &request)?;
        match answer.status {
            200 => Ok(Scrape::parse(&answer.text())),
            status => Err(io::Error::other(format!("/metrics answered {status}"))),
        }
    }

    pub(super) fn parse(text: &str) -> Scrape {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Scrape {
            samples: lines.filter_map(series).collect(),
        }
    }

    /// Every series of a metric.
    pub fn of_metric<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Series> {
        self.samples
            .iter()
            .filter(move |series| series.name == name)
    }

    /// The sum over all series of a metric.
    pub fn sum(&self, name: &str) -> f64 {
        // A plain sum of no floats is -0.
        let values = self.of_metric(name).map(|series| series.value);
        values.fold(0.0, |sum, value| sum + value)
    }
}

fn series(line: &str) -> Option<Series> {
    let (head, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, rest) = head.split_once('{').unwrap_or((head, "}"));
    let mut labels = Vec::new();
    let mut rest = rest;
    while let Some((label, after)) = rest.split_once("=\"") {
        let (text, after) = quoted(after)?;
        labels.push((label.trim_start_matches(',').to_owned(), text));
        rest = after;
    }
    Some(Series {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// The text up to the closing quote, unescaped, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => out.push('\n'),
                other => out.push(other),
            },
            other => out.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_labels_with_escapes_and_none() {
        let text = "# HELP a b\na{x=\"1\",y=\"say \\\"hi\\\", {ok}\"} 3\na 4.5\nb_total{} 1e3\n";
        let scrape = Scrape::parse(text);
        assert_eq!(scrape.sum("a"), 7.5);
        assert_eq!(scrape.sum("b_total"), 1000.0);
        let first = scrape.of_metric("a").next().unwrap();
        assert_eq!(scrape.sum("c").to_string(), "0");
        assert_eq!(first.label("y"), "say \"hi\", {ok}");
        assert_eq!((first.label("x"), first.label("z")), ("1", ""));
    }
}
