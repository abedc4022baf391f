//! Packets with separate algorithms for encryption and integrity.

use super::{Burst, MIN_TEXT, Plan};
use crate::dataplane::burst::Item;
use crate::drops::DropReason;
use crate::sa::SaKey;
use testudo_crypto::separate::{SeparateJob, open_separate_burst};

/// Verifies and decrypts those of the plans that are for such algorithms.
#[cold]
pub(super) fn open(burst: &mut [Item<'_>], plans: &mut [Plan<'_>]) {
    let (mut jobs, mut judged) = (Burst::new(), Burst::new());
    let mut left = plans.iter_mut().peekable();
    for (at, item) in burst.iter_mut().enumerate() {
        let Some(plan) = left.next_if(|plan| usize::from(plan.at) == at) else {
            continue;
        };
        let SaKey::Separate(key) = &plan.sa.key else { continue };
        let (start, end) = (usize::from(plan.arrived.at), plan.arrived.end());
        let around = plan.sa.around;
        let least = usize::from(around.before_text) + MIN_TEXT + usize::from(around.icv);
        let is_whole = |len: usize| len >= least && key.algorithm().fits(len);
        let packet = item.buf.data_mut().get_mut(start..end);
        let Some(packet) = packet.filter(|packet| is_whole(packet.len())) else {
            plan.verdict = Err(DropReason::EspTooShort);
            continue;
        };
        let high = plan.sa.esn.then_some((plan.sequence >> 32) as u32);
        jobs.push(SeparateJob { key, packet, high, ok: false });
        judged.push(plan);
    }
    open_separate_burst(&mut jobs);
    for (plan, job) in judged.iter_mut().zip(&jobs) {
        if !job.ok {
            plan.verdict = Err(plan.sa.window.blame(plan.sequence));
        }
    }
}
