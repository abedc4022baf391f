//! The kind of tunnel between the two gateways, chosen by the fuzzer.

use crate::input::{Input, bit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use testudo_base::spi::Spi;
use testudo_ipsec::sa::{ChildSaParams, Encapsulation, EspAlgorithm, HeaderCopy, KeyMaterial, Mode};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

pub(super) const PORT: u16 = 4500;
/// The SPI of packets to the near gateway.
const SPI_NEAR: Spi = Spi(0xa100_0401);
/// The SPI of packets to the far gateway.
const SPI_FAR: Spi = Spi(0xb200_0802);

/// A tunnel's shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    outer_v6: bool,
    udp: bool,
    pub(super) esn: bool,
    algorithm: EspAlgorithm,
    copy: HeaderCopy,
    pub(super) window: u32,
    pub(super) path_mtu: u16,
}

impl Shape {
    /// Reads two octets.
    pub(super) fn read(input: &mut Input<'_>) -> Self {
        let (flags, more) = (input.u8(), input.u8());
        let algorithm = match more >> 4 {
            0 if bit(flags, 3) => EspAlgorithm::Aes256Gcm16,
            0 => EspAlgorithm::Aes128Gcm16,
            // The first two are these; the others follow, or are the last fifteen.
            n => {
                let before = if bit(flags, 3) { EspAlgorithm::all().count() - 16 } else { 1 };
                EspAlgorithm::all().nth(before + usize::from(n)).expect("there are more than 17")
            }
        };
        Self {
            outer_v6: bit(flags, 0),
            udp: bit(flags, 1),
            esn: bit(flags, 2),
            algorithm,
            copy: HeaderCopy {
                dscp_out: bit(flags, 4),
                dscp_in: bit(flags, 5),
                ecn: bit(flags, 6),
                df: bit(flags, 7),
            },
            window: [64, 0, 128, 1024][usize::from(more & 3)],
            path_mtu: [1500, 1280, 700, 4000][usize::from(more >> 2 & 3)],
        }
    }

    fn addr(&self, host: u8) -> IpAddr {
        if self.outer_v6 {
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, u16::from(host)))
        } else {
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, host))
        }
    }

    fn end(&self, host: u8) -> SocketAddr {
        SocketAddr::new(self.addr(host), if self.udp { PORT } else { 0 })
    }

    /// The Child SA as the near gateway sees it, for this traffic.
    pub(super) fn near(&self, local_ts: &[TrafficSelector], remote_ts: &[TrafficSelector]) -> ChildSaParams {
        let key_len = self.algorithm.key_len();
        ChildSaParams {
            spi_in: SPI_NEAR,
            spi_out: SPI_FAR,
            algorithm: self.algorithm,
            key_in: KeyMaterial(vec![0xa1; key_len]),
            key_out: KeyMaterial(vec![0xb2; key_len]),
            esn: self.esn,
            replay_window: self.window,
            local_ts: local_ts.to_vec(),
            remote_ts: remote_ts.to_vec(),
            local: self.end(1),
            remote: self.end(2),
            encapsulation: if self.udp { Encapsulation::Udp } else { Encapsulation::Plain },
            mode: Mode::Tunnel,
            copy: self.copy,
        }
    }
}

/// All traffic of a range of addresses.
pub(super) fn all_of(start: &str, end: &str) -> TrafficSelector {
    let addr = |text: &str| text.parse().expect("an address");
    let addrs = AddrRange::new(addr(start), addr(end)).expect("a range");
    TrafficSelector::all(addrs)
}

/// A network of both families: 10.`number`.0.0/16 and 2001:db8:`number`::/48.
pub(super) fn net(number: u8) -> Vec<TrafficSelector> {
    let v4 = all_of(&format!("10.{number}.0.0"), &format!("10.{number}.255.255"));
    let last = "ffff:ffff:ffff:ffff:ffff";
    vec![v4, all_of(&format!("2001:db8:{number}::"), &format!("2001:db8:{number}:{last}"))]
}

/// The hosts behind the near gateway.
pub(super) fn near_hosts() -> Vec<TrafficSelector> {
    net(1)
}

/// The hosts behind the far gateway. Neighbouring networks have their own policies.
pub(super) fn far_hosts() -> Vec<TrafficSelector> {
    net(2)
}

/// Host `number` of network `net`: 1 is near, 2 is far.
pub(super) fn host(v6: bool, net: u8, number: u8) -> IpAddr {
    if v6 {
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, u16::from(net), 0, 0, 0, 0, u16::from(number)))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, net, 0, number))
    }
}
