//! The engine against real daemons: one a namespace, killed, stopped, cut off and brought back.
//!
//! A program of its own: it holds labs, and needs a feature that `it` does without.
#![allow(missing_docs)]

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use testudo_cluster::corosync::{Corosync, Electorate, Libraries};
use testudo_cluster::engine::{Engine, EngineEvent, View};
use testudo_cluster::group::{Majorities, QuorumRule};
use testudo_cluster::node::NodeId;
use testudo_lab::cluster::{self, Cluster, Cut, Net};
use testudo_lab::corosync::{Corosync as Daemon, Ring, Timers};
use testudo_lab::topology::Family;
use testudo_lab::{Lab, Namespace, wait_until};

const GROUP: &str = "testudo-test";
const LIMIT: Duration = Duration::from_secs(60);

/// An engine with all that it has told.
struct Member {
    engine: Corosync,
    told: Vec<EngineEvent>,
}

impl Member {
    fn start(namespace: &Namespace, node: u8) -> Self {
        // The engine's thread inherits the namespace of the one that starts it.
        let engine = namespace.enter(|| start(node, GROUP, || ())).unwrap().unwrap();
        Self { engine, told: Vec::new() }
    }

    fn listen(&mut self) {
        self.told.extend(std::iter::from_fn(|| self.engine.next_event()));
    }

    fn views(&self) -> Vec<&View> {
        let views = self.told.iter().filter_map(|event| match event {
            EngineEvent::View(view) => Some(view),
            _ => None,
        });
        views.collect()
    }

    fn messages(&self) -> Vec<(u8, Vec<u8>)> {
        let messages = self.told.iter().filter_map(|event| match event {
            EngineEvent::Message { from, bytes } => Some((from.get(), bytes.clone())),
            _ => None,
        });
        messages.collect()
    }
}

/// An engine of a cluster of three.
fn start(node: u8, group: &str, begin: impl FnOnce() + Send + 'static) -> std::io::Result<Corosync> {
    Corosync::start(
        Libraries::load().unwrap(),
        number(node),
        Electorate { nodes: Majorities::of(&[1, 2, 3].map(number)), number: 0, rule: QuorumRule::Majority },
        group,
        begin,
    )
}

fn number(node: u8) -> NodeId {
    NodeId::new(node.into()).unwrap()
}

/// Three nodes with daemons, members of one view.
struct Rig {
    members: Vec<Member>,
    daemons: Vec<Daemon>,
    cluster: Cluster,
    /// A node whose host does not take its events.
    deaf: Option<u8>,
}

impl Rig {
    fn start(name: &str) -> Self {
        Self::start_with(name, 3, |ring| ring)
    }

    /// So many nodes.
    fn start_with(name: &str, nodes: u8, adjust: impl Fn(Ring) -> Ring) -> Self {
        let lab = Lab::large(name, 2).unwrap();
        let options = cluster::Options { nodes, peers: 0, ..Default::default() };
        let cluster = Cluster::build(&lab, &options).unwrap();
        let all: Vec<u8> = (1..=nodes).collect();
        let addresses = all.iter().map(|node| Cluster::own(*node, Net::Cluster, Family::V4)).collect();
        let ring = adjust(Ring::new(&lab, addresses, Timers::default()).unwrap());
        let daemons: Vec<Daemon> =
            cluster.nodes.iter().map(|node| Daemon::start(node, &ring).unwrap()).collect();
        daemons[0].wait_for_members(nodes.into(), LIMIT).unwrap();
        let members = all.iter().map(|node| Member::start(cluster.node(*node), *node)).collect();
        let mut rig = Self { members, daemons, cluster, deaf: None };
        rig.wait_for_view(&all, &all);
        rig
    }

    fn listen(&mut self) {
        for (node, member) in (1..).zip(&mut self.members) {
            if self.deaf != Some(node) {
                member.listen();
            }
        }
    }

    /// Sends, as often as it takes. All listen meanwhile: a host that does not is put out.
    fn send(&mut self, from: u8, message: Vec<u8>) {
        let mut rest = Some(message);
        wait_until("the engine to take a message", LIMIT, || {
            self.listen();
            let engine = &mut self.members[usize::from(from) - 1].engine;
            rest = rest.take().and_then(|message| engine.multicast(message).err());
            Ok(if rest.is_none() { Ok(()) } else { Err("it gives it back".to_owned()) })
        })
        .unwrap();
    }

