//! A configuration back to TOML, in the order of the file and without secrets.

use super::fields::{self, Field, SECTIONS};
use super::value::{bytes_text, span_text};
use super::{Config, Topic};
use std::collections::BTreeMap;
use std::fmt::Write as _;

pub(super) fn render(config: &Config) -> String {
    // The walk hands out places to write to; printing only looks.
    let mut config = config.clone();
    let mut out = String::new();
    for section in SECTIONS {
        let _ = writeln!(out, "[{}]", section.name);
        (section.each)(&mut config, &mut |key, field| {
            line(&mut out, section.name, key, field);
        });
        out.push('\n');
        if section.name == "kafka" {
            let mut topics = std::mem::take(&mut config.topics);
            topics.iter_mut().for_each(|entry| topic(&mut out, entry));
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn topic(out: &mut String, topic: &mut Topic) {
    out.push_str("[[topic]]\n");
    fields::topic(topic, &mut |key, field| line(out, "topic", key, field));
    out.push('\n');
}

fn line(out: &mut String, section: &str, key: &str, field: Field<'_>) {
    let value = match field {
        Field::Text(text) => quoted(text),
        Field::Texts(texts) => {
            let items: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            format!("[{}]", items.join(", "))
        }
        Field::Word(choice) => quoted(choice.word()),
        Field::Flag(flag) => flag.to_string(),
        Field::Bytes(bytes) => quoted(&bytes_text(*bytes)),
        Field::Count(count) => count.to_string(),
        Field::Count32(count) => count.to_string(),
        Field::Count64(count) => count.to_string(),
        Field::Offsets(offsets) => offsets.to_string(),
        Field::Span(span) => quoted(&span_text(*span)),
        Field::Properties(properties) => return table(out, section, key, properties),
    };
    let _ = writeln!(out, "{key} = {value}");
}

fn table(out: &mut String, section: &str, key: &str, entries: &BTreeMap<String, String>) {
    let _ = writeln!(out, "\n[{section}.{key}]");
    for (name, value) in entries {
        let _ = writeln!(out, "{} = {}", quoted(name), quoted(value));
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
