//! ClickHouse over https, with a user and a password. The embedded engine opens plain HTTP only, so
//! a proxy of the test ends TLS in front of it.

use super::*;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use support::daemon::Daemon;
use support::engine::Database;
use support::secure::Authority;
use support::tls::TlsProxy;
use support::{mark_real_part, scratch, wait};

/// The engine behind TLS, and who signed the proxy's certificate.
pub struct SecureClickHouse {
    pub database: Database,
    pub proxy: TlsProxy,
    pub authority: Authority,
    pub folder: PathBuf,
}

impl SecureClickHouse {
    pub fn start(name: &str) -> SecureClickHouse {
        let database = Database::create(name);
        let folder = scratch(name);
        let authority = Authority::make(&folder, "clickhouse-ca");
        let signed = authority.sign("clickhouse", "DNS:localhost");
        mark_real_part("clickhouse-secure");
        SecureClickHouse {
            proxy: TlsProxy::start(database.authority(), &signed),
            database,
            authority,
            folder,
        }
    }

    /// The `[clickhouse]` of a file, and the rest of one that runs.
    pub fn lines(&self, authority: &Path) -> String {
        format!(
            "[clickhouse]\nurl = \"{}\"\ndatabase = \"{}\"\nuser = \"{}\"\n\
             password_env = \"CLICKHOUSE_PASSWORD\"\nca_file = \"{}\"\n\
             [http]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n\
             [limits]\nbatch_age_max = \"200 ms\"\n",
            self.proxy.url(),
            self.database.name,
            self.database.user(),
            text_of(authority)
        )
    }

    /// A configuration file.
    pub fn file(&self, text: &str) -> PathBuf {
        let path = self.folder.join(unique("tachograph") + ".toml");
        fs::write(&path, text).expect("the folder can be written");
        path
    }

    /// Runs a command with the passwords where the files say.
    pub fn run(&self, arguments: &[&str], file: &Path, password: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tachograph"))
            .args(arguments)
            .arg("--config")
            .arg(file)
            .env("CLICKHOUSE_PASSWORD", password)
            .env("KAFKA_PASSWORD", ALICE)
            .env("BOB_PASSWORD", BOB)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .output()
            .expect("the binary runs")
    }

    pub fn apply_schema(&self) {
        let file = self.file(&self.lines(&self.authority.certificate));
        let done = self.run(&["schema", "apply"], &file, self.database.password());
        assert_eq!(done.status.code(), Some(0), "{}", words(&done));
    }
}

/// Everything that a command said.
pub fn words(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// One model call with usage.
fn one_call() -> Vec<Record> {
    let line = |seq: u32, kind: &str, fields: &str| {
        let at = 1_796_000_000_000_000_000 + u64::from(seq);
        let text = format!(
            "{{\"v\":1,\"kind\":\"{kind}\",\"at\":{at},\"record_id\":\"{seq}\",\"seq\":{seq},\
             \"emitter\":{{\"name\":\"test\",\"version\":\"1\",\"instance\":\"i\"}},\
             \"session_id\":\"s\",\"invocation_id\":\"e\",\"run_id\":\"r\",\
             \"agent\":\"desk\"{fields}}}"
        );
        Record::new("e", text)
    };
    let usage = "\"usage\":{\"promptTokenCount\":40,\"candidatesTokenCount\":2,\
                 \"totalTokenCount\":42}";
    vec![
        line(1, "run.start", ",\"root_agent\":\"desk\""),
        line(2, "model.start", ",\"call_id\":\"c\",\"model\":\"m\""),
        line(
            3,
            "model.end",
            &format!(",\"call_id\":\"c\",\"model\":\"m\",{usage}"),
        ),
        line(4, "run.end", ",\"status\":\"completed\""),
    ]
}

#[test]
fn the_daemon_goes_through_tls_and_logins_on_both_ends() {
    let secure = Secure::shared();
    let clickhouse = SecureClickHouse::start("ends");
    clickhouse.apply_schema();
    let brokers = secure.address(Listener::Plaintext);
    let topic = unique("ends");
    kafka::create_topic_at(&brokers, &topic, 1, &[]);
    let login = login("sasl_ssl", "SCRAM-SHA-512", "alice", "TEST_PASSWORD") + &ours();
    let kafka = kafka_lines(Listener::SaslSsl, &topic, &login);
    let password = clickhouse.folder.join("password");
    fs::write(&password, clickhouse.database.password()).expect("the folder can be written");
    let lines = clickhouse.lines(&clickhouse.authority.certificate).replace(
        "password_env = \"CLICKHOUSE_PASSWORD\"",
        &format!("password_file = \"{}\"", text_of(&password)),
    );
    let file = clickhouse.file(&(kafka + &lines));
    let daemon = Daemon::start(&file, &clickhouse.folder.join("log"), ALICE, &[]);
    daemon.until_ready();
    kafka::produce_at(&brokers, &topic, &one_call());
    let sql = "SELECT sum(input_total), sum(output_total) FROM v_model_calls";
    wait::until_eq(
        "the call",
        PATIENCE,
        vec![vec!["40".to_owned(), "2".to_owned()]],
        || clickhouse.database.rows(sql),
    );
    daemon.stop();
}

#[test]
fn a_wrong_password_of_clickhouse_is_77() {
    let clickhouse = SecureClickHouse::start("password");
    let lines = clickhouse.lines(&clickhouse.authority.certificate);
    let file = clickhouse.file(&format!("[kafka]\nbrokers = \"127.0.0.1:9\"\n{lines}"));
    for command in [&["run"][..], &["schema", "check"]] {
        let done = clickhouse.run(command, &file, "wrong");
        assert_eq!(done.status.code(), Some(77), "{}", words(&done));
        assert!(
            words(&done).contains(clickhouse.database.user()),
            "{}",
            words(&done)
        );
    }
}

#[test]
fn a_clickhouse_of_another_authority_is_not_believed() {
    let clickhouse = SecureClickHouse::start("stranger");
    let stranger = Authority::make(&clickhouse.folder, "stranger");
    let file = clickhouse.file(&clickhouse.lines(&stranger.certificate));
    let done = clickhouse.run(&["schema", "apply"], &file, clickhouse.database.password());
    assert_eq!(done.status.code(), Some(69), "{}", words(&done));
    for part in ["certificate verify failed", "clickhouse.ca_file"] {
        assert!(words(&done).contains(part), "{part} in {}", words(&done));
    }
}

#[test]
fn a_clickhouse_by_another_name_is_not_believed() {
    let clickhouse = SecureClickHouse::start("name");
    let lines = clickhouse.lines(&clickhouse.authority.certificate);
    let file = clickhouse.file(&lines.replace("https://localhost:", "https://127.0.0.1:"));
    let done = clickhouse.run(&["schema", "apply"], &file, clickhouse.database.password());
    assert_eq!(done.status.code(), Some(69), "{}", words(&done));
    assert!(
        words(&done).contains("certificate verify failed"),
        "{}",
        words(&done)
    );
}

#[test]
fn a_ca_file_without_a_certificate_is_78() {
    let clickhouse = SecureClickHouse::start("no-pem");
    let file = clickhouse.file(&clickhouse.lines(&clickhouse.folder.join("clickhouse.key")));
    let done = clickhouse.run(&["schema", "apply"], &file, clickhouse.database.password());
    assert_eq!(done.status.code(), Some(78), "{}", words(&done));
    assert!(
        words(&done).contains("clickhouse.ca_file"),
        "{}",
        words(&done)
    );
}
