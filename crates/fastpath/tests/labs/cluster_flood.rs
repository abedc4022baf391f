//! Three nodes that all see all packets: exactly one answers, exactly one forwards, and no frame
//! says that a virtual address is at a node's own MAC address.

use crate::flood::{self, Flood, INNER_VIP, INNER_VIP6, NODES, Node, Sent, Side, vips};
use crate::hosts::{PATIENCE, eventually};
use crate::support::receive;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::Shard;
use testudo_cluster::node::NodeId;
use testudo_cluster::shard::ranks;
use testudo_fastpath::mac::MacAddr;

/// A locally administered group address: switches flood it.
const GROUP: MacAddr = MacAddr([0x03, 0, 0, 0, 0, 0x2a]);
/// A unicast address that no frame comes from, so that switches never learn a port for it.
const UNICAST: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x2a]);

fn inner_vips() -> [IpAddr; 2] {
    [INNER_VIP, INNER_VIP6].map(|vip| vip.parse().expect(vip))
}

fn owner(shard: Shard, nodes: &[u8]) -> u8 {
    let ids: Vec<_> = nodes.iter().filter_map(|node| NodeId::new((*node).into())).collect();
    ranks(shard, &ids).first().map_or(0, |id| id.get())
}

/// Gives all shards to some of the nodes; the first of them is the default host.
fn shard_out(flood: &Flood, among: &[u8]) {
    for node in flood.nodes.iter().filter(|node| among.contains(&node.number)) {
        let mine: ShardSet =
            (0..=255).map(Shard).filter(|shard| owner(*shard, among) == node.number).collect();
        node.keep(*mine.words(), among.first() == Some(&node.number));
    }
}

/// Addresses behind the peer, in both families.
fn beyond(third: u8, count: u8) -> Vec<IpAddr> {
    let v4 = (1..=count).map(|host| Ipv4Addr::new(198, 18, third, host).into());
    let v6 =
        (1..=count).map(|host| Ipv6Addr::new(0x2001, 0xdb8, 3, third.into(), 0, 0, 0, host.into()).into());
    v4.chain(v6).collect()
}

/// How many of the frames each node has sent for each address.
fn by_address(sent: &[Sent], address: impl Fn(&Sent) -> Option<IpAddr>) -> BTreeMap<IpAddr, Vec<u8>> {
    let mut found = BTreeMap::<_, Vec<u8>>::new();
    for frame in sent {
        if let Some(addr) = address(frame) {
            found.entry(addr).or_default().push(frame.node);
        }
    }
    found
}

/// Each address has one frame, and it comes from the node that the hash of the pair says.
#[track_caller]
fn expect_one_each(found: &BTreeMap<IpAddr, Vec<u8>>, wanted: &[IpAddr]) {
    let [k0, k1] = flood::KEY;
    let octets: Vec<u8> = [k0, k1].iter().flat_map(|word| word.to_le_bytes()).collect();
    let key = SipKey::new(octets.try_into().expect("16 octets"));
    let all: Vec<u8> = (1..=NODES).collect();
    for addr in wanted {
        let client: IpAddr =
            if addr.is_ipv4() { "172.16.0.7" } else { "2001:db8:a::7" }.parse().expect("client");
        let home = owner(key.pair(client, *addr), &all);
        assert_eq!(found.get(addr), Some(&vec![home]), "frames for {addr}, by node");
    }
}

