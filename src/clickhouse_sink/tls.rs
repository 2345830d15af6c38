//! TLS to ClickHouse, on the OpenSSL that librdkafka is built with.
//!
//! Deliberately one TLS library in the program: one to keep up to date, and one set of roots.

use hyper_tls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use native_tls::{Certificate, Protocol, TlsConnector};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Whom the client trusts to sign a server's certificate.
#[derive(Clone)]
pub struct Trust(TlsConnector);

/// Why the client cannot know whom to trust.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}: no certificate in PEM: {source}", path.display())]
    NoCertificate {
        path: PathBuf,
        source: native_tls::Error,
    },
    #[error("{}: no certificate in PEM", path.display())]
    Empty { path: PathBuf },
    #[error("OpenSSL refuses: {0}")]
    OpenSsl(#[from] native_tls::Error),
}

impl Trust {
    /// Trusts those whom the system trusts.
    ///
    /// # Errors
    /// Where OpenSSL cannot be set up.
    pub fn of_system() -> Result<Trust, TrustError> {
        let mut builder = TlsConnector::builder();
        builder.min_protocol_version(Some(Protocol::Tlsv12));
        Ok(Trust(builder.build()?))
    }

    /// Trusts those whose certificates stand in the PEM file at `path`, and nobody else.
    ///
    /// # Errors
    /// Where the file cannot be read or holds no certificate.
    pub fn of_file(path: &Path) -> Result<Trust, TrustError> {
        let owned = || path.to_owned();
        let pem = std::fs::read(path).map_err(|source| TrustError::Unreadable {
            path: owned(),
            source,
        })?;
        let authorities =
            Certificate::stack_from_pem(&pem).map_err(|source| TrustError::NoCertificate {
                path: owned(),
                source,
            })?;
        if authorities.is_empty() {
            return Err(TrustError::Empty { path: owned() });
        }
        let mut builder = TlsConnector::builder();
        builder
            .min_protocol_version(Some(Protocol::Tlsv12))
            .disable_built_in_roots(true);
        for authority in authorities {
            builder.add_root_certificate(authority);
        }
        Ok(Trust(builder.build()?))
    }

    /// `http` with TLS on top.
    pub(super) fn over(&self, mut http: HttpConnector) -> HttpsConnector<HttpConnector> {
        http.enforce_http(false);
        HttpsConnector::from((http, self.0.clone().into()))
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}

/// True where TLS, and not the network below it, is what failed.
pub(super) fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<native_tls::Error>() {
            return true;
        }
        next = error.source();
    }
    false
}
