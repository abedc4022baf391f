//! Datagrams between nodes. They are authenticated, but not encrypted, and any of them may be lost.
//!
//! ```text
//! magic:2 version:1 kind:1 link:1 from:1 boot:8 | body | HMAC-SHA256, truncated:16
//! ```

use super::frame::VERSION;
use super::heartbeat::Heartbeat;
use super::keys;
use super::{ClusterKey, RingId};
use crate::node::NodeId;
use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;
use testudo_base::session::{SLOTS, Session, Told};
use testudo_base::spi::Shard;

const MAGIC: [u8; 2] = *b"Tp";
const MAC: usize = 16;
/// Octets around a body.
const OVERHEAD: usize = 14 + MAC;
/// What fits one UDP datagram over IPv4 with what is around it.
pub(super) const MAX_RELAYED_OCTETS: usize = 65_507 - OVERHEAD;

/// Writes and checks datagrams, under a key of the cluster.
pub(super) struct Datagrams(hmac::Key);

/// Why a datagram is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is not Testudo's, or broken.
    Malformed,
    /// Its sender speaks another version.
    OtherVersion,
    /// Its sender does not have the cluster key.
    Forged,
}

/// What a member holds of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) ring: RingId,
    pub(super) epoch: u64,
    pub(super) count: u64,
    pub(super) digest: [u8; 8],
}

/// Names a message of a view; with its sender, which is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageName {
    pub(super) ring: RingId,
    pub(super) epoch: u64,
    pub(super) serial: u64,
}

/// What a datagram says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Ack(Ack),
    Heartbeat(Box<Heartbeat>),
    /// The rest of a message whose place the engine gives (see [`super::views::bulk`]).
    Rest(MessageName, Vec<u8>),
    /// The rest of this message of that node has not come.
    Missing(NodeId, MessageName),
    /// How far the row clocks of these shards have come at the sender.
    RowClocks(Vec<(Shard, u64)>),
    /// What the sender says of the slots of sessions. The number grows with each datagram of one
    /// boot.
    Sessions(u64, Vec<Told>),
    /// What the layer above of one node has sent to that of another ([`super::Group::relay`]).
    Relayed(Vec<u8>),
}

/// The sender of a datagram, and the link that it was sent over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub(super) node: NodeId,
    pub(super) boot: u64,
    pub(super) link: u8,
}

/// Takes fields off the front of a datagram.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn array<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (out, rest) = self.0.split_first_chunk::<LEN>()?;
        self.0 = rest;
        Some(*out)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[octet]| octet)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

impl Ack {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.ring.seq.to_be_bytes());
        out.extend(self.ring.node.to_be_bytes());
        out.extend(self.epoch.to_be_bytes());
        out.extend(self.count.to_be_bytes());
        out.extend(self.digest);
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let ring = RingId { seq: from.u64()?, node: from.u32()? };
        Some(Self { ring, epoch: from.u64()?, count: from.u64()?, digest: from.array()? })
    }
}

impl MessageName {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.ring.seq.to_be_bytes());
        out.extend(self.ring.node.to_be_bytes());
        out.extend(self.epoch.to_be_bytes());
        out.extend(self.serial.to_be_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let ring = RingId { seq: from.u64()?, node: from.u32()? };
        Some(Self { ring, epoch: from.u64()?, serial: from.u64()? })
    }
}