#[track_caller]
fn expect_pings(flood: &Flood, default_host: u8) {
    for vip in inner_vips() {
        for options in ["", "-s 4000"] {
            // The host may have to be asked for before it can be answered.
            eventually("an answer", || flood.ping(options, &vip.to_string(), 2));
            let ping = || assert!(flood.ping(options, &vip.to_string(), 30), "{vip} answers");
            let answered = |sent: &[Sent]| sent.iter().any(|s| s.echo_reply(vip).is_some());
            let sent = flood.sent_during(ping, answered, PATIENCE).expect("an answer");
            let replies: Vec<_> = sent.iter().filter_map(|s| Some((s.echo_reply(vip)?, s.node))).collect();
            assert!(!replies.is_empty(), "{vip} {options}");
            // One that was asked before may be answered only now, when the host has been found;
            // each has one answer.
            let requests: BTreeSet<_> = replies.iter().map(|(request, _)| request).collect();
            assert_eq!(requests.len(), replies.len(), "{vip} {options}: {replies:?}");
            assert!(replies.iter().all(|(_, node)| *node == default_host), "{vip} {options}: {replies:?}");
        }
    }
}

/// Sends to each address; what nodes send of it is told by `address`, with the port to which it was
/// sent.
fn expect_one_for_each(
    flood: &Flood,
    wanted: &[IpAddr],
    ttl: u32,
    address: impl Fn(&Sent) -> Option<(IpAddr, u16)>,
) {
    // The port distinguishes a late datagram from one sent again.
    let mut port = 7006;
    let mut found = BTreeMap::new();
    // Until nodes and hosts know each other some are lost.
    eventually("a way for all", || {
        port += 1;
        let of_now = |sent: &[Sent]| {
            by_address(sent, |s| address(s).filter(|(_, to)| *to == port).map(|(addr, _)| addr))
        };
        let complete = |sent: &[Sent]| of_now(sent).len() == wanted.len();
        let send = || flood.send(wanted, port, ttl, b"data");
        let sent = flood.sent_during(send, complete, Duration::from_secs(2));
        found = sent.iter().flat_map(|sent| of_now(sent)).collect();
        sent.is_some()
    });
    expect_one_each(&found, wanted);
}

fn expect_one_copy_of_what_is_bypassed(flood: &Flood) {
    expect_one_for_each(flood, &beyond(0, 60), 64, |s| s.udp().filter(|_| s.side == Side::Outer));
}

fn expect_one_error_each(flood: &Flood) {
    expect_one_for_each(flood, &beyond(1, 30), 1, Sent::time_exceeded);
}

/// IKE reaches the one node that its SPI names, in fragments too.
fn expect_ike_at_home(flood: &Flood) {
    /// Of no message before.
    const LAST: usize = 100;
    let ike = |shard: u8, length: usize| {
        let mut message = [&[0x11; 8][..], &[shard, 1, 1, 1, 1, 1, 1, 1], &[0, 0x20, 37, 8]].concat();
        message.resize(length, shard);
        message
    };
    let all: Vec<u8> = (1..=NODES).collect();
    let sockets: Vec<_> = flood.nodes.iter().map(|node| node.listen(500)).collect();
    for shard in [0u8, 5, 60, 130, 200, 255] {
        for length in [28, 4000] {
            let message = ike(shard, length);
            let mut buffer = vec![0; 8192];
            flood.send(&[inner_vips()[0]], 500, 64, &message);
            let home = owner(Shard(shard), &all);
            let found = receive(&sockets[usize::from(home) - 1], &mut buffer);
            let (found, _) = found.unwrap_or_else(|e| panic!("shard {shard}, {length} octets: {e}"));
            assert!(buffer[..found] == message, "shard {shard}, {length} octets: node {home} has another");
        }
    }
    // Each node gets one more message of its own. Nothing that was another's came before it.
    for (number, socket) in (1..).zip(&sockets) {
        let own = (0..=255).find(|shard| owner(Shard(*shard), &all) == number).expect("a shard of each node");
        let last = ike(own, LAST);
        let mut buffer = vec![0; 8192];
        flood.send(&[inner_vips()[0]], 500, 64, &last);
        let (found, _) = receive(socket, &mut buffer).unwrap_or_else(|e| panic!("node {number}: {e}"));
        assert!(buffer[..found] == last, "node {number} hears what is another's");
    }
}

