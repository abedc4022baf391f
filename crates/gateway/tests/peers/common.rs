//! What every scenario needs: two gateways with a connection loaded, and traffic between their hosts.

use std::time::Duration;
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::ping::Ping;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Options, Side};
use testudo_lab::{Lab, Topology};

pub(crate) const UP_LIMIT: Duration = Duration::from_secs(15);

/// The lab with both gateways running.
pub(crate) struct Pair {
    pub(crate) one: Gateway,
    pub(crate) two: Gateway,
    pub(crate) t: Topology,
}

impl Pair {
    /// Testudo on side one, `peer` on side two; `adjust` changes both connections before they are loaded.
    pub(crate) fn with(name: &str, peer: Kind, outer: Family, adjust: impl Fn(Side, &mut Connection)) -> Self {
        let towards = [Kind::Testudo.offloads_towards(), peer.offloads_towards()];
        let options = Options { towards, ..Options::default() };
        let t = Topology::build(&Lab::new(name).unwrap(), &options).unwrap();
        let one = Gateway::start(Kind::Testudo, t.gateway(Side::One)).unwrap();
        let two = Gateway::start(peer, t.gateway(Side::Two)).unwrap();
        for (side, gateway) in [(Side::One, &one), (Side::Two, &two)] {
            let mut connection = Connection::of(side, outer);
            adjust(side, &mut connection);
            gateway.swanctl().load(&connection.to_string()).unwrap();
        }
        Self { one, two, t }
    }

    /// A gateway by its side.
    pub(crate) fn gateway(&self, side: Side) -> &Gateway {
        match side {
            Side::One => &self.one,
            Side::Two => &self.two,
        }
    }

    /// Small and large pings from client to server and back, IPv4 and IPv6.
    pub(crate) fn ping_both_ways(&self) {
        for (from, to) in [(Side::One, Side::Two), (Side::Two, Side::One)] {
            for family in [Family::V4, Family::V6] {
                for size in [56, 1200] {
                    let pong = Ping::new(to.host(family)).size(size).run(self.t.host(from)).unwrap();
                    assert_eq!(pong.received, pong.sent, "{family:?}, {size} octets, from {from:?}");
                }
            }
        }
    }
}
