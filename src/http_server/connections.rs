//! Who is connected: how many at once, for how long, and how often each client may ask.
//!
//! Deliberately fair by client address, so that one who floods us pushes out and slows down none
//! but himself. Behind a proxy all clients are one: there the proxy must be fair.

use super::ServerState;
use crate::warn_rarely;
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Connections at once. A Prometheus, the probes and some people need a dozen.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// Requests of one client in one second, probes aside. A scrape comes once in seconds.
pub(super) const REQUESTS_MAX: u32 = 50;
/// The span that [`REQUESTS_MAX`] is about.
const WINDOW: Duration = Duration::from_secs(1);
/// Clients counted in one window; further ones are refused until it ends. Bounds the memory.
const CLIENTS_MAX: usize = 4_096;
/// Bytes of a request's line and headers.
pub(super) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Time for a request's line and headers, waiting on an idle connection included.
pub(super) const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// Age at which a connection is asked to end: one that never reads its answers holds no place.
const AGE_MAX: Duration = Duration::from_secs(60);
/// Time that an answer under way at that age has to be read. Prometheus gives up after 10 s.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
/// Time that answers under way have to end at shutdown.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// Every connection that is open, and how often each client asked in this window.
#[derive(Default)]
pub(super) struct Connections {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    next_id: u64,
    /// In the order in which they were opened.
    open: BTreeMap<u64, Open>,
    window_began: Option<Instant>,
    asked: BTreeMap<IpAddr, u32>,
}

struct Open {
    client: IpAddr,
    /// Since when it waits for a request; `None` while one is answered.
    waits_since: Option<Instant>,
    leave: Arc<Notify>,
}

impl Connections {
    /// A place for a new connection. Where all are taken, another one must leave: of the client
    /// that has most, the one that has waited longest. True where that was so.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> (Place, bool) {
        let mut known = self.lock();
        let is_full = known.open.len() >= CONNECTIONS_MAX;
        if is_full
            && let Some(id) = known.least_deserving()
            && let Some(gone) = known.open.remove(&id)
        {
            gone.leave.notify_one();
        }
        let (id, client) = (known.next_id, client_of(address));
        let leave = Arc::new(Notify::new());
        let open = Open {
            client,
            waits_since: Some(Instant::now()),
            leave: Arc::clone(&leave),
        };
        known.next_id += 1;
        known.open.insert(id, open);
        let place = Place {
            connections: Arc::clone(self),
            id,
            client,
            leave,
            has_asked: AtomicBool::new(false),
        };
        (place, is_full)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn least_deserving(&self) -> Option<u64> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for open in self.open.values() {
            *counts.entry(open.client).or_insert(0) += 1;
        }
        let (most, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let theirs = self.open.iter().filter(|(_, open)| open.client == most);
        // Those that wait come first; among those that do not, the oldest.
        let place = |(id, open): &(&u64, &Open)| {
            let since = open.waits_since;
            (since.is_none(), since, **id)
        };
        theirs.min_by_key(place).map(|(id, _)| *id)
    }
}

/// The client behind an address: of IPv6 the network, since its owner has all of it.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

/// The place of one connection, given back when dropped.
pub(super) struct Place {
    connections: Arc<Connections>,
    id: u64,
    client: IpAddr,
    leave: Arc<Notify>,
    has_asked: AtomicBool,
}

impl Place {
    /// A request is answered until what this returns is dropped.
    pub fn answering(&self) -> Answering<'_> {
        self.has_asked.store(true, Ordering::Relaxed);
        self.set_waits_since(None);
        Answering(self)
    }

    /// Counts a request of this client; false where it has asked too often in this second.
    pub fn may_ask(&self) -> bool {
        let mut known = self.connections.lock();
        let now = Instant::now();
        let is_over = known
            .window_began
            .is_none_or(|began| now.duration_since(began) >= WINDOW);
        if is_over {
            known.window_began = Some(now);
            known.asked.clear();
        }
        if known.asked.len() >= CLIENTS_MAX && !known.asked.contains_key(&self.client) {
            return false;
        }
        let count = known.asked.entry(self.client).or_insert(0);
        *count = count.saturating_add(1);
        *count <= REQUESTS_MAX
    }

    fn set_waits_since(&self, since: Option<Instant>) {
        if let Some(open) = self.connections.lock().open.get_mut(&self.id) {
            open.waits_since = since;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().open.remove(&self.id);
    }
}

