//! A pipeline that does nothing.

use testudo_fastpath::worker::Pipeline;
use testudo_ipsec::dataplane::{Command, Event, Garbage, Item, Sources, Verdict};

/// Forwards everything as it is.
pub(crate) struct Wire;

impl Pipeline for Wire {
    fn outbound(&mut self, burst: &mut [Item<'_>], _: &Sources) {
        burst.iter_mut().for_each(|item| item.verdict = Verdict::Forward);
    }

    fn inbound(&mut self, burst: &mut [Item<'_>]) {
        self.outbound(burst, &Sources::default());
    }

    fn judge(&mut self, burst: &mut [Item<'_>], sources: &Sources) {
        self.outbound(burst, sources);
    }

    fn give_up_early(&mut self, _packets: u64) {}

    fn set_now(&mut self, _milliseconds: u64) {}

    fn set_open(&mut self, _open: bool) {}

    fn apply(&mut self, _command: Command) -> Option<Garbage> {
        None
    }

    fn drain_events(&mut self, _sink: impl FnMut(Event)) {}
}
