//! The form of a message for the engine: a header in clear, and behind it what is sealed with
//! AES-256-GCM.
//!
//! ```text
//! magic:2 version:1 kind:1 ring.seq:8 ring.node:4 epoch:8 serial:8
//!     | [salt:32, STATUS only] | sealed | tag:16
//! ```
//!
//! What follows `version` may look different in another version.

use super::datagram::MessageName;
use super::keys::{self, RANDOM_LEN};
use super::{ClusterKey, RingId};
use crate::node::NodeId;
use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use aws_lc_rs::digest;
use zeroize::Zeroizing;

const MAGIC: [u8; 2] = *b"Tg";
/// The version of everything that nodes say to each other.
pub(super) const VERSION: u8 = 2;
const HEADER_OCTETS: usize = 32;
/// Octets of a GCM tag.
pub(super) const TAG_OCTETS: usize = 16;
/// What sealing adds to a batch.
pub(super) const SEALING_OCTETS: usize = HEADER_OCTETS + TAG_OCTETS;

/// The kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A member's STATUS, in the exchange that begins a view.
    Status,
    /// Updates, and requests for leases.
    Batch,
    /// The place of updates for fresh nodes in the order. It has only the tag of what is sealed:
    /// the rest goes beside the engine.
    Bulk,
    /// That rest, if it goes by the engine after all. It has no place in the order.
    Rest,
}

/// What can be read of a message before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// The engine's view that it belongs to.
    pub(super) ring: RingId,
    /// The group's view; 0 for a STATUS.
    pub(super) epoch: u64,
    /// Counts what its sender has sealed in this view.
    pub(super) serial: u64,
}

/// What a message is, as far as can be said without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// One of this version: its header, and what follows that.
    This(Header, &'a [u8]),
    /// Its sender speaks another version.
    OtherVersion,
    /// It is not Testudo's, or broken.
    Malformed,
}

impl Header {
    /// Names the message.
    pub(super) fn name(&self) -> MessageName {
        MessageName { ring: self.ring, epoch: self.epoch, serial: self.serial }
    }

    fn write(&self) -> [u8; HEADER_OCTETS] {
        let mut out = [0; HEADER_OCTETS];
        out[..2].copy_from_slice(&MAGIC);
        out[2] = VERSION;
        out[3] = match self.kind {
            Kind::Status => 1,
            Kind::Batch => 2,
            Kind::Bulk => 3,
            Kind::Rest => 4,
        };
        out[4..12].copy_from_slice(&self.ring.seq.to_be_bytes());
        out[12..16].copy_from_slice(&self.ring.node.to_be_bytes());
        out[16..24].copy_from_slice(&self.epoch.to_be_bytes());
        out[24..].copy_from_slice(&self.serial.to_be_bytes());
        out
    }
}

/// Reads a header.
pub(super) fn parse(bytes: &[u8]) -> Frame<'_> {
    match bytes {
        [a, b, version, ..] if [*a, *b] == MAGIC && *version != VERSION => return Frame::OtherVersion,
        [a, b, ..] if [*a, *b] == MAGIC => {}
        _ => return Frame::Malformed,
    }
    let read = || {
        let (header, body) = bytes.split_first_chunk::<HEADER_OCTETS>()?;
        let kind = match header[3] {
            1 => Kind::Status,
            2 => Kind::Batch,
            3 => Kind::Bulk,
            4 => Kind::Rest,
            _ => return None,
        };
        let seq = u64::from_be_bytes(header[4..12].try_into().ok()?);
        let node = u32::from_be_bytes(header[12..16].try_into().ok()?);
        let epoch = u64::from_be_bytes(header[16..24].try_into().ok()?);
        let serial = u64::from_be_bytes(header[24..].try_into().ok()?);
        Some((Header { kind, ring: RingId { seq, node }, epoch, serial }, body))
    };
    read().map_or(Frame::Malformed, |(header, body)| Frame::This(header, body))
}