/// One request that is answered.
pub(super) struct Answering<'p>(&'p Place);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.set_waits_since(Some(Instant::now()));
    }
}

/// One connection, until it ends, must leave, is too old or the server stops.
pub(super) async fn serve(
    stream: TcpStream,
    place: Place,
    router: Router,
    state: ServerState,
    mut stopped: watch::Receiver<()>,
) {
    let place = Arc::new(place);
    let pages = TowerToHyperService::new(router);
    let service = {
        let place = Arc::clone(&place);
        service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Arc::clone(&place));
            pages.call(request)
        })
    };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    let grace = tokio::select! {
        ended = &mut served => {
            if let Err(error) = ended {
                told(&error, &place, &state);
            }
            return;
        }
        () = place.leave.notified() => return,
        _ = stopped.changed() => GRACE,
        () = tokio::time::sleep(AGE_MAX) => ANSWER_TIME_MAX,
    };
    served.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(grace, served).await;
}

/// Notes a connection that ended at a limit. A client that went away is its own affair, and one
/// that asked and then fell silent has done nothing wrong.
fn told(error: &hyper::Error, place: &Place, state: &ServerState) {
    if error.is_parse_too_large() {
        reached(state, "http_head_bytes_max");
    } else if error.is_timeout() && !place.has_asked.load(Ordering::Relaxed) {
        reached(state, "http_head_time_max");
    }
}

/// Counts a limit that a client reached, and says so once a minute.
pub(super) fn reached(state: &ServerState, limit: &'static str) {
    state.exporter.limit_reached(limit);
    warn_rarely!(limit, limit, "a client of the HTTP server reached a limit");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn who_floods_pushes_out_himself() {
        let connections = Arc::new(Connections::default());
        let (scrape, _) = connections.enter(address(1));
        let mut flood: Vec<Place> = (1..CONNECTIONS_MAX)
            .map(|_| connections.enter(address(2)).0)
            .collect();
        let busy = flood.remove(0);
        let answering = busy.answering();
        let (more, was_full) = connections.enter(address(2));
        assert!(was_full);
        let is_open = |place: &Place| connections.lock().open.contains_key(&place.id);
        assert!(is_open(&scrape) && is_open(&more));
        assert!(is_open(&busy), "it is answered, and others wait");
        assert!(!is_open(&flood[0]), "it has waited longest");
        drop(answering);
        drop(flood.split_off(1));
        drop((flood, busy, more));
        assert_eq!(connections.lock().open.len(), 1, "places are given back");
    }

    #[test]
    fn each_client_may_ask_so_often() {
        let connections = Arc::new(Connections::default());
        let (one, _) = connections.enter(address(1));
        let (other, _) = connections.enter(address(2));
        let answers = (0..REQUESTS_MAX + 10).filter(|_| one.may_ask()).count();
        assert_eq!(answers, REQUESTS_MAX as usize);
        assert!(other.may_ask());
        connections.lock().window_began = None;
        assert!(one.may_ask(), "a new second");
    }

    #[test]
    fn a_network_of_ipv6_is_one_client_and_a_mapped_address_its_own() {
        let parse = |text: &str| client_of(text.parse().expect("an address"));
        assert_eq!(parse("2001:db8:1:2:3::4"), parse("2001:db8:1:2:ffff::"));
        assert_ne!(parse("2001:db8:1:2::"), parse("2001:db8:1:3::"));
        assert_eq!(parse("::ffff:10.0.0.1"), parse("10.0.0.1"));
        assert_ne!(parse("10.0.0.1"), parse("10.0.0.2"));
    }
}