impl Body {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ack(ack) => ack.write(out),
            Self::Heartbeat(heartbeat) => heartbeat.write(out),
            Self::Rest(place, octets) => {
                place.write(out);
                out.extend(octets);
            }
            Self::Missing(of, place) => {
                out.push(of.get());
                place.write(out);
            }
            Self::RowClocks(clocks) => {
                for (shard, rows) in clocks {
                    out.push(shard.0);
                    out.extend(rows.to_be_bytes());
                }
            }
            Self::Relayed(octets) => out.extend(octets),
            Self::Sessions(number, told) => {
                out.extend(number.to_be_bytes());
                told.iter().for_each(|told| write_told(told, out));
            }
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Rest(_, octets) => octets.len() + 100,
            Self::Relayed(octets) => octets.len() + OVERHEAD,
            Self::RowClocks(clocks) => clocks.len() * 9 + 100,
            Self::Sessions(_, told) => told.len() * 7 + 100,
            _ => 400,
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Ack(_) => 1,
            Self::Heartbeat(_) => 2,
            Self::Rest(..) => 3,
            Self::Missing(..) => 4,
            Self::RowClocks(_) => 5,
            Self::Relayed(_) => 6,
            Self::Sessions(..) => 7,
        }
    }

    fn read(kind: u8, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let body = match kind {
            1 => Self::Ack(Ack::read(&mut reader)?),
            2 => Self::Heartbeat(Box::new(Heartbeat::read(&mut reader)?)),
            3 => {
                let place = MessageName::read(&mut reader)?;
                Self::Rest(place, std::mem::take(&mut reader.0).to_vec())
            }
            4 => {
                let of = NodeId::new(reader.u8()?.into())?;
                Self::Missing(of, MessageName::read(&mut reader)?)
            }
            5 => {
                let mut clocks = Vec::new();
                while !reader.0.is_empty() {
                    clocks.push((Shard(reader.u8()?), reader.u64()?));
                }
                Self::RowClocks(clocks)
            }
            6 => Self::Relayed(std::mem::take(&mut reader.0).to_vec()),
            7 => {
                let (number, mut told) = (reader.u64()?, Vec::new());
                while !reader.0.is_empty() {
                    told.push(read_told(&mut reader)?);
                }
                Self::Sessions(number, told)
            }
            _ => return None,
        };
        reader.0.is_empty().then_some(body)
    }
}

/// A slot, and behind it its session if this bit is set.
const HAS_SESSION: u16 = 1 << 15;

fn write_told(told: &Told, out: &mut Vec<u8>) {
    let taken = if told.session.is_some() { HAS_SESSION } else { 0 };
    out.extend((told.slot | taken).to_be_bytes());
    if let Some(Session { tag, lane }) = told.session {
        out.extend(tag.to_be_bytes());
        out.push(lane.0);
    }
}

fn read_told(from: &mut Reader<'_>) -> Option<Told> {
    let word = from.array().map(u16::from_be_bytes)?;
    let session = match word & HAS_SESSION {
        0 => None,
        _ => Some(Session { tag: from.u32()?, lane: Shard(from.u8()?) }),
    };
    Some(Told { slot: word & !HAS_SESSION, session }).filter(|told| told.slot < SLOTS)
}

impl Datagrams {
    pub(super) fn new(key: &ClusterKey) -> Self {
        Self(keys::datagrams(key))
    }

    /// Writes a datagram.
    pub(super) fn write(&self, sender: Sender, body: &Body) -> Vec<u8> {
        let mut out = Vec::with_capacity(body.size());
        out.extend(MAGIC);
        out.extend([VERSION, body.kind(), sender.link, sender.node.get()]);
        out.extend(sender.boot.to_be_bytes());
        body.write(&mut out);
        let mac = hmac::sign(&self.0, &out);
        out.extend(mac.as_ref().iter().take(MAC));
        out
    }

