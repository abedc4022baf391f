//! Packets with AES-CCM.

use super::others;
use super::plan::OutboundPlan;
use crate::dataplane::burst::Item;
use crate::sa::SaKey;
use testudo_crypto::Aad;
use testudo_crypto::ccm::{CcmJob, CcmKey, seal_ccm_burst};
use testudo_crypto::separate::HEADER_LEN;

/// Seals those planned packets that use AES-CCM.
#[cold]
pub(super) fn seal<'b>(burst: &'b mut [Item<'_>], plans: &'b [OutboundPlan<'b>], id: u16) {
    let of = |key: &'b SaKey| match key {
        SaKey::Ccm(key) => Some(&**key),
        _ => None,
    };
    others::seal(burst, plans, id, of, job, seal_ccm_burst, |job| job.ok);
}

/// The IV is the unmodified number, which no other packet of the key has (RFC 4309 §3.1).
fn job<'a>(esp: &'a mut [u8], plan: &OutboundPlan<'_>, key: &'a CcmKey) -> Option<CcmJob<'a>> {
    let (iv, body) = esp.get_mut(HEADER_LEN..)?.split_first_chunk_mut()?;
    let (text, icv) = body.split_at_mut_checked(body.len().checked_sub(key.algorithm().icv.octets())?)?;
    let aad = Aad::of_esp(plan.sa.spi.0, plan.sequence, plan.sa.esn);
    Some(CcmJob { key, iv: *iv, aad, text, icv, ok: false })
}
