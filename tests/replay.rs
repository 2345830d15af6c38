//! `tachograph replay` as a user runs it: the binary, real files, exit codes and what is printed.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_tachograph");

/// A streamed call: first chunk after 500 ms, done after 1,600 ms.
const CALL: &str = r#"{"v":1,"kind":"model.start","at":1772445600,"record_id":"1","invocation_id":"e-1","agent":"desk","call_id":"c1","model":"m","streaming":true}
{"v":1,"kind":"model.chunk","at":1772445600.5,"record_id":"2","invocation_id":"e-1","agent":"desk","call_id":"c1","content":"text"}
{"v":1,"kind":"model.end","at":1772445601.6,"record_id":"3","invocation_id":"e-1","agent":"desk","call_id":"c1","usage":{"promptTokenCount":40,"candidatesTokenCount":33,"totalTokenCount":73}}
"#;

/// A folder of this test, empty at its start and gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("replay-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn replay(arguments: &[&str]) -> Output {
    replay_with(arguments, b"")
}

fn replay_with(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(BINARY)
        .arg("replay")
        .args(arguments)
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn report(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", error_text(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_is_the_call(report: &Value) {
    assert_eq!(report["model_call_count"], 1, "{report}");
    let call = &report["model_calls"][0];
    assert_eq!(
        (&call["ttfc_ms"], &call["completion_ms"]),
        (&500.into(), &1600.into())
    );
    assert_eq!(report["totals"]["input_total"], 40);
    assert_eq!(report["totals"]["output_total"], 33);
}

fn gzipped(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn the_report_has_every_key_and_exact_numbers() {
    let folder = Folder::new("report");
    let report = report(&replay(&[&folder.file("a.ndjson", CALL)]));
    assert_is_the_call(&report);
    for key in [
        "invocations",
        "branches",
        "agent_runs",
        "model_calls",
        "local_answers",
        "tools",
        "verdicts",
        "recoveries",
        "anomalies",
        "quarantined",
        "flags",
    ] {
        assert!(report[key].is_array(), "{key}");
    }
    assert!(report.as_object().unwrap().contains_key("cost_usd"));
    assert_eq!(report["cost_usd"], Value::Null);
    assert_eq!(report["counters"]["records"], 3);
    assert_eq!(
        report["model_calls"][0]["started_at"],
        "2026-03-02T10:00:00.000000000Z"
    );
    let last = &report["model_calls"][0]["last"];
    assert_eq!(
        (&last["topic"], &last["offset"]),
        (&"replay".into(), &2.into())
    );
}

#[test]
fn packed_files_and_standard_input_are_read_as_they_are() {
    let folder = Folder::new("packed");
    let gz = folder.file("a.bin", gzipped(CALL));
    let zst = folder.file("b.bin", zstd::encode_all(CALL.as_bytes(), 0).unwrap());
    assert_is_the_call(&report(&replay(&[&gz])));
    assert_is_the_call(&report(&replay(&[&zst])));
    assert_is_the_call(&report(&replay_with(&["-"], CALL.as_bytes())));
    assert_is_the_call(&report(&replay_with(&["-"], &gzipped(CALL))));
}

#[test]
fn several_files_are_one_log_whose_offsets_count_lines() {
    let folder = Folder::new("several");
    let (first, rest) = CALL.split_once('\n').unwrap();
    let a = folder.file("a.ndjson", format!("{first}\n\n"));
    let b = folder.file("b.ndjson", rest);
    let report = report(&replay(&[&a, &b]));
    assert_is_the_call(&report);
    let call = &report["model_calls"][0];
    assert_eq!(
        (&call["first"]["offset"], &call["last"]["offset"]),
        (&0.into(), &3.into())
    );
}

#[test]
fn a_run_split_over_partitions_is_joined_and_keeps_its_coordinates() {
    let folder = Folder::new("wrapped");
    let mut lines = String::new();
    for (partition, offset, value) in [(1, 900, 0), (0, 7, 1), (1, 901, 2)] {
        let value = CALL.lines().nth(value).unwrap();
        lines.push_str(&format!(
            "{{\"_kafka\":{{\"topic\":\"agents\",\"partition\":{partition},\
             \"offset\":{offset},\"key\":\"s\"}},\"value\":{value}}}\n"
        ));
    }
    lines.push_str(
        "{\"_kafka\":{\"topic\":\"agents\",\"partition\":0,\"offset\":8},\"value\":null}\n",
    );
    lines.push_str(
        "{\"_kafka\":{\"topic\":\"agents\",\"partition\":0,\"offset\":9},\"value_b64\":\"\"}\n",
    );
    let output = replay(&[&folder.file("a.ndjson", lines)]);
    let report = report(&output);
    assert_is_the_call(&report);
    assert_eq!(report["counters"]["tombstones"], 1);
    let call = &report["model_calls"][0];
    let place = |at: &Value| (at["partition"].as_i64(), at["offset"].as_i64());
    assert_eq!(place(&call["first"]), (Some(1), Some(900)));
    assert_eq!(place(&call["last"]), (Some(1), Some(901)));
    let refused = &report["quarantined"][0];
    assert_eq!(place(refused), (Some(0), Some(9)));
    assert_eq!(
        (&refused["topic"], &refused["reason"]),
        (&"agents".into(), &"empty".into())
    );
}

#[test]
fn a_line_that_is_no_json_is_quarantined_and_the_log_goes_on() {
    let folder = Folder::new("quarantined");
    let output = replay(&[&folder.file("a.ndjson", format!("not json\n{CALL}{{\"a\":1}}\n"))]);
    let report = report(&output);
    assert_is_the_call(&report);
    assert_eq!(report["quarantined"][0]["offset"], 0);
    assert_eq!(report["quarantined"][0]["reason"], "invalid_json");
    assert_eq!(report["quarantined"][1]["offset"], 4);
    assert_eq!(report["quarantined"][1]["reason"], "no_envelope");
    assert_eq!(report["counters"]["records_quarantined"], 2);
    assert!(error_text(&output).contains("2 records quarantined"));
}

#[test]
fn facts_are_one_a_line_without_unknown_columns() {
    let folder = Folder::new("facts");
    let file = folder.file("a.ndjson", CALL);
    let output = replay(&["--output", "facts", &file]);
    let text = String::from_utf8(output.stdout).unwrap();
    let facts: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let tables: Vec<&str> = facts
        .iter()
        .filter_map(|fact| fact["table"].as_str())
        .collect();
    assert_eq!(
        tables,
        ["invocations", "branches", "agent_runs", "model_calls"]
    );
    assert_eq!(facts[3]["identity"][0], "c1");
    assert!(!text.contains("null"), "{text}");
    let again = replay(&["--output", "facts", &file]);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), text);
}

