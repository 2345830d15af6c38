//! The example file against the defaults, and what wrong files are told.

use super::*;

const EXAMPLE: &str = include_str!("../../deploy/tachograph.example.toml");

fn parse(text: &str) -> Result<Config, ConfigError> {
    let needs = match text.contains("url") {
        true => Needs::ClickHouse,
        false => Needs::Nothing,
    };
    Config::parse(text, needs, &|name| {
        (name == "PASSWORD").then(|| "open sesame".to_owned())
    })
}

fn problems(text: &str) -> Vec<String> {
    match parse(text) {
        Err(ConfigError::Problems(problems)) => problems.iter().map(Problem::to_string).collect(),
        other => panic!("expected problems, got {other:?}"),
    }
}

#[test]
fn the_example_holds_every_key_with_its_default() {
    let mut with_topic = Config::default();
    with_topic.topics.push(Topic {
        name: "agent-events".into(),
        dialect: "auto".into(),
        ..Topic::default()
    });
    let expected: toml::Table = with_topic.render().parse().expect("render writes TOML");
    let example: toml::Table = EXAMPLE.parse().expect("the example is TOML");
    assert_eq!(example, expected);
    let parsed = Config::parse(EXAMPLE, Needs::Everything, &|_| None);
    assert_eq!(parsed.expect("the example is right"), with_topic);
}

#[test]
fn says_everything_that_is_wrong_at_once() {
    let text = r#"
        surplus = 1
        [kafka]
        brokers = 7
        topics = ["^a", "b"]
        protocol = "telepathy"
        [kafka.properties]
        "group.id" = "x"
        "fetch.wait.max.ms" = "soon"
        "no.such.key" = 1
        [[topic]]
        name = "a b"
        dialect = "french"
        [clickhouse]
        url = "ftp://x"
        password_env = "MISSING"
        [state]
        file = "/tmp/state"
        [limits]
        drain_max = "5 s"
        batch_age_max = 3
        payload_bytes_max = "8 MB"
        work_in_flight_max = 0
        silence_maximum = "1 s"
    "#;
    let said = problems(text);
    let keys: Vec<&str> = said.iter().filter_map(|p| p.split(": ").next()).collect();
    let expected = [
        "topic[0].name",
        "topic[0].dialect",
        "kafka.brokers",
        "kafka.protocol",
        "kafka.properties.\"fetch.wait.max.ms\"",
        "kafka.properties.\"group.id\"",
        "kafka.properties.\"no.such.key\"",
        "limits.payload_bytes_max",
        "limits.batch_age_max",
        "limits.work_in_flight_max",
        "limits.silence_maximum",
        "surplus",
        "clickhouse.password_env",
        "kafka.topics",
        "clickhouse.url",
        "limits.commit_interval",
    ];
    assert_eq!(keys, expected, "{said:#?}");
}

#[test]
fn names_what_is_required() {
    let error = Config::parse("", Needs::Everything, &|_| None).expect_err("nothing is said");
    let expected = "kafka.brokers: required and missing\nclickhouse.url: required and missing";
    assert_eq!(error.to_string(), expected);
    assert_eq!(parse("").expect("all else has defaults"), Config::default());
}

#[test]
fn secrets_are_looked_up_and_never_printed() {
    let text = "[clickhouse]\nurl = \"http://a\"\npassword_env = \"PASSWORD\"";
    let config = parse(text).expect("the variable is set");
    assert_eq!(config.clickhouse.password.value, "open sesame");
    assert!(!config.render().contains("sesame"));
    assert!(!format!("{config:?}").contains("sesame"));
    let said = problems("[clickhouse]\npassword = \"clear\"");
    assert_eq!(said, ["clickhouse.password: unknown key"]);
}

#[test]
fn a_secret_at_the_wrong_place_is_refused_without_a_word_of_it() {
    let url = "[clickhouse]\nurl = \"http://a\"\n";
    for (text, says) in [
        (
            "password_env = \"s3same\"",
            "clickhouse.password_env: must name",
        ),
        ("password = s3same", "not TOML: line 3: "),
        ("password = \"s3same", "not TOML: line 3: "),
        (
            "[kafka.properties]\n\"sasl.password\" = \"s3same\"",
            "remove it",
        ),
        (
            "[kafka.properties]\n\"sasl.oauthbearer.client.credentials.client.secret\" = \"s3same\"",
            "a secret in clear",
        ),
        (
            "[kafka.properties]\n\"sasl.oauthbearer.config\" = \"s3same\"",
            "a secret in clear",
        ),
    ] {
        let said = problems(&format!("{url}{text}")).join("\n");
        assert!(said.contains(says), "{said}");
        assert!(!said.contains("s3same"), "{said}");
    }
    for url in ["http://u:s3same@a", "http://a/?password=s3same"] {
        let said = problems(&format!("[clickhouse]\nurl = \"{url}\"")).join("\n");
        assert!(said.contains("must hold no login"), "{said}");
        assert!(!said.contains("s3same"), "{said}");
    }
}

