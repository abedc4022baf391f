//! A gateway that is not in a cluster, for tests of the world and the checks.

use crate::config::{self, Manners};
use crate::host::{Effect, Host, Input, Sent, Taken, Wish, established_with};
use crate::plane::{Numbers, Plane};
use crate::probe;
use crate::random::Random;
use std::collections::BTreeMap;
use std::net::IpAddr;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_cluster::group::Standing;
use testudo_ike::alloc::SingleNodeAllocator;
use testudo_ike::endpoint::{Endpoint, Target};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{Output, Time};
use testudo_ipsec::dataplane::Verdict;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::spd::PolicyId;

/// Planted flaws, for tests of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// It sends clear text if it has no SA.
    Clear,
    /// It accepts every packet a second time.
    Twice,
}

/// One gateway.
pub struct Lone {
    endpoint: Endpoint,
    plane: Plane,
    effects: Vec<Effect>,
    flaw: Flaw,
    /// The highest accepted number of each SPI.
    seen: BTreeMap<u32, u32>,
}

impl Lone {
    /// A gateway that is configured for these peers.
    pub fn new(now: Time, manners: &[Manners], flaw: Flaw, random: &mut Random) -> Self {
        let sender = SenderId(1 << 11 | 1);
        let alloc = SingleNodeAllocator::new(random.fork(), sender);
        let mut endpoint = Endpoint::new(config::endpoint(), Box::new(alloc));
        let policies: Vec<_> =
            (0..manners.len()).map(|peer| (config::inner_net(), config::peer_net(peer))).collect();
        let plane = Plane::new(config::VIP, sender, random.number(), &policies);
        for (peer, manners) in manners.iter().enumerate() {
            endpoint.load_secret(config::secret(peer));
            let connection = config::connection(peer, true, manners);
            endpoint.load_connection(now, connection).expect("a connection that holds together");
        }
        let mut this = Self { endpoint, plane, effects: Vec::new(), flaw, seen: BTreeMap::new() };
        this.settle();
        this
    }

    fn settle(&mut self) {
        self.plane.take_events();
        while let Some(output) = self.endpoint.poll_output() {
            match output {
                Output::Send { path, bytes, .. } => self.effects.push(Effect::Ike(path, bytes)),
                Output::InstallChild { child, connection, params, replaces, .. } => {
                    let Some(peer) = config::peer_named(&connection) else { continue };
                    let numbers = SequenceBlock::whole(params.esn);
                    self.plane.install(
                        child,
                        PolicyId(peer as u32),
                        child.0,
                        &params,
                        Numbers::Block(numbers),
                        replaces,
                    );
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

    fn esp(&mut self, now: Time, packet: &[u8]) {
        let Some(esp) = probe::esp(packet) else { return };
        let (key, child) = (self.plane.key_in(esp.spi), self.plane.by_spi(Spi(esp.spi)));
        let before = self.seen.get(&esp.spi).copied().unwrap_or(0);
        let done = self.plane.inbound(packet);
        if let (Verdict::Forward, Some(key), Some(child)) = (done.verdict, key, child) {
            self.endpoint.traffic_seen(now, child);
            self.seen.insert(esp.spi, before.max(esp.sequence));
            let shard = Spi(esp.spi).shard();
            let (sequence, unseen) = (esp.sequence, before < esp.sequence);
            let times = if self.flaw == Flaw::Twice { 2 } else { 1 };
            for _ in 0..times {
                let taken = Taken { key, sequence, shard, provisional: false, unseen };
                self.effects.push(Effect::Accepted(taken));
            }
            self.effects.push(Effect::Inner(done.packet));
        }
    }

    fn clear(&mut self, packet: &[u8]) {
        let done = self.plane.outbound(packet, None);
        if done.verdict == Verdict::Forward {
            let esp = probe::esp(&done.packet);
            let key = esp.and_then(|esp| self.plane.key_out(esp.spi, esp.to));
            let sent = Sent { packet: done.packet, key, shard: None, provisional: false };
            self.effects.push(Effect::Outer(sent));
        } else if self.flaw == Flaw::Clear {
            let sent = Sent { packet: packet.to_vec(), key: None, shard: None, provisional: false };
            self.effects.push(Effect::Outer(sent));
        }
    }

    fn wish(&mut self, now: Time, wish: Wish) {
        let sending = |plane: &Plane, peer: usize| plane.sending(PolicyId(peer as u32));
        match wish {
            Wish::Initiate(peer) => {
                let _ = self.endpoint.initiate(now, Some(&config::name(peer)), config::CHILD);
            }
            Wish::Terminate(peer) => {
                let _ = self.endpoint.terminate(now, &Target::Connection(config::name(peer)), false);
            }
            Wish::RekeyChild(peer) => {
                let child = sending(&self.plane, peer);
                child.map(|child| self.endpoint.rekey_child(now, child));
            }
            Wish::RekeyIke(peer) => {
                let ike = sending(&self.plane, peer).and_then(|child| self.endpoint.ike_of(child));
                ike.map(|ike| self.endpoint.rekey_ike(now, ike));
            }
        }
    }
}

impl Host for Lone {
    fn handle(&mut self, now: Time, input: Input) {
        self.plane.set_now(now.0.as_millis() as u64);
        match input {
            Input::Ike(path, bytes) => self.endpoint.handle_datagram(now, path, &bytes),
            Input::Esp(packet) => self.esp(now, &packet),
            Input::Clear(packet) => self.clear(&packet),
            Input::Timeout => self.endpoint.handle_timeout(now),
            Input::Operator(wish) => self.wish(now, wish),
            Input::Engine(_)
            | Input::Refused(_)
            | Input::Ready
            | Input::Heartbeat(..)
            | Input::Link(..)
            | Input::Drain(..)
            | Input::Change(_)
            | Input::Configure(..)
            | Input::IvLow
            | Input::Burst(..)
            | Input::Written(_)
            | Input::RolledBack => {}
        }
        self.settle();
    }

    fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.endpoint.next_timeout()
    }

    fn filter_outer(&mut self, _packet: &[u8]) -> bool {
        true
    }

    fn filter_inner(&mut self, _packet: &[u8]) -> bool {
        true
    }

    fn filter_ike(&mut self, _bytes: &[u8]) -> bool {
        true
    }

    fn plane(&self) -> &Plane {
        &self.plane
    }

    fn standing(&self) -> Option<Standing> {
        None
    }

    fn state(&self) -> u64 {
        0
    }

    fn owns(&self, _now: Time, _shard: Shard) -> bool {
        true
    }

    fn is_named(&self, _shard: Shard) -> bool {
        true
    }

    fn knows(&self, _ours: IkeSpi, _message_id: u32) -> bool {
        true
    }

    fn ikes_with(&self, peer: IpAddr) -> Vec<IkeSpi> {
        established_with(&self.endpoint, peer)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
