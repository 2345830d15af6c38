//! Why no broker lets us in: librdkafka's codes and words, in ours.
//!
//! Deliberately few kinds: what an operator does next is what tells them apart.

use rdkafka::error::RDKafkaErrorCode;
use std::fmt;

/// TLS alerts about the certificate of who is told: bad, unsupported, revoked, expired, unknown, of
/// an unknown authority, without access, missing (RFC 8446 §6).
const CERTIFICATE_ALERTS: [u8; 8] = [42, 43, 44, 45, 46, 48, 49, 116];

/// One kind of trouble, with librdkafka's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The broker does not take user and password, or not the mechanism.
    LoginRefused(String),
    /// The broker does not take our certificate, or wants one.
    CertificateRefused(String),
    /// The connection is there, and encrypting it fails.
    Tls(String),
    /// There is no connection.
    Network(String),
}

impl Trouble {
    /// `None` for what says nothing of its own, such as that all brokers are down.
    pub(super) fn of(code: RDKafkaErrorCode, reason: &str) -> Option<Trouble> {
        // What follows is how long it took, and how often it happened.
        let words = reason.split(" (after ").next().unwrap_or(reason).to_owned();
        match code {
            RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed => {
                Some(Trouble::LoginRefused(words))
            }
            // With TLS 1.3 a client's certificate is judged after the handshake.
            _ if is_about_our_certificate(&words) => Some(Trouble::CertificateRefused(words)),
            RDKafkaErrorCode::SSL => Some(Trouble::Tls(words)),
            RDKafkaErrorCode::Resolve | RDKafkaErrorCode::BrokerTransportFailure => {
                Some(Trouble::Network(words))
            }
            _ => None,
        }
    }

    /// True where the broker has judged us: going on would only be judged again.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Trouble::LoginRefused(_) | Trouble::CertificateRefused(_)
        )
    }
}

fn is_about_our_certificate(words: &str) -> bool {
    let number = words.split_once("SSL alert number ");
    let number = number.and_then(|(_, number)| number.trim().parse().ok());
    number.is_some_and(|number| CERTIFICATE_ALERTS.contains(&number))
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::LoginRefused(words) => write!(
                f,
                "{words}; check kafka.username, kafka.sasl_mechanism and the password"
            ),
            Trouble::CertificateRefused(words) => write!(
                f,
                "{words}; check kafka.certificate_file and kafka.key_file"
            ),
            Trouble::Tls(words) => {
                write!(f, "{words}; check kafka.protocol and kafka.ca_file")
            }
            Trouble::Network(words) => f.write_str(words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart_and_say_what_to_check() {
        let transport = RDKafkaErrorCode::BrokerTransportFailure;
        for (code, reason, check) in [
            (
                RDKafkaErrorCode::Authentication,
                "no (after 3ms)",
                "no; check kafka.username",
            ),
            (
                RDKafkaErrorCode::SSL,
                "certificate verify failed",
                "kafka.ca_file",
            ),
            (
                transport,
                "SSL alert number 42 (after 1ms)",
                "kafka.certificate_file",
            ),
            (
                RDKafkaErrorCode::SSL,
                "SSL alert number 70 (after 1ms)",
                "kafka.protocol",
            ),
            (
                transport,
                "Connection refused (after 1ms)",
                "Connection refused",
            ),
        ] {
            let trouble = Trouble::of(code, reason).expect("it says something");
            assert!(trouble.to_string().contains(check), "{trouble}");
        }
        assert_eq!(
            Trouble::of(RDKafkaErrorCode::AllBrokersDown, "3/3 down"),
            None
        );
    }
}
