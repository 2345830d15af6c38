//! What can go wrong between the sink and ClickHouse, and what kind of trouble it is.
//!
//! It decides nothing: every error but a refused login at the start is waited out by the sink.

use clickhouse::error::Error as ClientError;

use super::schema::SchemaProblem;

/// Longest part of a server's own words that an error repeats, in characters.
const WORDS_MAX: usize = 300;

/// Why an insert or a look at the server failed.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// ClickHouse does not know the user or the password.
    #[error("ClickHouse refuses the login of user {user:?}")]
    LoginRefused {
        /// The user that tried.
        user: String,
    },
    /// The database, a table, a column or a migration is missing.
    #[error("the schema is behind: {0}")]
    SchemaBehind(#[source] SchemaProblem),
    /// ClickHouse answered with an exception.
    #[error("ClickHouse answered: {words}")]
    Refused {
        /// ClickHouse's error code; 0 where it named none.
        code: i32,
        /// The beginning of its words.
        words: String,
    },
    /// No answer came in time; the rows may be there or not.
    #[error("no answer from ClickHouse within the time limit")]
    TimedOut,
    /// The connection could not be made or broke; the rows may be there or not.
    #[error("no connection to ClickHouse")]
    Network(#[source] ClientError),
    /// The connection was made, and encrypting it failed.
    #[error(
        "no TLS connection to ClickHouse: check that clickhouse.url names its https port and a \
         host of its certificate, and that clickhouse.ca_file is who signed it"
    )]
    Tls(#[source] ClientError),
    /// A row does not fit the columns of the table.
    #[error("rows and columns do not fit: {0}")]
    Mismatch(#[source] ClientError),
}

/// Kinds of trouble: the closed set of values of the label `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureReason {
    /// The connection could not be made or broke.
    Network,
    /// No answer in time.
    TimeOut,
    /// Too many parts: merges are behind (code 252).
    TooManyParts,
    /// Too little memory, too many queries, a limit of the server.
    Overloaded,
    /// The table or the disk takes no rows now.
    ReadOnly,
    /// Database, table or column missing, or of another type.
    Schema,
    /// Login or access refused.
    Login,
    /// Any other exception.
    Refused,
}

impl FailureReason {
    /// Every reason.
    pub const ALL: [FailureReason; 8] = [
        FailureReason::Network,
        FailureReason::TimeOut,
        FailureReason::TooManyParts,
        FailureReason::Overloaded,
        FailureReason::ReadOnly,
        FailureReason::Schema,
        FailureReason::Login,
        FailureReason::Refused,
    ];

    /// The value of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureReason::Network => "network",
            FailureReason::TimeOut => "timeout",
            FailureReason::TooManyParts => "too_many_parts",
            FailureReason::Overloaded => "overloaded",
            FailureReason::ReadOnly => "read_only",
            FailureReason::Schema => "schema",
            FailureReason::Login => "login",
            FailureReason::Refused => "refused",
        }
    }
}

impl SinkError {
    /// True where waiting can help: always, save for a login that is refused at the start.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, SinkError::LoginRefused { .. })
    }

    /// True where the server was not reached, so that asking it for another table is pointless.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            SinkError::Network(_) | SinkError::Tls(_) | SinkError::TimedOut
        )
    }

    /// The kind of trouble.
    pub fn reason(&self) -> FailureReason {
        match self {
            SinkError::LoginRefused { .. } => FailureReason::Login,
            SinkError::SchemaBehind(_) | SinkError::Mismatch(_) => FailureReason::Schema,
            SinkError::TimedOut => FailureReason::TimeOut,
            SinkError::Network(_) | SinkError::Tls(_) => FailureReason::Network,
            SinkError::Refused { code, .. } => reason_of(*code),
        }
    }

    /// The error with its sources on one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            let words = error.to_string();
            if !text.contains(&words) {
                text.push_str(": ");
                text.push_str(&words);
            }
            source = error.source();
        }
        text
    }

    /// Sorts what the client reports; `user` is named where the login is refused.
    pub(super) fn of(error: ClientError, user: &str) -> SinkError {
        match error {
            ClientError::TimedOut => SinkError::TimedOut,
            ClientError::BadResponse(words) => {
                let code = code_of(&words);
                if is_login(code) {
                    return SinkError::LoginRefused {
                        user: user.to_owned(),
                    };
                }
                let words = words.chars().take(WORDS_MAX).collect();
                SinkError::Refused { code, words }
            }
            ClientError::SchemaMismatch(_)
            | ClientError::DataFormat(_)
            | ClientError::InvalidColumnsHeader(_)
            | ClientError::SequenceMustHaveLength
            | ClientError::Custom(_) => SinkError::Mismatch(error),
            #[cfg(feature = "tls")]
            other if super::tls::is_of_tls(&other) => SinkError::Tls(other),
            other => SinkError::Network(other),
        }
    }
}

/// ClickHouse's code in `Code: 252. DB::Exception: …`; 0 where there is none.
fn code_of(words: &str) -> i32 {
    let digits = words.split_once("Code: ").map_or("", |(_, rest)| rest);
    let end = digits.find(|c: char| !c.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().unwrap_or(0)
}

/// Unknown user, wrong, missing or failed password.
fn is_login(code: i32) -> bool {
    matches!(code, 192 | 193 | 194 | 516)
}

fn reason_of(code: i32) -> FailureReason {
    match code {
        252 => FailureReason::TooManyParts,
        // Time and memory limits, too many queries, sockets that time out inside the server.
        159 | 160 | 202 | 203 | 209 | 241 | 394 => FailureReason::Overloaded,
        // Read-only settings, table or disk; no space left.
        164 | 242 | 243 | 254 => FailureReason::ReadOnly,
        // Column, type, table or database unknown, of another type, or dropped meanwhile.
        8 | 10 | 16 | 36 | 44 | 47 | 53 | 60 | 81 | 117 | 218 => FailureReason::Schema,
        // A privilege is missing.
        497 => FailureReason::Login,
        _ => FailureReason::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_sorted_by_their_code() {
        for (words, reason) in [
            (
                "Code: 252. DB::Exception: Too many parts",
                FailureReason::TooManyParts,
            ),
            (
                "Code: 516. DB::Exception: daemon: Authentication failed",
                FailureReason::Login,
            ),
            ("Code: 60", FailureReason::Schema),
            (
                "Code: 241. DB::Exception: memory",
                FailureReason::Overloaded,
            ),
            ("Code: 999999. DB::Exception", FailureReason::Refused),
            ("502 Bad Gateway", FailureReason::Refused),
        ] {
            let error = SinkError::of(ClientError::BadResponse(words.to_owned()), "me");
            assert_eq!(error.reason(), reason, "{words}");
        }
    }

    #[test]
    fn only_a_refused_login_is_final() {
        let refused = SinkError::of(ClientError::BadResponse("Code: 193.".to_owned()), "me");
        assert!(!refused.is_retryable());
        assert!(SinkError::TimedOut.is_retryable());
    }

    #[test]
    fn a_long_answer_is_cut() {
        let words = format!("Code: 1. {}", "x".repeat(5_000));
        let error = SinkError::of(ClientError::BadResponse(words), "me");
        assert!(error.chain().len() < 400);
    }
}
