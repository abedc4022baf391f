//! `testudo-cluster`, a command that strongSwan does not have: the cluster as this node sees it.
//!
//! ```text
//! {} => {
//!     clustered = <yes or no>     # no: the gateway is not in a cluster, and there is nothing else
//!     node = <number>
//!     phase = <down, no-quorum, exchange or running>
//!     view = {                    # if there is one
//!         ring-node = <number>  ring-seq = <n>  quorate = <yes or no>  members = [ <numbers> ]
//!     }
//!     witness = <yes or no>       # if there is one: it gives this node its vote
//!     synced = <yes or no>
//!     epoch = <n>  delivered = <n>  stable = <n>  waiting = <n>  held = <n>
//!     sender = <sender ID, if leased>
//!     fence = <milliseconds>
//!     default-host = <yes or no>
//!     packets = <shards>  ike = <shards>  provisional = <shards>
//!     ike-sas = <n>  child-sas = <n>  unread-states = <n>
//!     protocol = <version of the protocol between the nodes in this view>
//!     replicate-config = <yes or no>  config-current = <yes or no>  config-pieces = <n>
//!     roster = <how often the nodes were changed>  changing = <yes or no>
//!     configured = [ <numbers of the cluster's nodes> ]
//!     engines-behind = [ <numbers of members whose corosync has other nodes> ]
//!     why = [ <sentences: the diagnosis: each fault, its cause, and what the node waits for> ]
//!     counters = { <counter> = <n> ... }
//!     nodes = {
//!         <number> = {
//!             state = <owner, drained, no-port, fresh, suspect or absent>
//!             shares = <n>  provisional = <n>  followed = <n>
//!             heard = <milliseconds since the last heartbeat, if any>
//!             hears = <milliseconds since it heard the node that is asked, when it was heard
//!                      itself; if it had>
//!             threshold = <milliseconds of silence that make it a suspect>
//!             links-down = [ <numbers of its links that it reports as down> ]
//!             load = <thousandths>
//!             addresses = [ <its addresses, by link> ]
//!             acked = <n, if any>
//!             incarnation = <n>
//!         }
//!     }
//! }
//! ```

use crate::Error;
use crate::answer::{
    Named, add_optional, answer_error, as_map, boolean, named, number, optional, read_boolean, read_named,
    section, text,
};
use crate::message::Message;
use serde::Serialize;

/// The phase of the node that answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The membership engine is gone, or has not delivered a view yet.
    #[default]
    Down,
    /// In a view without quorum.
    NoQuorum,
    /// In a quorate view, while the members exchange their states.
    Exchange,
    /// In a view that has begun.
    Running,
}

/// The state of a node, as the node that answers sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It has the cluster's state, and owns shards.
    Owner,
    /// It should own nothing: an operator drained it, or it is shutting down.
    Drained,
    /// It has lost a port, and owns no shard that another node can own.
    NoPort,
    /// In the view, and not yet synchronized.
    Fresh,
    /// In the view, and silent.
    Suspect,
    /// Not in the view.
    #[default]
    Absent,
}

/// The content of the answer to `testudo-cluster`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterReport {
    /// The node that answers.
    pub node: u64,
    /// Its phase.
    pub phase: Phase,
    /// The membership engine's view.
    pub view: Option<ViewReport>,
    /// The witness (corosync's quorum device) gives this node its vote. None without a witness, or
    /// if that is unknown.
    pub witness: Option<bool>,
    /// The node has the cluster's state.
    pub synced: bool,
    /// Number of quorate views so far.
    pub epoch: u64,
    /// Messages delivered on this node since the view began.
    pub delivered: u64,
    /// Those of them that all members have.
    pub stable: u64,
    /// This node's messages that wait or are in transit.
    pub waiting: u64,
    /// IKE messages that wait until all members have the state they depend on.
    pub held: u64,
    /// The leased sender ID.
    pub sender: Option<u64>,
    /// Milliseconds for which packets may still be sent if no other node is heard.
    pub fence: u64,
    /// The node answers for the virtual addresses when no other node does.
    pub default_host: bool,
    /// Shards whose packets this node carries.
    pub packets: u64,
    /// Shards whose IKE this node speaks.
    pub ike: u64,
    /// Those of [`Self::packets`] that belong to a suspect.
    pub provisional: u64,
    /// IKE SAs of the whole cluster that this node knows.
    pub ike_sas: u64,
    /// Child SAs of the whole cluster that this node knows.
    pub child_sas: u64,
    /// IKE SAs taken over whose states are not decoded yet.
    pub unread_states: u64,
    /// The version of the protocol between the nodes in this view.
    pub protocol: u64,
    /// Configuration loaded on one node is loaded on all.
    pub replicate_config: bool,
    /// The node is in a view, and knows the configuration of the others.
    pub config_current: bool,
    /// Its connections, pools and credentials.
    pub config_pieces: u64,
    /// How often the nodes of the cluster were changed while it ran.
    pub roster: u64,
    /// Another change is under way.
    pub changing: bool,
    /// The nodes of the cluster.
    pub configured: Vec<u64>,
    /// Members whose corosync is configured with other nodes.
    pub engines_behind: Vec<u64>,
    /// The diagnosis: each fault, its cause, and what the node waits for.
    pub why: Vec<String>,
    /// Counters since the node started.
    #[serde(serialize_with = "as_map")]
    pub counters: Named,
    /// All nodes, this one included, by number.
    pub nodes: Vec<NodeReport>,
}

