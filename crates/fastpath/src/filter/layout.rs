//! `bpf/layout.h` in Rust: the limits, and keys and values of the maps as octets.

use super::ports::FilterPort;
use crate::fib::PortIndex;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testudo_base::lane::Spread;
use testudo_base::prefix::Prefix;
use testudo_base::spi::{Shard, Spi};
use testudo_base::turn::Rule;
use testudo_ipsec::dataplane::{HEAD_OCTETS, Sample};

/// Grows with every change of a map or of a value's meaning, but not with a map or a flag that an
/// older filter does without.
pub(super) const LAYOUT_VERSION: u32 = 11;
/// Ports of an instance.
pub const MAX_PORTS: u16 = 64;
/// Interfaces below this number are in the array of ports.
pub(super) const LOW_PORTS: u32 = 4096;
/// Slots of the gateway's own addresses, of each family.
const LOCAL_SLOTS: u32 = 256;
/// Receive queues of a port.
pub const MAX_QUEUES: u16 = 64;
/// Sources that can be dropped at the same time.
pub const MAX_DROPPED: u32 = 1024;
/// Room for reasons, so that a new reason does not change the map.
pub(super) const MAX_REASONS: u32 = 64;
const PORT_CHECK_SOURCE: u16 = 1;
const PREFIX_PROTECT_TO: u32 = 1;
const PREFIX_REFUSE_FROM: u32 = 2;
const PREFIX_WITHIN: u32 = 4;
const PREFIX_HOMED: u32 = 8;
const PREFIX_JUDGE_FROM: u32 = 16;
const PREFIX_OPEN_TO_HOST: u32 = 32;
const PREFIX_FOR_ANYBODY: u32 = 64;
const PREFIX_SPREAD_SESSION: u32 = 128;
const PREFIX_SPREAD_PACKET: u32 = 65536;
const PREFIX_ROUND_ROBIN: u32 = 131_072;
const PREFIX_SHORTEST_QUEUE: u32 = 262_144;
const PREFIX_SHARD_SHIFT: u32 = 8;
const PORT_FLOODED: u16 = 2;
const PORT_KNOWN: u16 = 4;
/// Bit: one of our addresses.
pub(super) const ADDRESS: u32 = 1;
/// Bit: a VIP.
pub(super) const VIP: u32 = 2;
/// Bit: an address that is on our side of no policy for all addresses.
pub(super) const UNSELECTED: u32 = 4;
/// Bit: the slot does not answer, the hash does.
pub(super) const ASK_HASH: u32 = 8;
pub(super) const CLUSTER_ON: u32 = 1;
pub(super) const CLUSTER_DEFAULT_HOST: u32 = 2;
pub(super) const CLUSTER_SPREAD: u32 = 4;
pub(super) const CLUSTER_ROUTED: u32 = 8;
pub(super) const CLUSTER_DROPS_SOURCES: u32 = 16;
pub(super) const CLUSTER_IN_TURN: u32 = 32;
pub(super) const CLUSTER_SESSIONS_IN_TURN: u32 = 64;
/// Octets of `struct clear_head`.
pub(super) const HEAD_LEN: usize = 4 + HEAD_OCTETS;
/// Bit: the packets of an SPI are dealt out by their numbers.
const SEEN_SPREAD: u32 = 1;

/// First octet of the stamp before a packet.
pub const STAMP_MAGIC: u8 = 0x54;
/// Octets of the stamp.
pub const STAMP_LEN: usize = 4;

/// The kind of a worker's packet, as the filter found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// To a protected prefix: to be encrypted.
    Protect = 1,
    /// ESP to one of our addresses.
    Esp = 2,
    /// ESP in UDP to port 4500 of one of our addresses.
    EspInUdp = 3,
    /// To a protected prefix of several homes: all nodes of the cluster receive it.
    ProtectFlooded = 4,
    /// In clear, from a prefix for which the policies decide.
    Clear = 5,
    /// To a spread prefix whose lanes take turns: to be encrypted.
    ProtectInTurn = 6,
}

/// The four octets that the filter writes directly before a packet for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The kind of the packet.
    pub class: Class,
    /// The port that received it.
    pub port: PortIndex,
    /// The lane that it has taken, with [`Class::ProtectInTurn`].
    pub lane: Shard,
}

