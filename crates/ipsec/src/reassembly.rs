//! Fragments put together, whole or not at all.
//!
//! ESP never sees a fragment (RFC 4303 §3.4.1), and policies that ask for ports have to see those
//! of all fragments or of none (RFC 4301 §7). What anybody on the way can send is kept here, so all
//! of it is bounded: datagrams, those of one source, fragments, octets, and time. The oldest
//! datagram has to go first. Fragments that overlap end their datagram, and all that comes of it
//! later (RFC 5722, RFC 8200 §4.5; here for IPv4 too): nobody can show a filter other octets than
//! us. The buffers that hold the fragments are the caller's. A fragment costs the same however many
//! others there are.
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

/// Fragments of one datagram at most: one of 16 KiB over links that take 576 octets.
pub const MAX_FRAGMENTS: usize = 32;
/// A fragment that is not the last one has as much payload at least: what the smallest IPv4 link
/// takes (RFC 791 §3.2). Smaller ones are made to hide a header, or to keep us busy (RFC 1858).
const MIN_FRAGMENT_LEN: u16 = 48;

/// What is kept at most.
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
    /// Milliseconds after which another beginning of an IPv4 datagram is that of another datagram.
    pub stale: u64,
}

/// Why a fragment was lost, and with it, but for the first three, its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is there already.
    Duplicate,
    /// Its lengths contradict each other, or it has no payload.
    Invalid,
    /// Smaller than any link asks for.
    Tiny,
    /// It overlaps another, or contradicts it about the datagram's end.
    Overlap,
    /// The datagram is larger than may be, or in too many fragments.
    TooLarge,
    /// Congestion was marked on some fragments of a datagram that cannot carry the mark (RFC 3168
    /// §5.3).
    Ecn,
    /// It had to make room for a later one.
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

/// What tells a datagram from all others: only fragments that came the same way belong together.
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

/// Who sends fragments.
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

/// What there is of one source.
#[derive(Clone, Copy, Debug)]
struct SourceUse {
    /// Oldest first.
    list: PlaceList,
    datagrams: usize,
    fragments: usize,
}

impl SourceUse {
    const NOTHING: Self = Self { list: PlaceList::EMPTY, datagrams: 0, fragments: 0 };
}

/// Datagrams that are not whole yet.
#[derive(Debug)]
pub struct Reassembler<F> {
    limits: Limits,
    names: KeyTable<DatagramKey>,
    /// By the places of names.
    entries: Vec<PendingDatagram<F>>,
    /// All of them, oldest first.
    ages: PlaceList,
    ages_chain: Chain,
    sources: KeyTable<SourceKey>,
    /// By the places of sources.
    shares: Vec<SourceUse>,
    shares_chain: Chain,
    held: usize,
}

/// A datagram of which all fragments are there.
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

    /// Writes the packet. False if there is no room for it.
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
    /// Nothing is kept yet; all memory is there already. Places are found by the key, which
    /// strangers must not know.
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

    /// Fragments that are kept.
    pub fn held(&self) -> usize {
        self.held
    }

    /// True if there is nothing to [`Self::expire`] in time.
    pub fn is_empty(&self) -> bool {
        self.ages.first().is_none()
    }

    /// Takes a fragment that came some way. Answers the datagram if that was all that it lacked.
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
            // It was the oldest, and had to make room for itself.
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

    /// Lets go of what has waited for too long.
    pub fn expire(&mut self, now: u64, sink: &mut impl Sink<F>) {
        while let Some(oldest) = self.ages.first() {
            if now.saturating_sub(self.entries[usize::from(oldest)].since) < self.limits.patience {
                return;
            }
            self.remove(oldest, Loss::Timeout, sink);
        }
    }

    /// Lets go of everything.
    pub fn clear(&mut self, sink: &mut impl Sink<F>) {
        while let Some(oldest) = self.ages.first() {
            self.remove(oldest, Loss::Timeout, sink);
        }
    }

    /// Lets go of half a datagram whose identification has come again: IPv4 has few (RFC 4963).
    /// True if it has.
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

    /// A place for a datagram of which nothing is there.
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
        // A source that has lost its only datagram is gone too.
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

    /// Makes room for one more fragment of a datagram. False if to make room was to give up this
    /// datagram.
    fn make_room(&mut self, place: PlaceIndex, sink: &mut impl Sink<F>) -> bool {
        let source = usize::from(self.entries[usize::from(place)].source);
        let mut is_there = true;
        // What is spoilt has no fragments, and goes on the way.
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

    /// Lets go of a datagram's fragments, and of those that are still to come.
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
