//! `port.mtu`: interfaces get the MTU that their ports are to have, before these are opened.

use crate::config::{Config, PortConfig, PortMtu};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use testudo_fastpath::netlink;

/// The MTUs of the ports for which one is configured, by interface.
pub(super) struct PortMtus(BTreeMap<String, PortMtu>);

impl PortMtus {
    pub(super) fn of(config: &Config) -> Self {
        let one = |port: &PortConfig| Some((port.interface.clone(), port.mtu.clone()?));
        Self(config.ports.iter().filter_map(one).collect())
    }

    /// Sets those of all interfaces that are there.
    pub(super) fn set_all(&self) -> Result<()> {
        self.0.keys().try_for_each(|interface| self.set(interface))
    }

    /// Sets the MTU of an interface, if it has another than is configured.
    pub(super) fn set(&self, interface: &str) -> Result<()> {
        let Some(PortMtu { octets, place }) = self.0.get(interface) else { return Ok(()) };
        let refused = |source| Error::Port { place: place.clone(), source: Box::new(Error::from(source)) };
        if let Some(before) = netlink::set_mtu(interface, *octets).map_err(refused)? {
            tracing::info!("port {interface}: MTU changed from {before} to {octets}");
        }
        Ok(())
    }
}
