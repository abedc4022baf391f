//! Identities of each kind, and wildcards, on both sides.

use super::{ECDSA, come_and_go, dn, equip, load, own, start};
use testudo_lab::topology::Side;

#[test]
fn identities_of_each_kind_and_wildcards() {
    let (pair, pki) = start("identities");
    for side in [Side::One, Side::Two] {
        equip(&pair, &pki, side, ECDSA, "root");
    }
    let name = |side: Side, kind: &str| match kind {
        "fqdn" => format!("{}.lab.example", own(side)),
        "email" => format!("{}@lab.example", own(side)),
        "address" => if side == Side::One { "192.0.2.1" } else { "192.0.2.2" }.to_owned(),
        _ => format!("\"{}\"", dn(side)),
    };
    for (kind, pattern) in [
        ("fqdn", Some("*.lab.example")),
        ("email", Some("*@lab.example")),
        ("address", None),
        ("dn", Some("\"C=CH, O=Testudo Lab, CN=*\"")),
        ("dn", Some("%any")),
        ("dn", None),
    ] {
        load(&pair, |side, connection| {
            connection.local.push(format!("id = {}", name(side, kind)));
            let remote = pattern.map_or_else(|| name(side.other(), kind), str::to_owned);
            connection.remote[1] = format!("id = {remote}");
        });
        come_and_go(&pair);
    }
}