/// A node whose daemon is stopped answers nothing; the next default host does.
fn expect_takeover(flood: &Flood) {
    let first: &Node = &flood.nodes[0];
    first.order(|filter, speaker| {
        filter.set_fence(1).expect("fence");
        speaker.set_default_host(false);
    });
    let ping = || assert!(!flood.ping("", INNER_VIP, 1), "nobody is left to answer");
    let sent = flood.sent_during(ping, |_| true, PATIENCE).expect("there is nothing to wait for");
    assert!(!sent.iter().any(|s| s.is_echo_reply(inner_vips()[0])));
    shard_out(flood, &[2, 3]);
    let announced = |told: &[Sent], vip: &str, side: Side| {
        let vip: IpAddr = vip.parse().expect(vip);
        let arp = |s: &Sent| {
            s.arp()
                .is_some_and(|(kind, mac, sender)| kind == 1 && sender == vip && mac == flood.cluster_mac.0)
        };
        let nd = |s: &Sent| {
            s.nd().is_some_and(|(kind, _, target, mac)| {
                kind == 136 && target == vip && mac == Some(&flood.cluster_mac.0)
            })
        };
        told.iter().filter(|s| s.node == 2 && s.side == side && (arp(s) || nd(s))).count()
    };
    let each = || Side::BOTH.into_iter().flat_map(|side| side.vips().map(|vip| (vip, side)));
    let announce = || flood.nodes[1].order(|_, speaker| speaker.announce().expect("announce"));
    let all = |told: &[Sent]| each().all(|(vip, side)| announced(told, vip, side) > 0);
    let told = flood.sent_during(announce, all, PATIENCE).expect("all are announced");
    for (vip, side) in each() {
        assert_eq!(announced(&told, vip, side), 1, "{vip} on the {} link", side.name());
    }
    expect_pings(flood, 2);
}

/// Of all that nodes have sent so far.
fn expect_no_vip_at_a_nodes_own_address(flood: &Flood) {
    let is_vip = |addr: IpAddr| vips().any(|vip| vip == addr);
    let (mut arp, mut nd, mut others) = (0, 0, 0);
    for sent in flood.sent() {
        assert_ne!(sent.src_mac(), flood.cluster_mac.0, "a switch must not learn where the cluster is");
        if let Some((_, mac, sender)) = sent.arp() {
            arp += u32::from(is_vip(sender));
            others += u32::from(!is_vip(sender));
            assert_eq!(is_vip(sender), mac == flood.cluster_mac.0, "{sender} in {sent:02x?}");
        }
        if let Some((kind, source, target, mac)) = sent.nd() {
            let named = if kind == 136 { target } else { source };
            nd += u32::from(is_vip(named));
            assert!(!is_vip(named) || kind == 136, "nobody asks in a VIP's name: {sent:02x?}");
            assert_eq!(is_vip(named), mac == Some(&flood.cluster_mac.0), "{named} in {sent:02x?}");
        }
    }
    // There was something to be wrong.
    assert!(arp > 0 && nd > 0 && others > 0, "{arp} {nd} {others}");
}

fn try_out(test: &str, cluster_mac: MacAddr) {
    let flood = Flood::new(test, cluster_mac);
    shard_out(&flood, &[1, 2, 3]);
    expect_pings(&flood, 1);
    for vip in [INNER_VIP, INNER_VIP6] {
        let known = flood.neighbour(vip);
        assert!(known.contains(&cluster_mac.to_string()), "{vip}: {known}");
    }
    expect_one_copy_of_what_is_bypassed(&flood);
    expect_one_error_each(&flood);
    expect_ike_at_home(&flood);
    expect_takeover(&flood);
    expect_no_vip_at_a_nodes_own_address(&flood);
}

#[test]
fn one_node_answers_and_forwards_behind_a_group_address() {
    try_out("group", GROUP);
}

#[test]
fn one_node_answers_and_forwards_behind_a_unicast_address() {
    try_out("unicast", UNICAST);
}
