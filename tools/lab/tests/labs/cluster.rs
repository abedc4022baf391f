//! The topology of a cluster: its switches, cuts and addresses, without Testudo.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use testudo_lab::cluster::routed::{ANNOUNCED, Liveness};
use testudo_lab::cluster::{Cluster, Cut, Ingress, Net, Options};
use testudo_lab::corosync::{Corosync, Ring, Timers};
use testudo_lab::ping::Ping;
use testudo_lab::topology::{Family, Side};
use testudo_lab::{Lab, Namespace, wait_until};

const LIMIT: Duration = Duration::from_secs(60);
/// Time to wait for the last of several pings. A machine would have to stall for longer than a
/// single ping's limit to seem cut off.
const SILENCE: Duration = Duration::from_secs(1);
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// The kernel may take a second to use a restored link.
fn reaches(from: &Namespace, to: IpAddr) -> bool {
    wait_until("an answer", LIMIT, || Ok(answers(from, to).then_some(()).ok_or_else(String::new))).is_ok()
}

/// True if none of several pings is answered.
fn is_cut_off(from: &Namespace, to: IpAddr) -> bool {
    let pong = Ping { patience: SILENCE, ..Ping::new(to) }.run(from).unwrap();
    pong.sent > 1 && pong.received == 0
}

fn answers(from: &Namespace, to: IpAddr) -> bool {
    Ping::new(to).count(1).brief().run(from).is_ok_and(|pong| pong.received == 1)
}

#[test]
fn every_node_sees_every_frame_and_one_that_has_the_shared_addresses_is_a_router() {
    let lab = Lab::large("cluster", 2).unwrap();
    let t = Cluster::build(&lab, &Options { peers: 2, ..Options::default() }).unwrap();
    for family in FAMILIES {
        for net in [Net::Outer, Net::Inner] {
            let prefix = if family == Family::V4 { 24 } else { 64 };
            let shared = Cluster::shared(net, family).unwrap();
            t.node(1).address(net.interface(), &format!("{shared}/{prefix}")).unwrap();
        }
        for peer in 1..=2 {
            let host = &t.hosts[usize::from(peer) - 1];
            assert!(reaches(host, Side::One.host(family)), "{family} from host{peer}");
            assert!(reaches(&t.client, Cluster::behind(peer, family, 2)), "{family} to host{peer}");
        }
    }
    // The answers are for node 1 and a peer only; nodes 2 and 3 receive them too.
    let heard = |node: u8| t.node(node).statistic(Net::Outer.interface(), "rx_packets").unwrap();
    let before = [2, 3].map(heard);
    let pong = Ping::new(Side::One.host(Family::V4)).count(10).run(&t.hosts[0]).unwrap();
    assert_eq!(pong.received, 10);
    for (node, before) in [2, 3].into_iter().zip(before) {
        assert!(heard(node) >= before + 20, "node {node}");
    }
}

#[test]
fn routers_send_to_the_nodes_that_tell_them_of_the_shared_addresses() {
    let lab = Lab::large("routed", 2).unwrap();
    let options = Options { ingress: Ingress::Routed, ..Options::default() };
    let t = Cluster::build(&lab, &options).unwrap();
    let _routing = t.start_routing(Liveness::Bgp).unwrap();
    let shared = [Net::Outer, Net::Inner].map(|net| Cluster::shared(net, Family::V4).unwrap());
    // In place of testudod's TUN.
    for node in &t.nodes {
        node.ip("tuntap add tun0 mode tun").unwrap();
        node.up("tun0", 1500).unwrap();
        for shared in shared {
            node.address("lo", &format!("{shared}/32")).unwrap();
            node.ip(&format!("route add {shared} dev tun0 table {ANNOUNCED}")).unwrap();
        }
    }
    t.await_served_by(&[1, 2, 3]).unwrap();
    assert!(reaches(&t.hosts[0], Side::One.host(Family::V4)), "from the host");
    assert!(reaches(&t.client, Cluster::behind(1, Family::V4, 2)), "to the host");
    let [outer, inner] = shared;
    assert!(reaches(&t.peers[0], outer), "the outer address");
    assert!(reaches(&t.client, inner), "the inner address");
    t.node(2).ip("link delete tun0").unwrap();
    t.await_served_by(&[1, 3]).unwrap();
    assert!(reaches(&t.client, Cluster::behind(1, Family::V4, 2)), "without node 2");
}

