//! What packets of many SAs will need once they are open.

use super::InboundPlan;
use super::receive::Receiver;
use crate::dataplane::burst::Item;
use crate::inner::Inner;
use crate::packet_selector::Direction;

impl Receiver<'_> {
    /// Asks for the flows of packets that were opened, where they came by several SAs: each is
    /// looked for when its turn comes. That the first and the last are of one SA is taken for all
    /// being so.
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
