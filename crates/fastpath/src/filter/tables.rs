//! Tables that have an array beside a hash (`bpf/find.h`): the array answers for nearly all packets,
//! in a fraction of the time.
//!
//! The kernel replaces an entry of a hash as a whole, but writes one of an array octet by octet,
//! while packets read it.

use super::error::Result;
use super::layout::{ASK_HASH, LOW_PORTS, NO_PORT, address_key, read_address, slot_of, slot_value};
use super::object::FilterMap;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The ports, by number of the interface.
#[derive(Debug)]
pub(super) struct PortTable {
    all: FilterMap,
    low: FilterMap,
}

impl PortTable {
    pub(super) fn new(all: FilterMap, low: FilterMap) -> Self {
        Self { all, low }
    }

    /// Writes a port. A packet that meets half of it meets a wrong MAC address, and is not for this
    /// host.
    pub(super) fn set(&self, ifindex: u32, value: &[u8], entry: &dyn Display) -> Result<()> {
        self.all.set(&ifindex.to_ne_bytes(), value, entry)?;
        self.set_low(ifindex, value, entry)
    }

    /// Removes a port, if it is there.
    pub(super) fn remove(&self, ifindex: u32, entry: &dyn Display) -> Result<()> {
        self.set_low(ifindex, &NO_PORT, entry)?;
        self.all.remove(&ifindex.to_ne_bytes(), entry)
    }

    fn set_low(&self, ifindex: u32, value: &[u8], entry: &dyn Display) -> Result<()> {
        if ifindex >= LOW_PORTS { Ok(()) } else { self.low.set(&ifindex.to_ne_bytes(), value, entry) }
    }

    /// The value of a port.
    pub(super) fn get(&self, ifindex: u32, entry: &dyn Display) -> Result<Option<Vec<u8>>> {
        self.all.get(&ifindex.to_ne_bytes(), entry)
    }

    /// All interfaces that are ports.
    pub(super) fn interfaces(&self) -> impl Iterator<Item = u32> + '_ {
        let keys = self.all.keys().into_iter();
        keys.filter_map(|key| Some(u32::from_ne_bytes(*key.first_chunk()?)))
    }
}

/// The gateway's own addresses with their flags.
#[derive(Debug)]
pub(super) struct LocalTable {
    /// IPv4 and IPv6, as in all fields.
    hashes: [FilterMap; 2],
    slots: [FilterMap; 2],
    known: BTreeMap<IpAddr, u32>,
}

impl LocalTable {
    /// The table with what the maps have from an earlier run, which may have died while it changed a
    /// slot.
    pub(super) fn new(hashes: [FilterMap; 2], slots: [FilterMap; 2]) -> Result<Self> {
        let mut table = Self { hashes, slots, known: BTreeMap::new() };
        for hash in &table.hashes {
            for addr in hash.keys().iter().filter_map(|key| read_address(key)) {
                let flags = hash.get(&address_key(addr), &addr)?;
                let flags = flags.as_deref().and_then(<[u8]>::first_chunk).copied();
                table.known.insert(addr, flags.map_or(0, u32::from_ne_bytes));
            }
        }
        table.known.keys().try_for_each(|addr| table.settle(*addr))?;
        Ok(table)
    }

    /// All addresses, with their flags.
    pub(super) fn known(&self) -> &BTreeMap<IpAddr, u32> {
        &self.known
    }

    /// Writes an address.
    pub(super) fn set(&mut self, addr: IpAddr, flags: u32) -> Result<()> {
        if self.known.get(&addr) == Some(&flags) {
            return Ok(());
        }
        self.unsettle(addr)?;
        self.hash(addr).set(&address_key(addr), &flags.to_ne_bytes(), &addr)?;
        self.known.insert(addr, flags);
        self.settle(addr)
    }

    /// Removes an address, if it is there.
    pub(super) fn remove(&mut self, addr: IpAddr) -> Result<()> {
        self.unsettle(addr)?;
        self.hash(addr).remove(&address_key(addr), &addr)?;
        self.known.remove(&addr);
        self.settle(addr)
    }

    fn hash(&self, addr: IpAddr) -> &FilterMap {
        of_family(&self.hashes, addr)
    }

    /// Has the hash answer for the slot of this address. Only flags change, in one octet.
    fn unsettle(&self, addr: IpAddr) -> Result<()> {
        let found = of_family(&self.slots, addr).get(&slot_key(addr), &addr)?;
        let in_slot = found.as_deref().and_then(|value| read_address(value.get(..address_key(addr).len())?));
        self.write_slot(addr, in_slot.unwrap_or_else(|| unspecified(addr)), ASK_HASH)
    }

    /// Has the slot of this address answer again, unless several addresses have it. The hash answers
    /// while the address in the slot changes.
    fn settle(&self, addr: IpAddr) -> Result<()> {
        let shares = |other: &IpAddr| other.is_ipv4() == addr.is_ipv4() && slot_key(*other) == slot_key(addr);
        let mut sharing = self.known.iter().filter(|(other, _)| shares(other));
        let (answer, flags) = match (sharing.next(), sharing.next()) {
            (None, _) => (unspecified(addr), 0),
            (Some((only, flags)), None) => (*only, *flags),
            (Some(_), Some(_)) => return self.unsettle(addr),
        };
        self.write_slot(addr, answer, ASK_HASH)?;
        self.write_slot(addr, answer, flags)
    }

    fn write_slot(&self, addr: IpAddr, answer: IpAddr, flags: u32) -> Result<()> {
        of_family(&self.slots, addr).set(&slot_key(addr), &slot_value(answer, flags), &addr)
    }
}

fn of_family(maps: &[FilterMap; 2], addr: IpAddr) -> &FilterMap {
    let [v4, v6] = maps;
    if addr.is_ipv4() { v4 } else { v6 }
}

fn slot_key(addr: IpAddr) -> [u8; 4] {
    slot_of(addr).to_ne_bytes()
}

fn unspecified(addr: IpAddr) -> IpAddr {
    if addr.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}
