//! A wire between sink and server that does mischief to inserts.
//!
//! It passes on whole request heads only: the embedded engine aborts on a part of one.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What happens to one insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// It reaches the server, and its answer reaches nobody: the wire stays silent.
    Swallow,
    /// It reaches the server, and the wire is cut instead of an answer.
    Cut,
    /// It does not reach the server, which seems to be busy.
    Refuse,
    /// The wire is cut before the server hears of it.
    Reset,
    /// Its answer comes so much later.
    Delay(Duration),
}

pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    waiting: Mutex<VecDeque<(Mischief, usize)>>,
    done: AtomicUsize,
    inserts: Mutex<Vec<String>>,
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

    /// Does this to the next `n` inserts, once what was planned before is done.
    pub fn strike(&self, mischief: Mischief, n: usize) {
        let mut waiting = self.state.waiting.lock().unwrap();
        waiting.push_back((mischief, n));
    }

    /// Passes everything on again.
    pub fn calm(&self) {
        self.state.waiting.lock().unwrap().clear();
    }

    /// To how many inserts something was done.
    pub fn struck(&self) -> usize {
        self.state.done.load(Ordering::Acquire)
    }

    /// The request lines of all inserts so far, repeats included.
    pub fn inserts(&self) -> Vec<String> {
        self.state.inserts.lock().unwrap().clone()
    }
}

impl State {
    /// What happens to the insert that begins now.
    fn next(&self, head: &[u8]) -> Option<Mischief> {
        let line = String::from_utf8_lossy(first_line(head)).into_owned();
        self.inserts.lock().unwrap().push(line);
        let mut waiting = self.waiting.lock().unwrap();
        let (mischief, left) = waiting.front_mut()?;
        let mischief = *mischief;
        *left -= 1;
        if *left == 0 {
            waiting.pop_front();
        }
        Some(mischief)
    }

    fn note(&self) {
        self.done.fetch_add(1, Ordering::AcqRel);
    }
}

const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\
                    Connection: close\r\n\r\n";

fn carry(mut client: TcpStream, server: &str, state: &Arc<State>) {
    let mut head = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match client.read(&mut buffer) {
            Ok(n) if n > 0 => head.extend_from_slice(&buffer[..n]),
            _ => return,
        }
    }
    // A server that is away leaves the client without an answer.
    let Ok(mut to_server) = TcpStream::connect(server) else {
        return;
    };
    let from_server = to_server.try_clone().unwrap();
    let to_client = client.try_clone().unwrap();
    let planned = Arc::new(Mutex::new(None));
    if !pass(&head, &mut client, &mut to_server, state, &planned) {
        return;
    }
    let (shared, seen) = (Arc::clone(state), Arc::clone(&planned));
    thread::spawn(move || {
        while let Ok(n @ 1..) = client.read(&mut buffer) {
            if !pass(&buffer[..n], &mut client, &mut to_server, &shared, &seen) {
                return;
            }
        }
        let _ = to_server.shutdown(Shutdown::Write);
    });
    answer(from_server, to_client, state, &planned);
}

/// Passes bytes on to the server; false where the wire is of no use any more.
fn pass(
    bytes: &[u8],
    client: &mut TcpStream,
    to_server: &mut TcpStream,
    state: &State,
    planned: &Mutex<Option<Mischief>>,
) -> bool {
    if is_insert_head(bytes) {
        let mischief = state.next(bytes);
        if matches!(mischief, Some(Mischief::Refuse | Mischief::Reset)) {
            state.note();
            if mischief == Some(Mischief::Refuse) {
                let _ = client.write_all(BUSY.as_bytes());
            }
            let _ = client.shutdown(Shutdown::Both);
            let _ = to_server.shutdown(Shutdown::Both);
            return false;
        }
        *planned.lock().unwrap() = mischief;
    }
    to_server.write_all(bytes).is_ok()
}

fn answer(
    mut from_server: TcpStream,
    mut to_client: TcpStream,
    state: &State,
    planned: &Mutex<Option<Mischief>>,
) {
    let mut answer = vec![0; 64 << 10];
    let mut is_silent = false;
    while let Ok(n @ 1..) = from_server.read(&mut answer) {
        if is_silent {
            continue;
        }
        let mischief = planned.lock().unwrap().take();
        if mischief.is_some() {
            state.note();
        }
        match mischief {
            Some(Mischief::Swallow) => {
                is_silent = true;
                continue;
            }
            Some(Mischief::Cut) => break,
            Some(Mischief::Delay(by)) => thread::park_timeout(by),
            Some(Mischief::Refuse | Mischief::Reset) | None => {}
        }
        if to_client.write_all(&answer[..n]).is_err() {
            return;
        }
    }
    let _ = to_client.shutdown(Shutdown::Both);
    let _ = from_server.shutdown(Shutdown::Both);
}

fn first_line(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == b'\r').next().unwrap_or(bytes)
}

fn is_insert_head(bytes: &[u8]) -> bool {
    let line = first_line(bytes);
    line.starts_with(b"POST ") && line.windows(6).any(|word| word == b"INSERT")
}
