//! A real broker with every kind of listener, an authorizer, and certificates made for the run.
//!
//! Certificates come from the `openssl` command, so that none can run out in the repository. Users:
//! `alice` may do everything; `bob` may do what a test allows him.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::LazyLock;

use rdkafka::bindings as sys;
use rdkafka::producer::{BaseProducer, Producer as _};

pub use rdkafka::bindings::rd_kafka_AclOperation_t as AclOperation;

use super::kafka::{self, Cluster};
use super::{mark_real_part, scratch};

/// The password of the user who may do everything.
pub const ALICE: &str = "alice-secret";
/// The password of the user who may do what he was allowed.
pub const BOB: &str = "bob-secret";

/// Ports of the node: plaintext, controller, and the listeners of [`Listener`].
const PORTS: &str = "6";

/// `ANONYMOUS` is whoever shows neither a login nor a certificate, the harness among them.
const PROPERTIES: &str = r#"
listeners=PLAINTEXT://127.0.0.1:@PORT0@,CONTROLLER://127.0.0.1:@PORT1@,SASL_PLAINTEXT://127.0.0.1:@PORT2@,SSL://127.0.0.1:@PORT3@,SASL_SSL://127.0.0.1:@PORT4@,MUTUAL://127.0.0.1:@PORT5@
advertised.listeners=PLAINTEXT://127.0.0.1:@PORT0@,SASL_PLAINTEXT://127.0.0.1:@PORT2@,SSL://localhost:@PORT3@,SASL_SSL://localhost:@PORT4@,MUTUAL://localhost:@PORT5@
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,MUTUAL:SSL
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:alice;User:CN=daemon
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
ssl.keystore.type=PEM
ssl.keystore.location=@FOLDER@/broker.keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location=@FOLDER@/ca.pem
listener.name.mutual.ssl.client.auth=required
"#;

/// How a client may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// Unencrypted, without a login: for the harness.
    Plaintext = 0,
    /// A login on an unencrypted connection.
    SaslPlaintext = 2,
    /// TLS, the broker alone showing a certificate.
    Ssl = 3,
    /// A login over TLS.
    SaslSsl = 4,
    /// TLS, both sides showing a certificate.
    Mutual = 5,
}

static SHARED: LazyLock<Result<Secure, String>> = LazyLock::new(Secure::start);

/// The broker and the certificates around it.
pub struct Secure {
    cluster: Cluster,
    first_port: u16,
    pub authority: Authority,
    /// An authority that signed nothing which is used here.
    pub stranger: Authority,
}

impl Secure {
    /// The broker that all tests of a binary share, started at the first call.
    pub fn shared() -> &'static Secure {
        let secure = SHARED.as_ref().unwrap_or_else(|reason| panic!("{reason}"));
        mark_real_part("kafka-secure");
        secure
    }

    fn start() -> Result<Secure, String> {
        let folder = scratch("secure");
        let authority = Authority::make(&folder, "ca");
        let stranger = Authority::make(&folder, "stranger");
        let broker = authority.sign("broker", "DNS:localhost");
        authority.sign("daemon", "DNS:daemon");
        let parts = [&broker.key, &broker.certificate, &authority.certificate];
        let keystore: Vec<String> = parts.map(|path| read(path)).into();
        write(&folder.join("broker.keystore.pem"), &keystore.concat());
        let extra = folder.join("extra.properties");
        let mut text = PROPERTIES.replace("@FOLDER@", text_of(&folder));
        for listener in ["sasl_plaintext", "sasl_ssl"] {
            text.push_str(&logins(listener));
        }
        write(&extra, &text);
        let users = ["alice", "bob"].iter().zip([ALICE, BOB]);
        let format: Vec<String> = users
            .flat_map(|(user, password)| {
                ["SCRAM-SHA-256", "SCRAM-SHA-512"].map(|mechanism| {
                    format!("--add-scram {mechanism}=[name={user},password={password}]")
                })
            })
            .collect();
        let cluster = Cluster::start_with(
            1,
            &[
                ("KAFKA_EXTRA", text_of(&extra)),
                ("KAFKA_PORTS", PORTS),
                ("KAFKA_FORMAT", &format.join(" ")),
            ],
        )?;
        let port = cluster
            .brokers
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok());
        Ok(Secure {
            first_port: port.ok_or("kafka.sh names host and port")?,
            cluster,
            authority,
            stranger,
        })
    }

    /// The bootstrap address of one listener, under the name that its certificate bears.
    pub fn address(&self, listener: Listener) -> String {
        let host = match listener {
            Listener::Plaintext | Listener::SaslPlaintext => "127.0.0.1",
            Listener::Ssl | Listener::SaslSsl | Listener::Mutual => "localhost",
        };
        format!("{host}:{}", self.first_port + listener as u16)
    }

    /// What the broker looks like now.
    pub fn diagnose(&self) -> String {
        self.cluster.diagnose()
    }
}