/// A membership view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ViewReport {
    /// The ring's representative.
    pub ring_node: u64,
    /// Increases with every ring.
    pub ring_seq: u64,
    /// The view has a majority of the votes.
    pub quorate: bool,
    /// Its members.
    pub members: Vec<u64>,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeReport {
    /// Its number.
    pub id: u64,
    /// Its state.
    pub state: NodeState,
    /// Shards that it owns.
    #[serde(rename = "shares")]
    pub shards: u64,
    /// Shards of suspects whose packets it carries provisionally.
    pub provisional: u64,
    /// Shards that are to be here because most of their packets reach it.
    pub followed: u64,
    /// Milliseconds since its last heartbeat, over any link.
    pub heard: Option<u64>,
    /// Milliseconds between its last heartbeat from the node that answers and its own last
    /// heartbeat.
    pub hears: Option<u64>,
    /// Milliseconds of silence that make it a suspect; none for the node that answers.
    pub threshold: Option<u64>,
    /// Its links that it reports as down.
    pub links_down: Vec<u64>,
    /// Its load, in thousandths of its capacity.
    pub load: u64,
    /// Messages of the view that it has acknowledged.
    pub acked: Option<u64>,
    /// The highest incarnation known to be leased to it.
    pub incarnation: u64,
    /// Its addresses, by link.
    pub addresses: Vec<String>,
}

impl ClusterReport {
    /// The answer to `testudo-cluster`.
    pub fn answer(report: Option<&Self>) -> Message {
        report.map_or_else(|| Message::new().with("clustered", "no"), Self::to_message)
    }

    fn to_message(&self) -> Message {
        let mut message = Message::new().with("clustered", "yes");
        message.add_text("node", self.node);
        message.add("phase", self.phase.name());
        if let Some(view) = &self.view {
            message.add_section("view", view.to_message());
        }
        if let Some(votes) = self.witness {
            message.add("witness", boolean(votes));
        }
        message.add("synced", boolean(self.synced));
        message.add_text("epoch", self.epoch);
        message.add_text("delivered", self.delivered);
        message.add_text("stable", self.stable);
        message.add_text("waiting", self.waiting);
        message.add_text("held", self.held);
        add_optional(&mut message, "sender", self.sender);
        message.add_text("fence", self.fence);
        message.add("default-host", boolean(self.default_host));
        message.add_text("packets", self.packets);
        message.add_text("ike", self.ike);
        message.add_text("provisional", self.provisional);
        message.add_text("ike-sas", self.ike_sas);
        message.add_text("child-sas", self.child_sas);
        message.add_text("unread-states", self.unread_states);
        message.add_text("protocol", self.protocol);
        message.add("replicate-config", boolean(self.replicate_config));
        message.add("config-current", boolean(self.config_current));
        message.add_text("config-pieces", self.config_pieces);
        message.add_text("roster", self.roster);
        message.add("changing", boolean(self.changing));
        let message = message
            .with_list("configured", self.configured.iter().map(u64::to_string))
            .with_list("engines-behind", self.engines_behind.iter().map(u64::to_string))
            .with_list("why", self.why.iter().cloned());
        let mut nodes = Message::new();
        for node in &self.nodes {
            nodes.add_section(&node.id.to_string(), node.to_message());
        }
        message.with_section("counters", named(&self.counters)).with_section("nodes", nodes)
    }

