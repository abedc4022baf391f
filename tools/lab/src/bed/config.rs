//! The configuration files of a cluster's daemons.

use super::BedOptions;
use super::nodes::own;
use crate::cluster::routed::ANNOUNCED;
use crate::cluster::{Cluster, Ingress, LINK, Net};
use crate::lock::Company;
use crate::namespace::write_private;
use crate::swanctl_conf::Connection;
use crate::topology::{Family, Side};
use crate::{Error, Lab, Result};
use aws_lc_rs::rand;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Gives the children of all connections, on both sides, a replay window of this many numbers: for
/// [`super::Bed::start_with`].
pub fn replay_window(size: u16) -> impl Fn(bool, &mut Connection) {
    move |_, connection| connection.more_child.push(format!("replay_window = {size}"))
}

/// A new key for the nodes of a cluster, and its file.
pub(super) fn write_key(lab: &Lab) -> Result<(Vec<u8>, PathBuf)> {
    let mut octets = vec![0_u8; 32];
    rand::fill(&mut octets)
        .map_err(|_| Error::unexpected("the source of random octets", "octets", "none"))?;
    let text: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    let path = lab.dir().join("cluster.key");
    write_private(&path, &text)?;
    Ok((octets, path))
}

/// File in a node's directory that holds the generation of its machine.
pub(super) const GENERATION: &str = "generation";

/// Ports beside the outer and the inner one: nodes relay packets over their own network.
pub(super) fn ports(ingress: Ingress) -> String {
    match ingress {
        Ingress::Flood => String::new(),
        Ingress::Routed => format!("\n[[port]]\ninterface = \"{LINK}\"\n"),
    }
}

/// `[cluster]` of a node's testudo.toml.
pub(super) fn section(company: Company, node: u8, options: &BedOptions, [key, state]: [&Path; 2]) -> String {
    let pulse = pulse(company, &options.cluster);
    let (key, state, more) = (key.display(), state.display(), &options.cluster);
    let both = |net| FAMILIES.into_iter().filter_map(move |family| Cluster::shared(net, family));
    let vips = quoted([Net::Outer, Net::Inner].into_iter().flat_map(both));
    let mut text = format!(
        "[cluster]\nnode = {node}\nkey = \"{key}\"\nstate = \"{state}\"\ngeneration = \"{state}/{GENERATION}\"\n\
         vips = [{vips}]\n{pulse}{more}\n"
    );
    if options.ingress == Ingress::Routed {
        let _ = writeln!(text, "ingress = \"routed\"\nannounce_table = {ANNOUNCED}");
    }
    for id in 1..=options.nodes {
        let addresses = quoted(own(id, options.outside).into_iter());
        // Writing to a string cannot fail.
        let _ = write!(text, "\n[[cluster.nodes]]\nid = {id}\naddresses = [{addresses}]\n");
    }
    text
}

/// Beside other labs nodes send half as many heartbeats, and have twice the time: these are most of
/// what their daemons do.
fn pulse(company: Company, more: &str) -> String {
    let slow = [("pulse_ms", 20), ("fence_ms", 100), ("suspicion_min_ms", 50)];
    let unset = slow.iter().filter(|(key, _)| company != Company::Alone && !more.contains(key));
    unset.map(|(key, value)| format!("{key} = {value}\n")).collect()
}

fn quoted(addresses: impl Iterator<Item = IpAddr>) -> String {
    addresses.map(|address| format!("\"{address}\"")).collect::<Vec<_>>().join(", ")
}

/// Name of the connection to a peer, and of its child.
pub(super) fn name(peer: u8) -> String {
    format!("peer{peer}")
}

/// The cluster's connection to a peer, counted from 1: networks of both families, outer addresses
/// IPv4.
pub fn connection(peer: u8) -> Connection {
    connection_over(peer, Family::V4)
}

/// The same connection with outer addresses of that family.
pub(super) fn connection_over(peer: u8, outside: Family) -> Connection {
    let networks = FAMILIES.map(|family| Cluster::network_behind(peer, family));
    Connection {
        name: name(peer),
        remote_addr: Cluster::peer_address(peer, outside),
        local_id: "cluster.lab.example".into(),
        remote_id: format!("peer{peer}.lab.example"),
        remote_ts: networks.to_vec(),
        ..Connection::of(Side::One, outside)
    }
}

/// The same connection as configured on the peer.
pub(super) fn mirrored(mut connection: Connection) -> Connection {
    std::mem::swap(&mut connection.local_addr, &mut connection.remote_addr);
    std::mem::swap(&mut connection.local_id, &mut connection.remote_id);
    std::mem::swap(&mut connection.local_ts, &mut connection.remote_ts);
    connection
}
