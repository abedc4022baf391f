//! What corosync's libraries call back with. They call within dispatch, on the thread that
//! dispatches, while a mutex of the bindings is held, and no panic may cross them: here everything
//! is put into a queue of that thread, and nothing else happens.

use super::wire::{Incoming, Process, Ring, read};
use rust_corosync::{NodeId, cpg, quorum, votequorum};
use std::cell::RefCell;
use std::collections::VecDeque;

/// Something that corosync has told.
#[derive(Debug)]
pub(super) enum Callback {
    /// The processes of the group.
    Members(Vec<Process>),
    /// CPG's order has come to this ring.
    Ring(Ring),
    /// A message of the group.
    Message(Process, Incoming),
    /// Whether a ring of so many daemons is quorate.
    Quorum(Ring, bool, usize),
}

thread_local! {
    static QUEUE: RefCell<VecDeque<Callback>> = const { RefCell::new(VecDeque::new()) };
}

/// The oldest thing that has been told on this thread.
pub(super) fn next() -> Option<Callback> {
    QUEUE.with_borrow_mut(VecDeque::pop_front)
}

/// Forgets what has been told on this thread.
pub(super) fn clear() {
    QUEUE.with_borrow_mut(VecDeque::clear);
}

fn push(told: Callback) {
    // Neither can fail while dispatch runs; if one did, a panic would be worse than a message that
    // is missing.
    let _outside = QUEUE.try_with(|queue| queue.try_borrow_mut().map(|mut queue| queue.push_back(told)));
}

/// The callbacks for CPG.
pub(super) fn of_cpg() -> cpg::ModelData {
    cpg::ModelData::ModelV1(cpg::Model1Data {
        flags: cpg::Model1Flags::None,
        deliver_fn: Some(deliver),
        confchg_fn: Some(members_changed),
        totem_confchg_fn: Some(ring_changed),
    })
}

/// The callbacks for quorum.
pub(super) fn of_quorum() -> quorum::ModelData {
    quorum::ModelData::ModelV1(quorum::Model1Data {
        flags: quorum::Model1Flags::None,
        quorum_notification_fn: Some(quorum_changed),
        nodelist_notification_fn: None,
    })
}

/// None for votequorum: it is only asked.
pub(super) fn of_votes() -> votequorum::Callbacks {
    votequorum::Callbacks {
        quorum_notification_fn: None,
        nodelist_notification_fn: None,
        expectedvotes_notification_fn: None,
    }
}

fn deliver(_: &cpg::Handle, _: String, node: NodeId, pid: u32, bytes: &[u8], _: usize) {
    push(Callback::Message(Process { node: node.into(), pid }, read(bytes)));
}

fn members_changed(
    _: &cpg::Handle,
    _: &str,
    members: Vec<cpg::Address>,
    _left: Vec<cpg::Address>,
    _joined: Vec<cpg::Address>,
) {
    let members = members.iter().map(|member| Process { node: member.nodeid.into(), pid: member.pid });
    push(Callback::Members(members.collect()));
}

fn ring_changed(_: &cpg::Handle, ring: cpg::RingId, _nodes: Vec<NodeId>) {
    push(Callback::Ring(Ring { seq: ring.seq, node: ring.nodeid.into() }));
}

fn quorum_changed(_: &quorum::Handle, quorate: bool, ring: quorum::RingId, nodes: Vec<NodeId>) {
    push(Callback::Quorum(Ring { seq: ring.seq, node: ring.nodeid.into() }, quorate, nodes.len()));
}
