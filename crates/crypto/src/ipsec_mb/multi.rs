//! AES-CBC, 3DES-CBC and MACs, many packets side by side.
//!
//! The library keeps its state in a manager, one a thread, made with the thread's first burst. Each
//! call here finishes all its packets, so that nothing stays in a manager between calls.

use super::{Block, Functions, Library, functions};
use crate::error::CryptoError;
use crate::separate::burst::{MAX_BURST_JOBS, Operation, SeparateJob, picked_of};
use crate::separate::{Cipher, HEADER_LEN, Mac, SeparateAlgorithm};
use std::cell::OnceCell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Octets of the round keys of AES-256.
pub(super) const ROUND_KEYS: usize = 15 * 16;
/// Octets of the schedule of one of the three keys of 3DES.
const DES_SCHEDULE: usize = 128;
/// Octets of the longest block, and of the longest state, that a hash has: SHA-512's.
const MAX_BLOCK: usize = 128;
const MAX_STATE: usize = 64;
/// Octets of the round keys of AES-128.
const MAC_ROUND_KEYS: usize = 11 * 16;
/// Octets of the two other keys of an AES MAC, concatenated.
const MAC_SUBKEYS_LEN: usize = 2 * 16;
/// Octets of the longest ICV.
const MAX_ICV_LEN: usize = Mac::HmacSha512_256.icv_len();
/// An encrypted nonce has no IV.
static NO_IV: [u8; 16] = [0; 16];
/// Octets of the upper half of a sequence number.
const SEQUENCE_HIGH_LEN: usize = 4;

/// Expanded keys.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(64))]
pub(crate) struct Schedule {
    /// For AES the round keys for encryption, then those for decryption; for 3DES three schedules,
    /// used for both.
    cipher: [u8; 2 * ROUND_KEYS],
    mac: MacSchedule,
}
const _: () = assert!(3 * DES_SCHEDULE <= 2 * ROUND_KEYS);

/// The initial state of a MAC. For HMAC the hash's states behind the block of each pad (RFC 2104
/// §4), in `first` and `second`. For an AES MAC the round keys in `first`, and in `second` the
/// blocks that are added to a last block that is whole, or padded.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(16))]
struct MacSchedule {
    first: [u8; MAC_ROUND_KEYS],
    second: [u8; MAX_STATE],
}
const _: () = assert!(MAX_STATE <= MAC_ROUND_KEYS && MAC_SUBKEYS_LEN <= MAX_STATE);

impl Schedule {
    pub(crate) fn new(
        algorithm: SeparateAlgorithm,
        cipher_key: &[u8],
        mac_key: &[u8],
    ) -> Result<Self, CryptoError> {
        let functions = functions()?;
        let lens = (algorithm.cipher.key_len(), algorithm.mac.key_len());
        if (cipher_key.len(), mac_key.len()) != lens {
            return Err(CryptoError::KeyRefused { library: Library::IpsecMb });
        }
        let mut this = Self {
            cipher: [0; 2 * ROUND_KEYS],
            mac: MacSchedule { first: [0; MAC_ROUND_KEYS], second: [0; MAX_STATE] },
        };
        this.mac.expand(functions, algorithm.mac, mac_key);
        if this.expand(functions, algorithm.cipher, cipher_key) {
            Ok(this)
        } else {
            Err(CryptoError::KeyRefused { library: Library::IpsecMb })
        }
    }

    /// `key` has the cipher's length. False if the library refuses it.
    fn expand(&mut self, functions: &Functions, cipher: Cipher, key: &[u8]) -> bool {
        let expand = match cipher {
            Cipher::Null => return true,
            Cipher::TripleDesCbc => return self.expand_des(functions, key),
            Cipher::Aes128Cbc => functions.aes128,
            Cipher::Aes192Cbc => functions.aes192,
            Cipher::Aes256Cbc => functions.aes256,
        };
        assert_eq!(key.len(), cipher.key_len());
        let (encryption, decryption) = self.cipher.split_at_mut(ROUND_KEYS);
        // SAFETY: `key` has the octets that `expand` reads; the schedules have those that it writes
        // for the longest key, and are aligned to 16 octets.
        unsafe {
            expand(key.as_ptr().cast(), encryption.as_mut_ptr().cast(), decryption.as_mut_ptr().cast());
        }
        true
    }

