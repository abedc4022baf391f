//! The TUN: where packets from and to this host go through the tunnels.

use crate::error::Result;
use testudo_fastpath::netlink::Addresses;
use testudo_fastpath::tun::{self, Tun};

/// The TUN, as control changes it. The workers have its descriptor.
pub(super) struct HostTun {
    /// Number of its interface.
    pub(super) ifindex: u32,
    pub(super) name: String,
    pub(super) mtu: u16,
    pub(super) addresses: Addresses,
    /// Packets that its queues had no room for before this run: it outlives the daemon.
    overflowed_before: u64,
}

impl HostTun {
    /// The TUN that the workers will read.
    pub(super) fn new(tun: &Tun, mtu: u16) -> Result<Self> {
        let (name, ifindex) = (tun.name().to_owned(), tun.ifindex());
        let overflowed_before = tun::overflows(&name)?;
        Ok(Self { ifindex, mtu, addresses: Addresses::open(ifindex)?, overflowed_before, name })
    }

    /// Packets of the kernel for which its queues had no room in this run.
    pub(super) fn overflows(&self) -> Result<u64> {
        Ok(tun::overflows(&self.name)?.saturating_sub(self.overflowed_before))
    }

    /// Gives it another MTU.
    pub(super) fn set_mtu(&mut self, mtu: u16) {
        if mtu == self.mtu {
            return;
        }
        self.mtu = mtu;
        if let Err(error) = tun::set_mtu(&self.name, mtu) {
            tracing::warn!("{error}");
        }
    }
}
