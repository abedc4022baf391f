//! An HTTP download watched over time.
//!
//! [`crate::download`] lets curl fetch the whole file; this one records the octets over time, and
//! so shows how long a stream stalls and how it recovers.

use crate::files::Sha256;
use crate::series::Series;
use crate::worker::Worker;
use crate::{Error, Namespace, Result, interrupt, wait_until};
use aws_lc_rs::digest::{Context, SHA256};
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The slots in which octets are counted.
pub const SLOT: Duration = Duration::from_millis(50);
const PORT: u16 = 80;
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
/// How often it checks whether to stop while nothing arrives.
const LOOK: Duration = Duration::from_millis(50);
const CHUNK: usize = 256 << 10;
const MAX_HEADER: usize = 16 << 10;

/// A running download.
#[derive(Debug)]
pub struct Transfer {
    what: String,
    received: Arc<AtomicU64>,
    worker: Worker<io::Result<Option<Transferred>>>,
}

/// A finished download.
#[derive(Clone, Debug)]
pub struct Transferred {
    /// Octets received.
    pub bytes: u64,
    /// Time from the request to the last octet.
    pub elapsed: Duration,
    /// Octets over time, from the request on.
    pub over_time: Series,
    /// Digest of what was received.
    pub sha256: Sha256,
}

impl Transfer {
    /// Begins to get `http://server/name`.
    pub fn start(client: &Namespace, server: IpAddr, name: &str) -> Result<Self> {
        let what = format!("get http://{server}/{name} from {}", client.role());
        let connect = move || TcpStream::connect_timeout(&(server, PORT).into(), CONNECT_LIMIT);
        let stream = client.enter(connect)?.map_err(Error::io(&what))?;
        let request = format!("GET /{name} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n");
        let received = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&received);
        let worker = Worker::start("transfer", move |stop| get(stream, &request, stop, &told))?;
        Ok(Self { what, received, worker })
    }

    /// Octets of the file received so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Waits until that many octets of the file have arrived.
    pub fn await_received(&self, octets: u64, limit: Duration) -> Result<()> {
        wait_until(&format!("{octets} octets, {}", self.what), limit, || {
            let received = self.received();
            Ok(if received >= octets { Ok(()) } else { Err(format!("{received} octets")) })
        })
    }

    /// Waits for the end of the file.
    pub fn finish(self, limit: Duration) -> Result<Transferred> {
        let begun = Instant::now();
        while !self.worker.is_done() && begun.elapsed() < limit {
            interrupt::check()?;
            sleep(LOOK);
        }
        let late = Error::Timeout { what: self.what.clone(), after: limit, last: String::new() };
        self.worker.stop().map_err(Error::io(&self.what))?.ok_or(late)
    }
}

impl Transferred {
    /// Gigabits per second of payload.
    pub fn gbps(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1e9 / self.elapsed.as_secs_f64()
    }
}

/// `None` if it was told to stop before the end.
fn get(
    mut stream: TcpStream,
    request: &str,
    stop: &AtomicBool,
    told: &AtomicU64,
) -> io::Result<Option<Transferred>> {
    stream.set_read_timeout(Some(LOOK))?;
    let start = Instant::now();
    stream.write_all(request.as_bytes())?;
    let mut chunk = vec![0; CHUNK];
    let mut head = Vec::new();
    let length = loop {
        let Some(n) = read(&mut stream, &mut chunk, stop)? else { return Ok(None) };
        head.extend_from_slice(&chunk[..n]);
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            let body = head.split_off(end + 4);
            let length = content_length(&head)?;
            head = body;
            break length;
        }
        if n == 0 || head.len() > MAX_HEADER {
            return Err(io::Error::other("the answer has no end of its header"));
        }
    };
    let (mut over_time, mut digest, mut bytes) = (Series::new(start, SLOT), Context::new(&SHA256), 0);
    let mut count = |part: &[u8], at: Instant| {
        over_time.add(at, part.len() as u64);
        digest.update(part);
        bytes += part.len() as u64;
        told.store(bytes, Ordering::Relaxed);
        bytes
    };
    let mut last = Instant::now();
    let mut received = count(&head, last);
    while received < length {
        match read(&mut stream, &mut chunk, stop)? {
            None => return Ok(None),
            Some(0) => return Err(io::Error::other(format!("closed after {received} of {length} octets"))),
            Some(n) => {
                last = Instant::now();
                received = count(&chunk[..n], last);
            }
        }
    }
    let sha256 = Sha256::of(digest);
    Ok(Some(Transferred { bytes, elapsed: last - start, over_time, sha256 }))
}

/// Reads available octets, 0 at the end of the stream; `None` when it was told to stop.
fn read(stream: &mut TcpStream, chunk: &mut [u8], stop: &AtomicBool) -> io::Result<Option<usize>> {
    while !stop.load(Ordering::Relaxed) {
        match stream.read(chunk) {
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            other => return other.map(Some),
        }
    }
    Ok(None)
}

fn content_length(head: &[u8]) -> io::Result<u64> {
    let text = String::from_utf8_lossy(head);
    let wrong = || io::Error::other(format!("expected a file of known length, found {text}"));
    let mut lines = text.lines();
    if lines.next().is_none_or(|status| status.split(' ').nth(1) != Some("200")) {
        return Err(wrong());
    }
    let field = lines.filter_map(|line| line.split_once(':'));
    let mut length = field.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    length.next().and_then(|(_, value)| value.trim().parse().ok()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_read_from_the_header() {
        let head = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 524288000\r\n\r\n";
        assert_eq!(content_length(head).unwrap(), 524_288_000);
    }

    #[test]
    fn an_answer_without_the_file_is_told() {
        for head in [
            "HTTP/1.1 404 Not Found\r\nContent-Length: 153\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
            "200",
        ] {
            let error = content_length(head.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(head), "{error}");
        }
    }
}
