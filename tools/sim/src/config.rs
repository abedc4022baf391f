//! Addresses, connections and timers of the simulated world.

use crate::plane::selector;
use crate::random::Random;
use std::net::Ipv4Addr;
use std::time::Duration;
use testudo_ike::config::{
    Child, ChildLifetime, Connection, EspEncryption, EspProposal, Identity, IkeEncryption, IkeLifetime,
    IkeProposal, KeyExchange, Lifetime, LocalAuth, Prf, RemoteAuth, SecretKind, SharedSecret, StartAction,
    TsSpec, Unique,
};
use testudo_ike::endpoint::{EndpointConfig, RetransmitPolicy};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

/// The gateway's address for the peers.
pub const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// A server in the network that the gateway protects.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
/// The server of one of 2^16 sessions, in [`inner_net`].
pub fn server(session: u64) -> Ipv4Addr {
    let [.., c, d] = session.to_be_bytes();
    Ipv4Addr::new(10, 0, c, d)
}

/// `children.<name>` of every connection.
pub const CHILD: &str = "net";
/// The most peers: each has its own network.
pub const MAX_PEERS: usize = 50;

/// A peer's outer address.
pub fn peer_addr(peer: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, peer as u8 + 1)
}

/// A client in a peer's network.
pub fn client(peer: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 100 + peer as u8, 0, 5)
}

/// The peer with this outer address.
pub fn peer_at(addr: Ipv4Addr) -> Option<usize> {
    let [a, b, c, d] = addr.octets();
    ([a, b, c] == [198, 51, 100]).then(|| usize::from(d).checked_sub(1)).flatten()
}

/// The peer whose network contains this address.
pub fn peer_of(addr: Ipv4Addr) -> Option<usize> {
    let [a, b, ..] = addr.octets();
    (a == 10).then(|| usize::from(b).checked_sub(100)).flatten().filter(|peer| *peer < MAX_PEERS)
}

/// The network behind the gateway.
pub fn inner_net() -> TrafficSelector {
    selector(Ipv4Addr::new(10, 0, 0, 0), Ipv4Addr::new(10, 0, 255, 255))
}

/// The network behind a peer.
pub fn peer_net(peer: usize) -> TrafficSelector {
    let net = 100 + peer as u8;
    selector(Ipv4Addr::new(10, net, 0, 0), Ipv4Addr::new(10, net, 0, 255))
}

/// `connections.<name>` for a peer.
pub fn name(peer: usize) -> String {
    format!("peer{peer}")
}

/// The peer of a connection.
pub fn peer_named(connection: &str) -> Option<usize> {
    connection.strip_prefix("peer")?.parse().ok()
}

fn identity(of: Option<usize>) -> Identity {
    Identity::Fqdn(of.map_or("gateway".into(), name))
}

/// The shared key with a peer.
pub fn secret(peer: usize) -> SharedSecret {
    let owners = vec![identity(None), identity(Some(peer))];
    SharedSecret { name: name(peer), kind: SecretKind::Ike, owners, secret: name(peer).into_bytes() }
}

/// Patient endpoints: no fault lasts long enough for a liveness check to fail.
pub fn endpoint() -> EndpointConfig {
    EndpointConfig {
        retransmit: RetransmitPolicy {
            timeout: Duration::from_millis(400),
            base_milli: 1300,
            tries: 60,
            limit: Duration::from_millis(1500),
        },
        delete_timeout: Duration::from_secs(60),
        half_open_timeout: Duration::from_secs(20),
        unauthenticated_error_wait: Duration::from_secs(60),
        childless_timeout: Duration::from_secs(60),
        rekey_retry: Duration::from_secs(2),
        start_retry: Duration::from_secs(2),
        ..EndpointConfig::default()
    }
}

