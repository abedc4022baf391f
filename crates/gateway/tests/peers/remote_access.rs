//! Virtual addresses: a hundred clients of ours, and we as a client of Debian's strongSwan.

use crate::common::{Pair, SOON, Scenario, UP_LIMIT, Watch, each_ping};
use std::collections::BTreeSet;
use std::fmt::Write;
use testudo_lab::gateway::Kind;
use testudo_lab::ping::Ping;
use testudo_lab::topology::{Family, Side};
use testudo_lab::{Result, wait_until};

const CLIENTS: usize = 100;

/// The connection for all clients, with its pools.
fn server_conf(side: Side) -> String {
    let outer = side.outer(Family::V4);
    let [v4, v6] = [Family::V4, Family::V6].map(|family| side.network(family));
    format!(
        "connections {{
    road {{
        version = 2
        local_addrs = {outer}
        mobike = no
        rekey_time = 0
        pools = road4, road6
        proposals = aes128gcm16-prfsha256-x25519
        local {{
            auth = psk
            id = server
        }}
        remote {{
            auth = psk
        }}
        children {{
            net {{
                local_ts = {v4}, {v6}
                esp_proposals = aes128gcm16
                rekey_time = 0
            }}
        }}
    }}
}}
pools {{
    road4 {{
        addrs = 10.3.0.0/24
        dns = 10.{n}.0.53
        subnet = {v4}
    }}
    road6 {{
        addrs = fd00:3::/64
    }}
}}
secrets {{
    ike-road {{
        secret = \"a key of the road\"
    }}
}}
",
        n = side.index() + 1
    )
}

/// So many clients, each with a name of its own.
fn clients_conf(side: Side, clients: usize) -> String {
    let (outer, server) = (side.outer(Family::V4), side.other().outer(Family::V4));
    let [v4, v6] = [Family::V4, Family::V6].map(|family| side.other().network(family));
    let mut text = "connections {\n".to_owned();
    for n in 1..=clients {
        write!(
            text,
            "    client{n} {{
        version = 2
        local_addrs = {outer}
        remote_addrs = {server}
        mobike = no
        rekey_time = 0
        vips = 0.0.0.0, ::
        proposals = aes128gcm16-prfsha256-x25519
        local {{
            auth = psk
            id = client{n}
        }}
        remote {{
            auth = psk
            id = server
        }}
        children {{
            net{n} {{
                remote_ts = {v4}, {v6}
                esp_proposals = aes128gcm16
                rekey_time = 0
            }}
        }}
    }}
"
        )
        .unwrap();
    }
    text + "}\nsecrets {\n    ike-road {\n        secret = \"a key of the road\"\n    }\n}\n"
}

/// Leases online and offline, as `swanctl --list-pools` shows them.
fn leases(pair: &Pair, pool: &str) -> Result<(String, String)> {
    let shown = pair.swanctl(Side::One).run(["--list-pools"])?.stdout;
    let line = shown.lines().find(|line| line.starts_with(pool)).unwrap_or_default().to_owned();
    let counts: Vec<&str> = line.split_ascii_whitespace().skip(2).filter(|word| *word != "/").collect();
    match counts[..] {
        [online, offline, ..] => Ok((online.to_owned(), offline.to_owned())),
        _ => panic!("{shown}"),
    }
}