    /// Three keys, each of eight octets.
    fn expand_des(&mut self, functions: &Functions, key: &[u8]) -> bool {
        let (keys, schedules) = (key.as_chunks::<8>().0, self.cipher.as_chunks_mut::<DES_SCHEDULE>().0);
        keys.iter().zip(schedules).all(|(key, schedule)| {
            // SAFETY: the key has eight octets; the schedule has those that are written, and is
            // aligned to 16.
            unsafe { (functions.des)(schedule.as_mut_ptr().cast(), key.as_ptr().cast()) == 0 }
        })
    }

    /// The schedule of a direction.
    fn cipher(&self, cipher: Cipher, encrypt: bool) -> &[u8] {
        let at = if encrypt || cipher == Cipher::TripleDesCbc { 0 } else { ROUND_KEYS };
        self.cipher.get(at..).unwrap_or_default()
    }
}

impl MacSchedule {
    /// `key` has the MAC's length.
    fn expand(&mut self, functions: &Functions, mac: Mac, key: &[u8]) {
        assert_eq!(key.len(), mac.key_len());
        let hash = match mac {
            Mac::HmacSha1_96 => functions.sha1,
            Mac::HmacSha256_128 => functions.sha256,
            Mac::HmacSha384_192 => functions.sha384,
            Mac::HmacSha512_256 => functions.sha512,
            Mac::HmacMd5_96 => functions.md5,
            Mac::AesXcbc96 => return self.expand_xcbc(functions, key),
            Mac::AesCmac96 => return self.expand_cmac(functions, key),
        };
        let (first, second) = (self.first.first_chunk_mut(), &mut self.second);
        for (state, pad) in first.into_iter().zip([0x36]).chain([(second, 0x5c)]) {
            absorb(hash, key, pad, state);
        }
    }

    /// `key` must have 16 octets.
    fn expand_xcbc(&mut self, functions: &Functions, key: &[u8]) {
        let (whole, filled) = self.second.split_at_mut(MAC_SUBKEYS_LEN / 2);
        // SAFETY: `key` has the octets that are read; the others are aligned to 16 octets, and have
        // those that are written.
        unsafe {
            (functions.xcbc)(
                key.as_ptr().cast(),
                self.first.as_mut_ptr().cast(),
                whole.as_mut_ptr().cast(),
                filled.as_mut_ptr().cast(),
            );
        }
    }

    /// `key` must have 16 octets.
    fn expand_cmac(&mut self, functions: &Functions, key: &[u8]) {
        let mut unused = MacSchedule { first: [0; MAC_ROUND_KEYS], second: [0; MAX_STATE] };
        let (whole, filled) = self.second.split_at_mut(MAC_SUBKEYS_LEN / 2);
        // SAFETY: `key` has the octets that are read; the others are aligned to 16 octets, and have
        // those that are written.
        unsafe {
            let round_keys = self.first.as_mut_ptr();
            (functions.aes128)(key.as_ptr().cast(), round_keys.cast(), unused.first.as_mut_ptr().cast());
            (functions.cmac)(round_keys.cast(), whole.as_mut_ptr().cast(), filled.as_mut_ptr().cast());
        }
    }
}

/// The C side's number of a MAC: for HMAC the bits of its hash.
fn number(mac: Mac) -> u32 {
    match mac {
        Mac::HmacSha1_96 => 160,
        Mac::HmacSha256_128 => 256,
        Mac::HmacSha384_192 => 384,
        Mac::HmacSha512_256 => 512,
        Mac::AesXcbc96 => 1,
        Mac::AesCmac96 => 2,
        Mac::HmacMd5_96 => 3,
    }
}

/// Hashes the block of a key and a pad. No key is longer than a block.
fn absorb(hash: Block, key: &[u8], pad: u8, state: &mut [u8; MAX_STATE]) {
    let mut block = [pad; MAX_BLOCK];
    block.iter_mut().zip(key).for_each(|(octet, key)| *octet ^= key);
    // SAFETY: `hash` reads one block and writes one state, and neither of any hash is longer than
    // these.
    unsafe { hash(block.as_ptr().cast(), state.as_mut_ptr().cast()) };
    block.zeroize();
}

/// `struct testudo_imb_cipher_job` of the C side.
#[repr(C)]
#[derive(Clone, Copy)]
struct CipherJob {
    keys: *const u8,
    iv: *const u8,
    text: *mut u8,
    len: u64,
}

