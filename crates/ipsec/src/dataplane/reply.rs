//! ICMP errors in place of packets that go no further.

use super::burst::{Item, Verdict};
use super::counters::{Counters, DirectionCounters};
use super::limit::TokenBucket;
use crate::drops::DropReason;
use testudo_wire::icmp::{self, Kind, Sources};

/// The means to send an ICMP error.
pub(super) struct Replier<'a> {
    pub(super) sources: &'a Sources,
    pub(super) limit: &'a mut TokenBucket,
    pub(super) counters: &'a Counters,
}

impl Replier<'_> {
    /// Drops the packet, counted under `reason`, and replaces it by an ICMP error about it, if that
    /// is allowed (RFC 1122 §3.2.2, RFC 4443 §2.4) and within the rate.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        item: &mut Item<'_>,
        kind: Kind,
        reason: DropReason,
        direction: &DirectionCounters,
    ) {
        direction.drop(reason);
        let answered = icmp::may_answer(item.buf.data(), kind)
            && self.limit.take()
            && icmp::answer(&mut item.buf, kind, self.sources).is_ok();
        if answered {
            direction.generated.add(1);
            direction.replies.add(1);
            item.verdict = Verdict::Reply;
        } else {
            self.counters.icmp_suppressed.add(1);
            item.verdict = Verdict::Drop(reason);
        }
    }
}
