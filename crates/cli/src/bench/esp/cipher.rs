//! The bare cipher: the limit that no pipeline around it can beat.

use super::{BURST, Suite};
use crate::bench::stopwatch::Stopwatch;
use testudo_crypto::{
    Aad, AeadKey, CryptoError, Library, OpenJob, SALT_LEN, SealJob, TAG_LEN, open_burst, seal_burst,
};

/// Bursts that are prepared together, outside of the measured time.
const BURSTS: usize = 4;
/// Frames lie as far apart, and the text as deep in them, as in the pipeline: caches see the same picture.
const STRIDE: usize = 2048;
/// Ethernet frame at 384, then Ethernet 14, IPv4 20, ESP 8, IV 8, less what the outer headers grew to the front.
const TEXT_AT: usize = 400;

/// Texts of one length under one key.
pub(crate) struct BareCipher {
    key: AeadKey,
    memory: Vec<u8>,
    tags: Vec<[u8; TAG_LEN]>,
    text_len: usize,
    sequence: u64,
}

impl BareCipher {
    /// `text_len` is what the pipeline encrypts for a packet, trailer included.
    pub(crate) fn new(library: Library, suite: Suite, text_len: usize) -> Result<Self, CryptoError> {
        let algorithm = suite.aead();
        let key = AeadKey::new(library, algorithm, &vec![0x17; algorithm.key_len()], [0x2A; SALT_LEN])?;
        let count = BURST * BURSTS;
        let memory = vec![0x55; count * STRIDE];
        Ok(Self { key, memory, tags: vec![[0; TAG_LEN]; count], text_len, sequence: 0 })
    }

    /// Encrypts and decrypts some bursts. False if a packet was not authentic afterwards.
    pub(crate) fn run(&mut self, seal: &mut Stopwatch, open: &mut Stopwatch) -> bool {
        let first = self.sequence;
        self.sequence += self.tags.len() as u64;
        let Self { key, memory, tags, text_len, .. } = self;

        let mut jobs: Vec<_> = (texts(memory, *text_len).zip(&mut *tags).zip(first..))
            .map(|((text, tag), n)| SealJob { key, iv: n.to_be_bytes(), aad: aad(n), text, tag })
            .collect();
        seal.measure(jobs.len(), || jobs.chunks_mut(BURST).for_each(seal_burst));

        let mut jobs: Vec<_> = (texts(memory, *text_len).zip(&*tags).zip(first..))
            .map(|((text, tag), n)| OpenJob { key, iv: n.to_be_bytes(), aad: aad(n), text, tag, ok: false })
            .collect();
        open.measure(jobs.len(), || jobs.chunks_mut(BURST).for_each(open_burst));
        jobs.iter().all(|job| job.ok)
    }
}

fn aad(sequence: u64) -> Aad {
    Aad::esp_esn(0x0BAD_CAFE, sequence)
}

fn texts(memory: &mut [u8], len: usize) -> impl Iterator<Item = &mut [u8]> {
    memory.chunks_exact_mut(STRIDE).filter_map(move |frame| frame.get_mut(TEXT_AT..TEXT_AT + len))
}
