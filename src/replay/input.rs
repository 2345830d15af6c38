//! Files as one log: plain lines, or lines that carry their Kafka coordinates.
//!
//! It finds records and says where they came from. Whether a record means anything is the core's
//! business: a line that is not JSON is a record like any other.

use crate::core::{LogTime, Name, Offset};
use crate::kafka_source::TopicError;
use base64::Engine;
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of one line; a longer one is no log of records.
const LINE_BYTES_MAX: u64 = 256 << 20;
/// Topic of lines that name none (facts.md §2).
pub const PLAIN_TOPIC: &str = "replay";

/// Why the input could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// Exit code 66.
    #[error("{0}: no such file")]
    Missing(String),
    /// Exit code 65.
    #[error("{file}: cannot be read: {cause}")]
    Unreadable { file: String, cause: String },
    /// Exit code 65: bytes that cannot be unpacked, or a broken wrapped form.
    #[error("{file}, line {line}: {cause}")]
    Corrupt {
        file: String,
        line: u64,
        cause: String,
    },
    /// Exit code 77 where somebody refuses us, 78 for settings that are refused, else 69.
    #[error(transparent)]
    Topic(#[from] TopicError),
}

impl InputError {
    /// The exit code of config.md.
    pub fn exit_code(&self) -> u8 {
        match self {
            InputError::Missing(_) => 66,
            InputError::Unreadable { .. } | InputError::Corrupt { .. } => 65,
            InputError::Topic(TopicError::Refused { .. } | TopicError::Forbidden { .. }) => 77,
            InputError::Topic(TopicError::Configuration(_)) => 78,
            InputError::Topic(_) => 69,
        }
    }
}

/// A log that is read record by record.
pub trait Records {
    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// What keeps it from being read to its end.
    fn next_record(&mut self) -> Result<Option<LogRecord>, InputError>;
}

/// One record of the log, as the files tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    pub topic: Name,
    pub partition: i32,
    pub offset: Offset,
    pub key: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// The broker's time, where the wrapped form gives one.
    pub timestamp: Option<LogTime>,
    /// `None`: a tombstone.
    pub payload: Option<Vec<u8>>,
}

/// Reads several files, `-` being standard input, as one log in the order given.
pub struct LogReader {
    waiting: VecDeque<PathBuf>,
    open: Option<OpenFile>,
    /// Lines read so far, over all files.
    lines: u64,
    topic: Name,
    progress: ProgressBar,
    line: Vec<u8>,
}

struct OpenFile {
    name: String,
    lines: u64,
    reader: Box<dyn BufRead>,
}

impl LogReader {
    /// A reader of `files`; each must exist.
    ///
    /// # Errors
    /// [`InputError::Missing`] for the first that does not.
    pub fn new(files: &[PathBuf], progress: ProgressBar) -> Result<LogReader, InputError> {
        if let Some(missing) = files.iter().find(|f| !is_stdin(f) && !f.exists()) {
            return Err(InputError::Missing(missing.display().to_string()));
        }
        Ok(LogReader {
            waiting: files.iter().cloned().collect(),
            open: None,
            lines: 0,
            topic: Arc::from(PLAIN_TOPIC),
            progress,
            line: Vec::new(),
        })
    }
}

impl Records for LogReader {
    /// # Errors
    /// A file that cannot be read or unpacked, or a broken wrapped form.
    fn next_record(&mut self) -> Result<Option<LogRecord>, InputError> {
        loop {
            let Some(file) = &mut self.open else {
                let Some(path) = self.waiting.pop_front() else {
                    return Ok(None);
                };
                self.open = Some(open(&path, &self.progress)?);
                continue;
            };
            self.line.clear();
            let read = (&mut file.reader)
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut self.line);
            file.lines += 1;
            match read {
                Err(error) => return Err(file.corrupt(error.to_string())),
                Ok(0) => {
                    self.open = None;
                    continue;
                }
                Ok(read) if read as u64 == LINE_BYTES_MAX => {
                    return Err(file.corrupt("a line of more than 256 MiB".to_owned()));
                }
                Ok(_) => {}
            }
            let offset = Offset(i64::try_from(self.lines).unwrap_or(i64::MAX));
            self.lines += 1;
            let line = without_line_end(&self.line);
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let record = match unwrapped(line, &self.topic, offset) {
                Ok(Some(record)) => record,
                Ok(None) => plain(line, &self.topic, offset),
                Err(cause) => return Err(file.corrupt(cause)),
            };
            return Ok(Some(record));
        }
    }
}

