//! The content of a heartbeat. Every node sends one to every other, over every link, a hundred
//! times a second.

use super::datagram::{Ack, Reader};
use crate::node::NodeId;
use std::time::Duration;
use testudo_base::shard::ShardSet;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Heartbeat {
    /// Counts the heartbeats of this boot. Over all links it is the same.
    pub(super) seq: u64,
    pub(super) stance: Stance,
    /// Its ring; and if the view has begun, the epoch, and what it holds of the view.
    pub(super) ack: Ack,
    /// The members of its ring, as a [`mask`].
    pub(super) members: u32,
    /// A digest of the state that it held before the view. Nodes with equal digests hold equal
    /// states.
    pub(super) base: [u8; 8],
    /// Its links that are up, one bit each, link 0 lowest.
    pub(super) links: u32,
    /// How much of one processor it takes, in thousandths.
    pub(super) load: u16,
    /// The shards whose packets it carries provisionally.
    pub(super) provisional: ShardSet,
    pub(super) heard: Vec<Heard>,
}

/// How far the sender's view has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stance {
    /// Its engine's view is quorate.
    pub(super) quorate: bool,
    /// The group's view has begun.
    pub(super) running: bool,
}

/// What the sender has heard of another node, over all links taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) node: u8,
    /// The lower half of that node's boot number.
    pub(super) boot: u32,
    /// The newest heartbeat of that node.
    pub(super) seq: u64,
    /// Milliseconds since it came.
    pub(super) age: u16,
    /// The newest heartbeat that it may rely on: for as long as the fence lasts after that, the
    /// sender takes none of its shards. 0 if there is none.
    pub(super) proof: u64,
    /// The links on which it was heard lately, one bit each.
    pub(super) links: u8,
}

/// A set of nodes, one bit each.
pub(super) fn mask<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> u32 {
    nodes.into_iter().fold(0, |mask, node| mask | 1 << node.get())
}

/// True if the node is in the [`mask`].
pub(super) fn within(mask: u32, node: NodeId) -> bool {
    mask >> node.get() & 1 == 1
}

/// The form of [`Heard::boot`].
pub(super) fn half(boot: u64) -> u32 {
    boot as u32
}

/// The form of [`Heard::age`].
pub(super) fn age(age: Duration) -> u16 {
    u16::try_from(age.as_millis()).unwrap_or(u16::MAX)
}

impl Heartbeat {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.seq.to_be_bytes());
        out.push(u8::from(self.stance.quorate) | u8::from(self.stance.running) << 1);
        self.ack.write(out);
        out.extend(self.members.to_be_bytes());
        out.extend(self.base);
        out.extend(self.links.to_be_bytes());
        out.extend(self.load.to_be_bytes());
        self.provisional.words().iter().for_each(|word| out.extend(word.to_be_bytes()));
        for heard in &self.heard {
            out.push(heard.node);
            out.extend(heard.boot.to_be_bytes());
            out.extend(heard.seq.to_be_bytes());
            out.extend(heard.age.to_be_bytes());
            out.extend(heard.proof.to_be_bytes());
            out.push(heard.links);
        }
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let seq = from.u64()?;
        let flags = from.u8()?;
        let stance = Stance { quorate: flags & 1 == 1, running: flags & 2 == 2 };
        let ack = Ack::read(from)?;
        let members = from.u32()?;
        let (base, links, load) = (from.array()?, from.u32()?, u16::from_be_bytes(from.array()?));
        let provisional = ShardSet::from_words([from.u64()?, from.u64()?, from.u64()?, from.u64()?]);
        let mut heard = Vec::new();
        while !from.0.is_empty() {
            let (node, boot, seq) = (from.u8()?, from.u32()?, from.u64()?);
            let (age, proof) = (u16::from_be_bytes(from.array()?), from.u64()?);
            heard.push(Heard { node, boot, seq, age, proof, links: from.u8()? });
        }
        Some(Self { seq, stance, ack, members, base, links, load, provisional, heard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_of_a_node_and_an_age_have_short_forms() {
        assert_eq!(half(0x0102_0304_0506_0708), 0x0506_0708);
        let ages = [0, 7, 65_535, 65_536].map(|millis| age(Duration::from_millis(millis)));
        assert_eq!(ages, [0, 7, u16::MAX, u16::MAX]);
    }
}
