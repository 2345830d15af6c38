//! `tachograph check` against real parts: what is there, what is missing, what is refused.

use super::clickhouse::{SecureClickHouse, words};
use super::*;

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Output;

use support::engine::start_own;
use support::secure::{AclOperation, Resource};
use support::{scratch, wait};
use tachograph::clickhouse_sink::{SinkConfig, schema};

/// One user's file, for a topic that he reads.
struct Bench {
    clickhouse: SecureClickHouse,
    topic: String,
    group: String,
    kafka: String,
}

impl Bench {
    /// With the schema, and without any topic. `variable` is that of the user's password, which
    /// `SecureClickHouse::run` sets.
    fn new(name: &str, user: &str, variable: &str) -> Bench {
        let clickhouse = SecureClickHouse::start(name);
        clickhouse.apply_schema();
        let (topic, group) = (unique(name), unique(name));
        let login = login("sasl_ssl", "SCRAM-SHA-256", user, variable) + &ours();
        let kafka = format!(
            "[kafka]\nbrokers = \"{}\"\ngroup = \"{group}\"\ntopics = [\"{topic}\"]\n{login}",
            Secure::shared().address(Listener::SaslSsl),
        );
        Bench {
            clickhouse,
            topic,
            group,
            kafka,
        }
    }

    fn letters(&self) -> String {
        format!("{}.dead-letters", self.topic)
    }

    fn create_topics(&self, config: &[(&str, &str)]) {
        let brokers = Secure::shared().address(Listener::Plaintext);
        kafka::create_topic_at(&brokers, &self.topic, 1, config);
        kafka::create_topic_at(&brokers, &self.letters(), 1, &[]);
    }

    fn file(&self, old: &str, new: &str) -> PathBuf {
        let lines = self
            .clickhouse
            .lines(&self.clickhouse.authority.certificate);
        let text = format!("{}{lines}", self.kafka);
        assert!(text.contains(old), "{old} in {text}");
        self.clickhouse.file(&text.replacen(old, new, 1))
    }

    fn check(&self) -> Output {
        self.check_with("", "")
    }

    /// Checks with one part of the file replaced.
    fn check_with(&self, old: &str, new: &str) -> Output {
        let password = self.clickhouse.database.password();
        self.clickhouse
            .run(&["check"], &self.file(old, new), password)
    }
}

const ALICES: &str = "KAFKA_PASSWORD";

