//! A wire between sink and server that can lose an insert, or the answer to one.
//!
//! It passes on whole request heads only: the embedded engine aborts on a part of one.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    to_swallow: AtomicUsize,
    swallowed: AtomicUsize,
    to_reset: AtomicUsize,
    has_reset: AtomicUsize,
    inserts: Mutex<Vec<String>>,
}

impl State {
    /// Takes one of the faults that are left of a kind.
    fn strikes(left: &AtomicUsize, struck: &AtomicUsize) -> bool {
        let take = |left: usize| left.checked_sub(1);
        let is_struck = left
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .is_ok();
        struck.fetch_add(usize::from(is_struck), Ordering::AcqRel);
        is_struck
    }

    fn inserts(&self) -> MutexGuard<'_, Vec<String>> {
        self.inserts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an insert that comes along; true where it must get lost.
    fn meets(&self, head: &[u8]) -> bool {
        let line = first_line(head);
        self.inserts()
            .push(String::from_utf8_lossy(line).into_owned());
        State::strikes(&self.to_reset, &self.has_reset)
    }
}

impl Proxy {
    pub fn start(server: &str) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let (server, shared) = (server.to_owned(), Arc::clone(&state));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (server, shared) = (server.clone(), Arc::clone(&shared));
                thread::spawn(move || carry(client, &server, &shared));
            }
        });
        Proxy { port, state }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The next `n` inserts reach the server, and their answers reach nobody.
    pub fn swallow_answers_to_inserts(&self, n: usize) {
        self.state.to_swallow.store(n, Ordering::Release);
    }

    pub fn swallowed(&self) -> usize {
        self.state.swallowed.load(Ordering::Acquire)
    }

    /// The connections of the next `n` inserts are cut before the server hears of them.
    pub fn reset_inserts(&self, n: usize) {
        self.state.to_reset.store(n, Ordering::Release);
    }

    pub fn has_reset(&self) -> usize {
        self.state.has_reset.load(Ordering::Acquire)
    }

    /// The request lines of all inserts so far, repeats included.
    pub fn inserts(&self) -> Vec<String> {
        self.state.inserts().clone()
    }
}

fn carry(mut client: TcpStream, server: &str, state: &Arc<State>) {
    let mut head = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match client.read(&mut buffer) {
            Ok(n) if n > 0 => head.extend_from_slice(&buffer[..n]),
            _ => return,
        }
    }
    let is_first = is_insert_head(&head);
    if is_first && state.meets(&head) {
        return;
    }
    let mut to_server = TcpStream::connect(server).unwrap();
    let mut from_server = to_server.try_clone().unwrap();
    let mut to_client = client.try_clone().unwrap();
    let is_awaited = Arc::new(AtomicBool::new(is_first));
    let (seen, shared) = (Arc::clone(&is_awaited), Arc::clone(state));
    to_server.write_all(&head).unwrap();
    thread::spawn(move || {
        while let Ok(n @ 1..) = client.read(&mut buffer) {
            if is_insert_head(&buffer[..n]) {
                if shared.meets(&buffer[..n]) {
                    let _ = client.shutdown(Shutdown::Both);
                    break;
                }
                seen.store(true, Ordering::Release);
            }
            if to_server.write_all(&buffer[..n]).is_err() {
                return;
            }
        }
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let mut answer = vec![0; 64 << 10];
    let mut is_silent = false;
    while let Ok(n @ 1..) = from_server.read(&mut answer) {
        if is_silent {
            continue;
        }
        let is_of_insert = is_awaited.swap(false, Ordering::AcqRel);
        if is_of_insert && State::strikes(&state.to_swallow, &state.swallowed) {
            is_silent = true;
            continue;
        }
        if to_client.write_all(&answer[..n]).is_err() {
            return;
        }
    }
    let _ = to_client.shutdown(Shutdown::Both);
}

fn first_line(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == b'\r').next().unwrap_or(bytes)
}

fn is_insert_head(bytes: &[u8]) -> bool {
    let line = first_line(bytes);
    line.starts_with(b"POST ") && line.windows(6).any(|word| word == b"INSERT")
}
