use super::connections::{CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_TIME_MAX, REQUESTS_MAX};
use super::*;
use crate::prometheus_exporter::ExporterSettings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
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
    let head = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    send(running, &head).await
}

/// The whole answer to a head, as it stands.
async fn send(running: &Running, head: &str) -> String {
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    // What is left unread when the server hangs up, the system answers with a reset.
    let _ = stream.read_to_string(&mut text).await;
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
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
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
async fn what_is_no_plain_read_is_refused_and_counted() {
    let running = start(Duration::from_secs(60)).await;
    let long = "x".repeat(HEAD_BYTES_MAX);
    let many = "a: b\r\n".repeat(200);
    for (head, status) in [
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\na: {long}\r\n\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), "431"),
        ("GET / HTTP/1.1\r\nContent-Length: 9\r\n\r\n".into(), "413"),
        (
            "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
            "413",
        ),
        ("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n".into(), "413"),
        ("PRI * HTTP/2.0\r\n\r\n".into(), "400"),
        ("\0\0\0\0\r\n\r\n".into(), "400"),
    ] {
        // Each one ends the connection, or the answer would not end.
        let answer = send(&running, &head).await;
        let what = head.get(..40).unwrap_or(&head);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{what:?}: {answer}"
        );
    }
    let text = ask(&running, "GET /metrics").await;
    assert!(
        text.contains("_limit_reached_total{limit=\"http_head_bytes_max\"} 3\n"),
        "{text}"
    );
}

/// Clients that connect, say the beginning of a request and then nothing.
async fn slow_clients(running: &Running, count: usize) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut slow = from(running, "127.0.0.2").await;
        slow.write_all(b"GET /metrics HTTP/1.1\r\nHost:")
            .await
            .unwrap();
        clients.push(slow);
    }
    clients
}

/// A connection from another address of loopback.
async fn from(running: &Running, address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind(format!("{address}:0").parse().unwrap())
        .unwrap();
    socket.connect(running.address).await.unwrap()
}

#[tokio::test]
async fn slow_clients_hold_no_places() {
    let running = start(Duration::from_secs(60)).await;
    let mut kept = from(&running, "127.0.0.1").await;
    let request = b"GET /healthz/live HTTP/1.1\r\nHost: x\r\n\r\n";
    kept.write_all(request).await.unwrap();
    let mut answer = [0; 512];
    assert!(kept.read(&mut answer).await.unwrap() > 0);
    let mut slow = slow_clients(&running, CONNECTIONS_MAX + 20).await;
    let answer = ask(&running, "GET /metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let counted = "_limit_reached_total{limit=\"http_connections_max\"} 22\n";
    assert!(answer.contains(counted), "{answer}");
    // The oldest of them were put out, the newest are waited for, and no other client was touched.
    assert_eq!(slow[0].read(&mut [0; 8]).await.unwrap_or(0), 0);
    kept.write_all(request).await.unwrap();
    assert!(kept.read(&mut [0; 512]).await.unwrap() > 0);
    let begun = Instant::now();
    let newest = slow.last_mut().unwrap();
    let ended = tokio::time::timeout(HEAD_TIME_MAX * 2, newest.read(&mut [0; 8])).await;
    assert_eq!(ended.unwrap().unwrap_or(0), 0, "put out without an answer");
    assert!(begun.elapsed() > HEAD_TIME_MAX / 2, "but not at once");
}

#[tokio::test]
async fn a_flood_is_refused_and_a_scrape_beside_it_is_served() {
    let running = start(Duration::from_secs(60)).await;
    let flood = async {
        let mut refused = 0;
        for _ in 0..4 * REQUESTS_MAX {
            let mut stream = from(&running, "127.0.0.2").await;
            let head = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            refused += u32::from(text.starts_with("HTTP/1.1 429 "));
            assert!(!text.starts_with("HTTP/1.1 429 ") || text.contains("retry-after: 1\r\n"));
        }
        refused
    };
    let scrapes = async {
        for _ in 0..REQUESTS_MAX / 2 {
            let answer = ask(&running, "GET /metrics").await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
    };
    let (refused, ()) = tokio::join!(flood, scrapes);
    assert!(refused > 0);
    let mut probe = from(&running, "127.0.0.2").await;
    let head = "GET /healthz/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    probe.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    probe.read_to_string(&mut text).await.unwrap();
    assert!(
        text.starts_with("HTTP/1.1 200 "),
        "a probe of the flooding client: {text}"
    );
    let text = ask(&running, "GET /metrics").await;
    let counted = format!("_limit_reached_total{{limit=\"http_requests_max\"}} {refused}\n");
    assert!(text.contains(&counted), "{text}");
}

#[tokio::test]
async fn who_asks_meanwhile_shares_the_next_exposition() {
    let running = start(Duration::from_secs(60)).await;
    let exposition = Exposition::default();
    let held = Arc::clone(&exposition).lock_owned().await;
    let state = || State(running.state.clone());
    let asked: Vec<_> = (0..50)
        .map(|_| tokio::spawn(metrics(state(), Arc::clone(&exposition))))
        .collect();
    // Each of them waits in the queue by now, the runtime having one thread.
    tokio::task::yield_now().await;
    drop(held);
    let mut texts = Vec::new();
    for asked in asked {
        let body = asked.await.unwrap().into_body();
        texts.push(axum::body::to_bytes(body, usize::MAX).await.unwrap());
    }
    assert!(texts.iter().all(|text| text.as_ptr() == texts[0].as_ptr()));
    let begun = || async { exposition.lock().await.as_ref().map(|(at, _)| *at) };
    let first = begun().await;
    let later = metrics(state(), Arc::clone(&exposition)).await;
    assert_eq!(later.status(), StatusCode::OK);
    assert!(begun().await > first, "who asks later sees what is later");
}

#[tokio::test]
async fn a_stop_ends_idle_connections() {
    let running = start(Duration::from_secs(60)).await;
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