#[test]
fn the_timeline_is_drawn_without_colours_unless_asked() {
    let folder = Folder::new("timeline");
    let file = folder.file("a.ndjson", CALL);
    let plain = replay(&["--output", "timeline", "--width", "80", &file]);
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains("40/33  500 ms / 1.6 s"), "{plain}");
    assert!(!plain.contains('\x1b'));
    let colored = replay(&["--output", "timeline", "--color", "always", &file]);
    assert!(
        String::from_utf8(colored.stdout)
            .unwrap()
            .contains("\x1b[36m")
    );
    let ascii = replay(&["--output", "timeline", "--ascii", &file]);
    assert!(ascii.stdout.is_ascii());
}

#[test]
fn content_is_never_printed() {
    let folder = Folder::new("content");
    let event = r#"{"id":"x1","invocationId":"e-2","author":"desk","timestamp":1772445600,"actions":{},"content":{"role":"model","parts":[{"text":"SECRET-ANSWER"}]},"errorMessage":"SECRET-ERROR"}"#;
    let file = folder.file("a.ndjson", event);
    for form in ["report", "facts", "timeline"] {
        let output = replay(&["--output", form, &file]);
        assert_eq!(output.status.code(), Some(0));
        let printed =
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(printed.contains("e-2"), "{printed}");
        assert!(!printed.contains("SECRET"), "{printed}");
    }
}

#[test]
fn exit_codes_tell_what_was_wrong() {
    let folder = Folder::new("codes");
    let code = |arguments: &[&str]| {
        let output = replay(arguments);
        (output.status.code().unwrap(), error_text(&output))
    };
    assert_eq!(code(&[]).0, 64);
    assert_eq!(code(&["--output", "poem", "x"]).0, 64);
    assert_eq!(code(&["--help"]).0, 0);
    let (missing, words) = code(&["no-such-file.ndjson"]);
    assert_eq!(missing, 66);
    assert!(words.contains("no-such-file.ndjson"), "{words}");

    let mut cut = gzipped(&CALL.repeat(50));
    cut.truncate(cut.len() / 2);
    let (corrupt, words) = code(&[&folder.file("cut.gz", cut)]);
    assert_eq!(corrupt, 65);
    assert!(words.contains("cut.gz, line "), "{words}");

    let wrapped = format!("{CALL}{{\"_kafka\":{{\"offset\":3}},\"value_b64\":\"***\"}}\n");
    let (broken, words) = code(&[&folder.file("broken.ndjson", wrapped)]);
    assert_eq!(broken, 65);
    assert!(
        words.contains("broken.ndjson, line 4: broken wrapped record"),
        "{words}"
    );
    let wrapped = "{\"_kafka\":{\"offset\":\"sesame\"},\"value\":1}\n";
    let (broken, words) = code(&[&folder.file("quoted.ndjson", wrapped)]);
    assert_eq!(broken, 65);
    assert!(
        words.contains("_kafka: a value of the wrong type"),
        "{words}"
    );
    assert!(!words.contains("sesame"), "{words}");

    let folder_itself = folder.0.to_str().unwrap().to_owned();
    assert_eq!(code(&[&folder_itself]).0, 65);
}

#[test]
fn nothing_in_is_nothing_out() {
    let folder = Folder::new("empty");
    let empty = report(&replay(&[&folder.file("a.ndjson", "\n\n")]));
    assert_eq!(empty["counters"]["records"], 0);
    assert_eq!(empty["totals"]["input_total"], 0);
    assert_eq!(empty["cost_usd"], "0");
    assert_eq!(empty["invocations"], Value::Array(Vec::new()));
}