    /// Waits until these nodes have the same quorate view of those members.
    fn wait_for_view(&mut self, at: &[u8], members: &[u8]) {
        wait_until(&format!("a view of {members:?}"), LIMIT, || {
            self.listen();
            let last: BTreeSet<_> = at.iter().map(|node| self.last_view(*node)).collect();
            let one = last.first().cloned().flatten().filter(|(_, of, quorate)| of == members && *quorate);
            Ok(if one.is_some() && last.len() == 1 { Ok(()) } else { Err(format!("{last:?}")) })
        })
        .unwrap();
    }

    fn last_view(&self, node: u8) -> Option<(String, Vec<u8>, bool)> {
        let member = &self.members[usize::from(node) - 1];
        let of_views =
            |event: &&EngineEvent| !matches!(event, EngineEvent::Message { .. } | EngineEvent::Notice(_));
        match member.told.iter().rev().find(of_views)? {
            EngineEvent::View(view) => {
                let members = view.members.iter().map(|node| node.get()).collect();
                Some((format!("{:?}", view.ring), members, view.quorate))
            }
            _ => None,
        }
    }

    fn wait_for(&mut self, what: &str, mut seen: impl FnMut(&Self) -> bool) {
        wait_until(what, LIMIT, || {
            self.listen();
            Ok(if seen(self) { Ok(()) } else { Err(format!("{:?}", self.members.last().unwrap().views())) })
        })
        .unwrap();
    }

    fn is_down(&self, node: u8) -> bool {
        let member = &self.members[usize::from(node) - 1];
        let last = member.told.iter().rev().find(|event| !matches!(event, EngineEvent::Message { .. }));
        matches!(last, Some(EngineEvent::Down { .. }))
    }

    fn has_no_quorum(&self, node: u8) -> bool {
        self.last_view(node).is_some_and(|(_, members, quorate)| !quorate && members == [node])
    }
}

/// Median of what it takes the others to have the view without node 3. Information, not a demand.
fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    #[allow(clippy::print_stderr)]
    {
        eprintln!("{what}: median {:.0?} of {}", times[times.len() / 2], times.len());
    }
}

#[test]
fn all_members_have_the_same_messages_in_the_same_order() {
    // A member that is put out does not get what it has missed.
    let mut rig = Rig::start_with("engine", 3, Ring::patient);
    let each = 2000_u32;
    // 24 MB: what corosync takes only in portions.
    for n in 0..each {
        for node in 1..=3 {
            let length = if n % 2 == 0 { 100 } else { 8000 };
            let mut message = vec![0xa5; length];
            message[..4].copy_from_slice(&n.to_be_bytes());
            rig.send(node, message);
        }
    }
    rig.wait_for("all messages", |rig| {
        rig.members.iter().all(|member| member.messages().len() == 3 * each as usize)
    });
    let first = rig.members[0].messages();
    for member in &rig.members[1..] {
        assert!(member.messages() == first);
    }
    for node in 1..=3 {
        let own = first.iter().filter(|(from, _)| *from == node).map(|(_, bytes)| &bytes[..4]);
        assert!(own.eq((0..each).map(u32::to_be_bytes).collect::<Vec<_>>().iter().map(|n| &n[..])));
    }
}

#[test]
fn a_host_that_does_not_listen_is_put_out_and_comes_back_when_it_does() {
    let mut rig = Rig::start("engine-deaf");
    // Megabytes come while node 3 hears nothing.
    rig.deaf = Some(3);
    wait_until("a view without the deaf", LIMIT, || {
        rig.send(1, vec![7; 16_000]);
        let last = [1, 2].map(|node| rig.last_view(node));
        let of_two = |last: &Option<(_, Vec<u8>, bool)>| {
            last.as_ref().is_some_and(|(_, of, quorate)| *of == [1, 2] && *quorate)
        };
        Ok(if last.iter().all(of_two) && last[0] == last[1] { Ok(()) } else { Err(format!("{last:?}")) })
    })
    .unwrap();
    assert!(!rig.members[2].told.contains(&EngineEvent::PutOut), "it has not listened yet");
    let (among_two, mut sent_in) = ((1, b"among two".to_vec()), None);
    // It waits behind the megabytes. Node 3 comes back as soon as it listens, and what is then
    // still to be sent belongs to no view. Nor does it if the two begin another view meanwhile.
    wait_until("the message in the view of two", LIMIT, || {
        rig.listen();
        let view = rig.last_view(1);
        if view != sent_in {
            rig.send(1, among_two.1.clone());
            sent_in = view;
        }
        let heard = rig.members[..2].iter().all(|member| member.messages().contains(&among_two));
        Ok(if heard { Ok(()) } else { Err(format!("{:?}", [0, 1].map(|node| rig.members[node].views()))) })
    })
    .unwrap();
    rig.deaf = None;
    rig.wait_for_view(&[1, 2, 3], &[1, 2, 3]);
    assert!(rig.members[2].told.contains(&EngineEvent::PutOut));
    assert!(!rig.members[2].messages().contains(&among_two));
}