/// The logins of one listener; SCRAM's passwords are in the log that `format` made.
fn logins(listener: &str) -> String {
    let prefix = format!("listener.name.{listener}");
    let classes = "org.apache.kafka.common.security";
    let mut text = format!(
        "{prefix}.plain.sasl.jaas.config={classes}.plain.PlainLoginModule required \
         user_alice=\"{ALICE}\" user_bob=\"{BOB}\";\n"
    );
    for mechanism in ["scram-sha-256", "scram-sha-512"] {
        text.push_str(&format!(
            "{prefix}.{mechanism}.sasl.jaas.config={classes}.scram.ScramLoginModule required;\n"
        ));
    }
    text
}

/// Somebody who signs certificates.
pub struct Authority {
    folder: PathBuf,
    name: String,
    /// Its own certificate, in PEM.
    pub certificate: PathBuf,
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Signed {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    /// Makes an authority with its files in `folder`.
    pub fn make(folder: &Path, name: &str) -> Authority {
        let authority = Authority {
            folder: folder.to_owned(),
            name: name.to_owned(),
            certificate: folder.join(format!("{name}.pem")),
        };
        authority.openssl(name, &["-addext", "basicConstraints=critical,CA:TRUE"]);
        authority
    }

    /// Makes and signs a certificate for `name`, valid at `hosts` such as `DNS:localhost`.
    pub fn sign(&self, name: &str, hosts: &str) -> Signed {
        let signer = self.certificate.clone();
        let signer_key = self.folder.join(format!("{}.key", self.name));
        self.openssl(
            name,
            &[
                "-CA",
                text_of(&signer),
                "-CAkey",
                text_of(&signer_key),
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-addext",
                &format!("subjectAltName={hosts}"),
            ],
        );
        self.signed(name)
    }

    /// What was signed before under that name.
    pub fn signed(&self, name: &str) -> Signed {
        Signed {
            certificate: self.folder.join(format!("{name}.pem")),
            key: self.folder.join(format!("{name}.key")),
        }
    }

    fn openssl(&self, name: &str, more: &[&str]) {
        let files = self.signed(name);
        let done = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"])
            .args(["-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-subj", &format!("/CN={name}")])
            .args(["-out", text_of(&files.certificate)])
            .args(["-keyout", text_of(&files.key)])
            .args(more)
            .stdin(Stdio::null())
            .output()
            .expect("openssl is missing; install it with: apt-get install -y openssl");
        let words = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "openssl req for {name}: {words}");
    }
}

/// The path as text, for command lines and configuration files.
pub fn text_of(path: &Path) -> &str {
    path.to_str().expect("the target folder's path is UTF-8")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("openssl wrote it")
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("the scratch folder can be written");
}

/// What an access list is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Topic,
    Group,
}

impl Secure {
    /// Allows `bob` one more thing. rdkafka does not wrap this call.
    pub fn allow_bob(&self, resource: Resource, name: &str, operation: AclOperation) {
        let client: BaseProducer = kafka::client_config(&self.address(Listener::Plaintext))
            .create()
            .expect("a client can be made");
        let native = client.client().native_ptr();
        let text = |text: &str| CString::new(text).expect("no NUL inside");
        let (name, user, host) = (text(name), text("User:bob"), text("*"));
        let resource = match resource {
            Resource::Topic => sys::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC,
            Resource::Group => sys::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_GROUP,
        };
        // SAFETY: the client and the texts outlive the call, and what is made here is given back
        // here, the event last, to which the results belong.
        unsafe {
            let mut binding = sys::rd_kafka_AclBinding_new(
                resource,
                name.as_ptr(),
                sys::rd_kafka_ResourcePatternType_t::RD_KAFKA_RESOURCE_PATTERN_LITERAL,
                user.as_ptr(),
                host.as_ptr(),
                operation,
                sys::rd_kafka_AclPermissionType_t::RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW,
                ptr::null_mut(),
                0,
            );
            assert!(!binding.is_null(), "librdkafka takes the access list");
            let queue = sys::rd_kafka_queue_new(native);
            sys::rd_kafka_CreateAcls(native, &raw mut binding, 1, ptr::null(), queue);
            let event = sys::rd_kafka_queue_poll(queue, 60_000);
            assert!(!event.is_null(), "no answer\n{}", self.diagnose());
            let result = sys::rd_kafka_event_CreateAcls_result(event);
            let mut count = 0;
            let made = sys::rd_kafka_CreateAcls_result_acls(result, &raw mut count);
            assert_eq!(count, 1);
            let error = sys::rd_kafka_acl_result_error(*made);
            assert!(error.is_null(), "{:?}", sys::rd_kafka_error_code(error));
            sys::rd_kafka_event_destroy(event);
            sys::rd_kafka_queue_destroy(queue);
            sys::rd_kafka_AclBinding_destroy(binding);
        }
    }
}
