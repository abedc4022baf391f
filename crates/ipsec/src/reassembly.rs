//! Fragments put together, whole or not at all.
//!
//! ESP never sees a fragment (RFC 4303 §3.4.1), and policies that ask for ports have to see those of all fragments or of none
//! (RFC 4301 §7). What anybody on the way can send is kept here, so all of it is bounded: datagrams, those of one source,
//! fragments, octets, and time. The oldest datagram has to go first. Fragments that overlap end their datagram, and all that
//! comes of it later (RFC 5722, RFC 8200 §4.5; here for IPv4 too): nobody can show a filter other octets than us. The buffers
//! that hold the fragments are the caller's.

use arrayvec::ArrayVec;
use testudo_wire::fragment::{Datagram, Fragment, joined_ecn};
use testudo_wire::ip::Ecn;

/// Fragments of one datagram at most: one of 16 KiB over links that take 576 octets.
pub const PIECES: usize = 32;
/// A fragment that is not the last one has as much payload at least: what the smallest IPv4 link takes (RFC 791 §3.2). Smaller
/// ones are made to hide a header, or to keep us busy (RFC 1858).
const LEAST: u16 = 48;

/// What is kept at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Datagrams.
    pub datagrams: usize,
    /// Datagrams of one source.
    pub per_source: usize,
    /// Fragments of all datagrams.
    pub fragments: usize,
    /// Octets of a datagram, its header included.
    pub octets: usize,
    /// Milliseconds from a datagram's first fragment on.
    pub patience: u64,
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
    /// Congestion was marked on some fragments of a datagram that cannot carry the mark (RFC 3168 §5.3).
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

/// A fragment and the packet that it came in.
#[derive(Debug)]
struct Piece<F> {
    packet: F,
    fragment: Fragment,
}

/// The fragments of one datagram, in the order of their places.
#[derive(Debug)]
struct Pieces<F> {
    list: ArrayVec<Piece<F>, PIECES>,
    octets: usize,
    /// Where the datagram ends, once its last fragment is there.
    end: Option<usize>,
    /// What comes of it is lost.
    spoilt: Option<Loss>,
}

impl<F> Pieces<F> {
    fn new() -> Self {
        Self { list: ArrayVec::new(), octets: 0, end: None, spoilt: None }
    }

    fn is_whole(&self) -> bool {
        // None overlaps another.
        self.end == Some(self.octets)
    }
}

#[derive(Debug)]
struct Entry {
    /// Only fragments that came the same way belong together.
    way: u32,
    datagram: Datagram,
    since: u64,
    /// Where its pieces are.
    place: usize,
}

/// Datagrams that are not whole yet.
#[derive(Debug)]
pub struct Reassembler<F> {
    limits: Limits,
    /// Oldest first.
    entries: Vec<Entry>,
    pieces: Vec<Pieces<F>>,
    free: Vec<usize>,
    held: usize,
}

