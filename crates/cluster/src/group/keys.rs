//! The keys that protect what nodes say to each other, derived from the cluster key.

use super::config::ClusterKey;
use crate::engine::RingId;
use crate::hkdf::Hkdf;
use crate::node::NodeId;
use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::hmac;
use testudo_base::spi::RelayKind;
use zeroize::Zeroizing;

/// Octets of each member's part of the group key, and of the salt of its STATUS.
pub(super) const RANDOM_LEN: usize = 32;
/// Octets of a key of AES-256-GCM and its salt.
pub(super) const RELAY_LEN: usize = 36;

fn derive<const LEN: usize>(key: &ClusterKey, salt: &[u8], purpose: &[u8]) -> Zeroizing<[u8; LEN]> {
    Hkdf::extract(salt, key.octets()).expand(purpose)
}

#[cfg_attr(not(test), expect(clippy::expect_used, reason = "AES-256 has keys of 32 octets"))]
fn aead(key: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&AES_256_GCM, key);
    LessSafeKey::new(key.expect("an AES-256 key has 32 octets"))
}

/// The key that seals one STATUS: the salt is random, so each key seals once.
pub(super) fn status(key: &ClusterKey, salt: &[u8; RANDOM_LEN]) -> LessSafeKey {
    aead(&derive(key, salt, b"testudo cluster status 1"))
}

/// The secret from which the keys of one view derive. All members put something random into it, in
/// the order of `randoms`. So no view ever has a key of another, from whatever number an engine
/// counts its rings.
pub(super) fn view(key: &ClusterKey, ring: RingId, randoms: &[(NodeId, [u8; RANDOM_LEN])]) -> Hkdf {
    let mut salt = Zeroizing::new(Vec::with_capacity(12 + randoms.len() * (1 + RANDOM_LEN)));
    salt.extend(ring.seq.to_be_bytes());
    salt.extend(ring.node.to_be_bytes());
    for (node, random) in randoms {
        salt.push(node.get());
        salt.extend(random);
    }
    Hkdf::extract(&salt, key.octets())
}

/// The key that seals the messages of one view.
pub(super) fn group(key: &ClusterKey, ring: RingId, randoms: &[(NodeId, [u8; RANDOM_LEN])]) -> LessSafeKey {
    aead(&view(key, ring, randoms).expand(b"testudo cluster group 1"))
}

/// The key and the salt of the packets that one member of the view relays to another by SAs of this
/// kind.
pub(super) fn relay(view: &Hkdf, kind: RelayKind, from: NodeId, to: NodeId) -> Zeroizing<[u8; RELAY_LEN]> {
    let purpose = match kind {
        RelayKind::Whole => b"testudo cluster relay 1".as_slice(),
        RelayKind::Head | RelayKind::Bare => b"testudo cluster relay head 1",
    };
    view.expand(&[purpose, &[from.get(), to.get()]].concat())
}

/// The key that authenticates datagrams.
pub(super) fn datagrams(key: &ClusterKey) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &derive::<32>(key, &[], b"testudo cluster datagram 1")[..])
}
