//! Deltas: the difference between two exports of an IKE SA.
//!
//! Most events in an IKE SA move a Message ID, a few deadlines and the octets kept for a
//! repetition; keys, selectors and identities stay. Octets of the base are copied by their
//! position, whatever they mean: so a delta forgets nothing that a later version adds to the state.
//! Two exports are similar if they were made for the same moment
//! ([`crate::endpoint::Endpoint::export_sa`]): otherwise every time in them differs.

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// The least number of common octets that is worth a copy.
const BLOCK: usize = 8;
/// Bound on the octets of a state.
const LARGEST: usize = 1 << 20;
/// Octets of the digests, and of a message around the pieces.
const OVERHEAD: usize = 24;

/// Turns one export into the other. Any other octets are refused. Holds keys.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub struct Delta {
    base: Digest,
    result: Digest,
    pieces: Vec<Piece>,
}

/// The beginning of a SHA-256 digest: it guards against mistakes, not against forgery.
type Digest = [u8; 8];

/// A part of the result.
#[derive(Clone, Debug, PartialEq, Eq, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
enum Piece {
    /// This many octets of the base from this position.
    Base {
        at: u32,
        length: u32,
    },
    New(Vec<u8>),
}

impl Delta {
    /// The delta from `base` to `result`.
    pub fn between(base: &[u8], result: &[u8]) -> Self {
        Self { base: digest_of(base), result: digest_of(result), pieces: pieces(base, result) }
    }

    /// The result. `None` if `base` is another base, or the delta is damaged.
    pub fn apply(&self, base: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        if digest_of(base) != self.base {
            return None;
        }
        let parts: Option<Vec<&[u8]>> = self.pieces.iter().map(|piece| piece.octets(base)).collect();
        let parts = parts?;
        // The buffer must not be reallocated: that would leave keys behind.
        let length = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.len()))?;
        if length > LARGEST {
            return None;
        }
        let mut result = Zeroizing::new(Vec::with_capacity(length));
        parts.into_iter().for_each(|part| result.extend_from_slice(part));
        (digest_of(&result) == self.result).then_some(result)
    }

    /// Approximate size in octets, as a message.
    pub fn size(&self) -> usize {
        let of = |piece: &Piece| match piece {
            Piece::Base { .. } => 5,
            Piece::New(octets) => octets.len() + 2,
        };
        OVERHEAD + self.pieces.iter().map(of).sum::<usize>()
    }
}

impl Debug for Delta {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Delta({} octets)", self.size())
    }
}

impl Piece {
    fn octets<'a>(&'a self, base: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Base { at, length } => {
                let at = usize::try_from(*at).ok()?;
                base.get(at..at.checked_add(usize::try_from(*length).ok()?)?)
            }
            Self::New(octets) => Some(octets),
        }
    }
}

fn digest_of(octets: &[u8]) -> Digest {
    digest(&SHA256, octets).as_ref().first_chunk().copied().unwrap_or_default()
}

/// Walks through the result and finds, for each position, where it continues as the base does: at
/// the former position, if only a few octets have changed; else wherever the base has the same
/// block.
#[cfg_attr(
    not(test),
    expect(
        clippy::indexing_slicing,
        reason = "blocks stand at `here` and `at`, `told` is not behind `here`, and `common` counts what is there"
    )
)]
fn pieces(base: &[u8], result: &[u8]) -> Vec<Piece> {
    let blocks: HashMap<&[u8], usize> =
        base.chunks_exact(BLOCK).enumerate().map(|(n, block)| (block, n * BLOCK)).rev().collect();
    let mut pieces = Vec::new();
    // Up to where the result is written, the position in it, and the corresponding position in the
    // base if no length has changed.
    let (mut told, mut here, mut beside) = (0, 0, 0);
    while let Some(block) = result.get(here..here + BLOCK) {
        let straight = base.get(beside..beside + BLOCK).filter(|other| *other == block).map(|_| beside);
        let Some(at) = straight.or_else(|| blocks.get(block).copied()) else {
            (here, beside) = (here + 1, beside + 1);
            continue;
        };
        let back = common(base[..at].iter().rev(), result[told..here].iter().rev());
        let length = back + common(base[at..].iter(), result[here..].iter());
        let (from, start) = (at - back, here - back);
        if start > told {
            pieces.push(Piece::New(result[told..start].to_vec()));
        }
        pieces.push(Piece::Base { at: from as u32, length: length as u32 });
        (told, here, beside) = (start + length, start + length, from + length);
    }
    if told < result.len() {
        pieces.push(Piece::New(result[told..].to_vec()));
    }
    pieces
}

/// Number of equal octets from this position on.
fn common<'a>(one: impl Iterator<Item = &'a u8>, other: impl Iterator<Item = &'a u8>) -> usize {
    one.zip(other).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state() -> Vec<u8> {
        (0..2000_u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 7).to_be_bytes()).collect()
    }

    #[test]
    fn a_few_changes_are_a_few_octets() {
        let base = state();
        let mut result = base.clone();
        result[100] ^= 1;
        result[4000..4004].copy_from_slice(&[1, 2, 3, 4]);
        result.splice(6000..6000, [9; 50]);
        result.drain(7000..7100);
        let delta = Delta::between(&base, &result);
        assert_eq!(delta.apply(&base).as_deref(), Some(&result));
        assert!(delta.size() < OVERHEAD + 55 + 12 + 5 * 5, "{delta:?}");
        let same = Delta::between(&base, &base);
        assert_eq!((same.pieces.len(), same.apply(&base).as_deref()), (1, Some(&base)));
    }

    #[test]
    fn a_delta_applies_to_its_base_only() {
        let base = state();
        let mut result = base.clone();
        result[100] ^= 1;
        let delta = Delta::between(&base, &result);
        assert_eq!(delta.apply(&result), None, "it was applied already");
        let mut other = base.clone();
        other[7000] ^= 1;
        assert_eq!(delta.apply(&other), None, "another");
        let damaged = |pieces| Delta { pieces, ..delta.clone() };
        let beyond = Piece::Base { at: 7990, length: 11 };
        let over = Piece::Base { at: u32::MAX, length: u32::MAX };
        let vast = vec![Piece::Base { at: 0, length: 8000 }; LARGEST / 8000 + 1];
        for pieces in [vec![], vec![beyond], vec![over], vast, vec![Piece::Base { at: 0, length: 8000 }]] {
            assert_eq!(damaged(pieces).apply(&base), None);
        }
    }

    #[test]
    fn keys_are_not_shown() {
        let delta = Delta::between(&[], &[0x42; 40]);
        assert_eq!(format!("{delta:?}"), "Delta(66 octets)");
    }

    /// Octets with many repetitions, as in states.
    fn octets() -> impl Strategy<Value = Vec<u8>> {
        let run = (0_u8..4, 1_usize..30).prop_map(|(octet, length)| vec![octet; length]);
        let noise = prop::collection::vec(any::<u8>(), 0..30);
        prop::collection::vec(prop_oneof![run, noise], 0..20).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn any_state_leads_to_any_other(base in octets(), result in octets()) {
            let delta = Delta::between(&base, &result);
            let applied = delta.apply(&base);
            prop_assert_eq!(applied.as_deref(), Some(&result));
            let octets = postcard::to_allocvec(&delta).unwrap();
            prop_assert!(octets.len() <= delta.size());
            prop_assert_eq!(postcard::from_bytes::<Delta>(&octets).unwrap(), delta);
        }
    }
}
