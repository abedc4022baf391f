//! The routes by which a routing daemon learns that a node serves addresses.

use crate::hosts::eventually;
use crate::support::namespace::Namespace;
use std::process::Command;
use testudo_fastpath::netlink::AnnouncedRoutes;
use testudo_fastpath::tun::TunError;

const TABLE: u32 = 5406;
const DEVICE: &str = "ttbp1-bgp";

/// The routes of the table, IPv4 and IPv6.
fn routes(namespace: &Namespace) -> Vec<String> {
    let of = |family: &str| {
        let table = TABLE.to_string();
        let ip = || Command::new("ip").args([family, "route", "show", "table", &table]).output();
        let output = namespace.run(ip).expect("ip");
        String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    [of("-4"), of("-6")].concat()
}

fn open(namespace: &Namespace) -> Result<AnnouncedRoutes, TunError> {
    let vips = ["192.0.2.10", "2001:db8::10"].map(|vip| vip.parse().expect(vip));
    namespace.run(|| AnnouncedRoutes::open(DEVICE, TABLE, vips.into_iter()))
}

#[test]
fn routes_stand_in_their_table_while_the_node_serves_and_go_with_the_process() {
    let namespace = Namespace::new();
    let mut announced = open(&namespace).expect("device");
    assert_eq!(routes(&namespace), [""; 0]);
    for _ in 0..2 {
        announced.set(true).expect("routes");
        let shown = routes(&namespace);
        assert_eq!(shown.len(), 2, "{shown:?}");
        assert!(shown[0].starts_with(&format!("192.0.2.10 dev {DEVICE} proto 84 scope link")), "{shown:?}");
        assert!(shown[1].starts_with(&format!("2001:db8::10 dev {DEVICE} proto 84")), "{shown:?}");
    }
    assert!(open(&namespace).is_err(), "another process has the device");
    for _ in 0..2 {
        announced.set(false).expect("routes");
        assert_eq!(routes(&namespace), [""; 0]);
    }
    announced.set(true).expect("routes");
    drop(announced);
    // What another test starts has copies of all descriptors between its fork and its exec.
    eventually("the device has taken them along", || routes(&namespace).is_empty());
    eventually("nothing is left in the way", || open(&namespace).is_ok());
}
