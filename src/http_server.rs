//! Five routes for Prometheus, orchestrators and people.
//!
//! Deliberately read-only and without access control: it listens on loopback unless told otherwise,
//! and shows counts, names and positions, never content. Nothing here asks Kafka or ClickHouse.

mod connections;
mod debug;

use crate::clock::Clock;
use crate::prometheus_exporter::{CONTENT_TYPE, Exporter};
use crate::state_file::ScrapeGate;
use crate::warn_rarely;
use axum::body::{Bytes, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use connections::{Connections, GRACE, Place, reached};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

const ROUTES: &str = "/\n/metrics\n/healthz/live\n/healthz/ready\n/debug/pipeline\n";

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Exit code 69 (config.md).
    #[error(
        "{address} is taken: another process listens there. Stop it, or set [http] listen to \
         another address"
    )]
    AddressInUse { address: SocketAddr },
    #[error("cannot listen on {address}: {source}. Check [http] listen")]
    Bind {
        address: SocketAddr,
        source: io::Error,
    },
}

/// Whether the driver's loop still turns.
#[derive(Debug)]
pub struct Liveness {
    started: Instant,
    beaten_ms: AtomicU64,
    silence_max: Duration,
}

impl Liveness {
    /// Alive for `silence_max` from now, as after a beat.
    pub fn new(silence_max: Duration) -> Liveness {
        Liveness {
            started: Instant::now(),
            beaten_ms: AtomicU64::new(0),
            silence_max,
        }
    }

    /// The loop has come round.
    pub fn beat(&self) {
        self.beaten_ms.store(self.age_ms(), Ordering::Relaxed);
    }

