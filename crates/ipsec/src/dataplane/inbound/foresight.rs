//! Prefetching for packets of many SAs, before they are decrypted.

use super::InboundPlan;
use super::receive::Receiver;
use crate::dataplane::burst::Item;
use crate::inner::Inner;
use crate::packet_selector::Direction;

impl Receiver<'_> {
    /// Prefetches the flows of opened packets, if they came by several SAs. If the first and the
    /// last packet are of one SA, all of them are assumed to be.
    #[inline]
    pub(super) fn foresee(&self, burst: &[Item<'_>], plans: &[InboundPlan<'_>]) {
        if let (Some(first), Some(last)) = (plans.first(), plans.last())
            && !std::ptr::eq(first.sa, last.sa)
        {
            self.foresee_each(burst, plans);
        }
    }

    #[inline(never)]
    fn foresee_each(&self, burst: &[Item<'_>], plans: &[InboundPlan<'_>]) {
        for plan in plans.iter().filter(|plan| plan.sa.is_esp_tunnel) {
            let start = usize::from(plan.arrived.at) + usize::from(plan.sa.around.before_text);
            let inner = burst.get(usize::from(plan.at)).and_then(|item| item.buf.data().get(start..));
            if let Some(Ok(inner)) = inner.map(|inner| Inner::parse(inner, Direction::In)) {
                self.flows.prefetch(self.flows.hash(&inner.flow.reversed()));
            }
        }
    }
}