/// A datagram of which all fragments are there.
#[derive(Debug)]
pub struct Whole<F> {
    list: ArrayVec<Piece<F>, PIECES>,
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
    /// Nothing is kept yet; all memory is there already.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: Vec::with_capacity(limits.datagrams),
            pieces: (0..limits.datagrams).map(|_| Pieces::new()).collect(),
            free: (0..limits.datagrams).collect(),
            held: 0,
        }
    }

    /// Fragments that are kept.
    pub fn held(&self) -> usize {
        self.held
    }

    /// True if there is something to [`Self::expire`] in time.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes a fragment that came some way. Answers the datagram if that was all that it lacked.
    pub fn add(
        &mut self,
        (packet, fragment): (F, Fragment),
        way: u32,
        now: u64,
        sink: &mut impl Sink<F>,
    ) -> Option<Whole<F>> {
        if let Some(why) = flaw(&fragment) {
            sink.lose(packet, why);
            return None;
        }
        let place = self.place_of(way, &fragment.datagram, now, sink);
        // It may have been the oldest that had to make room for itself.
        let pieces = place.and_then(|place| self.pieces.get_mut(place).zip(Some(place)));
        let Some((pieces, place)) = pieces else {
            sink.lose(packet, Loss::Displaced);
            return None;
        };
        match pieces.judge(&packet, &fragment, self.limits.octets) {
            Ok(at) => {
                pieces.octets += usize::from(fragment.len);
                if !fragment.more {
                    pieces.end = Some(fragment.end());
                }
                pieces.list.insert(at, Piece { packet, fragment });
                self.held += 1;
            }
            Err(why) => {
                sink.lose(packet, why);
                if why != Loss::Duplicate {
                    self.spoil(place, why, sink);
                }
                return None;
            }
        }
        if pieces.is_whole() { self.complete(place, sink) } else { None }
    }

    /// Lets go of what has waited for too long.
    pub fn expire(&mut self, now: u64, sink: &mut impl Sink<F>) {
        let patience = self.limits.patience;
        while self.entries.first().is_some_and(|entry| now.saturating_sub(entry.since) >= patience) {
            self.remove(0, Loss::Timeout, sink);
        }
    }

    /// Lets go of everything.
    pub fn clear(&mut self, sink: &mut impl Sink<F>) {
        while !self.entries.is_empty() {
            self.remove(0, Loss::Timeout, sink);
        }
    }

    /// Where the pieces of a datagram are, with room for one more. `None` if to make room was to give up this datagram.
    fn place_of(
        &mut self,
        way: u32,
        datagram: &Datagram,
        now: u64,
        sink: &mut impl Sink<F>,
    ) -> Option<usize> {
        let is_it = |entry: &&Entry| entry.datagram == *datagram && entry.way == way;
        if let Some(place) = self.entries.iter().find(is_it).map(|entry| entry.place) {
            if self.held >= self.limits.fragments {
                self.displace_oldest(sink);
            }
            return self.entries.iter().any(|entry| entry.place == place).then_some(place);
        }
        let of_source =
            |entry: &&Entry| entry.datagram.src == datagram.src && entry.datagram.v6 == datagram.v6;
        if self.entries.iter().filter(of_source).count() >= self.limits.per_source
            && let Some(at) = self.entries.iter().position(|entry| of_source(&entry))
        {
            self.remove(at, Loss::Displaced, sink);
        }
        if self.free.is_empty() || self.held >= self.limits.fragments {
            self.displace_oldest(sink);
        }
        let place = self.free.pop()?;
        self.entries.push(Entry { way, datagram: *datagram, since: now, place });
        Some(place)
    }

    /// Lets go of datagrams, oldest first, until one of them had a fragment.
    fn displace_oldest(&mut self, sink: &mut impl Sink<F>) {
        let held = self.held;
        while !self.entries.is_empty() {
            self.remove(0, Loss::Displaced, sink);
            if self.held < held || self.held < self.limits.fragments {
                return;
            }
        }
    }

    /// Lets go of a datagram's fragments, and of those that are still to come.
    fn spoil(&mut self, place: usize, why: Loss, sink: &mut impl Sink<F>) {
        if let Some(pieces) = self.pieces.get_mut(place) {
            pieces.spoilt = Some(why);
            self.held -= pieces.list.len();
            pieces.list.drain(..).for_each(|piece| sink.lose(piece.packet, why));
        }
    }

    fn remove(&mut self, at: usize, why: Loss, sink: &mut impl Sink<F>) {
        let place = self.entries.remove(at).place;
        self.spoil(place, why, sink);
        self.release(place);
    }

    fn release(&mut self, place: usize) {
        if let Some(pieces) = self.pieces.get_mut(place) {
            *pieces = Pieces::new();
        }
        self.free.push(place);
    }

    fn complete(&mut self, place: usize, sink: &mut impl Sink<F>) -> Option<Whole<F>> {
        let at = self.entries.iter().position(|entry| entry.place == place)?;
        let pieces = self.pieces.get_mut(place)?;
        let Some(ecn) = joined_ecn(pieces.list.iter().map(|piece| Ecn::of(piece.fragment.class))) else {
            self.remove(at, Loss::Ecn, sink);
            return None;
        };
        let whole = Whole { list: std::mem::take(&mut pieces.list), octets: pieces.octets, ecn };
        self.held -= whole.list.len();
        self.entries.remove(at);
        self.release(place);
        Some(whole)
    }
}

/// What is wrong with a fragment whatever others there are.
fn flaw(fragment: &Fragment) -> Option<Loss> {
    let beyond = fragment.header_len() + fragment.end() > usize::from(u16::MAX);
    if fragment.len == 0 || beyond || fragment.more && !fragment.len.is_multiple_of(8) {
        return Some(Loss::Invalid);
    }
    let hides = fragment.more && fragment.len < LEAST || fragment.offset != 0 && fragment.offset < LEAST;
    hides.then_some(Loss::Tiny)
}

impl<F: AsRef<[u8]>> Pieces<F> {
    /// Where in the list a fragment belongs, or why it does not.
    fn judge(&self, packet: &F, fragment: &Fragment, limit: usize) -> Result<usize, Loss> {
        if let Some(why) = self.spoilt {
            return Err(why);
        }
        let (start, end) = (usize::from(fragment.offset), fragment.end());
        if fragment.header_len() + end > limit {
            return Err(Loss::TooLarge);
        }
        let at = self.list.partition_point(|piece| piece.fragment.offset < fragment.offset);
        let next = self.list.get(at);
        if next.is_some_and(|next| is_same(next, packet, fragment)) {
            return Err(Loss::Duplicate);
        }
        let before = at.checked_sub(1).and_then(|at| self.list.get(at));
        let overlaps = before.is_some_and(|before| before.fragment.end() > start)
            || next.is_some_and(|next| usize::from(next.fragment.offset) < end);
        let last = self.list.last().map_or(0, |last| last.fragment.end());
        let contradicts = match self.end {
            Some(known) => end > known || !fragment.more,
            None => !fragment.more && last > end,
        };
        if overlaps || contradicts {
            return Err(Loss::Overlap);
        }
        if self.list.is_full() { Err(Loss::TooLarge) } else { Ok(at) }
    }
}

/// True if the fragment has come before. A network may double what it carries: that is no attack (RFC 8200 §4.5).
fn is_same<F: AsRef<[u8]>>(piece: &Piece<F>, packet: &F, fragment: &Fragment) -> bool {
    let old = &piece.fragment;
    (old.offset, old.len, old.more) == (fragment.offset, fragment.len, fragment.more)
        && payload(&piece.packet, old) == payload(packet, fragment)
}

/// What of the datagram a fragment has.
fn payload<'a, F: AsRef<[u8]>>(packet: &'a F, fragment: &Fragment) -> &'a [u8] {
    let at = usize::from(fragment.at);
    packet.as_ref().get(at..at + usize::from(fragment.len)).unwrap_or_default()
}

#[cfg(test)]
#[path = "reassembly_tests.rs"]
mod tests;
