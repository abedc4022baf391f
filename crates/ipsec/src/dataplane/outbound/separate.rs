//! Packets with separate algorithms for encryption and integrity.

use super::others;
use super::plan::OutboundPlan;
use crate::dataplane::burst::Item;
use crate::number::high;
use crate::sa::SaKey;
use testudo_crypto::separate::{SeparateJob, seal_separate_burst};

/// Seals those planned packets that use such algorithms. The number in the IV's place is never used
/// twice; a block cipher derives the IV from it.
#[cold]
pub(super) fn seal<'b>(burst: &'b mut [Item<'_>], plans: &'b [OutboundPlan<'b>], id: u16) {
    let of = |key: &'b SaKey| match key {
        SaKey::Separate(key) => Some(&**key),
        _ => None,
    };
    let job = |packet, plan: &OutboundPlan<'b>, key| {
        Some(SeparateJob { key, packet, high: high(plan.sa.esn, plan.sequence), ok: false })
    };
    others::seal(burst, plans, id, of, job, seal_separate_burst, |job| job.ok);
}
