//! The fragments of one datagram.

use super::{Loss, MAX_FRAGMENTS, MIN_FRAGMENT_LEN};
use arrayvec::ArrayVec;
use testudo_wire::fragment::Fragment;

/// A fragment and the packet that it came in.
#[derive(Debug)]
pub(super) struct StoredFragment<F> {
    pub(super) packet: F,
    pub(super) fragment: Fragment,
}

/// The fragments of one datagram, in the order of their places.
#[derive(Debug)]
pub(super) struct StoredFragments<F> {
    pub(super) list: ArrayVec<StoredFragment<F>, MAX_FRAGMENTS>,
    /// Octets of all payloads.
    pub(super) octets: usize,
    /// The end of the datagram, once its last fragment is there.
    end: Option<usize>,
    /// Set if the datagram is spoilt: its remaining fragments will be lost for this reason.
    pub(super) spoilt: Option<Loss>,
}

impl<F> StoredFragments<F> {
    pub(super) fn new() -> Self {
        Self { list: ArrayVec::new(), octets: 0, end: None, spoilt: None }
    }

    pub(super) fn is_whole(&self) -> bool {
        // No fragment overlaps another.
        self.end == Some(self.octets)
    }
}

/// The flaw of a fragment, independent of others.
pub(super) fn flaw(fragment: &Fragment) -> Option<Loss> {
    let beyond = fragment.header_len() + fragment.end() > usize::from(u16::MAX);
    if fragment.len == 0 || beyond || fragment.more && !fragment.len.is_multiple_of(8) {
        return Some(Loss::Invalid);
    }
    let hides = fragment.more && fragment.len < MIN_FRAGMENT_LEN
        || fragment.offset != 0 && fragment.offset < MIN_FRAGMENT_LEN;
    hides.then_some(Loss::Tiny)
}

impl<F: AsRef<[u8]>> StoredFragments<F> {
    /// The fragment's place in the list, or why it has none.
    fn judge(&self, packet: &F, fragment: &Fragment, limit: usize) -> Result<usize, Loss> {
        if let Some(why) = self.spoilt {
            return Err(why);
        }
        let (start, end) = (usize::from(fragment.offset), fragment.end());
        let at = self.list.partition_point(|piece| piece.fragment.offset < fragment.offset);
        let next = self.list.get(at);
        if next.is_some_and(|next| is_same(next, packet, fragment)) {
            return Err(Loss::Duplicate);
        }
        let before = at.checked_sub(1).and_then(|at| self.list.get(at));
        // The packet will have the first fragment's header, which may be longer than the others'.
        let last = self.list.last().map_or(0, |last| last.fragment.end());
        let first = if start == 0 { Some(fragment) } else { self.first() };
        if first.unwrap_or(fragment).header_len() + end.max(last) > limit {
            return Err(Loss::TooLarge);
        }
        let overlaps = before.is_some_and(|before| before.fragment.end() > start)
            || next.is_some_and(|next| usize::from(next.fragment.offset) < end);
        let contradicts = match self.end {
            Some(known) => end > known || !fragment.more,
            None => !fragment.more && last > end,
        };
        if overlaps || contradicts {
            return Err(Loss::Overlap);
        }
        if self.list.is_full() { Err(Loss::TooLarge) } else { Ok(at) }
    }

    /// The first fragment of the datagram.
    fn first(&self) -> Option<&Fragment> {
        self.list.first().map(|piece| &piece.fragment).filter(|fragment| fragment.offset == 0)
    }

    /// Adds a fragment. Returns it with the reason if it does not belong here.
    pub(super) fn add(&mut self, packet: F, fragment: Fragment, limit: usize) -> Result<(), (F, Loss)> {
        match self.judge(&packet, &fragment, limit) {
            Ok(at) => {
                self.octets += usize::from(fragment.len);
                if !fragment.more {
                    self.end = Some(fragment.end());
                }
                self.list.insert(at, StoredFragment { packet, fragment });
                Ok(())
            }
            Err(why) => Err((packet, why)),
        }
    }

    /// True if the fragment begins the datagram, and differs from the beginning that came before.
    pub(super) fn is_another_beginning(&self, packet: &F, fragment: &Fragment) -> bool {
        fragment.offset == 0 && !self.list.first().is_some_and(|first| is_same(first, packet, fragment))
    }
}

/// True if the fragment has come before. A network may duplicate packets: that is no attack (RFC
/// 8200 §4.5).
fn is_same<F: AsRef<[u8]>>(piece: &StoredFragment<F>, packet: &F, fragment: &Fragment) -> bool {
    let old = &piece.fragment;
    (old.offset, old.len, old.more) == (fragment.offset, fragment.len, fragment.more)
        && payload(&piece.packet, old) == payload(packet, fragment)
}

/// The fragment's part of the datagram.
pub(super) fn payload<'a, F: AsRef<[u8]>>(packet: &'a F, fragment: &Fragment) -> &'a [u8] {
    let at = usize::from(fragment.at);
    packet.as_ref().get(at..at + usize::from(fragment.len)).unwrap_or_default()
}
