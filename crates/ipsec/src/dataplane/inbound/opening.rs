//! A burst that somebody else opens.

use super::{Burst, Plan, open};
use crate::dataplane::burst::Item;
use crate::dataplane::{Dataplane, fence};
use crate::demux::Arrived;
use crate::drops::DropReason;
use crate::sa::InboundSa;
use crate::sad::Sad;
use std::sync::Arc;

/// A burst between its first stage and its last, for whoever opens it: it owns what it needs. Its packets are those without a
/// verdict, in their order.
#[derive(Debug)]
pub(in crate::dataplane) struct Opening {
    sas: Burst<Arc<InboundSa>>,
    packets: Burst<Owned>,
}

/// A plan that owns what it needs.
#[derive(Debug)]
struct Owned {
    /// Place of the SA in the list.
    sa: u8,
    arrived: Arrived,
    sequence: u64,
    verdict: Result<(), DropReason>,
}

impl Opening {
    /// False if there is nothing to open, or an SA is not in the SAD any more.
    #[cold]
    pub(super) fn fill(into: &mut Option<Self>, plans: &[Plan<'_>], sad: &Sad) -> bool {
        let (mut sas, mut packets) = (Burst::<Arc<InboundSa>>::new(), Burst::new());
        for Plan { sa, arrived, sequence, verdict, .. } in plans {
            if sas.last().is_none_or(|last| !std::ptr::eq(&**last, *sa)) {
                let Some(shared) = sad.shared(sa.spi) else { return false };
                sas.push(shared);
            }
            let (sa, arrived) = (sas.len() as u8 - 1, **arrived);
            packets.push(Owned { sa, arrived, sequence: *sequence, verdict: *verdict });
        }
        *into = (!packets.is_empty()).then_some(Self { sas, packets });
        into.is_some()
    }

    fn plans(&self) -> Burst<Plan<'_, true>> {
        let mut plans = Burst::new();
        for (at, Owned { sa, arrived, sequence, verdict }) in (0..).zip(&self.packets) {
            if let Some(sa) = self.sas.get(usize::from(*sa)) {
                plans.push(Plan { sa, arrived, sequence: *sequence, at, verdict: *verdict });
            }
        }
        plans
    }

    /// The middle stage.
    pub(in crate::dataplane) fn work(&mut self, burst: &mut [Item<'_>]) {
        let mut plans = self.plans();
        open(burst, &mut plans);
        let verdicts: Burst<Result<(), DropReason>> = plans.iter().map(|plan| plan.verdict).collect();
        drop(plans);
        for (packet, verdict) in self.packets.iter_mut().zip(verdicts) {
            packet.verdict = verdict;
        }
    }
}

impl Dataplane {
    /// The last stage.
    pub(in crate::dataplane) fn end_inbound(&mut self, opening: &Opening, burst: &mut [Item<'_>]) {
        match self.open {
            true => self.parts().2.receive_all(burst, &mut opening.plans()),
            false => fence::stop(burst, &self.counters.inbound),
        }
    }
}
