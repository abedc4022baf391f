//! IKE messages in fragments (RFC 7383), with Debian's strongSwan.

use crate::common::Scenario;
use testudo_lab::capture::Capture;
use testudo_lab::gateway::Kind;
use testudo_lab::topology::{Family, Side};

/// IKE_AUTH of both sides is too large for a datagram, because there is much to select.
#[test]
fn strongswan_and_we_send_fragments() {
    let networks = (0..80).map(|n| format!("172.16.{n}.0/24"));
    let mut pair = Scenario::new("fragments", Kind::Strongswan).start_with(|side, connection| match side {
        Side::One => connection.local_ts.extend(networks.clone()),
        Side::Two => connection.remote_ts.extend(networks.clone()),
    });
    for initiator in [Side::One, Side::Two] {
        let wire = Capture::everything(&pair.t.wire, 60).unwrap();
        pair.up(initiator);
        pair.ping_from(initiator, Family::V4, 56);
        pair.swanctl(initiator).terminate("lab").unwrap();
        let shown = wire.stop().unwrap().show(60).unwrap();
        assert!(!shown.contains("frag"), "no IP datagram is fragmented: {shown}");
    }
    let log = pair.two.process().log().unwrap();
    for (line, times) in [("received fragment #", 2), ("splitting IKE message (", 2)] {
        assert!(log.matches(line).count() >= times, "{line:?}: {log}");
    }
}
