//! TCP streams between two hosts.

use crate::hosts::PATIENCE;
use crate::support::namespace::Namespace;
use crate::support::tunnel::{CLIENT, SERVER};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};

/// A stream of octets that tells when one is lost, doubled or moved.
pub(crate) fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// Sends that many octets in each direction at the same time.
///
/// # Panics
/// If one does not arrive as it was sent.
pub(crate) fn exchange(client: &Namespace, server: &Namespace, octets: usize) {
    let listener = server.run(|| TcpListener::bind((SERVER, 5000)).unwrap());
    let to: IpAddr = SERVER.parse().unwrap();
    let stream = client.run(|| TcpStream::connect_timeout(&(to, 5000).into(), PATIENCE).unwrap());
    let (peer, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), CLIENT, "the inner address is kept");
    let send = |mut to: TcpStream| {
        let sent: Vec<u8> = (0..octets).map(pattern).collect();
        to.write_all(&sent).unwrap();
        to.shutdown(Shutdown::Write).unwrap();
    };
    let receive = |mut from: TcpStream| {
        from.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = Vec::with_capacity(octets);
        from.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), octets);
        assert!(received.iter().enumerate().all(|(at, &octet)| octet == pattern(at)), "damaged");
    };
    std::thread::scope(|scope| {
        let clone = |stream: &TcpStream| stream.try_clone().unwrap();
        let (there, back, out, home) = (clone(&stream), clone(&peer), clone(&peer), clone(&stream));
        scope.spawn(move || send(there));
        scope.spawn(move || send(back));
        scope.spawn(move || receive(out));
        scope.spawn(move || receive(home));
    });
}
