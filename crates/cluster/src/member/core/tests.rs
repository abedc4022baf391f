use super::commits::Message;
use super::*;
use crate::group::Ticket;
use crate::member::Member;
use crate::member::samples::{START, id, member, view_start};
use testudo_ike::output::{CommitId, Path};

/// A member that speaks IKE: in a view, with a sender ID, before its fence.
fn speaker() -> Member {
    let mut member = member();
    let core = &mut member.core;
    (core.view.running, core.view.quorate) = (true, true);
    core.sender = Some(SenderId(1));
    core.fence = START.plus(Duration::from_secs(10));
    member
}

#[test]
fn a_node_speaks_in_a_view_with_a_sender_id_before_its_fence() {
    let core = &mut speaker().core;
    assert!(core.may_speak(START));
    assert!(!core.may_speak(core.fence));
    core.view.running = false;
    assert!(!core.may_speak(START), "no view");
    core.view.running = true;
    core.sender = None;
    assert!(!core.may_speak(START), "no sender ID");
}

/// The results of that time are not stable, and the next view may be without this node.
#[test]
fn while_a_view_is_formed_a_node_of_a_quorate_one_speaks_for_a_moment() {
    let core = &mut speaker().core;
    core.view.no_view = Some(START);
    core.view.running = false;
    assert!(core.may_speak(START));
    let late = START.plus(FORMING_TIMEOUT);
    assert!(late < core.fence && !core.may_speak(late));
    core.view.quorate = false;
    assert!(!core.may_speak(START));
}

/// A node that knows the owner table believes no other node that a shard is its own.
#[test]
fn only_its_owner_speaks_of_a_shard() {
    let core = &mut member().core;
    let shard = core.table.owned_by(id(2)).iter().next().unwrap();
    assert_eq!([1, 2, 3].map(|node| core.may_say(id(node), shard)), [false, true, false]);
    core.unheard_of = Some(Unheard::default());
    assert_eq!([1, 2, 3].map(|node| core.may_say(id(node), shard)), [true, true, false]);
}

/// The lines that a member has logged since.
fn logged(core: &mut Core) -> Vec<(LogLevel, String)> {
    let line = |output| match output {
        MemberOutput::Ike(Output::Event(Event::Log { level, message, .. })) => Some((level, message)),
        _ => None,
    };
    core.outputs.drain(..).filter_map(line).collect()
}

#[test]
fn the_log_names_who_is_in_a_view_who_has_left_it_and_who_has_yet_to_catch_up() {
    let core = &mut member().core;
    let mut begin = |members: &[u32], fresh: &[u32], quorate| {
        let mut start = ViewStart { fresh: fresh.iter().copied().map(id).collect(), ..view_start(members) };
        start.view.quorate = quorate;
        core.log_view(&start, &[id(1), id(2)]);
        logged(core)
    };
    let info = |line: &str| (LogLevel::Info, line.to_owned());
    let warning = |line: &str| (LogLevel::Warning, line.to_owned());
    assert_eq!(begin(&[1, 2], &[], true), [info("view 7 begins: nodes 1, 2")]);
    assert_eq!(
        begin(&[1, 3], &[3], true),
        [warning("node 2 has left the view"), info("view 7 begins: nodes 1, 3; to be brought up to date: 3")]
    );
    assert_eq!(
        begin(&[1], &[], false),
        [warning("node 2 has left the view"), warning("no quorum: the view has only nodes 1")]
    );
}

const INIT: u8 = 34;
const INFORMATIONAL: u8 = 37;

/// A message of an IKE SA: a header without payloads, which tells the exchange.
fn message(ike: u64, exchange: u8) -> Message {
    let mut bytes = [0; 28];
    (bytes[17], bytes[18], bytes[27]) = (0x20, exchange, 28);
    let address = "192.0.2.1:500".parse().unwrap();
    Message {
        ike: Some(IkeSaId(ike)),
        after: CommitId(0),
        path: Path { local: address, remote: address },
        bytes: bytes.into(),
    }
}

/// The IKE SAs whose messages have left since.
fn sent(core: &mut Core) -> Vec<u64> {
    let ike = |output| match output {
        MemberOutput::Ike(Output::Send { ike, .. }) => ike.map(|ike| ike.0),
        _ => None,
    };
    core.outputs.drain(..).filter_map(ike).collect()
}

#[test]
fn a_message_waits_until_all_nodes_hold_the_state_of_its_ike_sa() {
    let core = &mut speaker().core;
    core.commits.changed(&[IkeSaId(1), IkeSaId(2), IkeSaId(3)], Ticket(5));
    core.commits.forget(IkeSaId(3));
    for ike in 1..=4 {
        core.hold(START, message(ike, INFORMATIONAL));
    }
    // Strangers cause any number of these, and they change nothing that must survive.
    core.hold(START, message(1, INIT));
    assert_eq!(sent(core), [3, 4, 1]);
    core.commits.withhold(&[IkeSaId(2)]);
    assert_eq!(core.commits.held(), 1);
    core.release(START, Ticket(4));
    assert_eq!(sent(core), [0; 0]);
    core.commits.set_stable(Ticket(5));
    core.release(START, Ticket(5));
    core.hold(START, message(2, INFORMATIONAL));
    assert_eq!(sent(core), [1, 2]);
}

/// Another node may speak for the shard by then.
#[test]
fn nothing_leaves_behind_a_fence() {
    let core = &mut speaker().core;
    core.commits.changed(&[IkeSaId(1)], Ticket(5));
    core.hold(START, message(1, INFORMATIONAL));
    core.release(core.fence, Ticket(5));
    core.hold(core.fence, message(2, INFORMATIONAL));
    assert_eq!((sent(core), core.commits.held()), (Vec::new(), 0));
}

/// A node of an older version would refuse the whole update.
#[test]
fn what_came_with_a_version_is_used_once_all_members_have_that_version() {
    let core = &mut member().core;
    let used = |core: &mut Core, version| {
        core.view.version = version;
        [core.has_control_plane(), core.can_spread(), core.tells_lane_floors(), core.can_follow()]
    };
    assert_eq!(used(core, CONTROL_PLANE - 1), [false; 4]);
    assert_eq!(used(core, CONTROL_PLANE), [true, false, false, false]);
    assert_eq!(used(core, SPREADING), [true, true, false, false]);
    assert_eq!(used(core, LANE_FLOORS - 1), [true, true, false, false]);
    assert_eq!(used(core, LANE_FLOORS), [true, true, true, false], "no routers choose the node");
    core.config.group.ingress = crate::group::Ingress::Routed;
    assert_eq!(used(core, LANE_FLOORS - 1), [true, false, false, false]);
    assert_eq!((LANE_FLOORS, used(core, FOLLOWING)), (FOLLOWING, [true; 4]));
}
