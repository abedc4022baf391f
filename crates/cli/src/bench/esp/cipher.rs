//! The bare cipher: the limit that no pipeline around it can beat.

use super::{BURST, Suite};
use crate::bench::stopwatch::Stopwatch;
use testudo_crypto::{
    Aad, AeadKey, CryptoError, Library, OpenJob, SALT_LEN, SealJob, TAG_LEN, open_burst, seal_burst,
};

/// Bursts that are prepared together, outside of the measured time.
const BURSTS: usize = 4;
/// Octets of a frame, and of a jumbo frame.
const SHORT: usize = 2048;
const JUMBO: usize = 16 << 10;
/// The text lies as deep in a frame as in the pipeline: caches see the same picture. Ethernet frame at 384, then Ethernet 14, IPv4 20,
/// ESP 8, IV 8, less what the outer headers grew to the front.
const TEXT_AT: usize = 400;

/// Texts of one length under one key.
pub(crate) struct BareCipher {
    key: AeadKey,
    memory: Vec<u8>,
    tags: Vec<[u8; TAG_LEN]>,
    /// The lengths that follow each other, over and over.
    text_lens: Vec<usize>,
    stride: usize,
    sequence: u64,
}

impl BareCipher {
    /// `text_lens` are what the pipeline encrypts of each packet, trailer included.
    pub(crate) fn new(library: Library, suite: Suite, text_lens: Vec<usize>) -> Result<Self, CryptoError> {
        // Frames lie as far apart as in the pipeline.
        let longest = text_lens.iter().copied().max().unwrap_or_default();
        let stride = if TEXT_AT + longest <= SHORT { SHORT } else { JUMBO };
        let algorithm = suite.aead();
        let key = AeadKey::new(library, algorithm, &vec![0x17; algorithm.key_len()], [0x2A; SALT_LEN])?;
        let count = BURST * BURSTS;
        let memory = vec![0x55; count * stride];
        Ok(Self { key, memory, tags: vec![[0; TAG_LEN]; count], text_lens, stride, sequence: 0 })
    }

    /// Encrypts and decrypts some bursts. False if a packet was not authentic afterwards.
    pub(crate) fn run(&mut self, seal: &mut Stopwatch, open: &mut Stopwatch) -> bool {
        let first = self.sequence;
        self.sequence += self.tags.len() as u64;
        let Self { key, memory, tags, text_lens, stride, .. } = self;

        let mut jobs: Vec<_> = (texts(memory, text_lens, *stride).zip(&mut *tags).zip(first..))
            .map(|((text, tag), n)| SealJob { key, iv: n.to_be_bytes(), aad: aad(n), text, tag })
            .collect();
        seal.measure(jobs.len(), || jobs.chunks_mut(BURST).for_each(seal_burst));

        let mut jobs: Vec<_> = (texts(memory, text_lens, *stride).zip(&*tags).zip(first..))
            .map(|((text, tag), n)| OpenJob { key, iv: n.to_be_bytes(), aad: aad(n), text, tag, ok: false })
            .collect();
        open.measure(jobs.len(), || jobs.chunks_mut(BURST).for_each(open_burst));
        jobs.iter().all(|job| job.ok)
    }
}

fn aad(sequence: u64) -> Aad {
    Aad::esp_esn(0x0BAD_CAFE, sequence)
}

fn texts<'a>(memory: &'a mut [u8], lens: &'a [usize], stride: usize) -> impl Iterator<Item = &'a mut [u8]> {
    let frames = memory.chunks_exact_mut(stride).zip(lens.iter().cycle());
    frames.filter_map(|(frame, len)| frame.get_mut(TEXT_AT..TEXT_AT + len))
}