/// Made of node, purpose and serial: under one key no node seals twice with the same nonce.
fn nonce(from: NodeId, purpose: u8, serial: u64) -> Nonce {
    let mut nonce = [0; 12];
    (nonce[0], nonce[1]) = (from.get(), purpose);
    nonce[4..].copy_from_slice(&serial.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// The purposes of a nonce: a message, or the proof that there is one whose rest goes beside the
/// engine.
const MESSAGE: u8 = 0;
const PROOF: u8 = 1;

/// Seals a message of this node.
pub(super) fn seal(key: &LessSafeKey, from: NodeId, header: &Header, salt: &[u8], plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(SEALING_OCTETS + salt.len() + plain.len());
    out.extend(header.write());
    out.extend(salt);
    let (clear, start) = (out.clone(), out.len());
    out.extend(plain);
    let sealed = out.get_mut(start..).map(|body| {
        key.seal_in_place_separate_tag(nonce(from, MESSAGE, header.serial), Aad::from(&clear[..]), body)
    });
    match sealed {
        Some(Ok(tag)) => out.extend(tag.as_ref()),
        // AES-GCM fails only for messages of 64 GiB. What is not sealed does not leave.
        _ => out.truncate(start),
    }
    out
}

/// Opens a message; `body` is what follows the header, behind the salt.
pub(super) fn open(
    key: &LessSafeKey,
    from: NodeId,
    header: &Header,
    salt: &[u8],
    body: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let mut clear = header.write().to_vec();
    clear.extend(salt);
    let mut plain = Zeroizing::new(body.to_vec());
    let len =
        key.open_in_place(nonce(from, MESSAGE, header.serial), Aad::from(&clear[..]), &mut plain).ok()?.len();
    plain.truncate(len);
    Some(plain)
}

/// Cuts a sealed message of this node in two: what goes by the engine, and what goes beside it. The
/// engine carries header and tag, and between them the proof that they are this node's, for members
/// that do not get the rest.
pub(super) fn split(key: &LessSafeKey, from: NodeId, mut sealed: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let tag = sealed.split_off(sealed.len().saturating_sub(TAG_OCTETS));
    let rest = sealed.split_off(sealed.len().min(HEADER_OCTETS));
    if let Frame::This(header, _) = parse(&sealed) {
        let said = [&sealed[..], &tag].concat();
        let nonce = nonce(from, PROOF, header.serial);
        // It fails only for messages of 64 GiB. A message without proof is not taken.
        let proof = key.seal_in_place_separate_tag(nonce, Aad::from(&said[..]), &mut []);
        sealed.extend(proof.iter().flat_map(|proof| proof.as_ref()));
    }
    sealed.extend(tag);
    (sealed, rest)
}

/// The tag of a message whose rest goes beside the engine, if the proof shows that the message is
/// that node's.
pub(super) fn proven<'a>(
    key: &LessSafeKey,
    from: NodeId,
    header: &Header,
    body: &'a [u8],
) -> Option<&'a [u8]> {
    let (proof, tag) = body.split_first_chunk::<TAG_OCTETS>()?;
    let said = [&header.write()[..], tag].concat();
    key.open_in_place(nonce(from, PROOF, header.serial), Aad::from(&said[..]), &mut proof.clone()).ok()?;
    Some(tag)
}

/// What has gone beside the engine, as a message for it.
pub(super) fn rest(header: &Header, octets: &[u8]) -> Vec<u8> {
    [&header.write()[..], octets].concat()
}

/// Seals a STATUS, under a key that seals nothing else.
pub(super) fn seal_status(
    key: &ClusterKey,
    from: NodeId,
    ring: RingId,
    salt: &[u8; RANDOM_LEN],
    plain: &[u8],
) -> Vec<u8> {
    let header = Header { kind: Kind::Status, ring, epoch: 0, serial: 0 };
    seal(&keys::status(key, salt), from, &header, salt, plain)
}

/// Opens a STATUS.
pub(super) fn open_status(
    key: &ClusterKey,
    from: NodeId,
    header: &Header,
    body: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let (salt, body) = body.split_first_chunk::<RANDOM_LEN>()?;
    open(&keys::status(key, salt), from, header, salt, body)
}

/// A digest of everything delivered in a view up to a message. Nodes with equal digests have had
/// equal messages in equal order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Chain(pub(super) [u8; 32]);

impl Chain {
    /// The digest at a view's start.
    pub(super) fn begin(ring: RingId, epoch: u64, members: &[NodeId], current: &[NodeId]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&ring.seq.to_be_bytes());
        context.update(&ring.node.to_be_bytes());
        context.update(&epoch.to_be_bytes());
        for nodes in [members, current] {
            context.update(&nodes.len().to_be_bytes());
            nodes.iter().for_each(|node| context.update(&[node.get()]));
        }
        Self::finish(context)
    }

    /// The digest after one more message, of which header and tag count.
    #[must_use]
    pub(super) fn next(self, from: NodeId, header: &Header, tag: &[u8]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&self.0);
        context.update(&[from.get()]);
        context.update(&header.write());
        context.update(tag);
        Self::finish(context)
    }

    /// A digest of the place in the order too.
    pub(super) fn with(self, ring: RingId, epoch: u64, count: u64, synced: bool) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&self.0);
        context.update(&ring.seq.to_be_bytes());
        context.update(&ring.node.to_be_bytes());
        context.update(&epoch.to_be_bytes());
        context.update(&count.to_be_bytes());
        context.update(&[u8::from(synced)]);
        Self::finish(context)
    }

    fn finish(context: digest::Context) -> Self {
        let mut out = [0; 32];
        out.copy_from_slice(context.finish().as_ref());
        Self(out)
    }

    /// As acknowledgements carry it.
    pub(super) fn short(self) -> [u8; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        [a, b, c, d, e, f, g, h]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member whose STATUS has another version is left out of the view. What is not Testudo's
    /// says nothing of its sender.
    #[test]
    fn another_version_is_told_from_what_is_not_testudos() {
        let header = Header { kind: Kind::Batch, ring: RingId { seq: 3, node: 1 }, epoch: 2, serial: 5 };
        let message = rest(&header, b"octets");
        assert_eq!(parse(&message), Frame::This(header, b"octets"));
        assert_eq!(parse(&message[..HEADER_OCTETS - 1]), Frame::Malformed);
        let changed = |at: usize| {
            let mut changed = message.clone();
            changed[at] += 1;
            changed
        };
        assert_eq!(parse(&changed(2)), Frame::OtherVersion);
        assert_eq!(parse(&changed(2)[..3]), Frame::OtherVersion, "whatever its header is like");
        for at in [0, 1] {
            assert_eq!(parse(&changed(at)), Frame::Malformed);
        }
        assert_eq!(parse(b"Xg\x01"), Frame::Malformed);
    }
}
