//! A wire between sink and server that can keep answers to itself.
//!
//! It passes on whole request heads only: the embedded engine aborts on a part of one.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    to_swallow: AtomicUsize,
    swallowed: AtomicUsize,
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
    let mut to_server = TcpStream::connect(server).unwrap();
    let mut from_server = to_server.try_clone().unwrap();
    let mut to_client = client.try_clone().unwrap();
    let is_insert = Arc::new(AtomicBool::new(is_insert_head(&head)));
    let seen = Arc::clone(&is_insert);
    to_server.write_all(&head).unwrap();
    thread::spawn(move || {
        while let Ok(n @ 1..) = client.read(&mut buffer) {
            if is_insert_head(&buffer[..n]) {
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
        let take = |left: usize| left.checked_sub(1);
        if is_silent {
            continue;
        }
        if is_insert.swap(false, Ordering::AcqRel)
            && state
                .to_swallow
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
                .is_ok()
        {
            state.swallowed.fetch_add(1, Ordering::AcqRel);
            is_silent = true;
            continue;
        }
        if to_client.write_all(&answer[..n]).is_err() {
            return;
        }
    }
    let _ = to_client.shutdown(Shutdown::Both);
}

fn is_insert_head(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or(bytes);
    line.starts_with(b"POST ") && line.windows(6).any(|word| word == b"INSERT")
}