/// What a build says that has the feature `tls`, or has it not.
fn problems_of_build(text: &str, has_tls: bool) -> Vec<String> {
    let env = |_: &str| Some("open sesame".to_owned());
    let parsed = parse::parse(text, Needs::Nothing, &env, has_tls);
    let problems = parsed.err().unwrap_or_default();
    problems.iter().map(Problem::to_string).collect()
}

#[test]
fn what_this_build_cannot_do_is_refused_by_name() {
    let login = "username = \"u\"\npassword_env = \"P\"\nsasl_mechanism";
    let needs = "needs a build with the feature `tls`";
    for (text, key, word) in [
        (
            "[kafka]\nprotocol = \"ssl\"".to_owned(),
            "kafka.protocol",
            "ssl",
        ),
        (
            format!("[kafka]\nprotocol = \"sasl_ssl\"\n{login} = \"PLAIN\""),
            "kafka.protocol",
            "sasl_ssl",
        ),
        (
            format!("[kafka]\nprotocol = \"sasl_plaintext\"\n{login} = \"SCRAM-SHA-512\""),
            "kafka.sasl_mechanism",
            "SCRAM-SHA-512",
        ),
        (
            "[clickhouse]\nurl = \"https://a\"".to_owned(),
            "clickhouse.url",
            "https",
        ),
    ] {
        assert_eq!(
            problems_of_build(&text, false),
            [format!("{key}: {word} {needs}")]
        );
        assert_eq!(problems_of_build(&text, true), [""; 0], "{text}");
    }
    let plain = format!("[kafka]\nprotocol = \"sasl_plaintext\"\n{login} = \"PLAIN\"");
    assert_eq!(
        problems_of_build(&plain, false),
        [""; 0],
        "PLAIN needs no OpenSSL"
    );
    let said = problems("[prices]\nbook = \"book.toml\"");
    assert_eq!(
        said,
        ["prices.book: this build has no prices yet: leave it empty"]
    );
}

#[test]
fn a_login_needs_its_parts() {
    let said = problems("[kafka]\nprotocol = \"sasl_plaintext\"\nsasl_mechanism = \"PLAIN\"");
    assert_eq!(said.len(), 2, "{said:?}");
    let said = problems("[kafka]\ntopics = [\"a\", \"a.dead-letters\"]");
    assert!(said[0].contains("round for ever"), "{said:?}");
    let said = problems("[kafka]\ntopics = [\"^a\"]\ndead_letters = \"{topic}\"");
    assert!(said[0].contains("round for ever"), "{said:?}");
    let text = "[kafka]\nprotocol = \"ssl\"\nkey_file = \"Cargo.toml\"";
    let said = problems_of_build(text, true);
    let expected = "kafka.certificate_file: kafka.key_file is of no use without it";
    assert_eq!(said, [expected]);
}

#[test]
fn kip_848_leaves_time_outs_to_the_broker() {
    let text = "[kafka]\ngroup_protocol = \"consumer\"\n[kafka.properties]\n\
                \"session.timeout.ms\" = 6000";
    let said = problems(text);
    assert!(said[0].contains("the broker sets it"), "{said:?}");
}

#[test]
fn reads_what_it_renders() {
    let text = r#"
        [kafka]
        brokers = "a:1,b:2"
        topics = ["^events-.*"]
        [kafka.properties]
        "session.timeout.ms" = 6000
        "client.id" = "with \"quotes\" and \\"
        [[topic]]
        name = "^events-a"
        tenant = "t"
        event_time_semantics = "arrival"
        [labels]
        known_models = ["m1", "m2"]
        [limits]
        silence_max = "3 h"
        payload_bytes_max = 1000
    "#;
    let config = parse(text).expect("a right file");
    assert_eq!(
        config.limits.tool_silence_max, config.limits.silence_max,
        "raised"
    );
    assert_eq!(parse(&config.render()).expect("rendered"), config);
    let defaults = config.topic_defaults("events-ab");
    assert!(defaults.event_times_are_arrivals);
    assert_eq!(&*defaults.tenant.0, "t");
    assert_eq!(config.topic_defaults("other"), TopicDefaults::default());
}
