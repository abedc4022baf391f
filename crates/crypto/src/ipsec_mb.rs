//! intel-ipsec-mb through its direct calls for AEADs.
//!
//! The calls are pure functions of their arguments, chosen once for this processor. `ipsec_mb.c`
//! asks the library for them, so that the layout of its header is not repeated here.

pub(crate) mod ccm;
pub(crate) mod multi;
mod reads;

use crate::aead::{AeadAlgorithm, NONCE_LEN, TAG_LEN};
use crate::error::CryptoError;
use crate::library::Library;
use crate::prefetch::prefetch;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

type Expand = unsafe extern "C" fn(key: *const c_void, schedule: *mut c_void);
/// Writes the round keys of an AES key, for encryption and for decryption.
type RoundKeys = unsafe extern "C" fn(key: *const c_void, encryption: *mut c_void, decryption: *mut c_void);
/// Hashes one block from the hash's beginning; writes the state, not the digest.
type Block = unsafe extern "C" fn(block: *const c_void, state: *mut c_void);

/// Writes the keys that AES-XCBC derives from a key: round keys of the first of three keys, and the
/// two others.
type Xcbc = unsafe extern "C" fn(
    key: *const c_void,
    round_keys: *mut c_void,
    whole: *mut c_void,
    filled: *mut c_void,
);
/// Writes the schedule of a DES key; returns 0 on success.
type Des = unsafe extern "C" fn(schedule: *mut u64, key: *const c_void) -> c_int;
/// Writes the two other keys of AES-CMAC.
type Cmac = unsafe extern "C" fn(round_keys: *const c_void, whole: *mut c_void, filled: *mut c_void);

type Crypt = unsafe extern "C" fn(
    schedule: *const c_void,
    context: *mut c_void,
    output: *mut u8,
    input: *const u8,
    len: u64,
    nonce: *const u8,
    aad: *const u8,
    aad_len: u64,
    tag: *mut u8,
    tag_len: u64,
);

/// The library's functions for this processor; `struct testudo_imb` of the C side.
#[repr(C)]
pub(crate) struct Functions {
    expand128: Expand,
    expand192: Expand,
    expand256: Expand,
    expand_chacha: Expand,
    seal128: Crypt,
    open128: Crypt,
    seal192: Crypt,
    open192: Crypt,
    seal256: Crypt,
    open256: Crypt,
    seal_chacha: Crypt,
    open_chacha: Crypt,
    gmac128: Crypt,
    gmac192: Crypt,
    gmac256: Crypt,
    aes128: RoundKeys,
    aes192: RoundKeys,
    aes256: RoundKeys,
    sha1: Block,
    sha256: Block,
    sha384: Block,
    sha512: Block,
    xcbc: Xcbc,
    cmac: Cmac,
    md5: Block,
    des: Des,
    schedule_size: usize,
    many_des: u64,
    version: *const c_char,
}

// SAFETY: `version` points to a string constant of the library; the rest are code addresses and a
// number.
unsafe impl Send for Functions {}
// SAFETY: as above, nothing in it ever changes.
unsafe impl Sync for Functions {}

impl Functions {
    /// True if 3DES can process many packets side by side: without AVX-512 the library has only
    /// portable code, which reads a whole table for each look-up.
    pub(crate) fn many_des(&self) -> bool {
        self.many_des != 0
    }

    pub(crate) fn version(&self) -> Option<&'static str> {
        // SAFETY: the library promises a constant, zero-terminated string.
        let version = unsafe { CStr::from_ptr::<'static>(self.version) };
        version.to_str().ok()
    }
}

unsafe extern "C" {
    fn testudo_imb_load(out: *mut Functions) -> c_int;
}

/// The functions for this processor, loaded once a process.
pub(crate) fn functions() -> Result<&'static Functions, CryptoError> {
    static FUNCTIONS: OnceLock<Result<Functions, CryptoError>> = OnceLock::new();
    FUNCTIONS.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Functions, CryptoError> {
    let mut functions = MaybeUninit::<Functions>::uninit();
    // SAFETY: the pointer is valid for writing one `Functions`.
    let reason = match unsafe { testudo_imb_load(functions.as_mut_ptr()) } {
        0 => {
            // SAFETY: 0 means that every field has been filled, the function pointers from a
            // manager that is never null.
            let functions = unsafe { functions.assume_init() };
            reads::learn(&functions);
            return Ok(functions);
        }
        1 => "out of memory",
        2 => "the processor lacks AES-NI or PCLMULQDQ",
        _ => "its self-test failed",
    };
    Err(CryptoError::Unavailable { library: Library::IpsecMb, reason })
}

/// Memory with the alignment that the library needs: a cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct CacheLine([u8; 64]);

/// Room for `struct gcm_context_data`; `ipsec_mb.c` asserts that it is enough.
type Context = MaybeUninit<[CacheLine; 2]>;

/// The functions that use the schedules of one algorithm.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    seal: Crypt,
    open: Crypt,
}

/// An expanded key.
pub(crate) struct Schedule {
    /// `struct gcm_key_data`, or the key of ChaCha20; only ever read after its making.
    lines: Box<[CacheLine]>,
    calls: Calls,
}

/// Bound on the lines of a schedule: version 1.3 needs 17, version 2.0 no more.
const MAX_LINES: usize = 32;