#[test]
fn a_daemon_that_is_killed_is_detected_and_joined_again_when_it_is_back() {
    let mut rig = Rig::start("engine-killed");
    let mut times = Vec::new();
    for round in 0..3 {
        let began = Instant::now();
        rig.daemons[2].kill().unwrap();
        rig.wait_for_view(&[1, 2], &[1, 2]);
        times.push(began.elapsed());
        rig.wait_for("the end at node 3", |rig| rig.is_down(3));
        let Some(EngineEvent::Down { reason }) = rig.members[2].told.last() else { panic!("no end") };
        assert!(reason.contains("corosync"), "{reason}");
        rig.send(1, vec![round]);
        rig.daemons[2].restart().unwrap();
        rig.wait_for_view(&[1, 2, 3], &[1, 2, 3]);
        rig.send(3, vec![round]);
        rig.wait_for("a message of node 3", |rig| {
            rig.members[0].messages().last() == Some(&(3, vec![round]))
        });
    }
    report("view without a killed corosync", times);
    let rings: Vec<_> = rig.members[0].views().iter().map(|view| view.ring).collect();
    assert!(rings.is_sorted_by(|one, next| one < next), "{rings:?}");
    // Messages to the others while node 3 was away are not repeated to it.
    assert!(rig.members[2].messages().iter().all(|(from, _)| *from == 3));
}

#[test]
fn a_node_that_is_cut_off_has_no_quorum_and_returns() {
    let mut rig = Rig::start("engine-cut");
    let mut times = Vec::new();
    for how in [Cut::Carrier, Cut::Silent] {
        let began = Instant::now();
        rig.cluster.cut(3, Net::Cluster, how).unwrap();
        rig.wait_for_view(&[1, 2], &[1, 2]);
        times.push(began.elapsed());
        rig.wait_for("the minority's view", |rig| rig.has_no_quorum(3));
        // An isolated node continues to deliver to itself; none of that counts.
        let before = rig.members[2].messages().len();
        let _taken = rig.members[2].engine.multicast(b"alone".to_vec());
        rig.cluster.heal().unwrap();
        rig.wait_for_view(&[1, 2, 3], &[1, 2, 3]);
        let together = format!("together behind {how:?}").into_bytes();
        rig.send(1, together.clone());
        rig.wait_for("what is said to all", |rig| {
            rig.members[2].messages().last() == Some(&(1, together.clone()))
        });
        assert_eq!(rig.members[2].messages().len(), before + 1);
    }
    rig.cluster.divide(Net::Cluster, &[1, 2]).unwrap();
    rig.wait_for_view(&[1, 2], &[1, 2]);
    rig.wait_for("the minority's view", |rig| rig.has_no_quorum(3));
    rig.cluster.divide(Net::Cluster, &[3]).unwrap();
    rig.wait_for_view(&[1, 2, 3], &[1, 2, 3]);
    report("view without a node that is cut off", times);
}

/// `two_node`: corosync calls both halves quorate, and neither can know that it is the only one.
#[test]
fn neither_of_two_nodes_is_quorate_alone() {
    let mut rig = Rig::start_with("engine-two", 2, |ring| ring.quorum("two_node: 1"));
    // A node whose daemon sees the other's may begin a view alone.
    let before: Vec<usize> = rig.members.iter().map(|member| member.views().len()).collect();
    rig.cluster.cut(2, Net::Cluster, Cut::Silent).unwrap();
    rig.wait_for("two minorities", |rig| [1, 2].iter().all(|node| rig.has_no_quorum(*node)));
    for daemon in &rig.daemons {
        daemon.wait_for_members(1, LIMIT).unwrap();
    }
    for (member, before) in rig.members.iter().zip(before) {
        let views = &member.views()[before..];
        assert!(views.iter().all(|view| !view.quorate), "{views:?}");
        let notices: Vec<_> = member
            .told
            .iter()
            .filter(|event| matches!(event, EngineEvent::Notice(line) if line.contains("quorum.two_node: 1")))
            .collect();
        assert_eq!(notices.len(), 1, "{:?}", member.told);
    }
    rig.cluster.heal().unwrap();
    rig.wait_for_view(&[1, 2], &[1, 2]);
}

