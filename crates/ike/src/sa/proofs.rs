//! The shared keys on which an IKE SA rests. What is loaded may change while it lives.

use super::IkeSa;
use crate::config::{Identity, Prf, SharedSecret};
use crate::suite::IkeKeys;
use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Marks of the pre-shared keys by which the peer has proved itself, and of the PPK on which the
/// keys depend. A state that began in an older build has none.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub(crate) struct Proofs {
    /// The key of the marks: from the first keys, and nowhere but in the IKE SA and its successors,
    /// so that a mark tells nothing about a secret, and two IKE SAs do not show that they share
    /// one.
    key: [u8; 16],
    /// Of the peer's last round of authentication, if that was by a shared key.
    last: Option<Mark>,
    /// What an IKE SA has that was authenticated in several rounds, or whose keys depend on a PPK.
    #[zeroize(skip)]
    more: Option<Box<More>>,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct More {
    /// Our identity for which the shared key of the last round was found, if a later round of ours
    /// has another one.
    local: Option<Identity>,
    /// The marks of the rounds before the last, by number.
    earlier: Vec<(usize, Mark)>,
    /// Name on the wire and mark of the PPK.
    ppk: Option<(Vec<u8>, Mark)>,
}

/// A keyed digest of a secret.
#[derive(Clone, Copy, PartialEq, Eq, Zeroize, Serialize, Deserialize)]
struct Mark([u8; 16]);

impl fmt::Debug for Proofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proofs").finish_non_exhaustive()
    }
}

impl Proofs {
    fn new(keys: &IkeKeys) -> Option<Self> {
        let key = keys.key_of_marks().ok()?;
        Some(Self { key: *key.expose().first_chunk()?, last: None, more: None })
    }

    fn mark(&self, secret: &[u8]) -> Option<Mark> {
        let digest = Prf::HmacSha256.compute(&self.key, &[secret]).ok()?;
        digest.expose().first_chunk().copied().map(Mark)
    }

    fn differs(&self, mark: Mark, secret: &SharedSecret) -> bool {
        self.mark(&secret.secret) != Some(mark)
    }
}

impl IkeSa {
    /// The peer has proved itself in its latest round, by this shared key if there is one, which
    /// was found for this identity of ours.
    pub(crate) fn note_shared_key(&mut self, found: Option<(&Identity, &SharedSecret)>) {
        if found.is_none() && self.proofs.is_none() {
            return;
        }
        let Some(proofs) = self.proofs_mut() else { return };
        proofs.last = found.and_then(|(_, secret)| proofs.mark(&secret.secret));
        proofs.more.get_or_insert_default().local = found.map(|(local, _)| local.clone());
    }

    fn proofs_mut(&mut self) -> Option<&mut Proofs> {
        if self.proofs.is_none() {
            self.proofs = Proofs::new(&self.keys.as_ref()?.ike).map(Box::new);
        }
        self.proofs.as_deref_mut()
    }

    /// The round that was the latest so far has this number, and another one follows.
    pub(super) fn keep_shared_key(&mut self, number: usize) {
        if let Some(proofs) = &mut self.proofs
            && let Some(mark) = proofs.last.take()
        {
            proofs.more.get_or_insert_default().earlier.push((number, mark));
        }
    }

    /// The keys depend on the PPK with this name on the wire.
    pub(crate) fn note_ppk(&mut self, id: &[u8], secret: &[u8]) {
        let Some(proofs) = self.proofs_mut() else { return };
        let mark = proofs.mark(secret);
        proofs.more.get_or_insert_default().ppk = mark.map(|mark| (id.to_vec(), mark));
    }

    /// All rounds are over: our identity is kept where it is not the one of the IKE SA.
    pub(crate) fn tidy_proofs(&mut self) {
        let Some(proofs) = &mut self.proofs else { return };
        if let Some(more) = &mut proofs.more
            && more.local == self.local_id
        {
            more.local = None;
        }
        proofs.more.take_if(|more| **more == More::default());
    }

    /// Our identity for which the shared key of the peer's last round is found.
    pub(crate) fn local_id_of_proof(&self) -> Option<&Identity> {
        let kept = self.proofs.as_ref().and_then(|proofs| proofs.more.as_ref()?.local.as_ref());
        kept.or(self.local_id.as_ref())
    }

    /// True if the peer has proved itself in its last round by a shared key. False too if that is
    /// not known.
    pub(crate) fn is_by_shared_key(&self) -> bool {
        self.proofs.as_ref().is_some_and(|proofs| proofs.last.is_some())
    }

    /// True if the peer has proved itself in its last round by another shared key; `None`: that is
    /// not known.
    pub(crate) fn is_by_another(&self, secret: &SharedSecret) -> Option<bool> {
        let proofs = self.proofs.as_ref()?;
        Some(proofs.differs(proofs.last?, secret))
    }

    /// The same for the round before the last that has this number.
    pub(crate) fn was_by_another(&self, number: usize, secret: &SharedSecret) -> Option<bool> {
        let proofs = self.proofs.as_ref()?;
        let (_, mark) = proofs.more.as_ref()?.earlier.iter().find(|(of, _)| *of == number)?;
        Some(proofs.differs(*mark, secret))
    }

    /// The name on the wire of the PPK on which the keys depend, if it is known.
    pub(crate) fn ppk_id(&self) -> Option<&[u8]> {
        Some(&self.proofs.as_ref()?.more.as_ref()?.ppk.as_ref()?.0)
    }

    /// True if the keys depend on another PPK than this one.
    pub(crate) fn has_another_ppk(&self, secret: &SharedSecret) -> bool {
        let Some(proofs) = &self.proofs else { return false };
        let ppk = proofs.more.as_ref().and_then(|more| more.ppk.as_ref());
        ppk.is_some_and(|(_, mark)| proofs.differs(*mark, secret))
    }
}