    /// Checks and reads a datagram.
    pub(super) fn read(&self, bytes: &[u8]) -> Result<(Sender, Body), Refused> {
        let (said, mac) = bytes.split_last_chunk::<MAC>().ok_or(Refused::Malformed)?;
        let mut reader = Reader(said);
        let magic: Option<[u8; 2]> = reader.array();
        if magic != Some(MAGIC) {
            return Err(Refused::Malformed);
        }
        if reader.u8() != Some(VERSION) {
            return Err(Refused::OtherVersion);
        }
        let expected = hmac::sign(&self.0, said);
        let same = expected.as_ref().get(..MAC).is_some_and(|expected| expected.ct_eq(mac).into());
        if !same {
            return Err(Refused::Forged);
        }
        let mut content = || {
            let (kind, link) = (reader.u8()?, reader.u8()?);
            let node = NodeId::new(reader.u8()?.into())?;
            let sender = Sender { node, link, boot: reader.u64()? };
            Some((sender, Body::read(kind, reader.0)?))
        };
        content().ok_or(Refused::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::heartbeat::{Heard, Stance};
    use proptest::prelude::*;
    use testudo_base::shard::ShardSet;

    fn datagrams() -> Datagrams {
        Datagrams::new(&ClusterKey::new([3; 32]))
    }

    fn sender() -> Sender {
        Sender { node: NodeId::new(31).unwrap(), boot: 77, link: 4 }
    }

    fn heartbeat(nodes: u8) -> Heartbeat {
        let ack = Ack { ring: RingId { seq: 1, node: 2 }, epoch: 3, count: 4, digest: [5; 8] };
        let heard = |node| Heard { node, boot: 6, seq: 7, age: 8, proof: 9, links: 10 };
        Heartbeat {
            seq: 10,
            stance: Stance { quorate: true, running: false },
            ack,
            members: 11,
            base: [13; 8],
            links: 14,
            load: 15,
            provisional: ShardSet::from_words([16, 17, 18, 19]),
            heard: (1..=nodes).map(heard).collect(),
        }
    }

    #[test]
    fn what_was_written_is_read_and_no_octet_can_be_changed() {
        let body = Body::Heartbeat(Box::new(heartbeat(7)));
        let bytes = datagrams().write(sender(), &body);
        assert!(bytes.len() <= 400, "{}", bytes.len());
        assert_eq!(datagrams().read(&bytes), Ok((sender(), body)));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(datagrams().read(&changed).is_err(), "octet {at}");
            assert!(datagrams().read(&bytes[..at]).is_err(), "cut at {at}");
        }
        let other = Datagrams::new(&ClusterKey::new([4; 32]));
        assert_eq!(other.read(&bytes), Err(Refused::Forged));
    }

    #[test]
    fn slots_are_told_with_their_sessions() {
        let session = Some(Session { tag: 0x1234_5678, lane: Shard(9) });
        let told = [(0, None), (SLOTS - 1, session), (7, session)];
        let told = told.map(|(slot, session)| Told { slot, session }).to_vec();
        let body = Body::Sessions(u64::MAX, told);
        assert_eq!(datagrams().read(&datagrams().write(sender(), &body)), Ok((sender(), body)));
        let beyond = Body::Sessions(1, vec![Told { slot: SLOTS, session: None }]);
        assert_eq!(datagrams().read(&datagrams().write(sender(), &beyond)), Err(Refused::Malformed));
    }

    #[test]
    fn what_is_relayed_fits_a_udp_datagram() {
        let body = Body::Relayed(vec![7; MAX_RELAYED_OCTETS]);
        let bytes = datagrams().write(sender(), &body);
        assert_eq!(bytes.len(), 65_507);
        assert_eq!(datagrams().read(&bytes), Ok((sender(), body)));
    }

    proptest! {
        /// A node that has the key may still say anything.
        #[test]
        fn anything_with_a_right_code_is_read_or_refused(
            kind in 0_u8..8,
            node in any::<u8>(),
            body in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut bytes = [&MAGIC[..], &[VERSION, kind, 0, node], &[0; 8], &body].concat();
            let mac = hmac::sign(&datagrams().0, &bytes);
            bytes.extend(&mac.as_ref()[..MAC]);
            match datagrams().read(&bytes) {
                Ok((sender, read)) => prop_assert_eq!(datagrams().write(sender, &read).len(), bytes.len()),
                Err(reason) => prop_assert_eq!(reason, Refused::Malformed),
            }
        }
    }
}
