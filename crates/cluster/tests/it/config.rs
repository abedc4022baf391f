//! The configuration of the nodes and their peers.

use std::net::IpAddr;
use testudo_ike::config::{
    Child, Connection, EspEncryption, EspProposal, Identity, IkeEncryption, IkeProposal, KeyExchange,
    LocalAuth, Prf, RemoteAuth, SecretKind, SharedSecret, TsSpec,
};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

/// The address of the cluster.
pub(crate) const VIP: &str = "192.0.2.1";

/// The address of a peer.
pub(crate) fn peer_addr(peer: usize) -> IpAddr {
    IpAddr::from([203, 0, 113, peer as u8 + 1])
}

fn fqdn(name: &str) -> Identity {
    Identity::Fqdn(name.into())
}

fn net(third: u8) -> TrafficSelector {
    let addrs = AddrRange::new([10, 0, third, 0].into(), [10, 0, third, 255].into()).unwrap();
    TrafficSelector::all(addrs)
}

fn child(local: TrafficSelector, remote: TrafficSelector) -> Child {
    let esp = EspProposal {
        encryption: vec![EspEncryption::Aes128Gcm16],
        esn: vec![true],
        ..EspProposal::default()
    };
    Child {
        name: "net".into(),
        local_ts: vec![TsSpec::Fixed(local)],
        remote_ts: vec![TsSpec::Fixed(remote)],
        proposals: vec![esp],
        replay_window: 64,
        ..Child::default()
    }
}

fn connection(name: String, ends: [(IpAddr, String); 2], child: Child) -> Connection {
    let single = |addr: IpAddr| vec![AddrRange::new(addr, addr).unwrap()];
    let [(local, us), (remote, them)] = ends;
    Connection {
        name,
        local_addrs: single(local),
        remote_addrs: single(remote),
        proposals: vec![IkeProposal {
            encryption: vec![IkeEncryption::Aes128Gcm16],
            prf: vec![Prf::HmacSha256],
            ke: vec![KeyExchange::X25519],
            ..IkeProposal::default()
        }],
        keyingtries: 0,
        local: LocalAuth::psk(Some(fqdn(&us))),
        remote: RemoteAuth::psk(Some(fqdn(&them))),
        children: vec![child],
        ..Connection::default()
    }
}

/// The cluster's connection to a peer.
pub(crate) fn of_cluster(peer: usize) -> Connection {
    let ends = [(VIP.parse().unwrap(), "cluster".to_owned()), (peer_addr(peer), format!("peer{peer}"))];
    connection(format!("peer{peer}"), ends, child(net(0), net(peer as u8 + 1)))
}

/// The peer's connection to the cluster.
pub(crate) fn of_peer(peer: usize) -> Connection {
    let ends = [(peer_addr(peer), format!("peer{peer}")), (VIP.parse().unwrap(), "cluster".to_owned())];
    connection("cluster".into(), ends, child(net(peer as u8 + 1), net(0)))
}

pub(crate) fn secret() -> SharedSecret {
    SharedSecret {
        name: "psk".into(),
        kind: SecretKind::Ike,
        owners: vec![],
        secret: b"a key that all share".to_vec(),
    }
}
