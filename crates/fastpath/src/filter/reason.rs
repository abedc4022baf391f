//! The filter's reasons, in the order of `bpf/reasons.h`, the list of the kernel side.

/// The filter's action on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterAction {
    /// Up to the kernel's stack.
    Pass,
    /// To the AF_XDP socket of the queue.
    Worker,
    /// Dropped.
    Drop,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, $action:ident;)+) => {
        /// The reason for a packet's action. Each packet that a port receives counts for exactly
        /// one reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The name of the counter.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// The action on such a packet.
            pub fn action(self) -> FilterAction {
                match self {
                    $(Self::$name => FilterAction::$action,)+
                }
            }
        }
    };
}

reasons! {
    /// Neither IPv4 nor IPv6: ARP and others.
    PassNotIp = "pass_not_ip", Pass;
    /// With a VLAN tag: it belongs to a VLAN interface, not to the port.
    PassVlan = "pass_vlan", Pass;
    /// To a multicast group or the limited broadcast address.
    PassMulticast = "pass_multicast", Pass;
    /// IKE to one of our addresses.
    PassIke = "pass_ike", Pass;
    /// Unicast Neighbour Discovery.
    PassNeighbourDiscovery = "pass_neighbour_discovery", Pass;
    /// An ICMP error to one of our addresses.
    PassIcmpError = "pass_icmp_error", Pass;
    /// Another packet to one of our addresses.
    PassLocal = "pass_local", Pass;
    /// A packet that no policy matches.
    PassOther = "pass_other", Pass;
    /// To a protected prefix.
    WorkerProtect = "protect", Worker;
    /// To a protected prefix of several homes: the workers of all nodes get it, and one of them
    /// keeps it.
    WorkerProtectFlooded = "protect_shared", Worker;
    /// ESP to one of our addresses.
    WorkerEsp = "esp", Worker;
    /// ESP in UDP to port 4500 of one of our addresses.
    WorkerEspInUdp = "esp_in_udp", Worker;
    /// AH to one of our addresses.
    WorkerAh = "ah", Worker;
    /// A fragment of ESP or AH, or of a datagram to port 4500 that is not IKE, to one of our
    /// addresses.
    WorkerFragment = "fragment", Worker;
    /// In clear, from a prefix about which the policies say more than the filter knows: a worker
    /// applies them.
    WorkerClear = "clear", Worker;
    /// For a worker, but no worker listens on the queue.
    DropNoSocket = "drop_no_socket", Drop;
    /// For a worker, but on a queue with too high a number.
    DropQueueRange = "drop_queue_range", Drop;
    /// For a worker, but on an interface that is no port of ours.
    DropUnknownPort = "drop_unknown_port", Drop;
    /// For a worker, but the driver leaves no room for the stamp.
    DropNoMetadata = "drop_no_metadata", Drop;
    /// For a worker, but in a frame that was not sent to the port's own MAC address.
    DropOtherHost = "drop_other_host", Drop;
    /// Lengths that contradict each other, or the wrong IP version.
    DropMalformed = "drop_malformed", Drop;
    /// A header that the driver did not put into the first part of the frame.
    DropNotLinear = "drop_not_linear", Drop;
    /// A NAT keepalive (RFC 3948 §2.3).
    DropKeepalive = "drop_keepalive", Drop;
    /// To port 4500, and too short for IKE or ESP (RFC 3948 §2).
    DropNattShort = "drop_natt_short", Drop;
    /// ESP without a whole ESP header.
    DropEspShort = "drop_esp_short", Drop;
    /// AH without a whole AH header.
    DropAhShort = "drop_ah_short", Drop;
    /// A first fragment without its ports, or to port 4500 without the octets that show what it is.
    DropFragmentShort = "drop_fragment_short", Drop;
    /// To one of our addresses, with more extension headers than any real packet has.
    DropExtensionHeaders = "drop_extension_headers", Drop;
    /// To one of our addresses as an intermediate hop of an IPv6 routing header (RFC 5095).
    DropRoutingHeader = "drop_routing_header", Drop;
    /// In clear, from a prefix whose traffic must be protected (RFC 4301 §5.2).
    DropClearInbound = "drop_clear_inbound", Drop;
    /// Flooded to all nodes of the cluster, and for another one.
    DropOtherNode = "drop_other_node", Drop;
    /// For this node's kernel by the shard table, but the daemon has not confirmed in time that the
    /// table still holds.
    DropFenced = "drop_fenced", Drop;
    /// From a source that an alarm has shut out for a time.
    DropSource = "drop_source", Drop;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns `PassNotIp` into `PASS_NOT_IP`.
    fn c_name(reason: Reason) -> String {
        let mut name = String::new();
        for letter in format!("{reason:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        name
    }

    #[test]
    fn the_list_is_that_of_the_filter() {
        let header = include_str!("../../bpf/reasons.h");
        let list = header.split_once("enum reason {").and_then(|(_, rest)| rest.split_once("};"));
        let list = list.expect("enum reason in bpf/reasons.h").0;
        let in_c: Vec<_> = list
            .lines()
            .map(str::trim)
            .filter(|l| !l.starts_with("/*"))
            .filter_map(|l| l.strip_suffix(','))
            .collect();
        let mut here: Vec<_> = Reason::ALL.iter().map(|r| c_name(*r)).collect();
        here.push("REASONS".to_owned());
        assert_eq!(in_c, here);
    }

    #[test]
    fn the_order_tells_the_action() {
        let actions: Vec<_> = Reason::ALL.iter().map(|r| r.action()).collect();
        let starts = [Reason::PassNotIp, Reason::WorkerProtect, Reason::DropNoSocket].map(|r| r as usize);
        assert!(actions[starts[0]..starts[1]].iter().all(|a| *a == FilterAction::Pass));
        assert!(actions[starts[1]..starts[2]].iter().all(|a| *a == FilterAction::Worker));
        assert!(actions[starts[2]..].iter().all(|a| *a == FilterAction::Drop));
    }
}
