//! Packets with AES-CCM.

use super::plan::Plan;
use super::{Burst, separate};
use crate::dataplane::burst::{Item, Verdict};
use crate::drops::DropReason;
use crate::sa::SaKey;
use testudo_crypto::Aad;
use testudo_crypto::ccm::{CcmJob, CcmKey, seal_ccm_burst};
use testudo_crypto::separate::HEADER_LEN;

/// Puts ESP around those of the planned packets that are for AES-CCM, and encrypts them: as [`seal`](super::seal::seal) does with the
/// others.
#[cold]
pub(super) fn seal(burst: &mut [Item<'_>], plans: &[Plan<'_>], mut id: u16) {
    let (mut jobs, mut verdicts) = (Burst::new(), Burst::new());
    let mut left = plans.iter().peekable();
    for (at, item) in burst.iter_mut().enumerate() {
        let Some(plan) = left.next_if(|plan| usize::from(plan.at) == at) else {
            continue;
        };
        id = id.wrapping_add(1);
        let SaKey::Ccm(key) = &plan.sa.key else { continue };
        item.verdict = Verdict::Drop(DropReason::NoRoom);
        if let Some(job) = separate::encapsulate(&mut item.buf, plan, id).and_then(|esp| job(esp, plan, key))
        {
            jobs.push(job);
            verdicts.push((&mut item.verdict, plan));
        }
    }
    seal_ccm_burst(&mut jobs);
    for ((verdict, plan), _) in verdicts.into_iter().zip(&jobs).filter(|(_, job)| job.ok) {
        *verdict = plan.sealed();
    }
}

/// The IV is the number as it is, which no other packet of the key has (RFC 4309 §3.1).
fn job<'a>(esp: &'a mut [u8], plan: &Plan<'_>, key: &'a CcmKey) -> Option<CcmJob<'a>> {
    let Plan { sa, sequence, .. } = *plan;
    let (iv, body) = esp.get_mut(HEADER_LEN..)?.split_first_chunk_mut()?;
    let (text, icv) = body.split_at_mut_checked(body.len().checked_sub(key.algorithm().icv.octets())?)?;
    let aad = if sa.esn { Aad::esp_esn(sa.spi.0, sequence) } else { Aad::esp(sa.spi.0, sequence as u32) };
    Some(CcmJob { key, iv: *iv, aad, text, icv, ok: false })
}
