//! Whether a connection to the migration port goes through the Child SA.
//!
//! A connection is tried while nobody listens there. The destination's RST comes back, and both
//! counters of the SA rise: so both packets crossed it. If they had gone around it, the connection
//! would be answered too, but the counters would stand still, unless another connection of the SA
//! raised them at that moment.

use super::channel::Packets;
use super::meter::{Meter, MeterError};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Workers add their counts up from time to time.
const COUNT_LIMIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);

/// Why the path is not known to be protected.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    #[error("somebody listens at {0} already")]
    Listening(SocketAddr),
    #[error("the connection to {to} is not refused: {error}")]
    Unanswered { to: SocketAddr, error: io::Error },
    #[error("the connection to {to} did not cross the Child SA: {sent} packets out and {received} in")]
    Around { to: SocketAddr, sent: u64, received: u64 },
    #[error(transparent)]
    Uncounted(#[from] MeterError),
}

/// A socket that tells how this host sends there. Nothing is sent.
pub(super) fn towards(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket)
}

/// The address from which this host sends there.
pub(super) fn local_address(to: SocketAddr) -> io::Result<IpAddr> {
    Ok(towards(to)?.local_addr()?.ip())
}

/// Tries a connection and counts its packets on the SA: the growth of both counters.
pub(super) fn cross(meter: &mut Meter, to: SocketAddr) -> Result<Packets, ProbeError> {
    meter.begin()?;
    match TcpStream::connect_timeout(&to, CONNECT_LIMIT) {
        Ok(_) => return Err(ProbeError::Listening(to)),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        Err(error) => return Err(ProbeError::Unanswered { to, error }),
    }
    let begun = Instant::now();
    loop {
        let crossed = meter.read()?;
        if crossed.outbound > 0 && crossed.inbound > 0 {
            return Ok(crossed);
        }
        if begun.elapsed() > COUNT_LIMIT {
            let Packets { outbound: sent, inbound: received } = crossed;
            return Err(ProbeError::Around { to, sent, received });
        }
        sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_this_host_is_that_of_its_route() {
        let local = |to: &str| local_address(to.parse().unwrap()).unwrap();
        assert_eq!(local("127.0.0.1:9"), IpAddr::from([127, 0, 0, 1]));
    }
}
