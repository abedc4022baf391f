//! The IPsec pipeline as the worker sees it.

use testudo_ipsec::dataplane::{Away, Command, Dataplane, Event, Garbage, Item, Sources};

/// Gives each packet of a burst its verdict. [`Dataplane`] is the one there is; tests of the worker use simpler ones.
pub trait Pipeline {
    /// A burst that has begun and not ended, on its way between workers.
    type Away: Send;

    /// Packets to be protected. ICMP errors about them come from these addresses.
    fn outbound(&mut self, burst: &mut [Item<'_>], sources: &Sources);

    /// Packets addressed to us that the filter took for ESP.
    fn inbound(&mut self, burst: &mut [Item<'_>]);

    /// The first stage of `outbound`. What it returns is worked on and then ended, with the packets that have no verdict; none
    /// if there is no such packet.
    fn begin_outbound(&mut self, burst: &mut [Item<'_>], sources: &Sources) -> Option<Self::Away> {
        self.outbound(burst, sources);
        None
    }

    /// The first stage of `inbound`.
    fn begin_inbound(&mut self, burst: &mut [Item<'_>]) -> Option<Self::Away> {
        self.inbound(burst);
        None
    }

    /// The middle stage, by any worker.
    fn work(_away: &mut Self::Away, _burst: &mut [Item<'_>]) {}

    /// The last stage, in the order in which the bursts began.
    fn end(&mut self, _away: &Self::Away, _burst: &mut [Item<'_>]) {}

    /// So many packets that `inbound` gave back as early do not wait for their SA any longer.
    fn give_up_early(&mut self, packets: u64);

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
    type Away = Away;

    #[inline]
    fn begin_outbound(&mut self, burst: &mut [Item<'_>], sources: &Sources) -> Option<Away> {
        Dataplane::begin_outbound(self, burst, sources)
    }

    #[inline]
    fn begin_inbound(&mut self, burst: &mut [Item<'_>]) -> Option<Away> {
        Dataplane::begin_inbound(self, burst)
    }

    #[inline]
    fn work(away: &mut Away, burst: &mut [Item<'_>]) {
        away.work(burst);
    }

    #[inline]
    fn end(&mut self, away: &Away, burst: &mut [Item<'_>]) {
        Dataplane::end(self, away, burst);
    }

    #[inline]
    fn outbound(&mut self, burst: &mut [Item<'_>], sources: &Sources) {
        Dataplane::outbound(self, burst, sources);
    }

    #[inline]
    fn inbound(&mut self, burst: &mut [Item<'_>]) {
        Dataplane::inbound(self, burst);
    }

    fn give_up_early(&mut self, packets: u64) {
        Dataplane::give_up_early(self, packets);
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
