//! A peer: an ordinary gateway that knows nothing of clusters.

use crate::config::{self, Manners};
use crate::plane::{Numbers, Plane};
use crate::probe;
use crate::random::Random;
use testudo_base::spi::SenderId;
use testudo_ike::alloc::SingleNodeAllocator;
use testudo_ike::endpoint::{Endpoint, Target};
use testudo_ike::output::{ChildSaId, Event, Output, Path, Time};
use testudo_ipsec::dataplane::Verdict;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::spd::PolicyId;

/// An action of a peer.
#[derive(Debug)]
pub enum Effect {
    /// Sends an IKE message.
    Ike(Path, Vec<u8>),
    /// Sends an ESP packet.
    Esp(Vec<u8>),
    /// The clear packet with that number has left the tunnel.
    Arrived(u64),
    /// An event of its IKE.
    Event(Event),
}

/// One peer, with a tunnel to the cluster.
pub struct Peer {
    index: usize,
    endpoint: Endpoint,
    plane: Plane,
    effects: Vec<Effect>,
}

impl Peer {
    /// A peer that is configured and has not initiated anything.
    pub fn new(now: Time, index: usize, manners: &Manners, random: &mut Random) -> Self {
        let sender = SenderId(1);
        let alloc = SingleNodeAllocator::new(random.fork(), sender);
        let mut endpoint = Endpoint::new(config::endpoint(), Box::new(alloc));
        endpoint.load_secret(config::secret(index));
        let connection = config::connection(index, false, manners);
        endpoint.load_connection(now, connection).expect("a connection that holds together");
        let policies = [(config::peer_net(index), config::inner_net())];
        let plane = Plane::new(config::peer_addr(index), sender, random.number(), &policies);
        Self { index, endpoint, plane, effects: Vec::new() }
    }

    /// Its IKE.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its data plane.
    pub fn plane(&self) -> &Plane {
        &self.plane
    }

    /// Its actions since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Brings the tunnel up.
    pub fn initiate(&mut self, now: Time) {
        // A failed attempt is repeated by the caller.
        let _ = self.endpoint.initiate(now, Some(&config::name(self.index)), config::CHILD);
        self.settle();
    }

    /// Takes the tunnel down; `force`: without waiting.
    pub fn terminate(&mut self, now: Time, force: bool) {
        let _ = self.endpoint.terminate(now, &Target::Connection(config::name(self.index)), force);
        self.settle();
    }

    /// Rekeys the Child SA in use, or the IKE SA.
    pub fn rekey(&mut self, now: Time, ike: bool) {
        let Some(child) = self.plane.sending(PolicyId(0)) else { return };
        let _ = match self.endpoint.ike_of(child) {
            Some(sa) if ike => self.endpoint.rekey_ike(now, sa),
            _ => self.endpoint.rekey_child(now, child),
        };
        self.settle();
    }

    /// Processes an IKE message.
    pub fn handle_ike(&mut self, now: Time, path: Path, bytes: &[u8]) {
        self.endpoint.handle_datagram(now, path, bytes);
        self.settle();
    }

    /// Processes an ESP packet.
    pub fn handle_esp(&mut self, now: Time, packet: &[u8]) {
        self.plane.set_now(now.0.as_millis() as u64);
        let spi = probe::esp(packet).map(|esp| testudo_base::spi::Spi(esp.spi));
        let done = self.plane.inbound(packet);
        if done.verdict == Verdict::Forward {
            if let Some(child) = spi.and_then(|spi| self.plane.by_spi(spi)) {
                self.endpoint.traffic_seen(now, child);
            }
            self.effects.extend(probe::number(&done.packet).map(Effect::Arrived));
        }
        self.settle();
    }

    /// Processes a clear packet of a client in its network.
    pub fn handle_clear(&mut self, now: Time, packet: &[u8]) {
        self.plane.set_now(now.0.as_millis() as u64);
        let done = self.plane.outbound(packet, None);
        if done.verdict == Verdict::Forward {
            self.effects.push(Effect::Esp(done.packet));
        }
    }

    /// Executes what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        self.settle();
    }

    /// Its next deadline.
    pub fn next_timeout(&self) -> Option<Time> {
        self.endpoint.next_timeout()
    }

    /// The Child SA that it sends with.
    pub fn sending(&self) -> Option<ChildSaId> {
        self.plane.sending(PolicyId(0))
    }

    fn settle(&mut self) {
        self.plane.take_events();
        while let Some(output) = self.endpoint.poll_output() {
            match output {
                Output::Send { path, bytes, .. } => self.effects.push(Effect::Ike(path, bytes)),
                Output::InstallChild { child, params, replaces, .. } => {
                    let numbers = Numbers::Block(SequenceBlock::whole(params.esn));
                    self.plane.install(child, PolicyId(0), child.0, &params, numbers, replaces);
                }
                Output::SwitchChild { from, to } => self.plane.switch(from, to),
                Output::StartChild { child } => self.plane.start(child),
                Output::UpdateChild { child, path, .. } => self.plane.update(child, path),
                Output::RemoveChild { child, .. } => self.plane.remove(child),
                Output::AdvanceSequence { child, by } => {
                    let fits = self.plane.outbound_sa(child).is_none_or(|sa| sa.numbers().skip(by));
                    assert!(fits, "no test sends so much");
                }
                Output::Event(event) => self.effects.push(Effect::Event(event)),
                Output::BindChild { .. } => unreachable!("its endpoint has no workers"),
                Output::Keepalive { .. } | Output::InstallAddress { .. } | Output::RemoveAddress { .. } => {}
            }
        }
    }
}
