//! Packets with AES-CCM.

use super::{Burst, MIN_TEXT, Plan};
use crate::dataplane::burst::Item;
use crate::drops::DropReason;
use crate::sa::SaKey;
use testudo_crypto::Aad;
use testudo_crypto::ccm::{CcmJob, CcmKey, open_ccm_burst};
use testudo_crypto::separate::HEADER_LEN;

/// Verifies and decrypts those of the plans that are for AES-CCM.
#[cold]
pub(super) fn open(burst: &mut [Item<'_>], plans: &mut [Plan<'_>]) {
    let (mut jobs, mut judged) = (Burst::new(), Burst::new());
    let mut left = plans.iter_mut().peekable();
    for (at, item) in burst.iter_mut().enumerate() {
        let Some(plan) = left.next_if(|plan| usize::from(plan.at) == at) else {
            continue;
        };
        let SaKey::Ccm(key) = &plan.sa.key else { continue };
        match job(item.buf.data_mut(), plan, key) {
            Some(job) => {
                jobs.push(job);
                judged.push(plan);
            }
            None => plan.verdict = Err(DropReason::EspTooShort),
        }
    }
    open_ccm_burst(&mut jobs);
    for (plan, job) in judged.iter_mut().zip(&jobs) {
        if !job.ok {
            plan.verdict = Err(plan.sa.window.blame(plan.sequence));
        }
    }
}

/// `None` if the packet is too short.
fn job<'a>(packet: &'a mut [u8], plan: &Plan<'_>, key: &'a CcmKey) -> Option<CcmJob<'a>> {
    let Plan { sa, sequence, arrived, .. } = plan;
    let esp = packet.get_mut(usize::from(arrived.at)..arrived.end())?;
    let (iv, body) = esp.get_mut(HEADER_LEN..)?.split_first_chunk_mut()?;
    let text_len = body.len().checked_sub(key.algorithm().icv.octets()).filter(|len| *len >= MIN_TEXT)?;
    let (text, icv) = body.split_at_mut_checked(text_len)?;
    let aad = if sa.esn { Aad::esp_esn(sa.spi.0, *sequence) } else { Aad::esp(sa.spi.0, arrived.sequence) };
    Some(CcmJob { key, iv: *iv, aad, text, icv, ok: false })
}
