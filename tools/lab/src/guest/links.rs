//! The links of a guest: a tap beside an interface of the namespace, and the addresses that move to
//! the guest.

use crate::{Error, Namespace, Result};
use serde::Deserialize;

/// An interface of a namespace that the guest has taken over.
#[derive(Debug)]
pub(crate) struct Link {
    /// Name in the guest.
    name: String,
    tap: String,
    /// The MAC address in the guest.
    mac: String,
    mtu: u16,
    addresses: Vec<String>,
    /// `PREFIX via GATEWAY`.
    routes: Vec<String>,
}

#[derive(Deserialize)]
struct Shown {
    mtu: u16,
    addr_info: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    local: String,
    prefixlen: u8,
    scope: String,
}

impl Link {
    /// Takes the addresses and routes of `interface`, and bridges it to a tap for the guest.
    pub(crate) fn take(namespace: &Namespace, interface: &str, name: &str) -> Result<Self> {
        let shown = namespace.run("ip", ["-j", "address", "show", "dev", interface])?.stdout;
        let (mtu, addresses) = parse_addresses(&shown)?;
        let mut routes = Vec::new();
        for family in ["-4", "-6"] {
            let shown = namespace.ip(&format!("{family} route show dev {interface}"))?.stdout;
            routes.extend(parse_routes(&shown));
        }
        let mac = guest_mac(namespace.mac(interface)?);
        let link = Self { name: name.into(), tap: format!("tap-{name}"), mac, mtu, addresses, routes };
        link.connect(namespace, interface)?;
        Ok(link)
    }

    /// The script that configures the guest like the namespace.
    pub(crate) fn configuration(&self) -> String {
        let name = &self.name;
        let mut script = format!("ip link set {name} address {} mtu {} up\n", self.mac, self.mtu);
        for address in &self.addresses {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            script.push_str(&format!("ip address add {address} dev {name}{nodad}\n"));
        }
        for route in &self.routes {
            let family = if route.contains(':') { "-6" } else { "-4" };
            script.push_str(&format!("ip {family} route add {route} dev {name}\n"));
        }
        script
    }

    fn connect(&self, namespace: &Namespace, interface: &str) -> Result<()> {
        // The switch itself must be silent.
        let keys = ["default".to_owned(), interface.to_owned()]
            .map(|name| format!("net.ipv6.conf.{name}.disable_ipv6"));
        namespace.sysctl(&keys.each_ref().map(|key| (key.as_str(), "1")))?;
        namespace.ip(&format!("address flush dev {interface}"))?;
        tap(namespace, &self.tap)?;
        namespace.up(&self.tap, self.mtu)?;
        namespace.bridge(&format!("br-{interface}"), &[interface, &self.tap], self.mtu)
    }
}

/// Makes a tap, still down.
pub(crate) fn tap(namespace: &Namespace, name: &str) -> Result<()> {
    namespace.ip(&format!("tuntap add dev {name} mode tap")).map(drop)
}

fn parse_addresses(shown: &str) -> Result<(u16, Vec<String>)> {
    let parsed: Vec<Shown> = serde_json::from_str(shown)
        .map_err(|e| Error::unexpected("ip -j address", "an interface", e.to_string()))?;
    let first = parsed.into_iter().next();
    let first = first.ok_or_else(|| Error::unexpected("ip -j address", "an interface", shown))?;
    let global = first.addr_info.iter().filter(|address| address.scope == "global");
    Ok((first.mtu, global.map(|address| format!("{}/{}", address.local, address.prefixlen)).collect()))
}

/// Parses the routes through a gateway; connected routes follow from the addresses.
fn parse_routes(shown: &str) -> Vec<String> {
    let words = shown.lines().map(|line| line.split_ascii_whitespace().take(3).collect::<Vec<_>>());
    words.filter(|words| words.get(1) == Some(&"via")).map(|words| words.join(" ")).collect()
}

/// A MAC address unique in the lab: the namespace's with one bit changed; still local and unicast.
fn guest_mac(mut mac: [u8; 6]) -> String {
    mac[0] ^= 0x04;
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_global_addresses_move() {
        let shown = r#"[{"ifname":"outer0","mtu":1400,"addr_info":[
            {"family":"inet","local":"192.0.2.2","prefixlen":24,"scope":"global"},
            {"family":"inet6","local":"2001:db8::2","prefixlen":64,"scope":"global"},
            {"family":"inet6","local":"fe80::1","prefixlen":64,"scope":"link"}]}]"#;
        let expected = vec!["192.0.2.2/24".to_owned(), "2001:db8::2/64".to_owned()];
        assert_eq!(parse_addresses(shown).unwrap(), (1400, expected));
    }

    #[test]
    fn only_routes_through_a_gateway_are_told() {
        let shown =
            "2001:db8::/64 proto kernel metric 256 pref medium\nfd00:1::/64 via 2001:db8::1 metric 1024\n";
        assert_eq!(parse_routes(shown), ["fd00:1::/64 via 2001:db8::1"]);
    }

    #[test]
    fn the_guests_mac_is_another_local_unicast_one() {
        assert_eq!(guest_mac([0x02, 0, 0, 0, 0, 0xfe]), "06:00:00:00:00:fe");
    }
}