impl Stamp {
    /// Reads a stamp. `None` if the octets are no stamp, which means that the filter is not ours.
    #[inline]
    pub fn read(octets: [u8; STAMP_LEN]) -> Option<Self> {
        let [STAMP_MAGIC, class, port, lane] = octets else { return None };
        let class = match class {
            1 => Class::Protect,
            2 => Class::Esp,
            3 => Class::EspInUdp,
            4 => Class::ProtectFlooded,
            5 => Class::Clear,
            6 => Class::ProtectInTurn,
            _ => return None,
        };
        Some(Self { class, port: PortIndex(port.into()), lane: Shard(lane) })
    }
}

/// What the filter does with the packets of a prefix. With all fields false it is an exception
/// inside a larger prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PrefixUse {
    /// Packets to the prefix go to a worker.
    pub protect_to: bool,
    /// Packets from the prefix that arrive in clear are dropped (RFC 4301 §5.2).
    pub refuse_from: bool,
    /// Packets from the prefix that arrive in clear go to a worker, which applies the policies (RFC
    /// 4301 §5.2). Unless `refuse_from` is set too, packets from it to a protected prefix go to a
    /// worker like any others.
    pub judge_from: bool,
    /// Only policies for all addresses hold the prefix back. So no policy matches a packet from
    /// there to one of our addresses that those policies do not have on our side
    /// ([`Filter::set_unselected`](super::Filter::set_unselected)): it goes to the kernel.
    pub open_to_host: bool,
    /// The prefix is here only because a larger one around it is. The filter ignores this. A daemon
    /// that takes the pinned maps over must tell it from a prefix that has to be protected whatever
    /// becomes of those around it.
    pub within: bool,
    /// Any host in the prefix may be a peer, one on a link of ours too: prefixes that are directly
    /// connected are no exceptions inside. The filter does not care; whoever takes the pinned maps
    /// over must go on holding those back.
    pub for_anybody: bool,
    /// The shard that carries all packets to the prefix. `None` if several do, or if it is not
    /// known yet: then the workers of all nodes get them. A lone gateway ignores it.
    pub home: Option<Shard>,
    /// Deals the packets out to all shards in this way. The shard that `home` names keeps their row
    /// clock. Means nothing without `home`.
    pub spread: Option<Spread>,
}

impl PrefixUse {
    /// The remote side of a policy that protects.
    pub const PROTECT: Self = Self { protect_to: true, refuse_from: true, within: false, ..Self::PASS };
    /// An exception: bypassed, or directly connected.
    pub const PASS: Self = Self {
        protect_to: false,
        refuse_from: false,
        judge_from: false,
        open_to_host: false,
        within: true,
        for_anybody: false,
        home: None,
        spread: None,
    };

    pub(super) fn encode(self) -> [u8; 4] {
        let to = if self.protect_to { PREFIX_PROTECT_TO } else { 0 };
        let from = if self.refuse_from { PREFIX_REFUSE_FROM } else { 0 };
        let judge = if self.judge_from { PREFIX_JUDGE_FROM } else { 0 };
        let open = if self.open_to_host { PREFIX_OPEN_TO_HOST } else { 0 };
        let within = if self.within { PREFIX_WITHIN } else { 0 };
        let anybody = if self.for_anybody { PREFIX_FOR_ANYBODY } else { 0 };
        let home = self.home.map_or(0, |shard| PREFIX_HOMED | u32::from(shard.0) << PREFIX_SHARD_SHIFT);
        let spread = self.spread.map_or(0, spread_flags);
        (to | from | judge | open | within | anybody | home | spread).to_ne_bytes()
    }

    pub(super) fn decode(value: [u8; 4]) -> Self {
        let flags = u32::from_ne_bytes(value);
        let has = |flag: u32| flags & flag != 0;
        let spread = Spread::ALL.into_iter().find(|spread| spread_flags(*spread) == flags & SPREAD_FLAGS);
        Self {
            spread,
            protect_to: has(PREFIX_PROTECT_TO),
            refuse_from: has(PREFIX_REFUSE_FROM),
            judge_from: has(PREFIX_JUDGE_FROM),
            open_to_host: has(PREFIX_OPEN_TO_HOST),
            within: has(PREFIX_WITHIN),
            for_anybody: has(PREFIX_FOR_ANYBODY),
            home: has(PREFIX_HOMED).then_some(Shard((flags >> PREFIX_SHARD_SHIFT) as u8)),
        }
    }
}

