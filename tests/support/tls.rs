//! TLS in front of the real engine, which has none of its own: it opens plain HTTP only.
//!
//! It ends the encryption and passes on every byte. What comes before a handshake is complete never
//! reaches the engine.

use std::fs;
use std::io;

use native_tls::{Identity, TlsAcceptor};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::secure::Signed;

/// Ends when dropped.
pub struct TlsProxy {
    port: u16,
    _runtime: Runtime,
}

impl TlsProxy {
    /// Listens on a free port of `localhost`, shows `signed`, and passes on to `server`.
    pub fn start(server: &str, signed: &Signed) -> TlsProxy {
        let read = |path| fs::read(path).expect("openssl wrote it");
        let identity = Identity::from_pkcs8(&read(&signed.certificate), &read(&signed.key));
        let acceptor = TlsAcceptor::new(identity.expect("a certificate and its key"));
        let acceptor = tokio_native_tls::TlsAcceptor::from(acceptor.expect("OpenSSL takes it"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let listening = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)));
        let listener = listening.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let server = server.to_owned();
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(acceptor.clone(), client, server.clone()));
            }
        });
        TlsProxy {
            port,
            _runtime: runtime,
        }
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }
}

async fn carry(
    acceptor: tokio_native_tls::TlsAcceptor,
    client: TcpStream,
    server: String,
) -> io::Result<()> {
    let mut client = acceptor.accept(client).await.map_err(io::Error::other)?;
    let mut server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