/// `struct testudo_imb_hash_job` of the C side.
#[repr(C)]
#[derive(Clone, Copy)]
struct HashJob {
    first: *const u8,
    second: *const u8,
    message: *const u8,
    len: u64,
    icv: *mut u8,
}

unsafe extern "C" {
    fn testudo_imb_manager() -> *mut c_void;
    fn testudo_imb_manager_free(manager: *mut c_void);
    fn testudo_imb_cipher(
        manager: *mut c_void,
        jobs: *const CipherJob,
        count: u32,
        key_len: u32,
        encrypt: c_int,
    ) -> c_int;
    fn testudo_imb_hash(
        manager: *mut c_void,
        jobs: *const HashJob,
        count: u32,
        mac: u32,
        icv_len: u32,
    ) -> c_int;
}

/// The library's state for one thread.
pub(super) struct Manager(NonNull<c_void>);

impl Manager {
    pub(super) fn pointer(&self) -> *mut c_void {
        self.0.as_ptr()
    }

    fn new() -> Option<Self> {
        // SAFETY: it takes nothing, and gives a manager or null.
        NonNull::new(unsafe { testudo_imb_manager() }).map(Self)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // SAFETY: it was made by `testudo_imb_manager` and is used no more.
        unsafe { testudo_imb_manager_free(self.0.as_ptr()) };
    }
}

thread_local! {
    static MANAGER: OnceCell<Option<Manager>> = const { OnceCell::new() };
}

/// Calls `work` with this thread's manager. Does nothing if there is no memory for one, or the
/// thread is ending.
pub(super) fn with_manager(work: impl FnOnce(&Manager)) {
    let _ended = MANAGER.try_with(|manager| manager.get_or_init(Manager::new).as_ref().map(work));
}

/// Processes the jobs whose bits are set: at most [`MAX_BURST_JOBS`], all of this algorithm and
/// with whole packets. `once` is the schedule of a single job, otherwise each has its key's. Sets
/// `ok` of those that are sealed or authentic.
pub(crate) fn work(
    jobs: &mut [SeparateJob<'_>],
    picked: u64,
    algorithm: SeparateAlgorithm,
    operation: Operation,
    once: Option<&Schedule>,
) {
    let burst = Burst { picked, algorithm, once };
    with_manager(|manager| match operation {
        Operation::Seal => {
            if burst.crypt(manager, jobs, operation) {
                burst.authenticate(manager, jobs, operation);
            }
        }
        Operation::Open => {
            burst.authenticate(manager, jobs, operation);
            if !burst.crypt(manager, jobs, operation) {
                picked_of(jobs, burst.picked).for_each(|job| job.ok = false);
            }
        }
    });
}

/// The common parameters of a call's packets.
struct Burst<'s> {
    picked: u64,
    algorithm: SeparateAlgorithm,
    once: Option<&'s Schedule>,
}