#[test]
fn a_stopped_daemon_counts_as_gone_and_ends_no_host() {
    let mut rig = Rig::start("engine-stopped");
    rig.daemons[2].pause().unwrap();
    rig.wait_for_view(&[1, 2], &[1, 2]);
    // Ending an engine must not wait for a daemon that does not answer, and this one is stopped.
    let (member, (tell, told)) = (rig.members.pop(), mpsc::channel());
    let ending = std::thread::spawn(move || {
        drop(member);
        tell.send(()).unwrap();
    });
    told.recv_timeout(LIMIT).expect("the end of the engine");
    ending.join().unwrap();
    rig.daemons[2].resume().unwrap();
    rig.members.push(Member::start(rig.cluster.node(3), 3));
    rig.wait_for_view(&[1, 2, 3], &[1, 2, 3]);
}

#[test]
fn an_engine_that_starts_again_makes_another_view_of_the_same_ring() {
    let mut rig = Rig::start("engine-again");
    for _ in 0..5 {
        drop(rig.members.pop());
        rig.wait_for_view(&[1, 2], &[1, 2]);
        rig.members.push(Member::start(rig.cluster.node(3), 3));
        rig.wait_for_view(&[1, 2, 3], &[1, 2, 3]);
    }
    rig.members[1].engine.rejoin();
    rig.wait_for("the leave", |rig| rig.is_down(2));
    rig.wait_for_view(&[1, 2, 3], &[1, 2, 3]);
    let rings: BTreeSet<_> = rig.members[0].views().iter().map(|view| view.ring).collect();
    assert!(rings.len() >= 13, "{rings:?}");
}

/// Runs as a process of its own in a namespace, started by the tests below: says what its engine
/// tells first.
#[test]
#[ignore = "other tests start it in a process of its own"]
#[allow(clippy::print_stdout)]
fn helper_that_tells_what_an_engine_tells_first() {
    let Ok(node) = std::env::var("TESTUDO_TEST_NODE") else { return };
    let mut engine = start(node.parse().unwrap(), GROUP, || ()).unwrap();
    let event = wait_until("an event", LIMIT, || Ok(engine.next_event().ok_or_else(String::new))).unwrap();
    println!("told: {event:?}");
}

fn of_another_process(namespace: &Namespace, node: u8, user: Option<&str>) -> String {
    let exe = std::env::current_exe().unwrap();
    let mut words = vec!["setpriv".to_owned()];
    words
        .extend(user.iter().flat_map(|user| {
            [format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into()]
        }));
    words.push(exe.display().to_string());
    let helper = ["--ignored", "--exact", "--nocapture", "helper_that_tells_what_an_engine_tells_first"]
        .map(str::to_owned);
    let cmd =
        namespace.cmd(&words[0]).args(&words[1..]).args(helper).env("TESTUDO_TEST_NODE", node.to_string());
    cmd.run().unwrap().stdout
}

#[test]
fn errors_are_reported_with_a_remedy() {
    let mut rig = Rig::start("engine-wrong");
    let node3 = rig.cluster.node(3).clone();
    // A second process of a node yields, and disturbs the first only briefly.
    let told = of_another_process(&node3, 3, None);
    assert!(told.contains("of this node is in corosync's group already"), "{told}");
    rig.wait_for_view(&[1, 2, 3], &[1, 2, 3]);
    let told = of_another_process(&node3, 7, None);
    assert!(
        told.contains("corosync on this host has nodeid 3, testudo.toml says that this is node 7"),
        "{told}"
    );
    let told = of_another_process(&node3, 3, Some("65534"));
    assert!(told.contains("testudod's user is not allowed to"), "{told}");
    rig.daemons[2].kill().unwrap();
    let told = of_another_process(&node3, 3, None);
    assert!(told.contains("is it running?"), "{told}");
    let error = start(1, "", || ()).err().unwrap().to_string();
    assert!(error.contains("1 to 127 octets"), "{error}");
}

#[test]
fn the_thread_begins_with_the_hosts_call_and_its_end_leaves_nothing_open() {
    let rig = Rig::start("engine-end");
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (before, (send, begun)) = (open(), mpsc::channel());
    for _ in 0..3 {
        let send = send.clone();
        let begin = move || send.send(()).unwrap();
        let mut engine = rig.cluster.node(3).enter(|| start(3, "another group", begin)).unwrap().unwrap();
        begun.recv_timeout(LIMIT).unwrap();
        let event =
            wait_until("an event", LIMIT, || Ok(engine.next_event().ok_or_else(String::new))).unwrap();
        assert!(matches!(event, EngineEvent::View(_)), "{event:?}");
    }
    // The last thread closes its descriptors after it has said that it ends.
    wait_until("its descriptors to be closed", LIMIT, || {
        let now = open();
        Ok(if now == before { Ok(()) } else { Err(format!("{before} before, {now} now")) })
    })
    .unwrap();
}