impl OpenFile {
    fn corrupt(&self, cause: String) -> InputError {
        InputError::Corrupt {
            file: self.name.clone(),
            line: self.lines,
            cause,
        }
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens a file and unpacks what its first bytes say.
fn open(path: &Path, progress: &ProgressBar) -> Result<OpenFile, InputError> {
    let (name, bytes): (String, Box<dyn Read>) = if is_stdin(path) {
        ("standard input".to_owned(), Box::new(io::stdin().lock()))
    } else {
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        (path.display().to_string(), Box::new(file))
    };
    let mut bytes = progress.wrap_read(bytes);
    let mut magic = Vec::with_capacity(4);
    (&mut bytes)
        .take(4)
        .read_to_end(&mut magic)
        .map_err(|error| unreadable(path, &error))?;
    let is_gzip = magic.starts_with(&[0x1f, 0x8b]);
    let is_zstd = magic == [0x28, 0xb5, 0x2f, 0xfd];
    let whole = Cursor::new(magic).chain(bytes);
    let reader: Box<dyn BufRead> = if is_gzip {
        Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(whole)))
    } else if is_zstd {
        let decoder = zstd::stream::read::Decoder::new(whole);
        Box::new(BufReader::new(
            decoder.map_err(|error| unreadable(path, &error))?,
        ))
    } else {
        Box::new(BufReader::with_capacity(256 << 10, whole))
    };
    Ok(OpenFile {
        name,
        lines: 0,
        reader,
    })
}

fn unreadable(path: &Path, error: &io::Error) -> InputError {
    let file = path.display().to_string();
    match error.kind() {
        io::ErrorKind::NotFound => InputError::Missing(file),
        _ => InputError::Unreadable {
            file,
            cause: error.to_string(),
        },
    }
}

fn without_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn plain(line: &[u8], topic: &Name, offset: Offset) -> LogRecord {
    LogRecord {
        topic: Arc::clone(topic),
        partition: 0,
        offset,
        key: None,
        headers: Vec::new(),
        timestamp: None,
        payload: Some(line.to_vec()),
    }
}

/// `{"_kafka": {…}, "value" | "value_raw" | "value_b64": …}` (facts.md §2).
#[derive(Deserialize)]
struct Wrapped<'l> {
    #[serde(rename = "_kafka", borrow, default)]
    kafka: Option<&'l RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    value: Option<&'l RawValue>,
    value_raw: Option<String>,
    value_b64: Option<String>,
}

/// A JSON null is a value here: the tombstone.
fn even_null<'de, D>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Default, Deserialize)]
struct Coordinates {
    topic: Option<String>,
    partition: Option<i32>,
    offset: Option<i64>,
    key: Option<String>,
    timestamp: Option<i64>,
    headers: Option<Headers>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Headers {
    Object(serde_json::Map<String, serde_json::Value>),
    Pairs(Vec<(String, Option<String>)>),
}

/// The record inside a wrapped line; `None` where the line is not wrapped.
fn unwrapped(line: &[u8], topic: &Name, offset: Offset) -> Result<Option<LogRecord>, String> {
    let claims = claims_to_be_wrapped(line);
    if !claims && !contains(line, b"\"_kafka\"") {
        return Ok(None);
    }
    let wrapped: Wrapped<'_> = match serde_json::from_slice(line) {
        Ok(wrapped) => wrapped,
        Err(error) if claims => return Err(broken("", &error)),
        Err(_) => return Ok(None),
    };
    let Some(kafka) = wrapped.kafka else {
        return Ok(None);
    };
    let kafka: Coordinates =
        serde_json::from_str(kafka.get()).map_err(|error| broken("_kafka: ", &error))?;
    let payload = match (wrapped.value, wrapped.value_raw, wrapped.value_b64) {
        (Some(value), None, None) if value.get() == "null" => None,
        (Some(value), None, None) => Some(value.get().as_bytes().to_vec()),
        (None, Some(text), None) => Some(text.into_bytes()),
        (None, None, Some(text)) => Some(
            base64::engine::general_purpose::STANDARD
                .decode(text.as_bytes())
                .map_err(|_| "broken wrapped record: value_b64 is no base64".to_owned())?,
        ),
        _ => {
            let want = "exactly one of value, value_raw and value_b64 must stand there";
            return Err(format!("broken wrapped record: {want}"));
        }
    };
    Ok(Some(LogRecord {
        topic: kafka
            .topic
            .map_or_else(|| Arc::clone(topic), |name| Arc::from(name.as_str())),
        partition: kafka.partition.unwrap_or(0),
        offset: kafka.offset.map_or(offset, Offset),
        key: kafka.key.map(String::into_bytes),
        headers: kafka.headers.map(headers).unwrap_or_default(),
        timestamp: kafka.timestamp.map(LogTime),
        payload,
    }))
}

