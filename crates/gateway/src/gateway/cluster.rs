//! The gateway as a node of a cluster: the messages of the other nodes, and what the member asks
//! for beside IKE.

use super::Gateway;
use crate::cluster::rollback::Sign;
use crate::error::{Error, Result};
use std::time::{Duration, Instant};
use testudo_cluster::group::{Durable, NodeChange};
use testudo_cluster::member::{Member, MemberOutput};
use testudo_cluster::node::NodeId;
use testudo_fastpath::worker::boottime;
use testudo_ike::output::{LogLevel, Time};
use testudo_ipsec::pmtu::TooBig;
use testudo_vici::control::ChangeNodes;

/// How long events of the engine are handled before others get their turn.
const ENGINE_TIME_PER_TURN: Duration = Duration::from_millis(5);

impl Gateway {
    /// Calls the member, if there is one.
    pub(crate) fn in_cluster(&mut self, tell: impl FnOnce(&mut Member, Time)) {
        let now = self.now;
        if let Some(member) = self.endpoint.member() {
            tell(member, now);
        }
    }

    /// The machine has been set back to an earlier state, or may have been.
    pub(super) fn set_back(&mut self, sign: &Sign) {
        match *sign {
            Sign::Generation(before, now) => {
                let line = format!("its generation was {before:016x} and is {now:016x}");
                self.log(
                    None,
                    None,
                    LogLevel::Warning,
                    format!("this machine was set back to an earlier state: {line}"),
                );
                // Numbers that this node holds it may have used since that state.
                self.in_cluster(|member, now| member.rolled_back(now));
                self.perform_all();
                // The fence is shut by now. It opens with what is granted in this generation.
                self.data.renewed(now);
            }
            Sign::Clock(jump) => {
                let line = format!("the time of day has jumped ahead by {} seconds", jump.as_secs());
                let what = "this machine may have been set back to an earlier state, so this node asks for another sender ID";
                self.log(None, None, LogLevel::Warning, format!("{what}: {line}"));
                self.in_cluster(|member, now| member.doubts_itself(now));
                self.perform_all();
            }
        }
    }

    /// Shows the member how far the row clocks have come, and the sessions that take turns: other
    /// nodes hear of both with its next heartbeat.
    pub(crate) fn show_clocks(&mut self) {
        let (now, data) = (self.now, &self.data);
        if let Some(member) = self.endpoint.member() {
            member.show_clocks(now, |home| data.row_of(home));
            member.show_sessions(now, data.sessions());
        }
    }

    /// Handles events of the engine, for a limited time: the other nodes' heartbeats must not wait
    /// for long. True if there may be more.
    pub(crate) fn engine_events(&mut self) -> bool {
        let begun = Instant::now();
        let mut more = false;
        while !more && let Some(event) = self.node.as_mut().and_then(|node| node.next_event()) {
            self.look_at_clock();
            self.in_cluster(|member, now| member.handle_engine(now, event));
            self.perform_all();
            more = begun.elapsed() >= ENGINE_TIME_PER_TURN;
        }
        // The wake-up may mean that the engine has room for messages that it gave back.
        self.in_cluster(|member, _| member.multicast_ready());
        self.perform_all();
        more
    }

    /// Handles the other nodes' datagrams. True if there may be more.
    pub(crate) fn datagrams(&mut self) -> bool {
        self.look_at_clock();
        let (now, Some(node), Some(member)) = (self.now, &mut self.node, self.endpoint.member()) else {
            return false;
        };
        let more = node.datagrams(|link, bytes| member.handle_heartbeat(now, link, bytes));
        self.perform_all();
        more
    }

    /// Notes what has been written to disk meanwhile.
    pub(crate) fn look_at_disk(&mut self) {
        let Some(written) = self.node.as_mut().and_then(|node| node.written().transpose()) else { return };
        self.look_at_clock();
        self.persisted(written.map(|durable| vec![durable]));
        self.perform_all();
    }

    /// Without its number on disk, a sender ID could be given out twice, and a view be forgotten:
    /// then the node has to stop.
    fn persisted(&mut self, written: Result<Vec<Durable>>) {
        match written {
            Ok(written) => {
                for durable in written {
                    self.in_cluster(|member, now| member.persisted(now, &durable));
                }
            }
            Err(error) => self.ending.fail(error),
        }
    }

    /// The nodes of the cluster have changed.
    fn nodes_changed(&mut self) {
        let (Some(member), Some(node)) = (self.endpoint.member(), &mut self.node) else { return };
        let rosters = member.rosters();
        node.follow_nodes(rosters, member.counted());
        self.data.set_node_count(rosters.nodes().len() as u64);
    }

    /// Has all members add or remove a node. Gives the number of the roster that results.
    pub(crate) fn change_nodes(&mut self, request: &ChangeNodes) -> Result<u64> {
        let now = self.now;
        let (Some(member), Some(node)) = (self.endpoint.member(), &self.node) else {
            return Err(Error::Alone);
        };
        let id = NodeId::new(request.node).ok_or(Error::NodeNumber(request.node))?;
        let change = match &request.addresses {
            Some(addresses) => {
                node.check_addresses(member.rosters(), addresses)?;
                NodeChange::Add(id, addresses.clone())
            }
            None => NodeChange::Remove(id),
        };
        let number = member.change_nodes(now, &change)?;
        self.settle();
        Ok(number)
    }

