//! The command line: exit codes, and that every message says what to do.
#![cfg(feature = "io")]

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn tachograph(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tachograph"))
        .args(arguments)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it ends by itself")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn file(name: &str, text: &str) -> PathBuf {
    let name = format!("cli-{}-{name}", std::process::id());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).expect("a file can be written");
    path
}

fn path(path: &std::path::Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn every_command_has_help_with_an_example() {
    let commands: &[&[&str]] = &[
        &[],
        &["run"],
        &["replay"],
        &["schema"],
        &["schema", "print"],
        &["schema", "apply"],
        &["schema", "check"],
        &["check"],
        &["config"],
        &["config", "check"],
        &["config", "print"],
    ];
    for command in commands {
        let arguments = [command, &["--help"][..]].concat();
        let output = tachograph(&arguments);
        assert_eq!(code(&output), 0, "{command:?}");
        let text = printed(&output);
        assert!(text.contains("Example"), "{command:?}: {text}");
        let line = text.lines().find(|line| line.starts_with("  tachograph "));
        assert!(line.is_some(), "{command:?}: {text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }
}

#[test]
fn wrong_command_lines_are_64() {
    for arguments in [
        &["frobnicate"][..],
        &["run", "--confg", "x"],
        &["run", "surplus"],
        &["check", "surplus"],
        &["config", "check"],
        &["replay"],
        &["schema"],
        &[],
    ] {
        let output = tachograph(arguments);
        assert_eq!(code(&output), 64, "{arguments:?}");
        assert!(
            said(&output).contains("Usage"),
            "{arguments:?}: {}",
            said(&output)
        );
    }
}

#[test]
fn a_missing_file_is_66() {
    for arguments in [
        &["config", "check", "not-there.toml"][..],
        &["run", "--config", "not-there.toml"],
        &["check", "--config", "not-there.toml"],
    ] {
        let output = tachograph(arguments);
        assert_eq!(code(&output), 66, "{arguments:?}");
        assert!(
            said(&output).contains("not-there.toml"),
            "{}",
            said(&output)
        );
    }
}

#[test]
fn every_problem_of_a_file_is_said_at_once() {
    let path_of = file(
        "wrong.toml",
        "[kafka]\nbroker = \"x\"\ntopics = 1\n[limits]\nsilence_max = \"soon\"\n",
    );
    for arguments in [
        &["config", "check", path(&path_of)][..],
        &["run", "--config", path(&path_of)],
    ] {
        let output = tachograph(arguments);
        assert_eq!(code(&output), 78);
        let text = said(&output);
        for key in [
            "kafka.broker: unknown key",
            "kafka.brokers: required",
            "kafka.topics: must be a list",
            "limits.silence_max: must be a duration",
            "clickhouse.url: required",
        ] {
            assert!(text.contains(key), "{key} in {text}");
        }
    }
}

#[test]
fn nothing_configured_says_what_is_required() {
    let output = tachograph(&["run"]);
    assert_eq!(code(&output), 78);
    assert!(said(&output).contains("kafka.brokers"), "{}", said(&output));
}

#[test]
fn what_is_printed_can_be_read_again() {
    let output = tachograph(&["config", "print"]);
    assert_eq!(code(&output), 0);
    let printed_file = file("printed.toml", &printed(&output));
    let output = tachograph(&["config", "check", path(&printed_file)]);
    assert_eq!(code(&output), 0, "{}", said(&output));
    assert!(printed(&output).contains("no problems"));
    let again = tachograph(&["config", "print", "--config", path(&printed_file)]);
    assert_eq!(
        printed(&again),
        fs::read_to_string(&printed_file).expect("it is there")
    );
}

#[test]
fn the_schema_is_printed_without_any_service() {
    let output = tachograph(&["schema", "print"]);
    assert_eq!(code(&output), 0);
    assert!(printed(&output).contains("CREATE TABLE IF NOT EXISTS"));
}

#[test]
fn a_port_in_use_is_69_and_says_which() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address");
    let text = format!(
        "[kafka]\nbrokers = \"127.0.0.1:9\"\n[clickhouse]\nurl = \"http://127.0.0.1:9\"\n\
         [http]\nlisten = \"{address}\"\n"
    );
    let config = file("taken.toml", &text);
    let output = tachograph(&["run", "--config", path(&config)]);
    assert_eq!(code(&output), 69);
    let text = said(&output);
    assert!(
        text.contains(&address.to_string()) && text.contains("http"),
        "{text}"
    );
}

#[test]
fn a_server_that_is_away_is_69_for_schema() {
    let config = file("away.toml", "[clickhouse]\nurl = \"http://127.0.0.1:9\"\n");
    for what in ["apply", "check"] {
        let output = tachograph(&["schema", what, "--config", path(&config)]);
        assert_eq!(code(&output), 69, "{}", said(&output));
        assert!(said(&output).contains("127.0.0.1:9"), "{}", said(&output));
    }
}
