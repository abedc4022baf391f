//! Packets with AES-CCM.

use super::{InboundPlan, MIN_TEXT_LEN, others};
use crate::dataplane::burst::Item;
use crate::sa::SaKey;
use testudo_crypto::Aad;
use testudo_crypto::ccm::{CcmJob, CcmKey, open_ccm_burst};
use testudo_crypto::separate::HEADER_LEN;

/// Opens those plans that use AES-CCM.
#[cold]
pub(super) fn open<'s>(burst: &mut [Item<'_>], plans: &mut [InboundPlan<'s>]) {
    let of = |key: &'s SaKey| match key {
        SaKey::Ccm(key) => Some(&**key),
        _ => None,
    };
    others::open(burst, plans, of, job, open_ccm_burst, |job| job.ok);
}

/// `None` if the packet is too short.
fn job<'a>(esp: &'a mut [u8], plan: &InboundPlan<'_>, key: &'a CcmKey) -> Option<CcmJob<'a>> {
    let (iv, body) = esp.get_mut(HEADER_LEN..)?.split_first_chunk_mut()?;
    let text_len = body.len().checked_sub(key.algorithm().icv.octets()).filter(|len| *len >= MIN_TEXT_LEN)?;
    let (text, icv) = body.split_at_mut_checked(text_len)?;
    let aad = Aad::of_esp(plan.sa.spi.0, plan.sequence, plan.sa.esn);
    Some(CcmJob { key, iv: *iv, aad, text, icv, ok: false })
}
