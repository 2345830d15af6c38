//! One blocking HTTP/1.1 exchange per connection, with the request sent whole.
//!
//! Deliberately not a client library: no TLS, no redirects, no keep-alive, no streaming. It exists
//! because the embedded engine aborts when a connection ends inside its first request head, so
//! head and body leave in a single write.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// What is asked of the server at the other end.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// `GET` or `POST`.
    pub method: &'a str,
    /// Path and query as they go on the wire, already percent-encoded.
    pub target: &'a str,
    /// Header names and values beside `Host`, `Connection` and `Content-Length`.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body; empty for none.
    pub body: &'a [u8],
    /// Bound on connecting, and on each silence while reading.
    pub timeout: Duration,
}

impl<'a> Request<'a> {
    /// A `GET` of `target` without headers.
    pub fn get(target: &'a str, timeout: Duration) -> Self {
        Request {
            method: "GET",
            target,
            headers: &[],
            body: b"",
            timeout,
        }
    }
}

/// What the server answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status code, such as 200.
    pub status: u16,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body with any chunked framing removed.
    pub body: Vec<u8>,
}

impl Answer {
    /// The first header of that name (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body as text, with bytes that are no UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends `request` to `authority` (`host:port`) and reads the answer to its end.
///
/// # Errors
/// Whatever the socket reports, and `InvalidData` where the answer is no complete HTTP.
pub fn exchange(authority: &str, request: &Request<'_>) -> io::Result<Answer> {
    let address = resolve(authority)?;
    let mut stream = TcpStream::connect_timeout(&address, request.timeout)?;
    stream.set_read_timeout(Some(request.timeout))?;
    stream.set_write_timeout(Some(request.timeout))?;
    stream.write_all(&render(authority, request))?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no complete answer"))
}

/// Percent-encodes everything but RFC 3986's unreserved characters.
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn resolve(authority: &str) -> io::Result<SocketAddr> {
    authority
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no address: {authority}")))
}

fn render(authority: &str, request: &Request<'_>) -> Vec<u8> {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\nContent-Length: {}\r\n",
        request.method,
        request.target,
        request.body.len(),
    );
    for (name, value) in request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(request.body);
    bytes
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let head_below = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..head_below]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut answer = Answer {
        status,
        headers,
        body: Vec::new(),
    };
    let rest = &bytes[head_below + 4..];
    let is_chunked = answer
        .header("transfer-encoding")
        .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    answer.body = match answer.header("content-length") {
        _ if is_chunked => join_chunks(rest)?,
        Some(length) => rest.get(..length.parse().ok()?)?.to_vec(),
        None => rest.to_vec(),
    };
    Some(answer)
}

fn join_chunks(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_below = bytes.windows(2).position(|window| window == b"\r\n")?;
        let line = std::str::from_utf8(&bytes[..line_below]).ok()?;
        let size = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
        bytes = &bytes[line_below + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(bytes.get(..size)?);
        bytes = bytes.get(size.checked_add(2)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_chunks_and_refuses_a_cut_answer() {
        let whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n\
            3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        let answer = parse(whole).unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "abcde"));
        assert_eq!(answer.header("x-a"), Some("b"));
        for length in 0..whole.len() - 4 {
            assert!(parse(&whole[..length]).is_none(), "cut at {length}");
        }
    }

    #[test]
    fn takes_the_length_at_its_word() {
        let answer = parse(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nnoXX").unwrap();
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (404, b"no".as_slice())
        );
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nno").is_none());
    }

    #[test]
    fn encodes_all_but_unreserved() {
        assert_eq!(percent_encode("a b=ü&~"), "a%20b%3D%C3%BC%26~");
    }
}
