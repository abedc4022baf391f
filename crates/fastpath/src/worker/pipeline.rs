//! The IPsec pipeline as the worker sees it.

use std::net::IpAddr;
use testudo_ipsec::dataplane::{Command, Dataplane, Event, Garbage, Item, Sources, Turn};
use testudo_ipsec::spd::PolicyId;

/// Gives each packet of a burst its verdict. [`Dataplane`] is the real one; tests of the worker use
/// simpler ones.
pub trait Pipeline {
    /// Protects packets. ICMP errors about them come from `sources`.
    fn outbound(&mut self, burst: &mut [Item<'_>], sources: &Sources);

    /// Opens packets that are addressed to us and that the filter took for ESP.
    fn inbound(&mut self, burst: &mut [Item<'_>]);

    /// [`Pipeline::outbound`] for a burst of a queue of which other workers have bursts in hand
    /// too.
    fn outbound_in_turn(&mut self, burst: &mut [Item<'_>], sources: &Sources, turn: &mut dyn Turn) {
        turn.begin();
        self.outbound(burst, sources);
        turn.end();
    }

    /// [`Pipeline::inbound`] for a burst of a queue of which other workers have bursts in hand too.
    fn inbound_in_turn(&mut self, burst: &mut [Item<'_>], turn: &mut dyn Turn) {
        turn.begin();
        self.inbound(burst);
        turn.end();
    }

    /// Packets that `inbound` gave back as early, and their octets, go to another worker's
    /// pipeline.
    fn pass_early(&mut self, _packets: u64, _octets: u64) {}

    /// Decides whether packets may pass that came in clear from where they should be protected.
    /// ICMP errors about them come from `sources`.
    fn judge(&mut self, burst: &mut [Item<'_>], sources: &Sources);

    /// Packets that `inbound` gave back as early do not wait for their SA any longer.
    fn give_up_early(&mut self, packets: u64);

    /// The outer address of the peer to whom the policy's packets go, if it is known.
    fn peer(&self, _policy: PolicyId) -> Option<IpAddr> {
        None
    }

    /// Sets the time, in milliseconds since any origin.
    fn set_now(&mut self, milliseconds: u64);

    /// Opens or shuts the pipeline. While it is shut, it drops every packet.
    fn set_open(&mut self, open: bool);

    /// Applies a command. Returns what the command has displaced.
    fn apply(&mut self, command: Command) -> Option<Garbage>;

    /// Hands over the events since the last call.
    fn drain_events(&mut self, sink: impl FnMut(Event));
}

impl Pipeline for Dataplane {
    #[inline]
    fn outbound_in_turn(&mut self, burst: &mut [Item<'_>], sources: &Sources, turn: &mut dyn Turn) {
        Dataplane::outbound_in_turn(self, burst, sources, turn);
    }

    #[inline]
    fn inbound_in_turn(&mut self, burst: &mut [Item<'_>], turn: &mut dyn Turn) {
        Dataplane::inbound_in_turn(self, burst, turn);
    }

    fn pass_early(&mut self, packets: u64, octets: u64) {
        Dataplane::pass_early(self, packets, octets);
    }

    #[inline]
    fn outbound(&mut self, burst: &mut [Item<'_>], sources: &Sources) {
        Dataplane::outbound(self, burst, sources);
    }

    #[inline]
    fn inbound(&mut self, burst: &mut [Item<'_>]) {
        Dataplane::inbound(self, burst);
    }

    fn judge(&mut self, burst: &mut [Item<'_>], sources: &Sources) {
        Dataplane::judge(self, burst, sources);
    }

    fn give_up_early(&mut self, packets: u64) {
        Dataplane::give_up_early(self, packets);
    }

    fn peer(&self, policy: PolicyId) -> Option<IpAddr> {
        Dataplane::peer(self, policy)
    }

    #[inline]
    fn set_now(&mut self, milliseconds: u64) {
        Dataplane::set_now(self, milliseconds);
    }

    #[inline]
    fn set_open(&mut self, open: bool) {
        Dataplane::set_open(self, open);
    }

    fn apply(&mut self, command: Command) -> Option<Garbage> {
        Dataplane::apply(self, command)
    }

    #[inline]
    fn drain_events(&mut self, sink: impl FnMut(Event)) {
        Dataplane::drain_events(self).for_each(sink);
    }
}