impl Burst<'_> {
    /// Encrypts all packets, or decrypts the authentic ones. Returns false if the library has not
    /// done it.
    fn crypt(&self, manager: &Manager, jobs: &mut [SeparateJob<'_>], operation: Operation) -> bool {
        let encrypt = operation == Operation::Seal;
        let cipher = self.algorithm.cipher;
        if cipher == Cipher::Null {
            return true;
        }
        let none = CipherJob { keys: ptr::null(), iv: ptr::null(), text: ptr::null_mut(), len: 0 };
        let (mut raw, mut count) = ([none; MAX_BURST_JOBS], 0);
        for job in picked_of(jobs, self.picked).filter(|job| encrypt || job.ok) {
            let schedule = self.once.or(job.key.multi());
            let blocks = job.icv_at().and_then(|icv_at| job.packet.get_mut(HEADER_LEN..icv_at));
            let (Some(schedule), Some(blocks), Some(raw)) = (schedule, blocks, raw.get_mut(count)) else {
                return false;
            };
            // A nonce is encrypted with the text, and becomes its IV.
            let (iv, text) = blocks.split_at_mut(if encrypt { 0 } else { cipher.iv_len() });
            *raw = CipherJob {
                keys: schedule.cipher(cipher, encrypt).as_ptr(),
                iv: if encrypt { &NO_IV } else { &*iv }.as_ptr(),
                text: text.as_mut_ptr(),
                len: text.len() as u64,
            };
            count += 1;
        }
        // The C side's number of 3DES is 0.
        let key_len = if cipher == Cipher::TripleDesCbc { 0 } else { cipher.key_len() as u32 };
        let manager = manager.0.as_ptr();
        // SAFETY: the manager is this thread's. `count` jobs are filled: an expanded schedule; an
        // IV as long as a block; whole blocks of text, as `icv_at` has found, in packets that are
        // borrowed for as long as the call takes, each once.
        unsafe { testudo_imb_cipher(manager, raw.as_ptr(), count as u32, key_len, encrypt.into()) != 0 }
    }

    /// Writes the ICVs, or compares them.
    fn authenticate(&self, manager: &Manager, jobs: &mut [SeparateJob<'_>], operation: Operation) {
        let none = HashJob {
            first: ptr::null(),
            second: ptr::null(),
            message: ptr::null(),
            len: 0,
            icv: ptr::null_mut(),
        };
        let (mut icvs, mut beneath) =
            ([[0; MAX_ICV_LEN]; MAX_BURST_JOBS], [[0; SEQUENCE_HIGH_LEN]; MAX_BURST_JOBS]);
        let (mut raw, mut count) = ([none; MAX_BURST_JOBS], 0);
        for ((job, icv), beneath) in picked_of(jobs, self.picked).zip(&mut icvs).zip(&mut beneath) {
            let schedule = self.once.or(job.key.multi());
            let high_len = job.high.map_or(0, |high| {
                *beneath = high.to_be_bytes();
                SEQUENCE_HIGH_LEN
            });
            swap_high(job, beneath);
            let message = job.icv_at().and_then(|icv_at| job.packet.get(..icv_at + high_len));
            let (Some(schedule), Some(message), Some(raw)) = (schedule, message, raw.get_mut(count)) else {
                return;
            };
            *raw = HashJob {
                first: schedule.mac.first.as_ptr(),
                second: schedule.mac.second.as_ptr(),
                message: message.as_ptr(),
                len: message.len() as u64,
                icv: icv.as_mut_ptr(),
            };
            count += 1;
        }
        let (manager, count) = (manager.0.as_ptr(), count as u32);
        let (mac, icv_len) = (number(self.algorithm.mac), self.algorithm.mac.icv_len());
        // SAFETY: the manager is this thread's. `count` jobs are filled: what the MAC begins with,
        // of an expanded schedule; octets of packets that are borrowed for as long as the call
        // takes; places for the longest ICV, each once.
        let done = unsafe { testudo_imb_hash(manager, raw.as_ptr(), count, mac, icv_len as u32) != 0 };
        for ((job, icv), beneath) in picked_of(jobs, self.picked).zip(&mut icvs).zip(&mut beneath) {
            swap_high(job, beneath);
            let end = job.icv_at().and_then(|icv_at| job.packet.get_mut(icv_at..));
            let Some(found) = end.filter(|found| done && found.len() == icv_len) else { continue };
            match operation {
                Operation::Seal => {
                    found.iter_mut().zip(&*icv).for_each(|(to, from)| *to = *from);
                    job.ok = true;
                }
                Operation::Open => job.ok = is_equal(found, icv),
            }
        }
    }
}

/// Swaps four octets with those at the ICV's place, if the job has the upper half of a sequence
/// number: it is hashed there as if it were sent.
#[inline]
fn swap_high(job: &mut SeparateJob<'_>, octets: &mut [u8; SEQUENCE_HIGH_LEN]) {
    if job.high.is_some()
        && let Some(place) = job.icv_at().and_then(|at| job.packet.get_mut(at..at + SEQUENCE_HIGH_LEN))
    {
        place.swap_with_slice(octets);
    }
}

/// Compares in constant time. The right ICV of a forged packet is as good as a forgery, and is
/// overwritten.
#[inline]
fn is_equal(found: &[u8], expected: &mut [u8; MAX_ICV_LEN]) -> bool {
    let mut other = *expected;
    other.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
    // As whole numbers: octet by octet it takes longer.
    let numbers = |octets: &[u8; MAX_ICV_LEN]| {
        let (low, high) = octets.split_at(MAX_ICV_LEN / 2);
        [low, high].map(|half| half.try_into().map_or(0, u128::from_ne_bytes))
    };
    let ([a, b], [c, d]) = (numbers(expected), numbers(&other));
    let equal = bool::from(a.ct_eq(&c) & b.ct_eq(&d));
    if !equal {
        expected.zeroize();
    }
    equal
}
