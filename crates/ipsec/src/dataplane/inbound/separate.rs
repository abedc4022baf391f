//! Packets with separate algorithms for encryption and integrity.

use super::{InboundPlan, MIN_TEXT_LEN, others};
use crate::dataplane::burst::Item;
use crate::number::high;
use crate::sa::SaKey;
use testudo_crypto::separate::{SeparateJob, SeparateKey, open_separate_burst};

/// Opens those plans that use such algorithms.
#[cold]
pub(super) fn open<'s>(burst: &mut [Item<'_>], plans: &mut [InboundPlan<'s>]) {
    let of = |key: &'s SaKey| match key {
        SaKey::Separate(key) => Some(&**key),
        _ => None,
    };
    others::open(burst, plans, of, job, open_separate_burst, |job| job.ok);
}

/// `None` if the packet is too short, or its text is not a multiple of the block size.
fn job<'a>(packet: &'a mut [u8], plan: &InboundPlan<'_>, key: &'a SeparateKey) -> Option<SeparateJob<'a>> {
    let around = plan.sa.around;
    let least = usize::from(around.before_text) + MIN_TEXT_LEN + usize::from(around.icv);
    let is_whole = packet.len() >= least && key.algorithm().fits(packet.len());
    is_whole.then(|| SeparateJob { key, packet, high: high(plan.sa.esn, plan.sequence), ok: false })
}