/// The flags that say how a prefix is spread.
const SPREAD_FLAGS: u32 =
    PREFIX_SPREAD_SESSION | PREFIX_SPREAD_PACKET | PREFIX_ROUND_ROBIN | PREFIX_SHORTEST_QUEUE;

fn spread_flags(spread: Spread) -> u32 {
    let by = if spread.is_by_session() { PREFIX_SPREAD_SESSION } else { PREFIX_SPREAD_PACKET };
    by | match spread.turns() {
        None => 0,
        Some(Rule::RoundRobin) => PREFIX_ROUND_ROBIN,
        Some(Rule::ShortestQueue) => PREFIX_SHORTEST_QUEUE,
    }
}

/// The `struct port` of an interface that is no port.
pub(super) const NO_PORT: [u8; 16] = [0; 16];

/// `struct port`.
pub(super) fn port_value(port: &FilterPort) -> [u8; 16] {
    let check = if port.check_source { PORT_CHECK_SOURCE } else { 0 };
    let flooded = if port.cluster_mac.is_some() { PORT_FLOODED } else { 0 };
    let mut value = [0; 16];
    value[0..2].copy_from_slice(&port.index.0.to_ne_bytes());
    value[2..4].copy_from_slice(&(PORT_KNOWN | check | flooded).to_ne_bytes());
    value[4..10].copy_from_slice(&port.mac.0);
    if let Some(mac) = port.cluster_mac {
        value[10..16].copy_from_slice(&mac.0);
    }
    value
}

/// `struct cluster`.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct ClusterValue {
    pub(super) packets: [u64; 4],
    pub(super) ike: [u64; 4],
    pub(super) held: [u64; 4],
    pub(super) key: [u64; 2],
    pub(super) deadline: u64,
    pub(super) flags: u32,
}

impl std::fmt::Debug for ClusterValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Leaves the key out.
        let mut shown = f.debug_struct("ClusterValue");
        shown
            .field("packets", &self.packets)
            .field("ike", &self.ike)
            .field("held", &self.held)
            .field("deadline", &self.deadline);
        shown.field("flags", &self.flags).finish_non_exhaustive()
    }
}

impl ClusterValue {
    pub(super) fn encode(&self) -> Vec<u8> {
        let shards = [&self.packets, &self.ike, &self.held].into_iter().flatten();
        let words = shards.chain(&self.key).chain([&self.deadline]);
        let words = words.flat_map(|word| word.to_ne_bytes());
        words.chain(self.flags.to_ne_bytes()).chain([0; 4]).collect()
    }
}

/// `struct seen`.
pub(super) fn seen_value(number: u64, is_spread: bool) -> [u8; 16] {
    let flags = if is_spread { SEEN_SPREAD } else { 0 };
    let mut value = [0; 16];
    value[0..8].copy_from_slice(&number.to_ne_bytes());
    value[8..12].copy_from_slice(&flags.to_ne_bytes());
    value
}

/// The number from a `struct seen`.
pub(super) fn seen_number(value: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(*value.first_chunk()?))
}

/// The number of a port from a `struct port`.
pub(super) fn port_index(value: &[u8]) -> Option<PortIndex> {
    Some(PortIndex(u16::from_ne_bytes(*value.first_chunk()?)))
}

/// `struct layout`.
pub(super) fn layout_value(version: u32, netns: u64) -> [u8; 16] {
    let mut value = [0; 16];
    value[0..4].copy_from_slice(&version.to_ne_bytes());
    value[8..16].copy_from_slice(&netns.to_ne_bytes());
    value
}

/// Version and network namespace from a `struct layout`.
pub(super) fn read_layout(value: &[u8]) -> Option<(u32, u64)> {
    let version = u32::from_ne_bytes(*value.first_chunk()?);
    let netns = u64::from_ne_bytes(*value.get(8..)?.first_chunk()?);
    Some((version, netns))
}

/// `struct prefix4` or `struct prefix6`, by the family.
pub(super) fn prefix_key(prefix: &Prefix) -> Vec<u8> {
    let mut key = u32::from(prefix.length()).to_ne_bytes().to_vec();
    key.extend(address_key(prefix.addr()));
    key
}

