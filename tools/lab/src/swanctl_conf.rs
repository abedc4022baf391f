//! Connections between two gateways of the lab, as `swanctl.conf` text for any daemon.

use crate::topology::{Family, Side};
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;

/// One connection with one child or more, and its secret.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Name of the connection and of its first child.
    pub name: String,
    /// The local outer address.
    pub local_addr: IpAddr,
    /// The peer's outer address.
    pub remote_addr: IpAddr,
    /// The local identity.
    pub local_id: String,
    /// The peer's identity.
    pub remote_id: String,
    /// The pre-shared key, in ASCII.
    pub psk: String,
    /// IKE proposals.
    pub proposals: String,
    /// ESP proposals.
    pub esp_proposals: String,
    /// `tunnel` or `transport`.
    pub mode: String,
    /// UDP encapsulation even without a NAT.
    pub encap: bool,
    /// Seconds between liveness checks; 0 for none.
    pub dpd_delay: u32,
    /// The local protected networks.
    pub local_ts: Vec<String>,
    /// The peer's protected networks.
    pub remote_ts: Vec<String>,
    /// Lines of the `local` section; by default the shared key and the local identity.
    pub local: Vec<String>,
    /// Lines of the `remote` section; by default the shared key and the peer's identity.
    pub remote: Vec<String>,
    /// Further lines of the connection section.
    pub more: Vec<String>,
    /// Further lines of the child section.
    pub more_child: Vec<String>,
    /// Further children, each with its lines.
    pub children: Vec<(String, Vec<String>)>,
}

impl Connection {
    /// The connection of the gateway on `side` to the other one, over outer addresses of that
    /// family. The texts of both sides match.
    pub fn of(side: Side, outer: Family) -> Self {
        let networks = |side: Side| vec![side.network(Family::V4), side.network(Family::V6)];
        let id = |side: Side| match side {
            Side::One => "gw1.lab.example".to_owned(),
            Side::Two => "gw2.lab.example".to_owned(),
        };
        Self {
            name: "lab".into(),
            local_addr: side.outer(outer),
            remote_addr: side.other().outer(outer),
            local_id: id(side),
            remote_id: id(side.other()),
            psk: "a key that only the lab knows".into(),
            proposals: "aes128gcm16-prfsha256-x25519".into(),
            esp_proposals: "aes128gcm16".into(),
            mode: "tunnel".into(),
            encap: false,
            dpd_delay: 0,
            local_ts: networks(side),
            remote_ts: networks(side.other()),
            local: Vec::new(),
            remote: Vec::new(),
            more: Vec::new(),
            more_child: Vec::new(),
            children: Vec::new(),
        }
    }
}

impl Connection {
    /// Adds a child of AH, `outer`, around the ESP of the others, with further lines.
    pub fn add_ah(&mut self, more: &[&str]) {
        let lines = [
            "mode = transport",
            "local_ts = dynamic[50]",
            "remote_ts = dynamic[50]",
            "ah_proposals = sha256-esn",
        ];
        let lines = lines.iter().chain(more).map(|line| (*line).to_owned()).collect();
        self.children.push(("outer".into(), lines));
    }
}

impl Display for Connection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let indented = |lines: &[String], by: &str| -> String {
            lines.iter().map(|line| format!("{by}{line}\n")).collect()
        };
        let side = |lines: &[String], id: &str| match lines {
            [] => indented(&["auth = psk".into(), format!("id = {id}")], "            "),
            lines => indented(lines, "            "),
        };
        let child = |(name, lines): &(String, Vec<String>)| {
            format!("            {name} {{\n{}            }}\n", indented(lines, "                "))
        };
        let children: String = self.children.iter().map(child).collect();
        write!(
            f,
            "connections {{
    {name} {{
        version = 2
        local_addrs = {local_addr}
        remote_addrs = {remote_addr}
        proposals = {proposals}
        encap = {encap}
        dpd_delay = {dpd_delay}s
{more}        local {{
{local}        }}
        remote {{
{remote}        }}
        children {{
            {name} {{
                mode = {mode}
                local_ts = {local_ts}
                remote_ts = {remote_ts}
                esp_proposals = {esp_proposals}
{more_child}            }}
{children}        }}
    }}
}}
secrets {{
    ike-{name} {{
        id-1 = {local_id}
        id-2 = {remote_id}
        secret = \"{psk}\"
    }}
}}
",
            name = self.name,
            local_addr = self.local_addr,
            remote_addr = self.remote_addr,
            proposals = self.proposals,
            encap = if self.encap { "yes" } else { "no" },
            dpd_delay = self.dpd_delay,
            more = indented(&self.more, "        "),
            local = side(&self.local, &self.local_id),
            remote = side(&self.remote, &self.remote_id),
            local_id = self.local_id,
            remote_id = self.remote_id,
            local_ts = self.local_ts.join(","),
            remote_ts = self.remote_ts.join(","),
            esp_proposals = self.esp_proposals,
            mode = self.mode,
            more_child = indented(&self.more_child, "                "),
            children = children,
            psk = self.psk,
        )
    }
}