    /// Reads the answer to `testudo-cluster`; `None` if the gateway is not in a cluster.
    pub fn from_message(message: &Message) -> Result<Option<Self>, Error> {
        if !read_boolean(message, "clustered")? {
            return Ok(None);
        }
        let nodes = section(message, "nodes")?.sections();
        Ok(Some(Self {
            node: number(message, "node")?,
            phase: Phase::read(message)?,
            view: message.section("view").map(ViewReport::from_message).transpose()?,
            witness: message.text("witness").map(|_| read_boolean(message, "witness")).transpose()?,
            synced: read_boolean(message, "synced")?,
            epoch: number(message, "epoch")?,
            delivered: number(message, "delivered")?,
            stable: number(message, "stable")?,
            waiting: number(message, "waiting")?,
            held: number(message, "held")?,
            sender: optional(message, "sender")?,
            fence: number(message, "fence")?,
            default_host: read_boolean(message, "default-host")?,
            packets: number(message, "packets")?,
            ike: number(message, "ike")?,
            provisional: number(message, "provisional")?,
            ike_sas: number(message, "ike-sas")?,
            child_sas: number(message, "child-sas")?,
            unread_states: number(message, "unread-states")?,
            protocol: number(message, "protocol")?,
            replicate_config: read_boolean(message, "replicate-config")?,
            config_current: read_boolean(message, "config-current")?,
            config_pieces: number(message, "config-pieces")?,
            roster: number(message, "roster")?,
            changing: read_boolean(message, "changing")?,
            configured: numbers(message, "configured")?,
            engines_behind: numbers(message, "engines-behind")?,
            why: message.texts("why").map(str::to_owned).collect(),
            counters: read_named(message, "counters")?,
            nodes: nodes.map(|(id, node)| NodeReport::from_message(id, node)).collect::<Result<_, _>>()?,
        }))
    }
}

impl ViewReport {
    fn to_message(&self) -> Message {
        let mut message = Message::new();
        message.add_text("ring-node", self.ring_node);
        message.add_text("ring-seq", self.ring_seq);
        message.add("quorate", boolean(self.quorate));
        message.with_list("members", self.members.iter().map(u64::to_string))
    }

    fn from_message(message: &Message) -> Result<Self, Error> {
        Ok(Self {
            ring_node: number(message, "ring-node")?,
            ring_seq: number(message, "ring-seq")?,
            quorate: read_boolean(message, "quorate")?,
            members: numbers(message, "members")?,
        })
    }
}

impl NodeReport {
    fn to_message(&self) -> Message {
        let mut message = Message::new().with("state", self.state.name());
        message.add_text("shares", self.shards);
        message.add_text("provisional", self.provisional);
        message.add_text("followed", self.followed);
        add_optional(&mut message, "heard", self.heard);
        add_optional(&mut message, "hears", self.hears);
        add_optional(&mut message, "threshold", self.threshold);
        message.add_text("load", self.load);
        add_optional(&mut message, "acked", self.acked);
        message.add_text("incarnation", self.incarnation);
        message
            .with_list("links-down", self.links_down.iter().map(u64::to_string))
            .with_list("addresses", self.addresses.iter().cloned())
    }

    fn from_message(id: &str, message: &Message) -> Result<Self, Error> {
        Ok(Self {
            id: id.parse().map_err(|_| answer_error("nodes", id, "a number"))?,
            state: NodeState::read(message)?,
            shards: number(message, "shares")?,
            provisional: number(message, "provisional")?,
            followed: number(message, "followed")?,
            heard: optional(message, "heard")?,
            hears: optional(message, "hears")?,
            threshold: optional(message, "threshold")?,
            links_down: numbers(message, "links-down")?,
            load: number(message, "load")?,
            acked: optional(message, "acked")?,
            incarnation: number(message, "incarnation")?,
            addresses: message.texts("addresses").map(str::to_owned).collect(),
        })
    }
}

impl Phase {
    const ALL: [Self; 4] = [Self::Down, Self::NoQuorum, Self::Exchange, Self::Running];

    /// The name in the answer.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::NoQuorum => "no-quorum",
            Self::Exchange => "exchange",
            Self::Running => "running",
        }
    }

    fn read(message: &Message) -> Result<Self, Error> {
        let found = text(message, "phase")?;
        let known = Self::ALL.into_iter().find(|phase| phase.name() == found);
        known.ok_or_else(|| answer_error("phase", found, "down, no-quorum, exchange or running"))
    }
}

impl NodeState {
    const ALL: [Self; 6] =
        [Self::Owner, Self::Drained, Self::NoPort, Self::Fresh, Self::Suspect, Self::Absent];

    /// The name in the answer.
    pub fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Drained => "drained",
            Self::NoPort => "no-port",
            Self::Fresh => "fresh",
            Self::Suspect => "suspect",
            Self::Absent => "absent",
        }
    }

    fn read(message: &Message) -> Result<Self, Error> {
        let found = text(message, "state")?;
        let known = Self::ALL.into_iter().find(|state| state.name() == found);
        known.ok_or_else(|| answer_error("state", found, "owner, drained, no-port, fresh, suspect or absent"))
    }
}

fn numbers(message: &Message, key: &str) -> Result<Vec<u64>, Error> {
    let read = |text: &str| text.parse().map_err(|_| answer_error(key, text, "numbers"));
    message.texts(key).map(read).collect()
}
