//! Five routes for Prometheus, orchestrators and people.
//!
//! Deliberately read-only and without access control: it listens on loopback unless told otherwise,
//! and shows counts, names and positions, never content. Nothing here asks Kafka or ClickHouse.

use crate::clock::Clock;
use crate::core::ledger::Watermark;
use crate::core::pipeline::{PartitionStatus, Snapshot};
use crate::core::{LogTime, PartitionId};
use crate::prometheus_exporter::{CONTENT_TYPE, Exporter};
use crate::state_file::ScrapeGate;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// Connections served at once; further ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 256;
/// Expositions written at once; each may be some megabytes.
const RENDERS_MAX: usize = 2;
/// Bytes of a request's line and headers.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Time for a request's line and headers, waiting on an idle connection included.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// Age at which a connection is asked to end: one that never reads its answers holds no place.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(300);
/// Time that answers under way have to end, then and at shutdown.
const GRACE: Duration = Duration::from_secs(2);

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
        let router = router(state);
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let (stop, stopped) = watch::channel(());
        let mut shutdown = pin!(shutdown);
        loop {
            let accept = async {
                // It is never closed.
                let place = Arc::clone(&places).acquire_owned().await.ok();
                (place, bound.listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                () = &mut shutdown => break,
                accepted = accept => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (router, stopped) = (router.clone(), stopped.clone());
                    tokio::spawn(async move {
                        connection(stream, router, stopped).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    // Such as no file descriptors left: others must end first.
                    tracing::warn!(%error, "cannot accept a connection");
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

/// One connection, until it ends, is too old or the server stops.
async fn connection(stream: TcpStream, router: Router, mut stopped: watch::Receiver<()>) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut served = pin!(served);
    tokio::select! {
        // A client that went away is its own affair.
        _ = &mut served => return,
        _ = stopped.changed() => {}
        () = tokio::time::sleep(CONNECTION_AGE_MAX) => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(GRACE, served).await;
}

fn router(state: ServerState) -> Router {
    let renders = Arc::new(Semaphore::new(RENDERS_MAX));
    Router::new()
        .route("/", get(page))
        .route("/metrics", get(move |state| metrics(state, renders)))
        .route("/healthz/live", get(live))
        .route("/healthz/ready", get(ready))
        .route("/debug/pipeline", get(pipeline))
        .fallback(unknown)
        .layer(middleware::from_fn(guard))
        .with_state(state)
}

/// Refuses what is not a read, and says on every answer that it is what it says it is.
async fn guard(request: Request, next: Next) -> Response {
    let mut response = if matches!(*request.method(), Method::GET | Method::HEAD) {
        next.run(request).await
    } else {
        let allow = [(header::ALLOW, "GET, HEAD")];
        (StatusCode::METHOD_NOT_ALLOWED, allow, "only GET and HEAD\n").into_response()
    };
    let set: [(HeaderName, &str); 4] = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
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

async fn metrics(State(state): State<ServerState>, renders: Arc<Semaphore>) -> Response {
    if let Some(gate) = &state.gate {
        gate.pass().await;
    }
    let _place = renders.acquire().await;
    // Many series take a while, and the runtime has other work.
    let exporter = state.exporter;
    match tokio::task::spawn_blocking(move || exporter.render(state.clock.wall())).await {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
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
        Some(snapshot) => Json(pipeline_json(&snapshot)).into_response(),
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

/// The pipeline as it stands; log times in milliseconds since 1970, unknown ones `null`.
fn pipeline_json(snapshot: &Snapshot) -> Value {
    let totals = &snapshot.totals;
    let outcomes = &totals.outcomes;
    let dead_letters = totals.dead_letters.iter();
    let dead_letters: BTreeMap<&str, u64> = dead_letters.map(|(r, n)| (r.as_str(), *n)).collect();
    let facts = totals.facts.iter();
    let facts: BTreeMap<&str, u64> = facts.map(|(table, n)| (table.as_str(), *n)).collect();
    let open = snapshot.invocations_open.iter();
    let open: BTreeMap<&str, u64> = open.map(|(app, n)| (&**app, *n)).collect();
    let violations = snapshot.violations.iter();
    let violations: BTreeMap<&str, u64> = violations.map(|(i, n)| (i.as_str(), *n)).collect();
    json!({
        "is_paused": snapshot.is_paused,
        "work_in_flight": snapshot.work_in_flight,
        "facts_waiting": snapshot.facts_waiting,
        "invocations_open": open,
        "partitions": snapshot.partitions.iter().map(partition_json).collect::<Vec<_>>(),
        "totals": {
            "records": {
                "read": outcomes.read,
                "applied": outcomes.applied,
                "ignored": outcomes.ignored,
                "tombstone": outcomes.tombstones,
                "duplicate": outcomes.duplicates,
                "dead_lettered": outcomes.dead_lettered,
            },
            "dead_letters": dead_letters,
            "facts": facts,
            "facts_late": totals.facts_late,
            "facts_replayed": totals.facts_replayed,
            "limits_reached": totals.limits_reached,
            "schema_prefixes": totals.schema_prefixes,
            "boms": totals.boms,
            "duplicate_keys": totals.duplicate_keys,
            "invalid_utf8": totals.invalid_utf8,
            "lone_surrogates": totals.lone_surrogates,
            "nonstandard_json": totals.nonstandard_json,
        },
        "invariant_violations": violations,
    })
}

fn partition_json(status: &PartitionStatus) -> Value {
    let PartitionId(id) = status.partition;
    let Watermark {
        resume_from,
        exported_below,
        abandoned_before,
        observed_below,
        observed_before,
        is_clean,
    } = status.watermark;
    json!({
        "id": id,
        "topic": &*status.source.topic,
        "partition": status.source.partition,
        "records_read": status.records_read,
        "next": status.next.0,
        "log_time_ms": known_ms(status.log_time),
        "complete_up_to_ms": known_ms(status.complete_up_to),
        "is_replaying": status.is_replaying,
        "segments_held": status.segments_held,
        "held_records": status.held_records,
        "watermark": {
            "resume_from": resume_from.0,
            "exported_below": exported_below.0,
            "abandoned_before_ms": known_ms(abandoned_before),
            "observed_below": observed_below.0,
            "observed_before_ms": known_ms(observed_before),
            "is_clean": is_clean,
        },
    })
}

fn known_ms(time: LogTime) -> Option<i64> {
    (time.0 > i64::MIN).then_some(time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus_exporter::ExporterSettings;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::JoinHandle;

    struct Running {
        address: SocketAddr,
        state: ServerState,
        stop: watch::Sender<()>,
        task: JoinHandle<()>,
    }

    async fn start(silence_max: Duration) -> Running {
        let state = ServerState {
            exporter: Arc::new(Exporter::new(&ExporterSettings::default())),
            liveness: Arc::new(Liveness::new(silence_max)),
            readiness: Arc::new(Readiness::starting(&["kafka"])),
            clock: Clock::new(),
            gate: None,
            version: "1.2.3",
        };
        let bound = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = bound.address();
        let (stop, mut stopped) = watch::channel(());
        let serving = Server::serve(bound, state.clone(), async move {
            let _ = stopped.changed().await;
        });
        Running {
            address,
            state,
            stop,
            task: tokio::spawn(serving),
        }
    }

    /// The whole answer to `METHOD PATH`, head and body.
    async fn ask(running: &Running, line: &str) -> String {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        let head = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    fn body(answer: &str) -> &str {
        answer.split_once("\r\n\r\n").unwrap().1
    }

    #[tokio::test]
    async fn every_answer_is_guarded_and_no_page_needs_anything_else() {
        let running = start(Duration::from_secs(60)).await;
        for (line, status) in [
            ("GET /", "200"),
            ("GET /metrics", "200"),
            ("GET /healthz/live", "200"),
            ("GET /healthz/ready", "503"),
            ("GET /debug/pipeline", "503"),
            ("GET /favicon.ico", "404"),
            ("POST /metrics", "405"),
            ("DELETE /nowhere", "405"),
        ] {
            let answer = ask(&running, line).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{line}: {answer}"
            );
            for header in [
                "x-content-type-options: nosniff",
                "cache-control: no-store",
                "content-security-policy: default-src 'none'",
            ] {
                assert!(answer.contains(header), "{line}: {answer}");
            }
        }
        let page = ask(&running, "GET /").await;
        assert!(page.contains("tachograph 1.2.3"));
        for outside in ["http:", "https:", "src=", "<script", "<style"] {
            assert!(!body(&page).contains(outside), "{page}");
        }
        let unknown = ask(&running, "GET /nowhere").await;
        for route in ROUTES.lines() {
            assert!(page.contains(&format!("href=\"{route}\"")) || route == "/");
            assert!(
                body(&unknown).lines().any(|line| line == route),
                "{unknown}"
            );
        }
    }

    #[tokio::test]
    async fn metrics_say_their_format_and_head_has_no_body() {
        let running = start(Duration::from_secs(60)).await;
        let answer = ask(&running, "GET /metrics").await;
        assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8"));
        assert!(
            body(&answer).contains("\ntachograph_build_info{"),
            "{answer}"
        );
        assert_eq!(body(&ask(&running, "HEAD /metrics").await), "");
    }

    #[tokio::test]
    async fn readiness_says_why_not() {
        let running = start(Duration::from_secs(60)).await;
        let reason = "table \"x\" is missing".to_owned();
        running
            .state
            .readiness
            .set_reason("clickhouse", Some(reason));
        assert_eq!(
            body(&ask(&running, "GET /healthz/ready").await),
            "{\"ready\":false,\"reasons\":[\
             {\"part\":\"clickhouse\",\"reason\":\"table \\\"x\\\" is missing\"},\
             {\"part\":\"kafka\",\"reason\":\"starting\"}]}"
        );
        running.state.readiness.set_reason("clickhouse", None);
        running.state.readiness.set_reason("kafka", None);
        let answer = ask(&running, "GET /healthz/ready").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(body(&answer), "{\"ready\":true,\"reasons\":[]}");
    }

    #[tokio::test]
    async fn a_loop_that_does_not_turn_is_not_alive() {
        let running = start(Duration::ZERO).await;
        let answer = ask(&running, "GET /healthz/live").await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        let young = Liveness::new(Duration::from_millis(200));
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert!(!young.is_alive());
        young.beat();
        assert!(young.is_alive());
    }

    #[tokio::test]
    async fn a_taken_address_is_named() {
        let first = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let error = Server::bind(first.address()).await.unwrap_err();
        assert!(matches!(error, ServeError::AddressInUse { .. }));
        assert!(error.to_string().starts_with(&first.address().to_string()));
        assert!(error.to_string().contains("[http] listen"), "{error}");
    }

    #[tokio::test]
    async fn a_huge_head_is_refused_and_a_stop_ends_idle_connections() {
        let running = start(Duration::from_secs(60)).await;
        let long = "x".repeat(HEAD_BYTES_MAX);
        let answer = ask(&running, &format!("GET /{long}")).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        let mut idle = TcpStream::connect(running.address).await.unwrap();
        ask(&running, "GET /healthz/live").await;
        running.stop.send(()).unwrap();
        tokio::time::timeout(GRACE * 2, running.task)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(idle.read(&mut [0; 8]).await.unwrap(), 0);
        assert!(TcpStream::connect(running.address).await.is_err());
    }
}
