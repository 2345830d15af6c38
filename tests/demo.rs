//! The demo as a newcomer runs it: the built binary, the real engine, nothing set up before.

mod support;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long one demo may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A demo that ends with its test.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn demo(name: &str, arguments: &[&str]) -> Demo {
    let child = Command::new(env!("CARGO_BIN_EXE_tachograph"))
        .arg("demo")
        .arg("--dir")
        .arg(support::scratch(name))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    Demo(child)
}

/// Waits for the end; kills what does not end in time.
fn ended(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < patience {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let _ = child.kill();
    None
}

#[test]
fn once_ends_by_itself_with_every_sum_right() {
    let mut demo = demo("demo_once", &["--once"]);
    let mut stdout = demo.0.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        text
    });
    let status = ended(&mut demo.0, PATIENCE);
    let text = reader.join().unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{text}");
    assert!(
        text.contains("every figure in ClickHouse and in /metrics equals the truth"),
        "{text}"
    );
    assert!(text.contains("model calls"), "{text}");
    assert!(!text.contains("  NO\n"), "{text}");
    support::mark_real_part("clickhouse");
}

#[test]
fn its_two_queries_answer_and_ctrl_c_ends_it() {
    let mut demo = demo("demo_live", &["--pace", "10"]);
    let mut lines = BufReader::new(demo.0.stdout.take().unwrap()).lines();
    let mut queries = vec![String::new()];
    // Each query ends with an empty line; the summary begins after the second.
    for line in lines.by_ref().map(Result::unwrap) {
        let is_begun = queries.last().is_some_and(|query| !query.is_empty());
        if line.trim_start().starts_with("curl ") || (is_begun && !line.is_empty()) {
            let query = queries.last_mut().unwrap();
            query.push_str(&line);
            query.push('\n');
        } else if is_begun {
            queries.push(String::new());
        }
        if queries.len() == 3 {
            break;
        }
    }
    let is_counting = |line: &String| {
        let calls = line
            .split("calls ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        calls
            .and_then(|calls| calls.parse::<u64>().ok())
            .is_some_and(|calls| calls > 0)
    };
    assert_eq!(queries.len(), 3, "{queries:?}");
    let summary = lines.by_ref().map(Result::unwrap).find(is_counting);
    let answers: Vec<String> = queries[..2]
        .iter()
        .map(|query| {
            let told = Command::new("bash").arg("-c").arg(query).output().unwrap();
            String::from_utf8(told.stdout).unwrap()
        })
        .collect();
    let pid = i32::try_from(demo.0.id()).unwrap();
    // SAFETY: a signal to our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
    let status = ended(&mut demo.0, Duration::from_secs(30));
    let rest = rest.join().unwrap().join("\n");
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{rest}");
    assert!(summary.is_some());
    assert!(answers[0].contains("token_class="), "{answers:?}");
    assert!(answers[1].contains("p90_ms"), "{answers:?}");
    assert!(
        rest.contains("model calls") && rest.contains("tokens in"),
        "{rest}"
    );
}