/// A prefix from its key.
pub(super) fn read_prefix(key: &[u8]) -> Option<Prefix> {
    let (length, addr) = key.split_first_chunk()?;
    Prefix::new(read_address(addr)?, u8::try_from(u32::from_ne_bytes(*length)).ok()?)
}

/// `struct address4` or `struct address6`, by the family.
pub(super) fn address_key(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// The `struct address6` of a source in `dropped`.
pub(super) fn source_key(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The packet from a `struct clear_head`. `None` if it is empty.
pub(super) fn read_head(value: &[u8]) -> Option<Sample> {
    let (length, octets) = value.split_first_chunk()?;
    let length = u32::from_ne_bytes(*length);
    let mut sample = Sample::of(Spi(0), octets.get(..(length as usize).min(HEAD_OCTETS))?);
    sample.len = u16::try_from(length).unwrap_or(u16::MAX);
    (length > 0).then_some(sample)
}

/// The slot of an address.
pub(super) fn slot_of(addr: IpAddr) -> u32 {
    let octets = address_key(addr);
    let words = octets.chunks_exact(4).filter_map(|word| Some(u32::from_ne_bytes(*word.first_chunk()?)));
    let word = words.fold(0, |all, word| all ^ word);
    let half = word ^ word >> 16;
    (half ^ half >> 8) % LOCAL_SLOTS
}

/// `struct slot4` or `struct slot6`, by the family.
pub(super) fn slot_value(addr: IpAddr, flags: u32) -> Vec<u8> {
    let mut value = address_key(addr);
    value.extend(flags.to_ne_bytes());
    value
}

/// An address from its key.
pub(super) fn read_address(key: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(key).map(Ipv4Addr::from).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(key).map(Ipv6Addr::from).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_base::session::SLOTS;
    use testudo_base::shard::SHARDS;

    fn defined(name: &str) -> u32 {
        let header = include_str!("../../bpf/layout.h");
        let mut lines = header.lines().filter_map(|l| l.strip_prefix("#define "));
        let line = lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')).expect(name);
        let value = line.split_whitespace().next().expect(name);
        match value.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).expect(name),
            None => value.parse().expect(name),
        }
    }

    #[test]
    fn the_constants_are_those_of_the_filter() {
        assert_eq!(defined("LAYOUT_VERSION"), LAYOUT_VERSION);
        assert_eq!(defined("MAX_PORTS"), MAX_PORTS.into());
        assert_eq!(defined("LOW_PORTS"), LOW_PORTS);
        assert_eq!(defined("LOCAL_SLOTS"), LOCAL_SLOTS);
        assert_eq!(defined("MAX_QUEUES"), MAX_QUEUES.into());
        assert_eq!(defined("MAX_REASONS"), MAX_REASONS);
        assert_eq!(defined("STAMP_MAGIC"), STAMP_MAGIC.into());
        assert_eq!(defined("CLASS_PROTECT"), Class::Protect as u32);
        assert_eq!(defined("CLASS_ESP"), Class::Esp as u32);
        assert_eq!(defined("CLASS_ESP_IN_UDP"), Class::EspInUdp as u32);
        assert_eq!(defined("CLASS_PROTECT_FLOODED"), Class::ProtectFlooded as u32);
        assert_eq!(defined("CLASS_CLEAR"), Class::Clear as u32);
        assert_eq!(defined("CLASS_PROTECT_IN_TURN"), Class::ProtectInTurn as u32);
        assert_eq!(defined("PORT_CHECK_SOURCE"), PORT_CHECK_SOURCE.into());
        assert_eq!(defined("PREFIX_PROTECT_TO"), PREFIX_PROTECT_TO);
        assert_eq!(defined("PREFIX_REFUSE_FROM"), PREFIX_REFUSE_FROM);
        assert_eq!(defined("PREFIX_WITHIN"), PREFIX_WITHIN);
        assert_eq!(defined("PREFIX_HOMED"), PREFIX_HOMED);
        assert_eq!(defined("PREFIX_JUDGE_FROM"), PREFIX_JUDGE_FROM);
        assert_eq!(defined("PREFIX_OPEN_TO_HOST"), PREFIX_OPEN_TO_HOST);
        assert_eq!(defined("PREFIX_FOR_ANYBODY"), PREFIX_FOR_ANYBODY);
        assert_eq!(defined("PREFIX_SPREAD_SESSION"), PREFIX_SPREAD_SESSION);
        assert_eq!(defined("PREFIX_SPREAD_PACKET"), PREFIX_SPREAD_PACKET);
        assert_eq!(defined("PREFIX_ROUND_ROBIN"), PREFIX_ROUND_ROBIN);
        assert_eq!(defined("PREFIX_SHORTEST_QUEUE"), PREFIX_SHORTEST_QUEUE);
        assert_eq!(defined("PREFIX_SHARD_SHIFT"), PREFIX_SHARD_SHIFT);
        assert_eq!(defined("SHARDS") as usize, SHARDS);
        assert_eq!(defined("PORT_FLOODED"), PORT_FLOODED.into());
        assert_eq!(defined("PORT_KNOWN"), PORT_KNOWN.into());
        assert_eq!(defined("LOCAL_ASK_HASH"), ASK_HASH);
        assert_eq!(defined("LOCAL_ADDRESS"), ADDRESS);
        assert_eq!(defined("LOCAL_VIP"), VIP);
        assert_eq!(defined("LOCAL_UNSELECTED"), UNSELECTED);
        assert_eq!(defined("CLUSTER_ON"), CLUSTER_ON);
        assert_eq!(defined("CLUSTER_DEFAULT_HOST"), CLUSTER_DEFAULT_HOST);
        assert_eq!(defined("CLUSTER_SPREAD"), CLUSTER_SPREAD);
        assert_eq!(defined("CLUSTER_ROUTED"), CLUSTER_ROUTED);
        assert_eq!(defined("CLUSTER_DROPS_SOURCES"), CLUSTER_DROPS_SOURCES);
        assert_eq!(defined("CLUSTER_IN_TURN"), CLUSTER_IN_TURN);
        assert_eq!(defined("CLUSTER_SESSIONS_IN_TURN"), CLUSTER_SESSIONS_IN_TURN);
        assert_eq!(defined("SESSION_SLOTS"), SLOTS.into());
        assert_eq!(defined("MAX_DROPPED"), MAX_DROPPED);
        assert_eq!(defined("HEAD_OCTETS") as usize, HEAD_OCTETS);
        assert_eq!(defined("SEEN_SPREAD"), SEEN_SPREAD);
    }

    #[test]
    fn keys_can_be_read_back() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.1/32", "::/0", "2001:db8::/32", "::1/128"] {
            let prefix: Prefix = text.parse().expect(text);
            assert_eq!(read_prefix(&prefix_key(&prefix)), Some(prefix));
            assert_eq!(read_address(&address_key(prefix.addr())), Some(prefix.addr()));
        }
        assert_eq!(read_prefix(&[0; 7]), None);
        assert_eq!(read_layout(&layout_value(7, 9)), Some((7, 9)));
    }

    #[test]
    fn uses_can_be_read_back() {
        let homed =
            [8 | 1, 0xff08 | 1, 0x2a08 | 4, 0x2a08 | 128, 0x1_2a08, 128, 0x1_0000, 0x3_2a08, 0x5_2a08];
        let by_session = [0x2_2a08 | 128, 0x4_2a08 | 128];
        let unhomed = [0u32, 1, 2, 3, 4, 5, 6, 7, 16, 16 | 2, 32, 32 | 16 | 3];
        for flags in homed.into_iter().chain(by_session).chain(unhomed) {
            let value = flags.to_ne_bytes();
            assert_eq!(PrefixUse::decode(value).encode(), value);
        }
    }

    #[test]
    fn a_stamp_is_read_strictly() {
        let stamp = Stamp { class: Class::EspInUdp, port: PortIndex(51), lane: Shard(0) };
        assert_eq!(Stamp::read([STAMP_MAGIC, 3, 51, 0]), Some(stamp));
        let stamp = Stamp { class: Class::ProtectInTurn, port: PortIndex(51), lane: Shard(200) };
        assert_eq!(Stamp::read([STAMP_MAGIC, 6, 51, 200]), Some(stamp));
        assert_eq!(Stamp::read([STAMP_MAGIC, 7, 51, 0]), None);
        assert_eq!(Stamp::read([STAMP_MAGIC, 0, 51, 0]), None);
        assert_eq!(Stamp::read([0, 1, 51, 0]), None);
    }
}
