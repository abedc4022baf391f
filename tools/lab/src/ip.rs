//! Lines for `ip`, alone or for `ip -batch`: a lab needs dozens, and each process costs more than
//! its line.

use crate::namespace::VethEnd;

/// Adds an address with its prefix length ("192.0.2.1/24"), usable at once.
pub(crate) fn address(interface: &str, address: &str) -> String {
    let nodad = if address.contains(':') { " nodad" } else { "" };
    format!("address add {address} dev {interface}{nodad}")
}

/// Adds a route; `ip` takes its family from the next hop.
pub(crate) fn route(destination: &str, via: &str) -> String {
    format!("route add {destination} via {via}")
}

/// Sets an interface up with this MTU.
pub(crate) fn up(interface: &str, mtu: u16) -> String {
    format!("link set {interface} mtu {mtu} up")
}

/// Makes an interface a port of a bridge.
pub(crate) fn join(port: &str, bridge: &str) -> String {
    format!("link set {port} master {bridge}")
}

/// Adds a pair of veth interfaces, one of them here, with that many queues in each direction. A
/// packet arrives at the queue with the number of the one it was sent by.
pub(crate) fn veth(here: &str, there: VethEnd<'_>, queues: u32) -> String {
    let count = match queues {
        1 => String::new(),
        several => format!(" numtxqueues {several} numrxqueues {several}"),
    };
    let VethEnd { namespace, interface } = there;
    format!("link add {here}{count} type veth peer name {interface}{count} netns {}", namespace.name())
}
