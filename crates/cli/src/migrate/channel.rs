//! The Child SA that protects the migration, as both daemons list it.

use super::requirement::Refusal;
use crate::answer::{answer_error, number, text};
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use testudo_base::prefix::Prefix;
use testudo_vici::Error;
use testudo_vici::client::Client;
use testudo_vici::message::Message;

#[cfg(test)]
pub(super) mod samples;
#[cfg(test)]
mod tests;

const TCP: &str = "tcp";

/// The TCP connection that the source's QEMU will make, from any port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) from: IpAddr,
    pub(super) to: SocketAddr,
}

/// An installed Child SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChildSa {
    pub(super) name: String,
    pub(super) local: End,
    pub(super) remote: End,
    mode: String,
    protocol: String,
    encryption: String,
    key_bits: Option<String>,
    integrity: Option<String>,
    spi_in: String,
    spi_out: String,
    pub(super) packets: Packets,
    local_ts: Vec<String>,
    remote_ts: Vec<String>,
}

/// A gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) address: IpAddr,
    pub(super) identity: String,
}

/// Packets that an SA has carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Packets {
    pub(super) inbound: u64,
    pub(super) outbound: u64,
}

/// Asks a daemon for its installed Child SAs.
pub(super) fn list(client: &mut Client) -> Result<Vec<ChildSa>, Error> {
    let events = client.stream("list-sas", "list-sa", Message::new())?;
    let mut found = Vec::new();
    for (_, ike) in events.iter().flat_map(Message::sections) {
        let children = ike.section("child-sas").into_iter().flat_map(Message::sections);
        for (_, child) in children.filter(|(_, child)| child.text("state") == Some("INSTALLED")) {
            found.push(ChildSa::read(ike, child)?);
        }
    }
    Ok(found)
}

/// The Child SA of the source for this flow, and the other end of it at the destination.
pub(super) fn find(
    source: &[ChildSa],
    destination: &[ChildSa],
    flow: Flow,
) -> Result<(ChildSa, ChildSa), Refusal> {
    let suitable = |sa: &&ChildSa| sa.mode == "TRANSPORT" && sa.covers(flow);
    let mut candidates = source.iter().filter(suitable).peekable();
    if candidates.peek().is_none() {
        return Err(Refusal::new(
            format!(
                "no installed Child SA in transport mode for TCP from {} to {} at the source",
                flow.from, flow.to
            ),
            "initiate the child for the migration port (swanctl --initiate)",
        ));
    }
    let pair = |ours: &ChildSa| {
        let theirs = destination.iter().find(|theirs| theirs.is_other_end_of(ours))?;
        Some((ours.clone(), theirs.clone()))
    };
    candidates.find_map(pair).ok_or_else(|| {
        Refusal::new(
            "the destination's testudod does not have the other end of the source's Child SA",
            "check that --destination-vici is the socket of the testudod at the destination",
        )
    })
}

impl ChildSa {
    fn read(ike: &Message, child: &Message) -> Result<Self, Error> {
        let texts = |key| child.texts(key).map(str::to_owned).collect();
        Ok(Self {
            name: text(child, "name")?,
            local: End::read(ike, "local")?,
            remote: End::read(ike, "remote")?,
            mode: text(child, "mode")?,
            protocol: text(child, "protocol")?,
            // AH has none.
            encryption: child.text("encr-alg").unwrap_or("NULL").to_owned(),
            key_bits: child.text("encr-keysize").map(str::to_owned),
            integrity: child.text("integ-alg").map(str::to_owned),
            spi_in: text(child, "spi-in")?,
            spi_out: text(child, "spi-out")?,
            packets: Packets {
                inbound: number(child, "packets-in")?,
                outbound: number(child, "packets-out")?,
            },
            local_ts: texts("local-ts"),
            remote_ts: texts("remote-ts"),
        })
    }

    /// Whether the flow's packets, and those back, match its selectors.
    fn covers(&self, flow: Flow) -> bool {
        self.local_ts.iter().any(|ts| selects(ts, flow.from, None))
            && self.remote_ts.iter().any(|ts| selects(ts, flow.to.ip(), Some(flow.to.port())))
    }

    /// Each end receives by the SPI by which the other one sends.
    fn is_other_end_of(&self, other: &Self) -> bool {
        self.spi_in == other.spi_out
            && self.spi_out == other.spi_in
            && self.local.address == other.remote.address
            && self.remote.address == other.local.address
    }

    /// Whether it is the same SA, with newer counters perhaps.
    pub(super) fn is(&self, other: &Self) -> bool {
        (&self.spi_in, &self.spi_out) == (&other.spi_in, &other.spi_out)
    }

    /// `ESP AES_CBC-128/HMAC_SHA2_256_128`.
    pub(super) fn suite(&self) -> String {
        let bits = self.key_bits.iter().map(|bits| format!("-{bits}"));
        let integrity = self.integrity.iter().map(|name| format!("/{name}"));
        format!("{} {}{}", self.protocol, self.encryption, bits.chain(integrity).collect::<String>())
    }

    /// Whether its algorithms hide the memory of the virtual machine and protect it from changes.
    /// Not those that testudod calls legacy (3DES, MD5, SHA-1), and no NULL.
    pub(super) fn is_strong(&self) -> bool {
        let aead = ["AES_GCM_", "AES_CCM_", "CHACHA20_POLY1305"];
        let integrity =
            ["HMAC_SHA2_256_128", "HMAC_SHA2_384_192", "HMAC_SHA2_512_256", "AES_CMAC_96", "AES_XCBC_96"];
        let integrity = self.integrity.as_deref().is_some_and(|name| integrity.contains(&name));
        let separate = self.encryption == "AES_CBC" && integrity;
        self.protocol == "ESP" && (separate || aead.iter().any(|name| self.encryption.starts_with(name)))
    }
}

impl End {
    fn read(ike: &Message, side: &str) -> Result<Self, Error> {
        let key = format!("{side}-host");
        let host = text(ike, &key)?;
        let address = host.parse().map_err(|_| answer_error(&key, &host, "an address"))?;
        Ok(Self { address, identity: text(ike, &format!("{side}-id"))? })
    }
}

/// Whether a selector such as `192.0.2.0/24[tcp/49152]` includes TCP at the address, at one port or
/// at all of them.
fn selects(selector: &str, address: IpAddr, port: Option<u16>) -> bool {
    let (addresses, limit) = match selector.split_once('[') {
        None => (selector, None),
        Some((addresses, limit)) => (addresses, Some(limit.trim_end_matches(']'))),
    };
    let includes = match addresses.split_once("..") {
        None => addresses.parse::<Prefix>().is_ok_and(|prefix| prefix.contains(address)),
        Some((first, last)) => {
            let bounds = (first.parse::<IpAddr>(), last.parse::<IpAddr>());
            matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&address))
        }
    };
    includes && limit.is_none_or(|limit| permits(limit, port))
}

/// Whether the limit of a selector, such as `tcp/49152-49155`, includes TCP at a port.
fn permits(limit: &str, port: Option<u16>) -> bool {
    let (protocol, ports) = match limit.split_once('/') {
        None => (limit, None),
        Some((protocol, ports)) => (protocol, Some(ports)),
    };
    let includes = |ports: &str| {
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let bounds = (first.parse::<u16>(), last.parse::<u16>());
        matches!((bounds, port), ((Ok(first), Ok(last)), Some(port)) if (first..=last).contains(&port))
    };
    protocol == TCP && ports.is_none_or(includes)
}
