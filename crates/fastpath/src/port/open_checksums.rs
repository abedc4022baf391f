//! Drivers that deliver packets with open checksums.
//!
//! A kernel that sends through such a device leaves the checksum of TCP, UDP and SCTP to it, and
//! says so beside the packet. The device never computes it, because the packet stays on the
//! machine. AF_XDP passes on the octets alone.

/// The possible senders to a port with such a driver, by the driver's name as ethtool reports it.
const DRIVERS: [(&str, &str); 13] = [
    ("veth", "a network namespace of this machine, such as a container"),
    ("netkit", "a network namespace of this machine, such as a container"),
    ("tun", "the guest, or the program, behind this tap"),
    ("virtio_net", "the host of this guest, and other guests on it"),
    ("vif", "other domains of Xen on this machine"),
    ("hv_netvsc", "other guests of Hyper-V on this machine"),
    ("macvlan", "other interfaces on top of the same one"),
    ("ipvlan", "other interfaces on top of the same one"),
    ("bridge", "the bridge's ports, which may be of any driver"),
    ("openvswitch", "the switch's ports, which may be of any driver"),
    ("bonding", "the interfaces below, which may be of any driver"),
    ("team", "the interfaces below, which may be of any driver"),
    ("802.1Q VLAN Support", "the interface below, which may be of any driver"),
];

/// The neighbours that may have left open the checksums of packets that come in by a port with this
/// driver. `None` if the packets come from a wire, for which every checksum has been computed.
pub fn leaves_checksums_open(driver: &str) -> Option<&'static str> {
    DRIVERS.iter().find(|(name, _)| *name == driver).map(|(_, sender)| *sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_neighbours_are_told_from_wires() {
        for driver in ["veth", "virtio_net", "tun"] {
            assert!(leaves_checksums_open(driver).is_some(), "{driver}");
        }
        for driver in ["ixgbe", "ice", "mlx5_core", "ena", "vet", "veth0", ""] {
            assert_eq!(leaves_checksums_open(driver), None, "{driver}");
        }
    }
}