#[test]
fn links_are_cut_and_healed_one_by_one_and_together() {
    let lab = Lab::large("cluster-cuts", 2).unwrap();
    let t = Cluster::build(&lab, &Options::default()).unwrap();
    let own = |node, net| Cluster::own(node, net, Family::V4);
    let carrier = |node: u8, net: Net| {
        let shown = t.node(node).ip(&format!("link show {}", net.interface())).unwrap().stdout;
        !shown.contains("NO-CARRIER")
    };
    for net in Net::ALL {
        assert!(reaches(t.node(1), own(3, net)) && reaches(t.node(2), own(3, net)), "{net:?}");
        for how in [Cut::Carrier, Cut::Silent] {
            t.cut(3, net, how).unwrap();
            assert!(is_cut_off(t.node(1), own(3, net)), "{net:?} {how:?}");
            assert!(reaches(t.node(1), own(2, net)), "{net:?} {how:?}");
            assert_eq!(carrier(3, net), how == Cut::Silent, "{net:?} {how:?}");
            let others = Net::ALL.into_iter().filter(|other| *other != net);
            assert!(others.into_iter().all(|other| reaches(t.node(1), own(3, other))), "{net:?} {how:?}");
            t.join(3, net).unwrap();
            assert!(reaches(t.node(1), own(3, net)), "{net:?} {how:?}");
        }
    }
    t.isolate(3, Cut::Carrier).unwrap();
    assert!(Net::ALL.iter().all(|net| is_cut_off(t.node(1), own(3, *net))));
    t.heal().unwrap();
    assert!(Net::ALL.iter().all(|net| reaches(t.node(1), own(3, *net))));
    t.divide(Net::Cluster, &[1, 2]).unwrap();
    assert!(reaches(t.node(1), own(2, Net::Cluster)));
    assert!(is_cut_off(t.node(1), own(3, Net::Cluster)) && reaches(t.node(1), own(3, Net::Outer)));
    t.heal().unwrap();
    assert!(reaches(t.node(1), own(3, Net::Cluster)));
}

fn shared_memory(pid: u32) -> usize {
    let entries = std::fs::read_dir("/dev/shm").unwrap().flatten();
    let marks = [format!("qb-{pid}-"), format!("qb-corosync-{pid}-")];
    entries.filter(|e| marks.iter().any(|mark| e.file_name().to_string_lossy().starts_with(mark))).count()
}

#[test]
fn five_corosyncs_are_one_cluster_and_leave_no_memory_behind() {
    let lab = Lab::large("cluster-corosync", 2).unwrap();
    let t = Cluster::build(&lab, &Options { nodes: 5, peers: 0, ..Options::default() }).unwrap();
    let addresses = (1..=5).map(|node| Cluster::own(node, Net::Cluster, Family::V4)).collect();
    let timers = Timers { token: Duration::from_millis(300), consensus: Duration::from_millis(360) };
    let ring = Ring::new(&lab, addresses, timers).unwrap();
    let mut daemons: Vec<_> = t.nodes.iter().map(|node| Corosync::start(node, &ring).unwrap()).collect();
    daemons[0].wait_for_members(5, LIMIT).unwrap();
    t.divide(Net::Cluster, &[4, 5]).unwrap();
    daemons[0].wait_for_members(3, LIMIT).unwrap();
    t.heal().unwrap();
    daemons[0].wait_for_members(5, LIMIT).unwrap();
    let pids: Vec<u32> = daemons.iter_mut().map(|daemon| daemon.process().pid()).collect();
    assert!(shared_memory(pids[0]) > 0);
    daemons[4].kill().unwrap();
    assert_eq!(shared_memory(pids[4]), 0);
    daemons[0].wait_for_members(4, LIMIT).unwrap();
    drop(daemons);
    wait_until("the end of the daemons", LIMIT, || {
        let gone = pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        Ok(if gone { Ok(()) } else { Err(String::new()) })
    })
    .unwrap();
    assert!(pids.iter().all(|pid| shared_memory(*pid) == 0));
}