/// Expands the key on the stack for the one call of `work`, and wipes it. Returns false if the
/// library needs more room.
pub(crate) fn with_schedule(
    algorithm: AeadAlgorithm,
    key: &[u8],
    work: impl FnOnce(&[CacheLine], Calls) -> bool,
) -> bool {
    let Ok(functions) = functions() else { return false };
    let mut lines = [CacheLine([0; 64]); MAX_LINES];
    let result = match lines.get_mut(..functions.lines()) {
        Some(lines) if key.len() == algorithm.key_len() => {
            let calls = functions.expand(algorithm, key, lines);
            work(lines, calls)
        }
        _ => false,
    };
    lines.iter_mut().for_each(|line| line.0.zeroize());
    result
}

impl Functions {
    /// Octets of a schedule.
    pub(crate) fn schedule_len(&self) -> usize {
        self.lines() * size_of::<CacheLine>()
    }

    fn lines(&self) -> usize {
        self.schedule_size.div_ceil(size_of::<CacheLine>())
    }

    /// Writes the schedule of a key, which must be as long as the algorithm's, into as many lines
    /// as it needs.
    fn expand(&self, algorithm: AeadAlgorithm, key: &[u8], lines: &mut [CacheLine]) -> Calls {
        assert!(key.len() == algorithm.key_len() && lines.len() >= self.lines());
        let (expand, seal, open) = match algorithm {
            AeadAlgorithm::Aes128Gcm => (self.expand128, self.seal128, self.open128),
            AeadAlgorithm::Aes192Gcm => (self.expand192, self.seal192, self.open192),
            AeadAlgorithm::Aes256Gcm => (self.expand256, self.seal256, self.open256),
            // Both directions are the same if the text is not encrypted.
            AeadAlgorithm::Aes128Gmac => (self.expand128, self.gmac128, self.gmac128),
            AeadAlgorithm::Aes192Gmac => (self.expand192, self.gmac192, self.gmac192),
            AeadAlgorithm::Aes256Gmac => (self.expand256, self.gmac256, self.gmac256),
            AeadAlgorithm::ChaCha20Poly1305 => (self.expand_chacha, self.seal_chacha, self.open_chacha),
        };
        // SAFETY: `key` has the octets that `expand` reads, `lines` the size and alignment of what
        // it writes.
        unsafe { expand(key.as_ptr().cast(), lines.as_mut_ptr().cast()) };
        Calls { seal, open }
    }
}

impl Schedule {
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Result<Self, CryptoError> {
        let functions = functions()?;
        if key.len() != algorithm.key_len() {
            return Err(CryptoError::KeyRefused { library: Library::IpsecMb });
        }
        let mut lines = vec![CacheLine([0; 64]); functions.lines()].into_boxed_slice();
        let calls = functions.expand(algorithm, key, &mut lines);
        Ok(Self { lines, calls })
    }

    /// Prefetches the part that a text of this many octets needs.
    #[inline]
    pub(crate) fn prefetch(&self, algorithm: AeadAlgorithm, len: usize) {
        let needed = reads::lines(algorithm, len);
        for (at, line) in self.lines.iter().enumerate() {
            if needed & 1 << at != 0 {
                prefetch(line, size_of::<CacheLine>());
            }
        }
    }

    /// Always true: the library refuses nothing that is not null.
    #[inline]
    pub(crate) fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> bool {
        self.calls.seal(&self.lines, nonce, aad, text, tag);
        true
    }

    /// Returns false, with the unauthentic plaintext in `text`, if the tag does not verify.
    #[inline]
    pub(crate) fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        self.calls.open(&self.lines, nonce, aad, text, tag)
    }
}

impl Calls {
    /// Seals with a schedule that [`Functions::expand`] has made together with these functions.
    #[inline]
    pub(crate) fn seal(
        self,
        schedule: &[CacheLine],
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) {
        call(self.seal, schedule, nonce, aad, text, tag);
    }

    /// Opens with such a schedule. Returns false, with the unauthentic plaintext in `text`, if the
    /// tag does not verify.
    #[inline]
    pub(crate) fn open(
        self,
        schedule: &[CacheLine],
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        let mut expected = [0; TAG_LEN];
        call(self.open, schedule, nonce, aad, text, &mut expected);
        // As whole numbers: a comparison octet by octet costs more than everything else here.
        let authentic = bool::from(u128::from_ne_bytes(expected).ct_eq(&u128::from_ne_bytes(*tag)));
        if !authentic {
            // The right tag of a forged packet is as good as a forgery.
            expected.zeroize();
        }
        authentic
    }
}

#[inline]
fn call(
    crypt: Crypt,
    schedule: &[CacheLine],
    nonce: &[u8; NONCE_LEN],
    aad: &[u8],
    text: &mut [u8],
    tag: &mut [u8; TAG_LEN],
) {
    let mut context = Context::uninit();
    let pointer = text.as_mut_ptr();
    // SAFETY: the schedule was made by the `expand` that belongs to `crypt`: only this module makes
    // either, and both together. The context has its size and alignment and is written before it is
    // read. Input and output are the same `len` octets, which the library allows. Nonce, data and
    // tag are of the lengths given (a nonce is always 12 octets).
    unsafe {
        crypt(
            schedule.as_ptr().cast(),
            context.as_mut_ptr().cast(),
            pointer,
            pointer,
            text.len() as u64,
            nonce.as_ptr(),
            aad.as_ptr(),
            aad.len() as u64,
            tag.as_mut_ptr(),
            TAG_LEN as u64,
        );
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        self.lines.iter_mut().for_each(|line| line.0.zeroize());
    }
}