    /// Time since the last beat.
    pub fn silence(&self) -> Duration {
        let beaten = self.beaten_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.age_ms().saturating_sub(beaten))
    }

    /// True while the last beat is young enough.
    pub fn is_alive(&self) -> bool {
        self.silence() < self.silence_max
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Why the daemon is not ready, part by part; ready where no part has a reason.
#[derive(Debug)]
pub struct Readiness {
    reasons: Mutex<BTreeMap<&'static str, String>>,
}

impl Readiness {
    /// Not ready: `parts` have not said yet how they are.
    pub fn starting(parts: &[&'static str]) -> Readiness {
        let reasons = parts.iter().map(|part| (*part, "starting".to_owned()));
        Readiness {
            reasons: Mutex::new(reasons.collect()),
        }
    }

    /// `part` is not ready for this reason, or is (`None`). The reason is shown to whoever asks: no
    /// secrets.
    pub fn set_reason(&self, part: &'static str, reason: Option<String>) {
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        match reason {
            Some(reason) => reasons.insert(part, reason),
            None => reasons.remove(part),
        };
    }

    /// What stands in the way, by part.
    pub fn reasons(&self) -> BTreeMap<&'static str, String> {
        let reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        reasons.clone()
    }
}

/// What the routes show.
#[derive(Clone)]
pub struct ServerState {
    pub exporter: Arc<Exporter>,
    pub liveness: Arc<Liveness>,
    pub readiness: Arc<Readiness>,
    pub clock: Clock,
    /// Where a state file is kept: what scrapes wait for.
    pub gate: Option<Arc<ScrapeGate>>,
    /// Shown on the page for people.
    pub version: &'static str,
}

/// An address that is ours, on which nothing is answered yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Bound {
    /// The address, with the port that was given where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The HTTP server.
pub struct Server;

impl Server {
    /// Takes the address.
    ///
    /// # Errors
    /// Where it is taken or not this machine's.
    pub async fn bind(address: SocketAddr) -> Result<Bound, ServeError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ServeError::AddressInUse { address },
            _ => ServeError::Bind { address, source },
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Bound { listener, address })
    }

    /// Answers until `shutdown` completes, then lets answers under way end.
    pub async fn serve(bound: Bound, state: ServerState, shutdown: impl Future<Output = ()>) {
        let router = router(state.clone());
        let connections = Arc::new(Connections::default());
        let (stop, stopped) = watch::channel(());
        let mut shutdown = pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                () = &mut shutdown => break,
                accepted = bound.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => {
                    let (place, was_full) = connections.enter(from.ip());
                    if was_full {
                        reached(&state, "http_connections_max");
                    }
                    let (router, state) = (router.clone(), state.clone());
                    let stopped = stopped.clone();
                    tokio::spawn(connections::serve(stream, place, router, state, stopped));
                }
                Err(error) => {
                    // Such as no file descriptors left: others must end first.
                    warn_rarely!("accept", %error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop((bound, stopped));
        // No receiver is no connection, which is as good.
        let _ = stop.send(());
        let _ = tokio::time::timeout(GRACE, stop.closed()).await;
    }
}

fn router(state: ServerState) -> Router {
    let exposition = Exposition::default();
    Router::new()
        .route("/", get(page))
        .route("/metrics", get(move |state| metrics(state, exposition)))
        .route("/healthz/live", get(live))
        .route("/healthz/ready", get(ready))
        .route("/debug/pipeline", get(pipeline))
        .fallback(unknown)
        .layer(middleware::from_fn_with_state(state.clone(), guard))
        .with_state(state)
}

/// Refuses what is not a read, and says on every answer that it is what it says it is.
async fn guard(
    State(state): State<ServerState>,
    Extension(place): Extension<Arc<Place>>,
    request: Request,
    next: Next,
) -> Response {
    let _answering = place.answering();
    let mut response = match refusal(&request, &place, &state) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    let set: [(HeaderName, &str); 5] = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ];
    for (name, value) in set {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Why a request is not answered. Probes are never too many: whoever refuses them has the daemon
/// killed, and they cost nothing.
fn refusal(request: &Request, place: &Place, state: &ServerState) -> Option<Response> {
    let close = (header::CONNECTION, "close");
    let is_probe = request.uri().path().starts_with("/healthz/");
    if !place.may_ask() && !is_probe {
        reached(state, "http_requests_max");
        let headers = [(header::RETRY_AFTER, "1"), close];
        let text = "too many requests\n";
        return Some((StatusCode::TOO_MANY_REQUESTS, headers, text).into_response());
    }
    if !request.body().is_end_stream() {
        let text = "no request has a body here\n";
        return Some((StatusCode::PAYLOAD_TOO_LARGE, [close], text).into_response());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let allow = [(header::ALLOW, "GET, HEAD")];
        let text = "only GET and HEAD\n";
        return Some((StatusCode::METHOD_NOT_ALLOWED, allow, text).into_response());
    }
    None
}

async fn page(State(state): State<ServerState>) -> Html<String> {
    Html(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>tachograph</title>\n</head>\n<body>\n<h1>tachograph {}</h1>\n\
         <p>A flight recorder and taximeter for AI agents: Kafka in, Prometheus and ClickHouse \
         out.</p>\n<ul>\n\
         <li><a href=\"/metrics\">/metrics</a>: what Prometheus scrapes</li>\n\
         <li><a href=\"/healthz/live\">/healthz/live</a>: 200 while the loop turns</li>\n\
         <li><a href=\"/healthz/ready\">/healthz/ready</a>: 200 once everything is in place, \
         else why not</li>\n\
         <li><a href=\"/debug/pipeline\">/debug/pipeline</a>: partitions, marks and totals</li>\n\
         </ul>\n</body>\n</html>\n",
        escaped(state.version)
    ))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// The newest exposition and when it was begun; it may be some megabytes. Those who ask while one
/// is written share the next: any number of them costs no more than one after another.
type Exposition = Arc<tokio::sync::Mutex<Option<(Instant, Bytes)>>>;

async fn metrics(State(state): State<ServerState>, exposition: Exposition) -> Response {
    if let Some(gate) = &state.gate {
        gate.pass().await;
    }
    let asked_at = Instant::now();
    let mut newest = exposition.lock_owned().await;
    let shared = newest
        .as_ref()
        .filter(|(begun_at, _)| *begun_at >= asked_at);
    let text = match shared {
        Some((_, text)) => text.clone(),
        None => {
            let begun_at = Instant::now();
            // Many series take a while, and the runtime has other work. The lock goes along: a
            // client that leaves must not let the next one begin beside this.
            let render = move || {
                let text = Bytes::from(state.exporter.render(state.clock.wall()));
                newest.insert((begun_at, text)).1.clone()
            };
            match tokio::task::spawn_blocking(render).await {
                Ok(text) => text,
                Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }
        }
    };
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
}

async fn live(State(state): State<ServerState>) -> Response {
    if state.liveness.is_alive() {
        return "alive\n".into_response();
    }
    let silence = state.liveness.silence().as_secs();
    let text = format!("the loop has not come round for {silence} s\n");
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn ready(State(state): State<ServerState>) -> Response {
    let reasons = state.readiness.reasons();
    let status = if reasons.is_empty() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let list = reasons.iter();
    let list: Vec<Value> = list
        .map(|(part, reason)| json!({"part": part, "reason": reason}))
        .collect();
    let body = json!({"ready": reasons.is_empty(), "reasons": list});
    (status, Json(body)).into_response()
}

async fn pipeline(State(state): State<ServerState>) -> Response {
    match state.exporter.snapshot() {
        Some(snapshot) => Json(debug::pipeline_json(&snapshot)).into_response(),
        None => {
            let body = json!({"error": "the pipeline has not started yet"});
            (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
        }
    }
}

async fn unknown() -> (StatusCode, String) {
    let text = format!("no such page; there are:\n{ROUTES}");
    (StatusCode::NOT_FOUND, text)
}

#[cfg(test)]
mod tests;
