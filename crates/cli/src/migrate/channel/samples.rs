//! SAs between two hosts, for tests.

use super::{ChildSa, End, Flow, Packets};
use std::net::IpAddr;

pub(in crate::migrate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(in crate::migrate) fn flow() -> Flow {
    Flow { from: address("192.0.2.1"), to: "192.0.2.2:49152".parse().unwrap() }
}

/// Of a side, with its own number as the last octet of its address and as the SPI it receives by.
pub(in crate::migrate) fn sa(side: u8) -> ChildSa {
    let other = 3 - side;
    let end = |side| End { address: address(&format!("192.0.2.{side}")), identity: format!("host{side}") };
    ChildSa {
        name: "migration".to_owned(),
        local: end(side),
        remote: end(other),
        mode: "TRANSPORT".to_owned(),
        protocol: "ESP".to_owned(),
        encryption: "AES_GCM_16".to_owned(),
        key_bits: Some("128".to_owned()),
        integrity: None,
        spi_in: format!("c000000{side}"),
        spi_out: format!("c000000{other}"),
        packets: Packets { inbound: 0, outbound: 0 },
        local_ts: vec![format!("192.0.2.{side}/32[tcp]")],
        remote_ts: vec![format!("192.0.2.{other}/32[tcp/49152]")],
    }
}
