//! What a node relays to others of what only it has received, where routers give each packet to one
//! node: IKE messages, and what routers say of path MTUs.
//!
//! A message is relayed once at most: what was relayed here and is not for this node is dropped.
//! Otherwise nodes that disagree on an owner for a moment would send it to and fro.

use super::core::Core;
use super::{Member, MemberOutput};
use crate::group::Ingress;
use crate::node::NodeId;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use testudo_base::spi::{Shard, Spi};
use testudo_ike::output::{Path, Time};
use testudo_ipsec::pmtu::TooBig;
use testudo_planted::{Plant, planted};

/// What one member relays to another. Further kinds come behind these: a member of before drops
/// them.
#[derive(Debug, Serialize, Deserialize)]
enum Relayed<'a> {
    /// An IKE message, without the non-ESP marker, and the addresses with which it came.
    Ike { local: SocketAddr, remote: SocketAddr, message: &'a [u8] },
    /// What a router says of a packet that was too large.
    TooBig { local: IpAddr, remote: IpAddr, spi: u32, sequence: u32, udp: bool, mtu: u16 },
    /// Packets a second that the sender relays, by shard. Shards that are not named: none.
    Rates(Vec<(Shard, u32)>),
}

impl Core {
    /// True if routers give each packet to one node.
    pub(super) fn is_routed(&self) -> bool {
        self.config.group.ingress == Ingress::Routed
    }

    /// Tells all other members how many packets this node relays.
    pub(super) fn tell_rates(&mut self, rates: Vec<(Shard, u32)>) {
        if !planted(Plant::RelayedNotTold) {
            let others = self.others();
            self.relay(&others, &Relayed::Rates(rates));
        }
    }

    fn others(&self) -> Vec<NodeId> {
        self.view.members.iter().copied().filter(|member| *member != self.node).collect()
    }

    /// True if the message has left.
    fn relay(&mut self, to: &[NodeId], relayed: &Relayed<'_>) -> bool {
        let octets = postcard::to_allocvec(relayed);
        octets.is_ok_and(|octets| self.group.relay(to, octets))
    }
}

impl Member {
    /// An IKE message has arrived (without the non-ESP marker). Where routers give each message to
    /// one node, it goes on to the node that speaks for its shard.
    pub fn handle_ike(&mut self, now: Time, path: Path, bytes: &[u8]) {
        if self.speak(now, path, bytes) {
            return;
        }
        let Some(to) = self.shards.speaker(&self.core, bytes) else { return };
        let relayed = Relayed::Ike { local: path.local, remote: path.remote, message: bytes };
        self.core.counters.relayed_ike += u64::from(self.core.relay(&[to], &relayed));
    }

    /// Gives a message to this node's IKE. False if it is not for this node, or not now.
    fn speak(&mut self, now: Time, path: Path, bytes: &[u8]) -> bool {
        let is_ours = self.core.may_speak(now)
            && self.shards.is_ours(&mut self.core, &mut self.replication, now, bytes);
        if is_ours {
            self.core.endpoint.handle_datagram(now, path, bytes);
            self.replication.turn(&mut self.core, now);
        }
        is_ours
    }

    /// A router says that a packet of this cluster was too large, and this node alone has heard it:
    /// the other nodes hear it from here. Nothing is to be done where all nodes hear routers.
    pub fn relay_too_big(&mut self, told: &TooBig) {
        if !self.core.is_routed() || !self.core.view.running {
            return;
        }
        let TooBig { local, remote, spi: Spi(spi), sequence, udp, mtu } = *told;
        let others = self.core.others();
        self.core.relay(&others, &Relayed::TooBig { local, remote, spi, sequence, udp, mtu });
    }

    /// Another member has relayed something.
    pub(super) fn relayed(&mut self, now: Time, from: NodeId, octets: &[u8]) {
        // A node with another ingress is in no view with this one.
        match postcard::from_bytes(octets) {
            Ok(Relayed::Ike { local, remote, message }) => {
                let path = Path { local, remote };
                match planted(Plant::RelayedTwice) {
                    true => self.handle_ike(now, path, message),
                    false => drop(self.speak(now, path, message)),
                }
            }
            Ok(Relayed::TooBig { local, remote, spi, sequence, udp, mtu }) => {
                let told = TooBig { local, remote, spi: Spi(spi), sequence, udp, mtu };
                self.core.outputs.push_back(MemberOutput::TooBig(told));
            }
            Ok(Relayed::Rates(rates)) => self.shards.following.heard(now, from, rates),
            Err(_) => self.core.counters.unread += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Group;
    use proptest::prelude::*;

    #[test]
    fn what_was_written_is_read_and_a_large_message_fits() {
        let [local, remote] = ["[2001:db8::1]:4500", "[2001:db8::2]:65535"].map(|addr| addr.parse().unwrap());
        // A certificate with its chain has some thousand octets.
        let message = &[7; 65_400];
        let octets = postcard::to_allocvec(&Relayed::Ike { local, remote, message }).unwrap();
        assert!(octets.len() <= Group::MAX_RELAYED_OCTETS, "{}", octets.len());
        let Ok(Relayed::Ike { message: read, .. }) = postcard::from_bytes(&octets) else { panic!() };
        assert_eq!(read, message);
        assert!(postcard::from_bytes::<Relayed<'_>>(&octets[..octets.len() - 1]).is_err());
    }

    proptest! {
        /// A node that has the key may still say anything.
        #[test]
        fn anything_is_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = postcard::from_bytes::<Relayed<'_>>(&octets);
        }
    }
}
