//! Which lines of a schedule the library reads for a text of some length: short texts need few
//! powers of the hash key. Found by experiment, once a process, so that the layout of the library's
//! header is not repeated here.

use super::{CacheLine, Functions, MAX_LINES};
use crate::aead::{AeadAlgorithm, NONCE_LEN, TAG_LEN};
use std::sync::OnceLock;

/// Width of a length class in octets.
const CLASS_WIDTH: usize = 64;
/// Longer texts need all lines.
const CLASSES: usize = 12;
/// The associated data of ESP with short sequence numbers: only whole blocks count.
const AAD: [u8; 8] = [1; 8];

/// The lines of each class, as bits.
struct Table {
    aes128: [u32; CLASSES],
    /// For AES-192 and AES-256.
    longer_keys: [u32; CLASSES],
}

static TABLE: OnceLock<Table> = OnceLock::new();

/// Runs the experiment, unless it was run already.
pub(super) fn learn(functions: &Functions) {
    TABLE.get_or_init(|| Table {
        aes128: try_all(functions, AeadAlgorithm::Aes128Gcm),
        longer_keys: try_all(functions, AeadAlgorithm::Aes256Gcm),
    });
}

/// The lines that a text of this many octets needs, as bits; all, if it was not tried. It is used
/// for prefetching, so an error does no harm.
#[inline]
pub(super) fn lines(algorithm: AeadAlgorithm, len: usize) -> u32 {
    let of_key = TABLE.get().map(|table| match algorithm {
        AeadAlgorithm::Aes128Gcm => &table.aes128,
        _ => &table.longer_keys,
    });
    of_key.and_then(|of_key| of_key.get(len.saturating_sub(1) / CLASS_WIDTH)).copied().unwrap_or(u32::MAX)
}

/// Damages one line after the other: a line that changes the result is read.
#[cfg_attr(
    not(test),
    expect(
        clippy::indexing_slicing,
        reason = "no key is longer than 32 octets; class and line are in range"
    )
)]
fn try_all(functions: &Functions, algorithm: AeadAlgorithm) -> [u32; CLASSES] {
    let mut schedule = [CacheLine([0; 64]); MAX_LINES];
    let Some(schedule) = schedule.get_mut(..functions.lines()) else { return [u32::MAX; CLASSES] };
    let key = [0x17; 32];
    let calls = functions.expand(algorithm, &key[..algorithm.key_len()], schedule);
    std::array::from_fn(|class| {
        let seal = |schedule: &[CacheLine]| {
            let (mut text, mut tag) = ([0; CLASSES * CLASS_WIDTH], [0; TAG_LEN]);
            calls.seal(schedule, &[3; NONCE_LEN], &AAD, &mut text[..(class + 1) * CLASS_WIDTH], &mut tag);
            (text, tag)
        };
        let intact = seal(schedule);
        let mut read = 0;
        for at in 0..schedule.len() {
            let kept = schedule[at];
            schedule[at].0.iter_mut().for_each(|octet| *octet ^= 0x5a);
            read |= u32::from(seal(schedule) != intact) << at;
            schedule[at] = kept;
        }
        read
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipsec_mb::functions;

    #[test]
    fn short_texts_need_few_lines_and_long_ones_no_fewer() {
        let functions = functions().unwrap();
        let all = (1_u32 << functions.lines()) - 1;
        for algorithm in [AeadAlgorithm::Aes128Gcm, AeadAlgorithm::Aes256Gcm] {
            let of = |len| (lines(algorithm, len) & all).count_ones();
            assert!((3..=8).contains(&of(68)), "{algorithm:?}: {} of {all:b}", of(68));
            let counts: Vec<u32> = (1..=CLASSES).map(|class| of(class * CLASS_WIDTH)).collect();
            assert!(counts.is_sorted(), "{counts:?}");
            assert_eq!(of(CLASSES * CLASS_WIDTH + 1), all.count_ones());
            // The round keys of all rounds, whatever the length.
            let keys = if algorithm == AeadAlgorithm::Aes128Gcm { 0b111 } else { 0b1111 };
            assert_eq!(lines(algorithm, 1) & keys, keys);
        }
    }
}
