//! Neighbours: which of them are known on which link, and asking the kernel for the others.

use super::connection::Connection;
use super::error::Result;
use crate::fib::Neighbour;
use crate::mac::MacAddr;
use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Interface and address of a neighbour.
pub(super) type NeighbourKey = (u32, IpAddr);

#[derive(Debug)]
struct KnownNeighbour {
    neighbour: Arc<Neighbour>,
    /// True if the kernel never checks whether it still answers.
    permanent: bool,
}

/// The neighbours whose MAC address is known.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    known: HashMap<NeighbourKey, KnownNeighbour>,
}

impl Neighbours {
    /// Takes in a message. Returns true if it changes something.
    pub(super) fn learn(&mut self, message: &NeighbourMessage) -> bool {
        let Some(key) = key(message) else { return false };
        match mac(message) {
            Some(mac) => self.insert(key, mac, is_permanent(message)),
            None => self.known.remove(&key).is_some(),
        }
    }

    fn insert(&mut self, key: NeighbourKey, mac: MacAddr, permanent: bool) -> bool {
        match self.known.get_mut(&key) {
            Some(known) if known.neighbour.mac() == mac => {
                known.permanent = permanent;
                false
            }
            _ => {
                let neighbour = Arc::new(Neighbour::new(mac));
                self.known.insert(key, KnownNeighbour { neighbour, permanent });
                true
            }
        }
    }

    /// Removes a neighbour that the kernel has removed. Returns true if it was known.
    pub(super) fn forget(&mut self, message: &NeighbourMessage) -> bool {
        key(message).is_some_and(|key| self.known.remove(&key).is_some())
    }

    /// Reads the kernel's whole table, and forgets all neighbours that are not in it.
    pub(super) fn resync(&mut self, connection: &mut Connection) -> Result<()> {
        let mut current: Vec<NeighbourMessage> = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = NeighbourMessage::default();
            message.header.family = family;
            let request = RouteNetlinkMessage::GetNeighbour(message);
            current.extend(connection.dump(
                "cannot list the neighbours",
                &request,
                |list: &mut Vec<_>, object| {
                    if let RouteNetlinkMessage::NewNeighbour(message) = object {
                        list.push(message);
                    }
                },
            )?);
        }
        let present: std::collections::HashSet<NeighbourKey> = current.iter().filter_map(key).collect();
        self.known.retain(|key, _| present.contains(key));
        for message in &current {
            self.learn(message);
        }
        Ok(())
    }

    /// All known neighbours.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NeighbourKey, &Arc<Neighbour>)> {
        self.known.iter().map(|(key, known)| (*key, &known.neighbour))
    }

    /// Takes the neighbours to which packets were sent since the last call, so that the kernel can
    /// be told.
    pub(super) fn take_used(&self) -> Vec<NeighbourKey> {
        let fleeting = self.known.iter().filter(|(_, k)| !k.permanent);
        fleeting.filter(|(_, k)| k.neighbour.take_used()).map(|(key, _)| *key).collect()
    }
}

/// Tells the kernel that a packet is to be sent to a neighbour. The kernel asks for a neighbour
/// that it does not know, and checks one from which it has not heard for a while.
pub(super) fn probe(connection: &mut Connection, ifindex: u32, addr: IpAddr) -> Result<()> {
    let mut message = NeighbourMessage::default();
    message.header.ifindex = ifindex;
    message.header.state = NeighbourState::None;
    message.header.flags = NeighbourFlags::Use;
    let destination = match addr {
        IpAddr::V4(addr) => {
            message.header.family = AddressFamily::Inet;
            NeighbourAddress::Inet(addr)
        }
        IpAddr::V6(addr) => {
            message.header.family = AddressFamily::Inet6;
            NeighbourAddress::Inet6(addr)
        }
    };
    message.attributes.push(NeighbourAttribute::Destination(destination));
    let operation = || format!("cannot ask for neighbour {addr} on interface {ifindex}");
    connection.request(operation, RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE)
}

fn key(message: &NeighbourMessage) -> Option<NeighbourKey> {
    if message.header.flags.contains(NeighbourFlags::Proxy) {
        return None;
    }
    let addr = message.attributes.iter().find_map(|a| match a {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(addr)) => Some(IpAddr::V4(*addr)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(addr)) => Some(IpAddr::V6(*addr)),
        _ => None,
    })?;
    Some((message.header.ifindex, addr))
}

/// The MAC address, if the neighbour is in a state in which the kernel would use it itself.
fn mac(message: &NeighbourMessage) -> Option<MacAddr> {
    match message.header.state {
        NeighbourState::Reachable
        | NeighbourState::Stale
        | NeighbourState::Delay
        | NeighbourState::Probe
        | NeighbourState::Permanent
        | NeighbourState::Noarp => {}
        _ => return None,
    }
    message.attributes.iter().find_map(|a| match a {
        NeighbourAttribute::LinkLayerAddress(octets) => octets.as_slice().try_into().ok().map(MacAddr),
        _ => None,
    })
}

fn is_permanent(message: &NeighbourMessage) -> bool {
    matches!(message.header.state, NeighbourState::Permanent | NeighbourState::Noarp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(state: NeighbourState, mac: Option<[u8; 6]>) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = 3;
        message.header.state = state;
        let addr = NeighbourAddress::Inet([10, 0, 0, 2].into());
        message.attributes.push(NeighbourAttribute::Destination(addr));
        message.attributes.extend(mac.map(|m| NeighbourAttribute::LinkLayerAddress(m.to_vec())));
        message
    }

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn macs(neighbours: &Neighbours) -> Vec<[u8; 6]> {
        neighbours.iter().map(|(_, n)| n.mac().0).collect()
    }

    #[test]
    fn only_changes_of_neighbours_are_reported() {
        let mut neighbours = Neighbours::default();
        assert!(!neighbours.learn(&message(NeighbourState::Incomplete, None)));
        assert!(neighbours.learn(&message(NeighbourState::Reachable, Some(MAC))));
        assert!(!neighbours.learn(&message(NeighbourState::Stale, Some(MAC))));
        assert!(neighbours.learn(&message(NeighbourState::Reachable, Some(OTHER))));
        assert_eq!(macs(&neighbours), [OTHER]);
        assert!(neighbours.learn(&message(NeighbourState::Failed, Some(OTHER))));
        assert_eq!(macs(&neighbours), [[0u8; 6]; 0]);
        assert!(!neighbours.forget(&message(NeighbourState::Failed, None)));
    }

    #[test]
    fn a_use_is_reported_once_and_survives_a_change_of_state() {
        let mut neighbours = Neighbours::default();
        neighbours.learn(&message(NeighbourState::Reachable, Some(MAC)));
        let mac = neighbours.iter().next().map(|(_, n)| Arc::clone(n)).unwrap();
        let fib = crate::fib::Fib::builder()
            .shared_neighbour(crate::fib::PortIndex(0), "10.0.0.2".parse().unwrap(), mac)
            .build();
        assert_eq!(neighbours.take_used(), []);
        fib.neighbour(crate::fib::PortIndex(0), "10.0.0.2".parse().unwrap());
        neighbours.learn(&message(NeighbourState::Stale, Some(MAC)));
        assert_eq!(neighbours.take_used(), [(3, "10.0.0.2".parse().unwrap())]);
        assert_eq!(neighbours.take_used(), []);
        neighbours.learn(&message(NeighbourState::Permanent, Some(MAC)));
        fib.neighbour(crate::fib::PortIndex(0), "10.0.0.2".parse().unwrap());
        assert_eq!(neighbours.take_used(), []);
    }
}
