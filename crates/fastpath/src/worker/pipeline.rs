//! The IPsec pipeline as the worker sees it.

use std::net::IpAddr;
use testudo_ipsec::dataplane::{Command, Dataplane, Event, Garbage, Item, Sources, Turn};
use testudo_ipsec::spd::PolicyId;

/// Gives each packet of a burst its verdict. [`Dataplane`] is the one there is; tests of the worker
/// use simpler ones.
pub trait Pipeline {
    /// Packets to be protected. ICMP errors about them come from these addresses.
    fn outbound(&mut self, burst: &mut [Item<'_>], sources: &Sources);

    /// Packets addressed to us that the filter took for ESP.
    fn inbound(&mut self, burst: &mut [Item<'_>]);

    /// The same for a burst of a queue of which other workers have bursts in hand too.
    fn outbound_in_turn(&mut self, burst: &mut [Item<'_>], sources: &Sources, turn: &mut dyn Turn) {
        turn.begin();
        self.outbound(burst, sources);
        turn.end();
    }

    /// The same for `inbound`.
    fn inbound_in_turn(&mut self, burst: &mut [Item<'_>], turn: &mut dyn Turn) {
        turn.begin();
        self.inbound(burst);
        turn.end();
    }

    /// So many packets that `inbound` gave back as early, of so many octets, go to another worker's
    /// pipeline.
    fn pass_early(&mut self, _packets: u64, _octets: u64) {}

    /// Packets that came in clear from where they should be protected: whether they may pass. ICMP
    /// errors about them come from these addresses.
    fn judge(&mut self, burst: &mut [Item<'_>], sources: &Sources);

    /// So many packets that `inbound` gave back as early do not wait for their SA any longer.
    fn give_up_early(&mut self, packets: u64);

    /// The outer address of the peer whom packets of that policy go to, as far as it is known.
    fn peer(&self, _policy: PolicyId) -> Option<IpAddr> {
        None
    }

    /// Tells the time, in milliseconds since any origin.
    fn set_now(&mut self, milliseconds: u64);

    /// Shut, it drops what it is given until it is opened again.
    fn set_open(&mut self, open: bool);

    /// Applies a command; returns what it put out of use.
    fn apply(&mut self, command: Command) -> Option<Garbage>;

    /// Hands over events that have come up.
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