/// Asserts the exit code, and that each of `lines` is the beginning of one, blanks aside.
#[track_caller]
fn must_say(output: &Output, code: i32, lines: &[&str]) {
    let said = words(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    let squeezed: Vec<String> = said
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for line in lines {
        let is_there = squeezed.iter().any(|said| said.starts_with(line));
        assert!(is_there, "{line:?} in\n{said}");
    }
}

#[test]
fn what_is_all_there_is_said_line_by_line() {
    let bench = Bench::new("well", "alice", ALICES);
    bench.create_topics(&[]);
    let output = bench.check();
    let (topic, letters) = (&bench.topic, bench.letters());
    must_say(
        &output,
        0,
        &[
            "ok configuration",
            "ok broker localhost:",
            "ok login \"alice\" (SCRAM-SHA-256), over TLS",
            &format!("ok topic {topic} may be read"),
            &format!("ok topic {topic} keeps the broker's times"),
            &format!("ok group {}", bench.group),
            &format!("ok dead letters {letters} may be written to"),
            "ok clickhouse localhost:",
            &format!(
                "ok clickhouse {:?} is let in",
                bench.clickhouse.database.user()
            ),
            "ok schema",
            "ok rights",
            "ok http 127.0.0.1:0",
        ],
    );
    let said = words(&output);
    assert!(said.lines().all(|line| line.starts_with("ok ")), "{said}");
    assert!(!said.contains(ALICE), "{said}");
    // It left no trace: neither a record nor a group.
    let brokers = Secure::shared().address(Listener::Plaintext);
    assert_eq!(kafka::ends(&brokers, &letters), (0, 0));
    assert!(!kafka::groups(&brokers).contains(&bench.group));
}

#[test]
fn what_is_missing_is_named_with_what_to_do() {
    let bench = Bench::new("missing", "alice", ALICES);
    let (topic, letters) = (&bench.topic, bench.letters());
    let no_topic = format!("missing topic {topic} is not there: create it");
    let no_letters = format!("missing dead letters {letters} is not there: create it");
    must_say(&bench.check(), 69, &[&no_topic, &no_letters, "ok schema"]);
    let quoted = format!("topics = [{topic:?}]");
    let regex = format!("topics = [\"^{topic}-.*\"]");
    let no_fit = format!("missing topic no topic fits \"^{topic}-.*\"");
    must_say(&bench.check_with(&quoted, &regex), 69, &[&no_fit]);

    bench.create_topics(&[("message.timestamp.type", "CreateTime")]);
    let times = format!("warning topic {topic}: message.timestamp.type is CreateTime");
    must_say(&bench.check(), 0, &[&times]);
    let dropped = "dead_letters = \"drop\"\n[clickhouse]";
    must_say(
        &bench.check_with("[clickhouse]", dropped),
        0,
        &["ok dead letters are dropped"],
    );
    let database = format!("database = {:?}", bench.clickhouse.database.name);
    must_say(
        &bench.check_with(&database, "database = \"nowhere\""),
        69,
        &["missing schema database nowhere is missing: run `tachograph schema apply`"],
    );
    bench.clickhouse.database.query("DROP TABLE model_calls");
    must_say(
        &bench.check(),
        69,
        &["missing schema table model_calls is missing"],
    );
}

#[test]
fn what_is_away_is_told_from_what_is_missing() {
    let bench = Bench::new("away", "alice", ALICES);
    bench.create_topics(&[]);
    let url = bench.clickhouse.proxy.url();
    let authority = url.replace("https://", "");
    must_say(
        &bench.check_with(&url, "https://localhost:9"),
        69,
        &[
            "missing clickhouse localhost:9: no connection",
            "skipped clickhouse",
            "ok group",
        ],
    );
    must_say(
        &bench.check_with(&authority, "no.such.name.invalid:8443"),
        69,
        &["missing clickhouse no.such.name.invalid:8443: the name"],
    );
    let brokers = Secure::shared().address(Listener::SaslSsl);
    must_say(
        &bench.check_with(&brokers, "localhost:9,no.such.name.invalid:9092"),
        69,
        &[
            "missing broker localhost:9: no connection",
            "missing broker no.such.name.invalid:9092: the name",
            "skipped kafka",
            "ok schema",
        ],
    );
    let plaintext = Secure::shared().address(Listener::Plaintext);
    let (_, port) = plaintext.rsplit_once(':').expect("a port");
    let output = bench.check_with(&brokers, &format!("localhost:{port}"));
    must_say(&output, 69, &["ok broker", "missing login"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    must_say(
        &bench.check_with("127.0.0.1:0", &address),
        69,
        &[&format!("missing http {address}"), "ok schema"],
    );
}

#[test]
fn logins_that_are_refused_are_77() {
    let bench = Bench::new("refused", "alice", "CLICKHOUSE_PASSWORD");
    must_say(
        &bench.check(),
        77,
        &[
            "refused login \"alice\" (SCRAM-SHA-256), over TLS: ",
            "skipped kafka",
            "ok schema",
        ],
    );
    let file = bench.file("CLICKHOUSE_PASSWORD", ALICES);
    let output = bench.clickhouse.run(&["check"], &file, "wrong");
    let user = bench.clickhouse.database.user();
    must_say(
        &output,
        77,
        &[
            &format!("refused clickhouse {user:?} is refused"),
            "ok login",
        ],
    );
    let stranger = text_of(&Secure::shared().stranger.certificate).to_owned();
    let ours = text_of(&Secure::shared().authority.certificate);
    let output = bench.check_with(ours, &stranger);
    must_say(&output, 77, &["refused login"]);
    assert!(
        words(&output).contains("kafka.ca_file"),
        "{}",
        words(&output)
    );
}

#[test]
fn a_file_that_is_wrong_is_78_problem_by_problem() {
    let bench = Bench::new("wrong", "alice", ALICES);
    must_say(
        &bench.check_with("[clickhouse]\n", "surplus = 1\n[clickhouse]\nsurplus = 1\n"),
        78,
        &[
            "wrong configuration kafka.surplus: unknown key",
            "wrong configuration clickhouse.surplus: unknown key",
        ],
    );
}

#[test]
fn rights_that_kafka_refuses_are_named_one_by_one() {
    let secure = Secure::shared();
    let bench = Bench::new("rights", "bob", "BOB_PASSWORD");
    bench.create_topics(&[]);
    let (topic, group, letters) = (&bench.topic, &bench.group, bench.letters());
    must_say(
        &bench.check(),
        77,
        &[
            "ok login \"bob\"",
            &format!("refused topic {topic}: bob may not even see it: grant READ on topic {topic}"),
            &format!("refused group {group}: bob may not even see it: grant READ on group {group}"),
            &format!("refused dead letters {letters}: bob may not even see it: grant WRITE"),
        ],
    );
    let (describe, read, write) = (
        AclOperation::RD_KAFKA_ACL_OPERATION_DESCRIBE,
        AclOperation::RD_KAFKA_ACL_OPERATION_READ,
        AclOperation::RD_KAFKA_ACL_OPERATION_WRITE,
    );
    for name in [topic, &letters] {
        secure.allow_bob(Resource::Topic, name, describe);
    }
    secure.allow_bob(Resource::Group, group, describe);
    until_said(&bench, "may see it and not write to it: grant WRITE");
    must_say(
        &bench.check(),
        77,
        &[
            &format!("refused topic {topic}: bob may see it and not read it: grant READ"),
            &format!("warning topic {topic}: message.timestamp.type cannot be seen"),
            &format!("refused group {group}: bob may see it and not join it: grant READ"),
        ],
    );
    secure.allow_bob(Resource::Topic, topic, read);
    secure.allow_bob(Resource::Group, group, read);
    secure.allow_bob(Resource::Topic, &letters, write);
    until_said(&bench, &format!("{letters} may be written to"));
    must_say(
        &bench.check(),
        0,
        &[&format!("ok topic {topic}"), &format!("ok group {group}")],
    );
}

/// Access lists take a moment to come from the controller to the broker.
fn until_said(bench: &Bench, text: &str) {
    wait::until(text, PATIENCE, || {
        words(&bench.check()).contains(text).then_some(())
    });
}

/// A user of the engine with these grants and the password `guest`.
fn guest(name: &str, grants: &[String]) -> String {
    let grants: Vec<String> = grants
        .iter()
        .map(|grant| format!("<query>GRANT {grant}</query>"))
        .collect();
    format!(
        "<{name}><password>guest</password><networks><ip>::/0</ip></networks>\
         <profile>default</profile><quota>unlimited</quota>\
         <grants>{}</grants></{name}>",
        grants.concat()
    )
}

#[test]
fn a_grant_that_clickhouse_lacks_is_spelled_out() {
    use tachograph::core::fact::Table;
    let tables = Table::ALL.iter().map(|table| table.as_str());
    let inserts = tables.map(|table| format!("INSERT ON tachograph.{table}"));
    let migrations = "SELECT ON tachograph.schema_migrations".to_owned();
    let least: Vec<String> = inserts.chain([migrations]).collect();
    let reader = ["SELECT ON tachograph.*", "INSERT ON tachograph.model_calls"];
    let users = [
        guest("least", &least),
        guest("reader", &reader.map(str::to_owned)),
    ];
    let folder = scratch("grants");
    std::fs::create_dir(folder.join("users.d")).expect("the folder can be written");
    let text = format!(
        "<clickhouse><users>{}</users><quotas><unlimited/></quotas></clickhouse>",
        users.concat()
    );
    std::fs::write(folder.join("users.d/guests.xml"), text).expect("the folder can be written");
    let engine = start_own(&folder, 0).expect("an engine");
    let (url, user, password) = (engine.url(), engine.user(), engine.password());
    let sink = SinkConfig::new(&*url, "tachograph", user, password);
    schema::apply_blocking(&sink).expect("the schema is applied");
    let bench = Bench::new("grants", "alice", ALICES);
    bench.create_topics(&[]);
    let check = |user: &str| {
        let text = format!(
            "{}[clickhouse]\nurl = \"{url}\"\nuser = \"{user}\"\n\
             password_env = \"CLICKHOUSE_PASSWORD\"\n[http]\nlisten = \"127.0.0.1:0\"\n",
            bench.kafka
        );
        let file = bench.clickhouse.file(&text);
        bench.clickhouse.run(&["check"], &file, "guest")
    };
    must_say(
        &check("least"),
        0,
        &["ok schema", "ok rights \"least\" may insert"],
    );
    let output = check("reader");
    let lacks = "refused rights \"reader\" lacks one: GRANT INSERT ON `tachograph`";
    let on_runs = format!("{lacks}.`invocations` TO `reader`");
    must_say(&output, 77, &["ok schema", &on_runs]);
    assert!(
        !words(&output).contains("`model_calls`"),
        "{}",
        words(&output)
    );
}
