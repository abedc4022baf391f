//! Many packets in one call, each with its own key.

use super::{CcmKey, MAX_TEXT_LEN, Schedule};
use crate::aead::IV_LEN;
use crate::burst::Aad;
#[cfg(ipsec_mb)]
use crate::ipsec_mb::ccm;
use crate::separate::burst::{MAX_BURST_JOBS, Operation};
use zeroize::Zeroize;

/// A packet to encrypt, or to verify and decrypt.
#[derive(Debug)]
pub struct CcmJob<'a> {
    /// The key.
    pub key: &'a CcmKey,
    /// Never used before with this key; or as received.
    pub iv: [u8; IV_LEN],
    /// Authenticated, not encrypted.
    pub aad: Aad,
    /// Plaintext that becomes ciphertext, or the other way; never empty, as ESP has a trailer.
    pub text: &'a mut [u8],
    /// Of the algorithm's length: the place for the ICV, or the received one.
    pub icv: &'a mut [u8],
    /// The result: whether the packet is sealed, or authentic. False until the burst has been
    /// processed.
    pub ok: bool,
}

/// Encrypts every job's text and writes its ICV. A job that cannot be sealed, because text or ICV
/// has an impossible length, is overwritten with zeros, which no receiver accepts.
pub fn seal_ccm_burst(jobs: &mut [CcmJob<'_>]) {
    work(jobs, Operation::Seal);
}

/// Verifies and decrypts every job's text. The text of an unauthentic job becomes all zeros.
pub fn open_ccm_burst(jobs: &mut [CcmJob<'_>]) {
    work(jobs, Operation::Open);
}

fn work(jobs: &mut [CcmJob<'_>], operation: Operation) {
    for part in jobs.chunks_mut(MAX_BURST_JOBS) {
        let mut multi: u64 = 0;
        for (at, job) in part.iter_mut().enumerate() {
            job.ok = false;
            let key = job.key;
            let possible =
                (1..=MAX_TEXT_LEN).contains(&job.text.len()) && job.icv.len() == key.algorithm.icv.octets();
            match key.schedule.get() {
                _ if !possible => {}
                Some(schedule) if schedule.is_multi() => multi |= 1 << at,
                Some(schedule) => one(schedule, job, operation),
                None => alone(job, operation),
            }
        }
        if multi != 0 {
            together(part, multi, operation);
        }
        for job in part.iter_mut().filter(|job| !job.ok) {
            job.text.zeroize();
            if operation == Operation::Seal {
                job.icv.zeroize();
            }
        }
    }
}

/// Processes the jobs of a part whose bits are set side by side.
#[cfg_attr(not(ipsec_mb), expect(unused_variables))]
fn together(part: &mut [CcmJob<'_>], picked: u64, operation: Operation) {
    #[cfg(ipsec_mb)]
    ccm::work(part, picked, operation, None);
}

/// Processes a job with a schedule made for this packet.
#[cold]
fn alone(job: &mut CcmJob<'_>, operation: Operation) {
    if let Ok(schedule) = job.key.schedule() {
        one(&schedule, job, operation);
    }
}

fn one(schedule: &Schedule, job: &mut CcmJob<'_>, operation: Operation) {
    let nonce = job.key.nonce(job.iv);
    match (schedule, operation) {
        #[cfg(ipsec_mb)]
        (Schedule::IpsecMb(schedule), _) => {
            ccm::work(std::slice::from_mut(job), 1, operation, Some(schedule));
        }
        (Schedule::RustCrypto(schedule), Operation::Seal) => {
            job.ok = schedule.ccm().seal(&nonce, job.aad.as_bytes(), job.text, job.icv);
        }
        (Schedule::RustCrypto(schedule), Operation::Open) => {
            job.ok = schedule.ccm().open(&nonce, job.aad.as_bytes(), job.text, job.icv);
        }
    }
}

#[cfg(ipsec_mb)]
impl CcmJob<'_> {
    pub(crate) fn nonce(&self) -> [u8; super::CCM_NONCE_LEN] {
        self.key.nonce(self.iv)
    }
}

#[cfg(ipsec_mb)]
impl CcmKey {
    pub(crate) fn multi(&self) -> Option<&ccm::Schedule> {
        match self.schedule.get().map(|schedule| &**schedule) {
            Some(Schedule::IpsecMb(schedule)) => Some(schedule),
            _ => None,
        }
    }
}
