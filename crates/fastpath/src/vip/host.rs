//! The kernel's part in VIPs: it treats them as its own addresses, and does not announce them on
//! any link.

use crate::error::{Error, Result};
use crate::netlink::{Addresses, ifindex_of};
use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

const LOOPBACK: &str = "lo";

/// On a link the kernel answers ARP only for addresses of that link, and asks only in their names.
/// For IPv6 this is always so.
const ARP: [(&str, &str); 2] = [("arp_ignore", "1"), ("arp_announce", "2")];

/// Prepares a port for use in a cluster. To be called before the VIPs are set.
pub fn silence(interface: &str) -> Result<()> {
    for (setting, value) in ARP {
        let path: PathBuf = ["/proc/sys/net/ipv4/conf", interface, setting].iter().collect();
        // Containers often have /proc/sys read-only; if the value is already right, that is no
        // reason to fail.
        if fs::read_to_string(&path).is_ok_and(|v| v.trim() == value) {
            continue;
        }
        fs::write(&path, value).map_err(|source| Error::Interface {
            interface: interface.to_owned(),
            call: "setting arp_ignore and arp_announce",
            source,
        })?;
    }
    Ok(())
}

/// Puts VIPs on the loopback interface and removes former ones from it. IPv4 VIPs get the scope of
/// this host, so that the kernel does not choose them as a source, in ARP or otherwise. IPv6 VIPs
/// get no duplicate address detection, which other nodes would answer.
pub fn set_addresses(vips: &BTreeSet<IpAddr>, former: &BTreeSet<IpAddr>) -> Result<()> {
    let mut addresses = Addresses::open(ifindex_of(LOOPBACK)?)?;
    vips.iter().try_for_each(|addr| addresses.add_to_host(*addr))?;
    former.difference(vips).try_for_each(|addr| addresses.remove_if_there(*addr))?;
    Ok(())
}
