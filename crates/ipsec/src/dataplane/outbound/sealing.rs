//! A burst that somebody else seals.

use super::Burst;
use super::plan::Plan;
use super::seal::{finish, seal, want_keys};
use crate::dataplane::burst::Item;
use crate::dataplane::table::OutboundTable;
use crate::dataplane::{Dataplane, fence};
use crate::sa::OutboundSa;
use std::sync::Arc;

/// A burst between its numbers and its last stage, for whoever seals it: it owns what it needs. Its plans are those of the packets
/// without a verdict, in their order.
#[derive(Debug)]
pub(in crate::dataplane) struct Sealing {
    sas: Burst<Arc<OutboundSa>>,
    /// With the place of the SA in the list.
    plans: Burst<Plan<u8>>,
    /// The identifications of the outer headers come after it.
    id: u16,
}

impl Sealing {
    /// False if there is nothing to seal, or an SA is not in the table any more.
    #[cold]
    pub(super) fn fill(
        into: &mut Option<Self>,
        plans: &[Plan<&OutboundSa>],
        table: &OutboundTable,
        id: u16,
    ) -> bool {
        let (mut sas, mut owned) = (Burst::<Arc<OutboundSa>>::new(), Burst::new());
        for (at, plan) in (0..).zip(plans) {
            if sas.last().is_none_or(|last| !std::ptr::eq(&**last, plan.sa)) {
                let found = table.get(plan.sa.policy()).and_then(|place| place.sa.as_ref());
                let Some(sa) = found.filter(|found| std::ptr::eq(&***found, plan.sa)) else { return false };
                sas.push(Arc::clone(sa));
            }
            owned.push(plan.moved(at, sas.len() as u8 - 1));
        }
        *into = (!owned.is_empty()).then_some(Self { sas, plans: owned, id });
        into.is_some()
    }

    fn plans(&self) -> Burst<Plan<&OutboundSa, true>> {
        let sa = |plan: &Plan<u8>| self.sas.get(usize::from(plan.sa)).map(|sa| plan.moved(plan.at, &**sa));
        self.plans.iter().filter_map(sa).collect()
    }

    /// The middle stage.
    pub(in crate::dataplane) fn work(&self, burst: &mut [Item<'_>]) {
        seal(burst, &self.plans(), self.id);
    }
}

impl Dataplane {
    /// The last stage.
    pub(in crate::dataplane) fn end_outbound(&mut self, sealing: &Sealing, burst: &mut [Item<'_>]) {
        let counters = &self.counters.outbound;
        if !self.open {
            // What has been encrypted stays here.
            return fence::stop(burst, counters);
        }
        let plans = sealing.plans();
        want_keys(&plans, &mut self.events, self.now);
        finish(burst, &plans, counters, &mut self.events, self.now);
    }
}