/// Where a wrapped line is broken. The error's own words may quote what stands there.
fn broken(part: &str, error: &serde_json::Error) -> String {
    let what = match error.classify() {
        Category::Data => "a value of the wrong type",
        Category::Syntax | Category::Eof | Category::Io => "no JSON",
    };
    format!(
        "broken wrapped record: {part}{what} at column {}",
        error.column()
    )
}

fn headers(told: Headers) -> Vec<(String, Option<Vec<u8>>)> {
    match told {
        Headers::Pairs(pairs) => pairs
            .into_iter()
            .map(|(name, value)| (name, value.map(String::into_bytes)))
            .collect(),
        Headers::Object(object) => object
            .into_iter()
            .map(|(name, value)| {
                let bytes = match value {
                    serde_json::Value::Null => None,
                    serde_json::Value::String(text) => Some(text.into_bytes()),
                    other => Some(other.to_string().into_bytes()),
                };
                (name, bytes)
            })
            .collect(),
    }
}

/// True where the first key of the line is `_kafka`: then a broken line is an error, not a record.
fn claims_to_be_wrapped(line: &[u8]) -> bool {
    line.trim_ascii_start()
        .strip_prefix(b"{")
        .is_some_and(|rest| rest.trim_ascii_start().starts_with(b"\"_kafka\""))
}

fn contains(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Option<LogRecord>, String> {
        unwrapped(line.as_bytes(), &Arc::from(PLAIN_TOPIC), Offset(7))
    }

    #[test]
    fn a_wrapped_record_keeps_its_coordinates() {
        let record = of(
            r#"{"_kafka":{"topic":"t","partition":3,"offset":41,"key":"k","timestamp":1772445600123,
            "headers":{"a":"b","c":null},"txn":"x"},"value":{"v": 1}}"#,
        )
        .unwrap()
        .unwrap();
        assert_eq!((&*record.topic, record.partition), ("t", 3));
        assert_eq!(record.offset, Offset(41));
        assert_eq!(record.timestamp, Some(LogTime(1_772_445_600_123)));
        assert_eq!(record.key.as_deref(), Some(b"k".as_slice()));
        let headers = vec![
            ("a".to_owned(), Some(b"b".to_vec())),
            ("c".to_owned(), None),
        ];
        assert_eq!(record.headers, headers);
        assert_eq!(record.payload.as_deref(), Some(br#"{"v": 1}"#.as_slice()));
    }

    #[test]
    fn the_three_ways_to_write_a_value() {
        let payload = |line| of(line).unwrap().unwrap().payload;
        assert_eq!(payload(r#"{"_kafka":{},"value":null}"#), None);
        assert_eq!(
            payload(r#"{"_kafka":{},"value_raw":"{\"a\":NaN}"}"#).as_deref(),
            Some(br#"{"a":NaN}"#.as_slice())
        );
        assert_eq!(
            payload(r#"{"_kafka":{},"value_b64":"/wA="}"#),
            Some(vec![255, 0])
        );
        assert_eq!(payload(r#"{"_kafka":{},"value_b64":""}"#), Some(vec![]));
        assert_eq!(
            of(r#"{"_kafka":{},"value":1}"#).unwrap().unwrap().offset,
            Offset(7)
        );
    }

    #[test]
    fn a_broken_wrapped_form_is_an_error_and_content_is_not() {
        assert!(of(r#"{"_kafka":{},"value_b64":"*"}"#).is_err());
        assert!(of(r#"{"_kafka":{}}"#).is_err());
        assert!(of(r#"{"_kafka":{"partition":"x"},"value":1}"#).is_err());
        assert!(of(r#"{"_kafka":{},"value":{"#).is_err());
        assert!(of(r#"{ "_kafka" : {} , "value":1,"value_raw":""}"#).is_err());
        assert_eq!(of(r#"{"content":"\"_kafka\"","x":{"_kafka":1}}"#), Ok(None));
        assert_eq!(of(r#"{"content":"_kafka","_kafka":"#), Ok(None));
        assert_eq!(of("plain"), Ok(None));
    }
}
