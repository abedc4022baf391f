//! The TUN: where packets from and to this host go through the tunnels.

use testudo_fastpath::netlink::Addresses;
use testudo_fastpath::tun;

/// The TUN, as control changes it. The workers have its descriptor.
pub(super) struct HostTun {
    /// Number of its interface.
    pub(super) ifindex: u32,
    pub(super) name: String,
    pub(super) mtu: u16,
    pub(super) addresses: Addresses,
}

impl HostTun {
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
