//! The bare cipher: the upper limit for any pipeline.

use super::suite::Around;
use super::{BURST, Suite};
use crate::stopwatch::Stopwatch;
use std::ops::Range;
use testudo_crypto::ccm::{CCM_SALT_LEN, CcmJob, CcmKey, open_ccm_burst, seal_ccm_burst};
use testudo_crypto::separate::{SeparateJob, SeparateKey, open_separate_burst, seal_separate_burst};
use testudo_crypto::{
    Aad, AeadAlgorithm, AeadKey, CryptoError, Library, OpenJob, SALT_LEN, SealJob, TAG_LEN, open_burst,
    seal_burst,
};
use testudo_ipsec::sa::{EspAlgorithm, SeparateAlgorithm};

/// Bursts that are prepared together, outside of the measured time.
const BURSTS: usize = 4;
/// Octets of a frame and of a jumbo frame.
const SHORT: usize = 2048;
const JUMBO: usize = 16 << 10;
/// Offset of the text in its frame, as in the pipeline, so that caches behave alike. The Ethernet
/// frame begins at 384; then Ethernet 14, IPv4 20, ESP 8, IV 8, less the growth of the outer
/// headers to the front.
const TEXT_AT: usize = 400;
/// Texts processed in a run.
const COUNT: usize = BURST * BURSTS;

/// Texts under one key.
pub(crate) struct BareCipher {
    kind: Kind,
    texts: Texts,
    sequence: u64,
}

enum Kind {
    Aead(AeadKey, Vec<[u8; TAG_LEN]>),
    Separate(SeparateKey, Around),
    Ccm(CcmKey),
}

struct Texts {
    memory: Vec<u8>,
    /// The lengths, used cyclically.
    lens: Vec<usize>,
    /// The distance of frames, as in the pipeline.
    stride: usize,
}

impl BareCipher {
    /// `lens` are the octets of each packet that the pipeline encrypts, trailer included.
    pub(crate) fn new(library: Library, suite: Suite, lens: Vec<usize>) -> Result<Self, CryptoError> {
        let around = suite.around();
        let longest = lens.iter().copied().max().unwrap_or_default();
        let stride = if TEXT_AT + longest + around.icv <= SHORT { SHORT } else { JUMBO };
        let texts = Texts { memory: vec![0x55; COUNT * stride], lens, stride };
        let kind = match (suite.esp(), suite.aead()) {
            (EspAlgorithm::Separate(algorithm), _) => {
                let SeparateAlgorithm { cipher, mac } = algorithm;
                let keys = (vec![0x17; cipher.key_len()], vec![0x18; mac.key_len()]);
                Kind::Separate(
                    SeparateKey::new(library.suited(algorithm), algorithm, &keys.0, &keys.1)?,
                    around,
                )
            }
            (EspAlgorithm::Ccm(algorithm), _) => {
                let key = vec![0x17; algorithm.key.octets()];
                Kind::Ccm(CcmKey::new(library, algorithm, &key, [0x2A; CCM_SALT_LEN])?)
            }
            (_, algorithm) => {
                let algorithm = algorithm.unwrap_or(AeadAlgorithm::Aes128Gcm);
                let key = vec![0x17; algorithm.key_len()];
                let key = AeadKey::new(library, algorithm, &key, [0x2A; SALT_LEN])?;
                Kind::Aead(key, vec![[0; TAG_LEN]; COUNT])
            }
        };
        Ok(Self { kind, texts, sequence: 0 })
    }

    /// Encrypts and decrypts some bursts. Returns false if a packet was not authentic afterwards.
    pub(crate) fn run(&mut self, seal: &mut Stopwatch, open: &mut Stopwatch) -> bool {
        let numbers = self.sequence..self.sequence + COUNT as u64;
        self.sequence = numbers.end;
        match &mut self.kind {
            Kind::Aead(key, tags) => run_aead(key, tags, &mut self.texts, numbers, [seal, open]),
            Kind::Separate(key, around) => run_separate(key, *around, &mut self.texts, numbers, [seal, open]),
            Kind::Ccm(key) => run_ccm(key, &mut self.texts, numbers, [seal, open]),
        }
    }
}

fn run_aead(
    key: &AeadKey,
    tags: &mut [[u8; TAG_LEN]],
    texts: &mut Texts,
    numbers: Range<u64>,
    [seal, open]: [&mut Stopwatch; 2],
) -> bool {
    let aad = |sequence| Aad::esp_esn(0x0BAD_CAFE, sequence);
    let mut jobs: Vec<_> = (texts.with(0, 0).zip(&mut *tags).zip(numbers.clone()))
        .map(|((text, tag), n)| SealJob { key, iv: n.to_be_bytes(), aad: aad(n), text, tag })
        .collect();
    seal.measure(jobs.len(), || jobs.chunks_mut(BURST).for_each(seal_burst));

    let mut jobs: Vec<_> = (texts.with(0, 0).zip(&*tags).zip(numbers))
        .map(|((text, tag), n)| OpenJob { key, iv: n.to_be_bytes(), aad: aad(n), text, tag, ok: false })
        .collect();
    open.measure(jobs.len(), || jobs.chunks_mut(BURST).for_each(open_burst));
    jobs.iter().all(|job| job.ok)
}

fn run_separate(
    key: &SeparateKey,
    Around { before, icv, .. }: Around,
    texts: &mut Texts,
    numbers: Range<u64>,
    [seal, open]: [&mut Stopwatch; 2],
) -> bool {
    let high = |n: u64| Some((n >> 32) as u32);
    let mut jobs: Vec<_> = (texts.with(before, icv).zip(numbers))
        .map(|(packet, n)| {
            // The header, and a nonce that is never repeated.
            let number = n.to_be_bytes();
            packet.iter_mut().zip(number.iter().cycle()).take(before).for_each(|(to, from)| *to = *from);
            SeparateJob { key, packet, high: high(n), ok: false }
        })
        .collect();
    seal.measure(jobs.len(), || jobs.chunks_mut(BURST).for_each(seal_separate_burst));
    open.measure(jobs.len(), || jobs.chunks_mut(BURST).for_each(open_separate_burst));
    jobs.iter().all(|job| job.ok)
}

fn run_ccm(key: &CcmKey, texts: &mut Texts, numbers: Range<u64>, [seal, open]: [&mut Stopwatch; 2]) -> bool {
    let icv = key.algorithm().icv.octets();
    let mut jobs: Vec<_> = (texts.with(0, icv).zip(numbers))
        .map(|(rest, n)| {
            let (text, icv) = rest.split_at_mut(rest.len() - icv);
            CcmJob { key, iv: n.to_be_bytes(), aad: Aad::esp_esn(0x0BAD_CAFE, n), text, icv, ok: false }
        })
        .collect();
    seal.measure(jobs.len(), || jobs.chunks_mut(BURST).for_each(seal_ccm_burst));
    open.measure(jobs.len(), || jobs.chunks_mut(BURST).for_each(open_ccm_burst));
    jobs.iter().all(|job| job.ok)
}

impl Texts {
    /// Each text with that many octets before and after it.
    fn with(&mut self, before: usize, behind: usize) -> impl Iterator<Item = &mut [u8]> {
        let frames = self.memory.chunks_exact_mut(self.stride).zip(self.lens.iter().cycle());
        frames.filter_map(move |(frame, len)| frame.get_mut(TEXT_AT - before..TEXT_AT + len + behind))
    }
}