/// Every client gets addresses that no other has; those of some carry traffic; all come back, and
/// are kept for their owners.
#[test]
fn a_hundred_clients_get_an_address_each() {
    let pair = Scenario::new("road", Kind::Strongswan).start_empty();
    pair.swanctl(Side::One).load(&server_conf(Side::One)).unwrap();
    pair.swanctl(Side::Two).load(&clients_conf(Side::Two, CLIENTS)).unwrap();
    let watch = Watch::start(&pair.t);
    for n in 1..=CLIENTS {
        pair.swanctl(Side::Two).initiate(&format!("net{n}"), UP_LIMIT).unwrap();
    }
    let vips: Vec<Vec<String>> = pair
        .sas(Side::One)
        .iter()
        .map(|sa| sa.get("remote-vips").unwrap_or_default().split(' ').map(str::to_owned).collect())
        .collect();
    assert!(vips.iter().all(|of_client| of_client.len() == 2), "{vips:?}");
    let distinct: BTreeSet<&String> = vips.iter().flatten().collect();
    assert_eq!(distinct.len(), 2 * CLIENTS);
    assert_eq!(leases(&pair, "road4").unwrap(), ("100".into(), "0".into()));
    let shown = pair.swanctl(Side::One).run(["--list-pools", "--leases"]).unwrap().stdout;
    assert!(shown.contains("'client100'") && shown.contains("fd00:3::64"), "{shown}");

    for of_client in [&vips[0], &vips[49], &vips[99]] {
        for (vip, family) in of_client.iter().zip([Family::V4, Family::V6]) {
            each_ping(&pair.t.gw2, 3, &["-I", vip, &Side::One.host(family).to_string()]).unwrap();
            let back = Ping::new(vip.parse().unwrap()).count(3).run(&pair.t.client).unwrap();
            assert_eq!(back.received, 3, "to {vip}");
        }
    }
    let first = vips[0].clone();
    pair.swanctl(Side::One).run(["--terminate", "--ike", "road", "--timeout", "60"]).unwrap();
    wait_until("all leases offline", SOON, || {
        let found = leases(&pair, "road4")?;
        Ok(if found == ("0".into(), "100".into()) { Ok(()) } else { Err(format!("{found:?}")) })
    })
    .unwrap();
    pair.swanctl(Side::Two).initiate("net1", UP_LIMIT).unwrap();
    assert_eq!(pair.sas(Side::One)[0].get("remote-vips"), Some(first.join(" ").as_str()));
    watch.saw_nothing();
}

/// charon gives us addresses: what the gateway itself sends carries them, and they go with the IKE
/// SA.
#[test]
fn we_get_an_address_from_strongswan() {
    let pair = Scenario::new("client", Kind::Strongswan).start_empty();
    pair.swanctl(Side::One).load(&clients_conf(Side::One, 1)).unwrap();
    pair.swanctl(Side::Two).load(&server_conf(Side::Two)).unwrap();
    let watch = Watch::start(&pair.t);
    let addresses = || pair.t.gw1.ip("address show").unwrap().stdout;
    for _ in 0..2 {
        pair.swanctl(Side::One).initiate("net1", UP_LIMIT).unwrap();
        let sas = pair.sas(Side::One);
        assert_eq!(sas[0].get("local-vips"), Some("10.3.0.1 fd00:3::1"), "{sas:?}");
        assert!(
            addresses().contains("10.3.0.1/32") && addresses().contains("fd00:3::1/128"),
            "{}",
            addresses()
        );
        for family in [Family::V4, Family::V6] {
            let pong = Ping::new(Side::Two.host(family)).count(5).run(&pair.t.gw1).unwrap();
            assert_eq!(pong.received, 5, "{family}");
        }
        let back = Ping::new("10.3.0.1".parse().unwrap()).count(5).run(&pair.t.server).unwrap();
        assert_eq!(back.received, 5);
        pair.swanctl(Side::One).terminate("client1").unwrap();
        wait_until("the addresses gone", SOON, || {
            let shown = addresses();
            Ok(if shown.contains("10.3.0.1") || shown.contains("fd00:3::1") { Err(shown) } else { Ok(()) })
        })
        .unwrap();
    }
    watch.saw_nothing();
}

/// charon as the client is told what we have no room for, and where it should have asked.
#[test]
fn a_client_learns_why_it_gets_no_address() {
    let mut pair = Scenario::new("refused", Kind::Strongswan).start_empty();
    let conf = server_conf(Side::One);
    pair.swanctl(Side::Two).load(&clients_conf(Side::Two, 2)).unwrap();
    let small =
        conf.replace("addrs = 10.3.0.0/24", "addrs = 10.3.0.1-10.3.0.1").replace("road4, road6", "road4");
    pair.swanctl(Side::One).load(&small).unwrap();
    pair.swanctl(Side::Two).initiate("net1", UP_LIMIT).unwrap();
    assert!(pair.swanctl(Side::Two).initiate("net2", UP_LIMIT).is_err());
    pair.two.process().wait_log("received INTERNAL_ADDRESS_FAILURE notify", SOON).unwrap();
    pair.await_log("no CHILD_SA: INTERNAL_ADDRESS_FAILURE");

    let without = clients_conf(Side::Two, 2).replace("vips = 0.0.0.0, ::", "");
    pair.swanctl(Side::Two).load(&without).unwrap();
    assert!(pair.swanctl(Side::Two).initiate("net2", UP_LIMIT).is_err());
    pair.two.process().wait_log("received FAILED_CP_REQUIRED notify", SOON).unwrap();
}
