//! Reassembly of fragments: all of a datagram or nothing.
//!
//! ESP never sees a fragment (RFC 4303 §3.4.1), and policies with ports must see the ports of all
//! fragments or of none (RFC 4301 §7). Anybody on the way can send fragments, so all that is kept
//! is bounded: datagrams, those of one source, fragments, octets, and time. The oldest datagram is
//! dropped first. Overlapping fragments end their datagram, together with all fragments of it that
//! come later (RFC 5722, RFC 8200 §4.5; here for IPv4 too), so nobody can show a filter other
//! octets than us. The caller owns the buffers of the fragments. A fragment costs the same however
//! many others there are.
#![cfg_attr(
    not(test),
    expect(
        clippy::indexing_slicing,
        reason = "places and sources come from the tables, which have an entry for each"
    )
)]

mod pieces;
mod table;

use arrayvec::ArrayVec;
use pieces::{StoredFragment, StoredFragments, flaw, payload};
use table::{Chain, Hashed, KeyTable, PlaceIndex, PlaceList, TableKey};
use testudo_base::siphash::SipKey;
use testudo_wire::fragment::{Datagram, Fragment, joined_ecn};
use testudo_wire::ip::Ecn;

/// Bound on the fragments of one datagram: one of 16 KiB over links with an MTU of 576 octets.
pub const MAX_FRAGMENTS: usize = 32;
/// The least payload of a fragment that is not the last one: what the smallest IPv4 link takes (RFC
/// 791 §3.2). Smaller ones are made to hide a header, or to cost us time (RFC 1858).
const MIN_FRAGMENT_LEN: u16 = 48;

/// Bounds on what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Datagrams.
    pub datagrams: usize,
    /// Datagrams of one source.
    pub per_source: usize,
    /// Fragments of all datagrams.
    pub fragments: usize,
    /// Fragments of one source.
    pub fragments_per_source: usize,
    /// Octets of a datagram, its header included.
    pub octets: usize,
    /// Milliseconds that a datagram's fragments wait for the others.
    pub patience: u64,
    /// Milliseconds after which another first fragment with the same IPv4 identification begins
    /// another datagram.
    pub stale: u64,
}

/// Why a fragment was lost. In all cases but the first three its datagram is lost too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It has come before.
    Duplicate,
    /// Its lengths contradict each other, or it has no payload.
    Invalid,
    /// Smaller than any link requires.
    Tiny,
    /// It overlaps another, or disagrees with it about the datagram's end.
    Overlap,
    /// The datagram is too large, or has too many fragments.
    TooLarge,
    /// Some fragments of a datagram carry a congestion mark that others cannot (RFC 3168 §5.3).
    Ecn,
    /// It was displaced by a later one.
    Displaced,
    /// The others did not come in time.
    Timeout,
}

/// Takes back the buffers of fragments that were lost.
pub trait Sink<F> {
    /// A fragment is lost.
    fn lose(&mut self, piece: F, why: Loss);
}

impl<F, S: FnMut(F, Loss)> Sink<F> for S {
    fn lose(&mut self, piece: F, why: Loss) {
        self(piece, why);
    }
}

/// The identity of a datagram: only fragments that came the same way belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DatagramKey {
    way: u32,
    datagram: Datagram,
}

impl TableKey for DatagramKey {
    fn hash(&self, key: SipKey) -> u64 {
        let Datagram { src, dst, id, protocol, v6 } = self.datagram;
        let mut octets = [0; 42];
        octets[..16].copy_from_slice(&src.to_le_bytes());
        octets[16..32].copy_from_slice(&dst.to_le_bytes());
        octets[32..36].copy_from_slice(&id.to_le_bytes());
        octets[36..40].copy_from_slice(&self.way.to_le_bytes());
        octets[40..].copy_from_slice(&[protocol, v6.into()]);
        key.hash(&octets)
    }
}

/// A source of fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SourceKey {
    addr: u128,
    v6: bool,
}

impl TableKey for SourceKey {
    fn hash(&self, key: SipKey) -> u64 {
        key.hash(&self.addr.to_le_bytes())
    }
}

/// A datagram that is not whole.
#[derive(Debug)]
struct PendingDatagram<F> {
    since: u64,
    /// The place of its source.
    source: PlaceIndex,
    pieces: StoredFragments<F>,
}

/// What is kept of one source.
#[derive(Clone, Copy, Debug)]
struct SourceUse {
    /// Its datagrams, oldest first.
    list: PlaceList,
    datagrams: usize,
    fragments: usize,
}

impl SourceUse {
    const NOTHING: Self = Self { list: PlaceList::EMPTY, datagrams: 0, fragments: 0 };
}

