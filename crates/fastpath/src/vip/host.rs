//! What the kernel has to know of VIPs: that they are its own, and that it says so to nobody on a
//! link.

use crate::error::{Error, Result};
use crate::netlink::{Addresses, ifindex_of};
use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

const LOOPBACK: &str = "lo";

/// On a link the kernel answers ARP only for addresses that are on that link, and asks only in
/// their names. (With IPv6 it never does otherwise.)
const ARP: [(&str, &str); 2] = [("arp_ignore", "1"), ("arp_announce", "2")];

/// Makes a port fit to be one of a cluster's. To be done before the VIPs are there.
pub fn silence(interface: &str) -> Result<()> {
    for (setting, value) in ARP {
        let path: PathBuf = ["/proc/sys/net/ipv4/conf", interface, setting].iter().collect();
        // Containers often have /proc/sys read-only; a value that is right already is no reason to
        // fail.
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

/// Puts VIPs on the loopback interface and takes former ones from it. For IPv4 their scope is this
/// host, so that the kernel does not choose one by itself, as the sender of ARP or otherwise; for
/// IPv6 there is no duplicate address detection, which other nodes would answer.
pub fn set_addresses(vips: &BTreeSet<IpAddr>, former: &BTreeSet<IpAddr>) -> Result<()> {
    let mut addresses = Addresses::open(ifindex_of(LOOPBACK)?)?;
    vips.iter().try_for_each(|addr| addresses.add_to_host(*addr))?;
    former.difference(vips).try_for_each(|addr| addresses.remove_if_there(*addr))?;
    Ok(())
}
