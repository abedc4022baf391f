//! AES-CCM, many packets side by side.

use super::multi::{Manager, ROUND_KEYS, with_manager};
use super::{Library, functions};
use crate::ccm::{AesKey, CCM_NONCE_LEN, CcmJob, MAX_ICV_LEN};
use crate::error::CryptoError;
use crate::separate::burst::{MAX_BURST_JOBS, Operation, picked_of};
use std::ffi::{c_int, c_void};
use std::ptr;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// An expanded key.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(16))]
pub(crate) struct Schedule {
    encryption: [u8; ROUND_KEYS],
}

impl Schedule {
    /// The library has no CCM with a key of 192 bits.
    pub(crate) fn new(kind: AesKey, key: &[u8]) -> Result<Self, CryptoError> {
        let functions = functions()?;
        let expand = match kind {
            AesKey::Aes128 => functions.aes128,
            AesKey::Aes256 => functions.aes256,
            AesKey::Aes192 => return Err(CryptoError::KeyRefused { library: Library::IpsecMb }),
        };
        if key.len() != kind.octets() {
            return Err(CryptoError::KeyRefused { library: Library::IpsecMb });
        }
        let mut this = Self { encryption: [0; ROUND_KEYS] };
        let mut unused = Self { encryption: [0; ROUND_KEYS] };
        // SAFETY: `key` has the octets that `expand` reads; the schedules have those that it writes
        // for the longest key, and are aligned to 16 octets.
        unsafe {
            expand(
                key.as_ptr().cast(),
                this.encryption.as_mut_ptr().cast(),
                unused.encryption.as_mut_ptr().cast(),
            );
        }
        Ok(this)
    }
}

/// `struct testudo_imb_ccm_job` of the C side.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawJob {
    keys: *const u8,
    key_len: u64,
    nonce: *const u8,
    aad: *const u8,
    aad_len: u64,
    text: *mut u8,
    len: u64,
    icv: *mut u8,
    icv_len: u64,
}

unsafe extern "C" {
    fn testudo_imb_ccm(manager: *mut c_void, jobs: *const RawJob, count: u32, encrypt: c_int) -> c_int;
}

/// Processes the jobs whose bits are set: at most [`MAX_BURST_JOBS`], with texts and ICVs of valid
/// lengths. `once` is the schedule of a single job, otherwise each has its key's. Sets `ok` of
/// those that are sealed or authentic.
pub(crate) fn work(jobs: &mut [CcmJob<'_>], picked: u64, operation: Operation, once: Option<&Schedule>) {
    with_manager(|manager| crypt(manager, jobs, picked, operation, once));
}

fn crypt(
    manager: &Manager,
    jobs: &mut [CcmJob<'_>],
    picked: u64,
    operation: Operation,
    once: Option<&Schedule>,
) {
    let none = RawJob {
        keys: ptr::null(),
        key_len: 0,
        nonce: ptr::null(),
        aad: ptr::null(),
        aad_len: 0,
        text: ptr::null_mut(),
        len: 0,
        icv: ptr::null_mut(),
        icv_len: 0,
    };
    let (mut raw, mut count) = ([none; MAX_BURST_JOBS], 0);
    let (mut nonces, mut icvs) = ([[0; CCM_NONCE_LEN]; MAX_BURST_JOBS], [[0; MAX_ICV_LEN]; MAX_BURST_JOBS]);
    for ((job, nonce), icv) in picked_of(jobs, picked).zip(&mut nonces).zip(&mut icvs) {
        let (Some(schedule), Some(raw)) = (once.or(job.key.multi()), raw.get_mut(count)) else { return };
        *nonce = job.nonce();
        let (aad, algorithm) = (job.aad.as_bytes(), job.key.algorithm());
        *raw = RawJob {
            keys: schedule.encryption.as_ptr(),
            key_len: algorithm.key.octets() as u64,
            nonce: nonce.as_ptr(),
            aad: aad.as_ptr(),
            aad_len: aad.len() as u64,
            text: job.text.as_mut_ptr(),
            len: job.text.len() as u64,
            icv: icv.as_mut_ptr(),
            icv_len: algorithm.icv.octets() as u64,
        };
        count += 1;
    }
    let encrypt = c_int::from(operation == Operation::Seal);
    // SAFETY: the manager is this thread's. `count` jobs are filled: round keys of an expanded
    // schedule; nonces of 11 octets; data and texts that are borrowed for as long as the call
    // takes, each text once; places for the longest ICV.
    let done = unsafe { testudo_imb_ccm(manager.pointer(), raw.as_ptr(), count as u32, encrypt) != 0 };
    for (job, icv) in picked_of(jobs, picked).zip(&mut icvs) {
        let Some(icv) = icv.get_mut(..job.icv.len()).filter(|_| done) else { continue };
        match operation {
            Operation::Seal => {
                job.icv.copy_from_slice(icv);
                job.ok = true;
            }
            Operation::Open => {
                job.ok = bool::from(job.icv.ct_eq(icv));
                if !job.ok {
                    // The right ICV of a forged packet is as good as a forgery.
                    icv.zeroize();
                }
            }
        }
    }
}
