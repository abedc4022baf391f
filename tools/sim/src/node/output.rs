//! What the member asks for, done.

use super::{HeldPacket, MAX_NOTES, Node, Way};
use crate::config;
use crate::host::Effect;
use crate::plane::Numbers;
use testudo_base::spi::{Shard, Spi};
use testudo_cluster::member::{Flushed, MemberOutput, TakenIn, TakenLanes};
use testudo_ike::output::Output;
use testudo_ipsec::dataplane::{Command, Garbage, Note};
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::spd::PolicyId;

impl Node {
    pub(super) fn output(&mut self, output: MemberOutput) {
        match output {
            MemberOutput::Ike(output) => self.ike_output(output),
            MemberOutput::Multicast(bytes) => self.effects.push(Effect::Multicast(bytes)),
            MemberOutput::Datagram { to, link, bytes } => {
                self.effects.push(Effect::Heartbeat(to, link, bytes))
            }
            MemberOutput::InstallChild { child, connection, params, replaces, place, spread, .. } => {
                self.check_slot(params.spi_in);
                self.spread.extend(spread.map(|by| (params.spi_in, by)));
                let numbers = spread.map_or(Numbers::Block(SequenceBlock::EMPTY), Numbers::Stripes);
                if let Some(peer) = config::peer_named(&connection) {
                    let policy = PolicyId(peer as u32);
                    self.plane.install(child, policy, place, &params, numbers, replaces);
                }
            }
            MemberOutput::Stripe { child, stripe, .. } => self.plane.add_stripe(child, stripe),
            MemberOutput::RowClocks(clocks) => {
                clocks.into_iter().for_each(|(home, rows)| self.clocks.raise(home, rows))
            }
            MemberOutput::ForgetSessions => self.dealt.sessions().clear(),
            MemberOutput::Sessions(told) => self.dealt.follow(&told),
            MemberOutput::TakeInLanes { children } => self.take_in_lanes(&children),
            MemberOutput::Numbers { child, block, at_once, .. } => {
                if let Some(sa) = self.plane.outbound_sa(child) {
                    let numbers = sa.numbers();
                    let taken = if at_once { numbers.advance(block) } else { numbers.follow(block) };
                    taken.expect("a block within the SA's numbers");
                }
            }
            MemberOutput::TakeIn { children } => {
                let floor = |child: &TakenIn| {
                    (child.spi_in, child.floor(self.seen.get(&child.spi_in.0).copied().map(u64::from)))
                };
                let floors: Box<[(Spi, u64)]> = children.iter().map(floor).collect();
                self.member.taken_in(self.now, &floors);
                self.plane.apply(Command::TakeIn(floors));
            }
            MemberOutput::Shards(shown) => {
                self.shown = shown;
                self.plane.apply(Command::SetShards(shown.packets));
                self.plane.apply(Command::Hold(shown.held));
                for HeldPacket { packet, way } in std::mem::take(&mut self.held) {
                    match way {
                        Way::In => self.esp(self.now, &packet),
                        Way::Out(lane) => self.clear(&packet, lane),
                    }
                }
            }
            MemberOutput::Carriers(table) => self.carriers = Some(*table),
            MemberOutput::Serves(serves) => self.serves = serves,
            MemberOutput::Note { shards } => {
                let blank = Note { shard: Shard(0), digest: 0 };
                self.plane.apply(Command::Note(shards, vec![blank; MAX_NOTES].into()));
            }
            MemberOutput::Flush { shards } => {
                // Packets are processed one by one here: none is in transit.
                let (marks, tops) = (self.marks_of(shards), self.tops_of(shards));
                let notes = match self.plane.apply(Command::TakeNotes) {
                    Some(Garbage::Noted(notes, count)) => notes[..count].to_vec(),
                    _ => Vec::new(),
                };
                self.member.flushed(self.now, &Flushed { shards, marks, tops, notes });
                self.member.pump(self.now);
            }
            MemberOutput::Handled { shards, digests } => {
                let digests = digests.into_iter().map(|digest| (digest, false)).collect();
                self.plane.apply(Command::Handled(shards, digests));
            }
            MemberOutput::Sender(sender) => self.plane.set_sender(sender),
            MemberOutput::ForgetSender => drop(self.plane.apply(Command::ForgetSenderId)),
            MemberOutput::Fence(until) => self.fence = Some(until),
            MemberOutput::Persist(durable) => self.effects.push(Effect::Persist(durable)),
            MemberOutput::Rejoin => self.effects.push(Effect::Rejoin),
            MemberOutput::Leave => self.effects.push(Effect::Leave),
            MemberOutput::Rosters => self.follow_nodes(),
            MemberOutput::PathMtu { .. }
            | MemberOutput::RelayKeys(_)
            | MemberOutput::TooBig(_)
            | MemberOutput::Neighbours(_)
            | MemberOutput::Configure { .. }
            | MemberOutput::Unconfigure { .. }
            | MemberOutput::Configured { .. }
            | MemberOutput::Outdated { .. }
            | MemberOutput::Line { .. }
            | MemberOutput::Initiated { .. }
            | MemberOutput::RemoteEvent(_)
            | MemberOutput::Announce => {}
        }
    }

    fn take_in_lanes(&mut self, children: &[TakenLanes]) {
        let (mut floors, mut told) = (Vec::new(), Vec::new());
        for taken in children {
            let child = self.plane.by_spi(taken.spi_in).and_then(|child| self.plane.inbound_sa(child));
            let Some(here) = child.map(|sa| sa.window().high_water_mark()) else { continue };
            let seen = self.seen.get(&taken.spi_in.0).copied().map(u64::from);
            floors.extend(taken.floors(here, seen));
            if taken.is_estimate() {
                told.push((taken.spi_in, taken.floor(here, seen)));
            }
        }
        self.member.taken_in(self.now, &told);
        self.plane.apply(Command::TakeInLanes(floors.into()));
    }

    fn ike_output(&mut self, output: Output) {
        match output {
            Output::Send { path, bytes, .. } => self.effects.push(Effect::Ike(path, bytes)),
            Output::SwitchChild { from, to } => self.plane.switch(from, to),
            Output::StartChild { child } => self.plane.start(child),
            Output::UpdateChild { child, path, .. } => self.plane.update(child, path),
            Output::RemoveChild { child, spi_in } => {
                self.plane.remove(child);
                self.resting.insert((spi_in.shard(), spi_in.slot()), spi_in);
                self.seen.remove(&spi_in.0);
                self.spread.remove(&spi_in);
                self.marks.remove(&spi_in);
            }
            Output::Event(event) => self.effects.push(Effect::Event(event)),
            // No member of a cluster makes Child SAs for single workers.
            Output::BindChild { .. }
            | Output::InstallChild { .. }
            | Output::Keepalive { .. }
            | Output::AdvanceSequence { .. }
            | Output::InstallAddress { .. }
            | Output::RemoveAddress { .. } => {}
        }
    }
}