/// Incomplete datagrams.
#[derive(Debug)]
pub struct Reassembler<F> {
    limits: Limits,
    names: KeyTable<DatagramKey>,
    /// By the places of the datagrams' keys.
    entries: Vec<PendingDatagram<F>>,
    /// All datagrams, oldest first.
    ages: PlaceList,
    ages_chain: Chain,
    sources: KeyTable<SourceKey>,
    /// By the places of the sources.
    shares: Vec<SourceUse>,
    shares_chain: Chain,
    held: usize,
}

/// A datagram with all of its fragments.
#[derive(Debug)]
pub struct Whole<F> {
    list: ArrayVec<StoredFragment<F>, MAX_FRAGMENTS>,
    octets: usize,
    ecn: Ecn,
}

impl<F: AsRef<[u8]>> Whole<F> {
    /// Octets of the packet, header included.
    pub fn packet_len(&self) -> usize {
        self.list.first().map_or(0, |first| first.fragment.header_len()) + self.octets
    }

    /// How many fragments there were.
    pub fn fragments(&self) -> usize {
        self.list.len()
    }

    /// Writes the packet. Returns false if it does not fit.
    #[must_use]
    pub fn write(&self, out: &mut [u8]) -> bool {
        let Some(first) = self.list.first() else { return false };
        let header = first.fragment.write_header(first.packet.as_ref(), self.octets, self.ecn, out);
        let Some(out) = header.ok().and_then(|header| out.get_mut(header..)) else { return false };
        self.list.iter().all(|piece| {
            let from = payload(&piece.packet, &piece.fragment);
            let to = out.get_mut(usize::from(piece.fragment.offset)..piece.fragment.end());
            to.filter(|to| to.len() == from.len()).map(|to| to.copy_from_slice(from)).is_some()
        })
    }

    /// The packets of the fragments.
    pub fn into_packets(self) -> impl Iterator<Item = F> {
        self.list.into_iter().map(|piece| piece.packet)
    }
}

impl<F: AsRef<[u8]>> Reassembler<F> {
    /// An empty reassembler, with all of its memory. The key of the hash must be unknown to
    /// strangers.
    pub fn new(limits: Limits, key: SipKey) -> Self {
        let places = limits.datagrams;
        let entry = || PendingDatagram { since: 0, source: 0, pieces: StoredFragments::new() };
        Self {
            limits,
            names: KeyTable::new(places, key),
            entries: std::iter::repeat_with(entry).take(places).collect(),
            ages: PlaceList::EMPTY,
            ages_chain: Chain::new(places),
            sources: KeyTable::new(places, key),
            shares: vec![SourceUse::NOTHING; places],
            shares_chain: Chain::new(places),
            held: 0,
        }
    }

    /// The number of kept fragments.
    pub fn held(&self) -> usize {
        self.held
    }

    /// True if there is nothing to [`Self::expire`].
    pub fn is_empty(&self) -> bool {
        self.ages.first().is_none()
    }

    /// Adds a fragment that came in a certain way. Returns the datagram if it is whole now.
    pub fn add(
        &mut self,
        packet: F,
        fragment: Fragment,
        way: u32,
        now: u64,
        sink: &mut impl Sink<F>,
    ) -> Option<Whole<F>> {
        if let Some(why) = flaw(&fragment) {
            sink.lose(packet, why);
            return None;
        }
        let name = DatagramKey { way, datagram: fragment.datagram };
        let name = self.names.hashed(name);
        let source = SourceKey { addr: fragment.datagram.src, v6: fragment.datagram.v6 };
        let known = self.names.find(&name);
        let known = known.filter(|place| !self.replace(*place, &packet, &fragment, now, sink));
        let place = known
            .or_else(|| self.begin(name, source, now, sink))
            .filter(|place| self.make_room(*place, sink));
        let Some(place) = place else {
            // The datagram was the oldest, and was displaced by its own fragment.
            sink.lose(packet, Loss::Displaced);
            return None;
        };
        let entry = &mut self.entries[usize::from(place)];
        match entry.pieces.add(packet, fragment, self.limits.octets) {
            Ok(()) => {
                self.held += 1;
                self.shares[usize::from(entry.source)].fragments += 1;
                if entry.pieces.is_whole() { self.complete(place, sink) } else { None }
            }
            Err((packet, why)) => {
                sink.lose(packet, why);
                if why != Loss::Duplicate {
                    self.spoil(place, why, sink);
                }
                None
            }
        }
    }

    /// Drops datagrams that have waited for too long.
    pub fn expire(&mut self, now: u64, sink: &mut impl Sink<F>) {
        while let Some(oldest) = self.ages.first() {
            if now.saturating_sub(self.entries[usize::from(oldest)].since) < self.limits.patience {
                return;
            }
            self.remove(oldest, Loss::Timeout, sink);
        }
    }

