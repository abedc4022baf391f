//! TCP streams of a given length from one host to another, checked octet by octet.
//!
//! Unlike [`crate::iperf`] it measures nothing: it ends with the last octet, however long a busy
//! machine takes.

use crate::iperf::Direction;
use crate::{Error, Namespace, Result, wait_until};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// For a connection, and for each step of a stream: TCP may have to retransmit several times.
const LIMIT: Duration = Duration::from_secs(60);
const CHUNK: usize = 64 << 10;
/// Period of a stream's content. It divides no power of two, so that a lost piece is always
/// noticed.
const PERIOD: u64 = 251;

/// The streams to carry.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    /// From or to the client, which connects.
    pub direction: Direction,
    /// Number of streams at the same time.
    pub count: u8,
    /// Octets of each.
    pub octets: u64,
}

impl Streams {
    /// One stream.
    pub fn one(direction: Direction, octets: u64) -> Self {
        Self { direction, count: 1, octets }
    }

    /// Connects `client` to `address` of `server` and carries all octets. Fails if an octet is
    /// missing or wrong.
    pub fn carry(self, client: &Namespace, server: &Namespace, address: IpAddr) -> Result<()> {
        self.carry_counted(client, server, address, &AtomicU64::new(0))
    }

    /// Like [`Self::carry`]; `received` counts the octets of all streams that have arrived so far.
    pub fn carry_counted(
        self,
        client: &Namespace,
        server: &Namespace,
        address: IpAddr,
        received: &AtomicU64,
    ) -> Result<()> {
        let what = format!("{self:?} between {} and {address}", client.role());
        let failed = || Error::io(&what);
        let listener = server.enter(|| TcpListener::bind((address, 0)))?.map_err(failed())?;
        listener.set_nonblocking(true).map_err(failed())?;
        let target = listener.local_addr().map_err(failed())?;
        let mut pairs = Vec::new();
        for _ in 0..self.count {
            let near = client.enter(|| TcpStream::connect_timeout(&target, LIMIT))?.map_err(failed())?;
            let far = wait_until(&what, LIMIT, || match listener.accept() {
                Ok((stream, _)) => Ok(Ok(stream)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Err("no connection".into())),
                Err(error) => Err(failed()(error)),
            })?;
            far.set_nonblocking(false).map_err(failed())?;
            for stream in [&near, &far] {
                stream.set_read_timeout(Some(LIMIT)).map_err(failed())?;
                stream.set_write_timeout(Some(LIMIT)).map_err(failed())?;
            }
            pairs.push(match self.direction {
                Direction::Up => (near, far),
                Direction::Down => (far, near),
            });
        }
        self.exchange(&pairs, received).map_err(failed())
    }

    /// Runs all streams at once; returns the first error of any.
    fn exchange(self, pairs: &[(TcpStream, TcpStream)], received: &AtomicU64) -> io::Result<()> {
        std::thread::scope(|scope| {
            let streams = (0..).zip(pairs).flat_map(|(number, (from, to))| {
                let sending = scope.spawn(move || send(from, number, self.octets));
                [sending, scope.spawn(move || receive(to, number, self.octets, received))]
            });
            let threads: Vec<_> = streams.collect();
            let ends = threads.into_iter().map(|thread| match thread.join() {
                Ok(end) => end,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ends.collect()
        })
    }
}

/// The octets of a stream from an offset on.
fn pattern(number: u8, from: u64, length: usize) -> Vec<u8> {
    // Both are below 256.
    let period: Vec<u8> = (0..PERIOD).map(|place| place as u8 ^ number).collect();
    let begun = (from % PERIOD) as usize;
    let mut octets = period.repeat((begun + length).div_ceil(period.len()));
    octets.truncate(begun + length);
    octets.split_off(begun)
}

fn send(mut stream: &TcpStream, number: u8, octets: u64) -> io::Result<()> {
    let mut sent = 0;
    while sent < octets {
        let length = CHUNK.min(usize::try_from(octets - sent).unwrap_or(CHUNK));
        stream.write_all(&pattern(number, sent, length))?;
        sent += length as u64;
    }
    stream.shutdown(Shutdown::Write)
}

fn receive(mut stream: &TcpStream, number: u8, octets: u64, all: &AtomicU64) -> io::Result<()> {
    let mut received = 0;
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = match stream.read(&mut chunk) {
            Ok(0) if received == octets => return Ok(()),
            Ok(0) => return Err(io::Error::other(format!("ended after {received} of {octets} octets"))),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                return Err(io::Error::other(format!("{error} after {received} of {octets} octets")));
            }
        };
        if chunk[..length] != pattern(number, received, length) {
            return Err(io::Error::other(format!("a wrong octet behind {received} of {octets}")));
        }
        received += length as u64;
        all.fetch_add(length as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn all_octets_arrive() {
        let streams = Streams { direction: Direction::Up, count: 3, octets: 300_001 };
        let received = AtomicU64::new(0);
        streams.exchange(&[connected(), connected(), connected()], &received).unwrap();
        assert_eq!(received.into_inner(), 3 * 300_001);
    }

    #[test]
    fn a_stream_that_ends_early_or_differs_is_an_error() {
        let pair = connected();
        send(&pair.0, 1, 1000).unwrap();
        let received = AtomicU64::new(0);
        let error = receive(&pair.1, 1, 1001, &received).unwrap_err().to_string();
        assert_eq!(error, "ended after 1000 of 1001 octets");
        let pair = connected();
        send(&pair.0, 1, 1000).unwrap();
        assert!(receive(&pair.1, 2, 1000, &received).unwrap_err().to_string().starts_with("a wrong octet"));
    }
}
