//! Those packets of a burst that do not use an AEAD.

use super::{Burst, InboundPlan};
use crate::dataplane::burst::Item;
use crate::drops::DropReason;
use crate::sa::SaKey;

/// Verifies and decrypts those plans whose key `of` returns. `job` makes a job of the packet from
/// ESP's header to the ICV, unless that is too short; `work` does them all, and `is_ok` says which
/// are authentic.
#[cold]
pub(super) fn open<'b, 's: 'b, K: 'b, J>(
    burst: &'b mut [Item<'_>],
    plans: &mut [InboundPlan<'s>],
    of: impl Fn(&'s SaKey) -> Option<&'b K>,
    job: impl Fn(&'b mut [u8], &InboundPlan<'s>, &'b K) -> Option<J>,
    work: impl FnOnce(&mut [J]),
    is_ok: impl Fn(&J) -> bool,
) {
    let (mut jobs, mut judged) = (Burst::new(), Burst::new());
    let mut left = plans.iter_mut().peekable();
    for (at, item) in burst.iter_mut().enumerate() {
        let Some(plan) = left.next_if(|plan| usize::from(plan.at) == at) else {
            continue;
        };
        let Some(key) = of(&plan.sa.key) else { continue };
        let packet = item.buf.data_mut().get_mut(usize::from(plan.arrived.at)..plan.arrived.end());
        match packet.and_then(|packet| job(packet, plan, key)) {
            Some(job) => {
                jobs.push(job);
                judged.push(plan);
            }
            None => plan.verdict = Err(DropReason::EspTooShort),
        }
    }
    work(&mut jobs);
    for (plan, _) in judged.into_iter().zip(&jobs).filter(|(_, job)| !is_ok(job)) {
        plan.verdict = Err(plan.sa.window.blame(plan.sequence));
    }
}