    /// Drops all datagrams.
    pub fn clear(&mut self, sink: &mut impl Sink<F>) {
        while let Some(oldest) = self.ages.first() {
            self.remove(oldest, Loss::Timeout, sink);
        }
    }

    /// Drops an incomplete datagram whose identification is used again: IPv4 has few (RFC 4963).
    /// Returns true if it has.
    fn replace(
        &mut self,
        place: PlaceIndex,
        packet: &F,
        fragment: &Fragment,
        now: u64,
        sink: &mut impl Sink<F>,
    ) -> bool {
        let entry = &self.entries[usize::from(place)];
        let is_old = now.saturating_sub(entry.since) >= self.limits.stale;
        let is_stale = is_old && !fragment.datagram.v6 && entry.pieces.is_another_beginning(packet, fragment);
        if is_stale {
            self.remove(place, Loss::Displaced, sink);
        }
        is_stale
    }

    /// Makes a place for a new datagram.
    fn begin(
        &mut self,
        name: Hashed<DatagramKey>,
        source: SourceKey,
        now: u64,
        sink: &mut impl Sink<F>,
    ) -> Option<PlaceIndex> {
        let source = self.sources.hashed(source);
        if let Some(known) = self.sources.find(&source)
            && let SourceUse { list, datagrams, .. } = self.shares[usize::from(known)]
            && datagrams >= self.limits.per_source
            && let Some(oldest) = list.first()
        {
            self.remove(oldest, Loss::Displaced, sink);
        }
        if self.names.is_full()
            && let Some(oldest) = self.ages.first()
        {
            self.remove(oldest, Loss::Displaced, sink);
        }
        // A source whose only datagram was dropped is gone too.
        let source = self.sources.find(&source).or_else(|| self.sources.insert(source))?;
        let place = self.names.insert(name)?;
        self.entries[usize::from(place)] =
            PendingDatagram { since: now, source, pieces: StoredFragments::new() };
        self.ages.push(place, &mut self.ages_chain);
        let share = &mut self.shares[usize::from(source)];
        share.list.push(place, &mut self.shares_chain);
        share.datagrams += 1;
        Some(place)
    }

    /// Makes room for one more fragment of a datagram. Returns false if this datagram had to be
    /// dropped for it.
    fn make_room(&mut self, place: PlaceIndex, sink: &mut impl Sink<F>) -> bool {
        let source = usize::from(self.entries[usize::from(place)].source);
        let mut is_there = true;
        // A spoilt datagram has no fragments, and is removed on the way.
        while is_there && self.shares[source].fragments >= self.limits.fragments_per_source {
            let Some(oldest) = self.shares[source].list.first() else { break };
            self.remove(oldest, Loss::Displaced, sink);
            is_there = oldest != place;
        }
        while is_there && self.held >= self.limits.fragments {
            let Some(oldest) = self.ages.first() else { break };
            self.remove(oldest, Loss::Displaced, sink);
            is_there = oldest != place;
        }
        is_there
    }

    /// Drops a datagram's fragments, and those that are still to come.
    fn spoil(&mut self, place: PlaceIndex, why: Loss, sink: &mut impl Sink<F>) {
        let entry = &mut self.entries[usize::from(place)];
        entry.pieces.spoilt = Some(why);
        self.held -= entry.pieces.list.len();
        self.shares[usize::from(entry.source)].fragments -= entry.pieces.list.len();
        entry.pieces.list.drain(..).for_each(|piece| sink.lose(piece.packet, why));
    }

    fn remove(&mut self, place: PlaceIndex, why: Loss, sink: &mut impl Sink<F>) {
        self.spoil(place, why, sink);
        self.names.remove(place);
        self.ages.remove(place, &mut self.ages_chain);
        let source = self.entries[usize::from(place)].source;
        let share = &mut self.shares[usize::from(source)];
        share.list.remove(place, &mut self.shares_chain);
        share.datagrams -= 1;
        if share.datagrams == 0 {
            self.sources.remove(source);
        }
    }

    fn complete(&mut self, place: PlaceIndex, sink: &mut impl Sink<F>) -> Option<Whole<F>> {
        let entry = &mut self.entries[usize::from(place)];
        let Some(ecn) = joined_ecn(entry.pieces.list.iter().map(|piece| Ecn::of(piece.fragment.class)))
        else {
            self.remove(place, Loss::Ecn, sink);
            return None;
        };
        let whole = Whole { list: std::mem::take(&mut entry.pieces.list), octets: entry.pieces.octets, ecn };
        self.held -= whole.list.len();
        self.shares[usize::from(entry.source)].fragments -= whole.list.len();
        self.remove(place, Loss::Displaced, sink);
        Some(whole)
    }
}

#[cfg(test)]
mod tests;
