//! The states in which the fuzzer may begin, so that it need not find the way to them.

use super::node::{Node, State};
use super::peer::Peer;
use std::sync::OnceLock;
use testudo_ike::endpoint::Target;
use testudo_ike::output::Path;
use testudo_ike::suite::Role;

/// The phase of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Fresh,
    HalfOpen,
    ResponderUp,
    InitSent,
    AuthSent,
    InitiatorUp,
    Deleting,
}

impl Phase {
    pub(crate) const ALL: [Self; 7] = [
        Self::Fresh,
        Self::HalfOpen,
        Self::ResponderUp,
        Self::InitSent,
        Self::AuthSent,
        Self::InitiatorUp,
        Self::Deleting,
    ];

    /// The role of the peer, and the number of messages that it has sent.
    fn way(self) -> (Role, usize) {
        match self {
            Self::Fresh => (Role::Initiator, 0),
            Self::HalfOpen => (Role::Initiator, 1),
            Self::ResponderUp => (Role::Initiator, 2),
            Self::InitSent => (Role::Responder, 0),
            Self::AuthSent => (Role::Responder, 1),
            Self::InitiatorUp | Self::Deleting => (Role::Responder, 2),
        }
    }
}

/// The path between the endpoint and its peer.
fn path(nat: bool) -> Path {
    let addr = |text: &str| text.parse().expect("an address");
    if nat {
        Path { local: addr("192.0.2.1:4500"), remote: addr("192.0.2.2:4500") }
    } else {
        Path { local: addr("192.0.2.1:500"), remote: addr("192.0.2.2:500") }
    }
}

/// The endpoint in a phase, its peer, and the path between them. `number` counts the phases, first
/// without and then with a NAT.
pub(super) fn begin(number: u8) -> (Node, Peer, Path) {
    static STATES: OnceLock<Vec<(State, Peer, Path)>> = OnceLock::new();
    let states = STATES.get_or_init(|| {
        [false, true].iter().flat_map(|nat| Phase::ALL.map(|phase| reach(phase, *nat))).collect()
    });
    let (state, peer, path) = &states[usize::from(number) % states.len()];
    (Node::restore(u64::from(number) + 2, state), peer.clone(), *path)
}

fn reach(phase: Phase, nat: bool) -> (State, Peer, Path) {
    let (role, messages) = phase.way();
    let (mut node, mut peer) = (Node::new(1), Peer::new(role, nat));
    node.trusted = true;
    if role == Role::Responder {
        node.endpoint.initiate(node.now, Some("site"), "net").expect("an initiation");
        node.drain().iter().for_each(|message| peer.hear(message));
    }
    for number in 0..messages {
        let draft = peer.next().expect("the peer knows what to say");
        let message = peer.send(&draft).expect("it has the keys");
        let answers = node.deliver(path(nat && number > 0), &message);
        answers.iter().for_each(|answer| peer.hear(answer));
    }
    let up = matches!(phase, Phase::ResponderUp | Phase::InitiatorUp | Phase::Deleting);
    assert_eq!(node.children(), usize::from(up), "{phase:?} is reached");
    if phase == Phase::Deleting {
        node.endpoint.terminate(node.now, &Target::All, false).expect("something to delete");
        node.drain().iter().for_each(|message| peer.hear(message));
    }
    (node.save(), peer, path(nat))
}
