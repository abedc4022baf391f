//! ARP and Neighbor Discovery: whether the way to a peer leads to another MAC address than before.
//!
//! The kernel believes whoever answers. The workers send to the neighbours that it has, and the
//! control thread follows its table: a neighbour that moves shows there.

use std::collections::BTreeMap;
use std::net::IpAddr;
use testudo_alarms::{Kind, Sighting, Subject};
use testudo_fastpath::fib::{Fib, PortIndex};
use testudo_fastpath::mac::MacAddr;

/// Neighbours that are remembered after the kernel has forgotten them.
const MAX_NEIGHBOURS: usize = 4096;

/// The MAC address that each neighbour had last.
#[derive(Default)]
pub(crate) struct Claims {
    known: BTreeMap<(PortIndex, IpAddr), MacAddr>,
    generation: Option<u64>,
}

/// A neighbour that has moved.
pub(crate) struct Moved {
    pub(crate) address: IpAddr,
    from: MacAddr,
    to: MacAddr,
    interface: String,
}

impl Claims {
    /// The neighbours that have moved since the last call.
    pub(crate) fn follow(&mut self, fib: &Fib) -> Vec<Moved> {
        if self.generation.replace(fib.generation()) == Some(fib.generation()) {
            return Vec::new();
        }
        let mut moved = Vec::new();
        for (port, address) in fib.neighbours() {
            let Some(mac) = fib.neighbour(port, address) else { continue };
            if self.known.len() >= MAX_NEIGHBOURS && !self.known.contains_key(&(port, address)) {
                self.known.clear();
            }
            if let Some(from) = self.known.insert((port, address), mac).filter(|from| *from != mac) {
                let interface = fib.port(port).map(|link| link.name.clone()).unwrap_or_default();
                moved.push(Moved { address, from, to: mac, interface });
            }
        }
        moved
    }
}

impl Moved {
    /// As a sighting: packets for a peer go there now.
    pub(crate) fn sighting(&self) -> Sighting {
        let Self { address, from, to, interface } = self;
        let evidence = format!("on {interface} {address} was at {from} and is at {to} now");
        let sighting = Sighting::of(Kind::AddressSpoofing, Subject::Address(*address), 1);
        Sighting { evidence, decisive: true, ..sighting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_fastpath::fib::PortLink;

    fn fib(generation: u64, neighbours: &[([u8; 4], u8)]) -> Fib {
        let port = PortIndex(0);
        let (name, addresses) = ("eth0".into(), Vec::new());
        let mac = MacAddr([2; 6]);
        let link = PortLink { index: port, ifindex: 7, name, mac, mtu: 1500, up: true, addresses };
        let builder = Fib::builder().generation(generation).port(link);
        neighbours
            .iter()
            .fold(builder, |builder, (address, mac)| {
                builder.neighbour(port, IpAddr::from(*address), MacAddr([*mac; 6]))
            })
            .build()
    }

    #[test]
    fn a_neighbour_that_moves_is_seen_also_after_the_kernel_has_forgotten_it() {
        let mut claims = Claims::default();
        let peer = [192, 0, 2, 1];
        assert!(claims.follow(&fib(1, &[(peer, 4), ([192, 0, 2, 2], 6)])).is_empty());
        assert!(claims.follow(&fib(2, &[(peer, 4)])).is_empty());
        assert!(claims.follow(&fib(3, &[])).is_empty());
        let moved = claims.follow(&fib(4, &[(peer, 8)]));
        assert_eq!(moved.len(), 1);
        let text = moved[0].sighting().evidence;
        assert_eq!(text, "on eth0 192.0.2.1 was at 04:04:04:04:04:04 and is at 08:08:08:08:08:08 now");
        assert!(claims.follow(&fib(4, &[(peer, 10)])).is_empty(), "this table has been followed");
        assert!(claims.follow(&fib(5, &[(peer, 8)])).is_empty());
    }
}