/// Behaviour of the two ends of a tunnel: random, once for both.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// The gateway initiates, not the peer.
    pub gateway_starts: bool,
    /// Extended sequence numbers.
    pub esn: bool,
    /// ESP in UDP.
    pub encap: bool,
    /// Interval of liveness checks by the gateway, and by the peer, in milliseconds; 0: none.
    pub dpd: [u64; 2],
    /// Rekeying interval of the Child SA, for each side, in seconds; 0: never.
    pub child_rekey: [u64; 2],
    /// Rekeying interval of the IKE SA, for each side, in seconds; 0: never.
    pub ike_rekey: [u64; 2],
    /// What the gateway, and the peer, do with another IKE SA of the same two; the peer sends
    /// INITIAL_CONTACT unless this is `Never`.
    pub unique: [Unique; 2],
}

impl Manners {
    /// Random manners.
    pub fn random(random: &mut Random) -> Self {
        let mut often = |chance: u64, low: u64, high: u64| {
            if random.permille(chance) { random.between(low, high) } else { 0 }
        };
        Self {
            dpd: [often(500, 1000, 5000), often(300, 1000, 5000)],
            child_rekey: [often(400, 4, 12), often(300, 4, 12)],
            ike_rekey: [often(300, 5, 15), often(200, 5, 15)],
            gateway_starts: often(300, 1, 1) == 1,
            esn: often(700, 1, 1) == 1,
            encap: often(300, 1, 1) == 1,
            unique: [Unique::Never; 2],
        }
    }

    /// True if the peer sometimes loses its memory and starts again.
    pub fn is_forgetful(&self) -> bool {
        self.unique[0] != Unique::Never
    }

    /// True if its old SAs are deleted once the peer has started again.
    pub fn is_unique(&self) -> bool {
        self.is_forgetful() && self.unique[1] != Unique::Never
    }
}

/// The connection of the gateway, or of the peer.
pub fn connection(peer: usize, gateway: bool, manners: &Manners) -> Connection {
    let single = |addr: Ipv4Addr| vec![AddrRange::new(addr.into(), addr.into()).expect("in order")];
    let side = usize::from(!gateway);
    let mut addrs = [single(VIP), single(peer_addr(peer))];
    let mut nets = [inner_net(), peer_net(peer)];
    let mut ids = [identity(None), identity(Some(peer))];
    if !gateway {
        addrs.reverse();
        nets.reverse();
        ids.reverse();
    }
    let [local_addrs, remote_addrs] = addrs;
    let [local_net, remote_net] = nets;
    let [local_id, remote_id] = ids;
    Connection {
        name: name(peer),
        local_addrs,
        remote_addrs,
        proposals: vec![IkeProposal {
            encryption: vec![IkeEncryption::Aes128Gcm16],
            prf: vec![Prf::HmacSha256],
            ke: vec![KeyExchange::X25519],
            ..IkeProposal::default()
        }],
        encap: manners.encap,
        dpd_delay: Duration::from_millis(manners.dpd[side]),
        keyingtries: 0,
        unique: manners.unique[side],
        lifetime: IkeLifetime::new(manners.ike_rekey[side], Some(600), Some(manners.ike_rekey[side] / 4)),
        send_certreq: false,
        local: LocalAuth::psk(Some(local_id)),
        remote: RemoteAuth::psk(Some(remote_id)),
        children: vec![child(local_net, remote_net, gateway, manners)],
        ..Connection::default()
    }
}

fn child(local: TrafficSelector, remote: TrafficSelector, gateway: bool, manners: &Manners) -> Child {
    let rekey = manners.child_rekey[usize::from(!gateway)];
    let starts = gateway && manners.gateway_starts;
    Child {
        name: CHILD.into(),
        local_ts: vec![TsSpec::Fixed(local)],
        remote_ts: vec![TsSpec::Fixed(remote)],
        proposals: vec![EspProposal {
            encryption: vec![EspEncryption::Aes128Gcm16],
            esn: vec![manners.esn],
            ..EspProposal::default()
        }],
        start_action: if starts { StartAction::Start } else { StartAction::None },
        lifetime: ChildLifetime {
            time: Lifetime::new(rekey, Some(600), Some(rekey / 4)),
            ..ChildLifetime::default()
        },
        replay_window: 128,
        ..Child::default()
    }
}