    /// A router says that a packet was too large. Only the node that sent the packet can tell
    /// whether that is true. It then tells the other nodes, which send on this path after a
    /// takeover. Where only this node has heard the router, and another sent the packet, that node
    /// hears it from here. True if the message is believed.
    pub(crate) fn router_told(&mut self, told: &TooBig) -> bool {
        let is_believed = self.too_big(told);
        if !is_believed {
            self.alarms.disbelieved_router(told.remote, told.mtu);
            self.in_cluster(|member, _| member.relay_too_big(told));
            self.perform_all();
        }
        is_believed
    }

    /// Learns of a path MTU, if this node has sent the packet that was too large.
    fn too_big(&mut self, told: &TooBig) -> bool {
        if !self.data.has_sent(told) {
            return false;
        }
        let TooBig { remote, mtu, .. } = *told;
        self.alarms.path_mtu(remote, mtu);
        if self.data.learn_path_mtu(boottime(), remote, mtu) {
            let line = format!("the path to {remote} takes packets of {mtu} octets");
            self.log(None, None, LogLevel::Info, line);
        }
        // Told again although it is not new: else the others would forget it earlier.
        self.in_cluster(|member, now| member.learned_path_mtu(now, remote, mtu));
        true
    }

    /// Routers learn whether they are to give this node packets.
    pub(crate) fn tell_routers(&mut self) {
        if let Some(node) = &mut self.node {
            node.tell_routers(self.now);
        }
    }

    /// A request for a VIP may have come.
    pub(crate) fn answer_for_vips(&mut self) {
        if let Some(node) = &mut self.node {
            node.answer();
        }
    }

    /// Carries out what only a member asks for.
    pub(crate) fn perform_in_cluster(&mut self, output: MemberOutput) {
        let done = match output {
            MemberOutput::Multicast(bytes) => {
                if let Some(bytes) = self.node.as_mut().and_then(|node| node.multicast(bytes).err()) {
                    self.in_cluster(|member, now| member.multicast_refused(now, bytes));
                }
                Ok(())
            }
            MemberOutput::Datagram { to, link, bytes } => {
                if let Some(node) = &self.node {
                    node.send(to, link, &bytes);
                }
                Ok(())
            }
            MemberOutput::Numbers { child, spi_in: _, block, at_once } => {
                self.data.grant(child, block, at_once)
            }
            MemberOutput::Stripe { child, spi_in: _, stripe } => self.data.add_stripe(child, stripe),
            MemberOutput::RowClocks(clocks) => {
                self.data.raise_clocks(&clocks);
                Ok(())
            }
            MemberOutput::ForgetSessions => {
                self.data.sessions().clear();
                Ok(())
            }
            MemberOutput::Sessions(told) => {
                self.data.follow_sessions(&told);
                Ok(())
            }
            MemberOutput::TakeInLanes { children } => self.data.take_in_lanes(&children).map(|estimates| {
                self.in_cluster(|member, now| member.taken_in(now, &estimates));
            }),
            MemberOutput::TakeIn { children } => self.data.take_in(&children).map(|floors| {
                self.in_cluster(|member, now| member.taken_in(now, &floors));
            }),
            MemberOutput::Shards(shown) => {
                self.updown.owners_change(Instant::now());
                if let Some(node) = &mut self.node {
                    node.set_default_host(shown.default_host);
                }
                self.data.set_shards(&shown)
            }
            MemberOutput::Note { shards } => {
                self.data.note(shards);
                Ok(())
            }
            MemberOutput::Neighbours(neighbours) => {
                self.data.find_neighbours(&neighbours);
                Ok(())
            }
            MemberOutput::Handled { shards, digests } => {
                self.data.set_handled(shards, digests);
                Ok(())
            }
            MemberOutput::Flush { shards } => {
                self.data.flush_shards(shards);
                Ok(())
            }
            MemberOutput::Sender(sender) => {
                self.data.set_sender(sender);
                Ok(())
            }
            MemberOutput::ForgetSender => {
                self.data.forget_sender();
                Ok(())
            }
            MemberOutput::Fence(until) => {
                if let Some(node) = &mut self.node {
                    node.set_fence(until);
                }
                self.data.set_fence(until)
            }
            MemberOutput::RelayKeys(keys) => {
                let peers = self.node.as_ref().map(|node| node.relay_peers(keys));
                self.data.set_relay_peers(peers.unwrap_or_default())
            }
            MemberOutput::Carriers(carriers) => {
                self.data.set_carriers(&carriers);
                Ok(())
            }
            MemberOutput::Serves(serves) => {
                if let Some(node) = &mut self.node {
                    node.set_serves(self.now, serves);
                }
                Ok(())
            }
            MemberOutput::TooBig(told) => {
                self.too_big(&told);
                Ok(())
            }
            MemberOutput::Persist(durable) => {
                let written = self.node.as_mut().map_or(Ok(Vec::new()), |node| node.persist(durable));
                self.persisted(written);
                Ok(())
            }
            MemberOutput::PathMtu { remote, mtu, age } => {
                self.data.learn_path_mtu(boottime().saturating_sub(age), remote, mtu);
                Ok(())
            }
            MemberOutput::Announce => {
                if let Some(node) = &self.node {
                    node.announce();
                }
                Ok(())
            }
            MemberOutput::Rejoin => {
                if let Some(node) = &mut self.node {
                    node.rejoin();
                }
                Ok(())
            }
            MemberOutput::Leave => {
                if let Some(node) = &self.node {
                    node.leave();
                }
                Ok(())
            }
            MemberOutput::Rosters => {
                self.nodes_changed();
                Ok(())
            }
            // All other outputs are an endpoint's too, or for operators.
            other => {
                self.tell_operators(other);
                Ok(())
            }
        };
        if let Err(error) = done {
            self.log(
                None,
                None,
                LogLevel::Error,
                format!("the data plane rejected a cluster operation: {error}"),
            );
        }
    }
}
