//! The slot of a node: its clock, its disk, and the node while it runs.

use crate::clock::Clock;
use crate::engine::Nanos;
use crate::host::{Host, Input};
use crate::random::HostEntropy;
use crate::scenario::Scenario;
use std::collections::VecDeque;
use std::rc::Rc;
use testudo_cluster::group::Durable;
use testudo_cluster::node::NodeId;
use testudo_ike::output::Time;

/// Makes a node that starts.
pub type Make = Rc<dyn Fn(&Scenario, &Birth) -> Box<dyn Host>>;

/// Data that a node starts with.
#[derive(Clone, Debug)]
pub struct Birth {
    /// Its index.
    pub index: usize,
    /// Its number.
    pub id: NodeId,
    /// How often it has started.
    pub boot: u64,
    /// The time of its clock.
    pub now: Time,
    /// The content of its disk.
    pub disk: Durable,
    /// Its random source.
    pub entropy: HostEntropy,
}

/// The kinds of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// The whole machine.
    Host,
    /// The daemon only.
    Process,
}

/// An event of a node, to be repeated after a rollback.
#[derive(Clone, Debug)]
pub(super) enum Lived {
    /// An input of the daemon.
    Input(Input),
    /// A packet that the filter saw.
    Filter(Vec<u8>),
    /// It was restored, and its randomness differs from then on.
    SetBack(u64),
}

/// The slot of a node.
pub(super) struct Slot {
    pub(super) id: NodeId,
    pub(super) clock: Clock,
    pub(super) disk: Durable,
    pub(super) boots: u64,
    pub(super) host: Option<Box<dyn Host>>,
    pub(super) birth: Option<Birth>,
    pub(super) birth_at: Nanos,
    pub(super) pause: Option<Pause>,
    /// Inputs that wait during a pause: packets for the worker, and all others.
    pub(super) packets: VecDeque<Input>,
    pub(super) inbox: VecDeque<Input>,
    /// Events since its start, if rollbacks are possible.
    pub(super) history: Vec<(Nanos, Time, Lived)>,
    /// It has lost its memory, and is not synchronized yet.
    pub(super) empty: bool,
    /// It is not one of the cluster's nodes, and does not run.
    pub(super) away: bool,
    /// The engine has refused a message, and will report when it is ready.
    pub(super) refused: bool,
}

/// Packets that fit the ring of a stopped worker.
pub(super) const MAX_RING_PACKETS: usize = 64;
/// Datagrams that fit the sockets.
pub(super) const MAX_SOCKET_DATAGRAMS: usize = 400;

impl Slot {
    pub(super) fn new(id: NodeId, clock: Clock) -> Self {
        Self {
            id,
            clock,
            disk: Durable::default(),
            boots: 0,
            host: None,
            birth: None,
            birth_at: 0,
            pause: None,
            packets: VecDeque::new(),
            inbox: VecDeque::new(),
            history: Vec::new(),
            empty: true,
            away: false,
            refused: false,
        }
    }

    /// Queues what its sockets and rings hold during a pause.
    pub(super) fn hold(&mut self, input: Input) {
        let (queue, limit) = match input {
            Input::Esp(_) | Input::Clear(_) | Input::Burst(..) => (&mut self.packets, MAX_RING_PACKETS),
            // The engine's library queues without a limit.
            Input::Engine(_) | Input::Refused(_) | Input::Ready | Input::Link(..) | Input::Written(_) => {
                (&mut self.inbox, usize::MAX)
            }
            Input::Timeout => return,
            _ => (&mut self.inbox, MAX_SOCKET_DATAGRAMS),
        };
        if queue.len() < limit {
            queue.push_back(input);
        }
    }

    /// True if it is running.
    pub(super) fn runs(&self) -> bool {
        self.host.is_some() && self.pause.is_none()
    }
}
