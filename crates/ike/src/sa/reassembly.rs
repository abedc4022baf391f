//! Fragments of a message that wait for the others (RFC 7383 §2.6). Only authentic ones come here,
//! and no more than the largest message has; they expire.

use crate::message::{ExchangeType, Fragment, MessageId, PayloadType};
use crate::output::Time;
use crate::suite::{Opened, Secret};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bound on the fragments of a message: more than the largest message needs.
pub(crate) const MAX_FRAGMENTS: u16 = 64;
/// Bound on the octets of a message's content: as many as a message that comes whole may have.
const MAX_CONTENT: usize = 16 * 1024;

/// The message of these fragments, except for its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MessageKind {
    pub(crate) exchange: ExchangeType,
    pub(crate) id: MessageId,
}

/// The fragments of a message so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reassembly {
    kind: MessageKind,
    total: u16,
    /// What only the first fragment has, once it has come.
    first: Option<First>,
    parts: BTreeMap<u16, Secret>,
    octets: usize,
    /// When the fragments are given up.
    pub(crate) until: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct First {
    /// Type of the first payload.
    kind: PayloadType,
    datagram: FirstDatagram,
}

/// What must be remembered of a message's datagram, or of its first fragment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FirstDatagram {
    /// Its digest, by which a repetition is recognised.
    pub(crate) digest: [u8; 32],
    /// See [`crate::message::Encrypted::head`].
    pub(crate) head: Vec<u8>,
}

/// The result of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    /// Others are missing.
    Waiting,
    /// The message is whole.
    Whole(Opened, FirstDatagram),
    /// It cannot be used; the text says why.
    Refused(&'static str),
}

impl Reassembly {
    fn new(kind: MessageKind, total: u16, until: Time) -> Self {
        Self { kind, total, first: None, parts: BTreeMap::new(), octets: 0, until }
    }

    /// Checks, before any computation, whether the fragment can be used.
    pub(crate) fn wants(
        slot: Option<&Self>,
        kind: MessageKind,
        fragment: Fragment,
    ) -> Result<(), &'static str> {
        if fragment.total > MAX_FRAGMENTS {
            return Err("more fragments than any message has");
        }
        match slot.filter(|here| here.kind == kind) {
            Some(here) if fragment.total < here.total => Err("a fragment of an older set"),
            Some(here) if fragment.total == here.total && here.parts.contains_key(&fragment.number) => {
                Err("a duplicate fragment")
            }
            _ => Ok(()),
        }
    }

    /// Adds an authentic fragment to `slot`. It may replace fragments of another message, or of the
    /// same in larger fragments (RFC 7383 §2.5.2).
    pub(crate) fn collect(
        slot: &mut Option<Box<Self>>,
        kind: MessageKind,
        fragment: Fragment,
        opened: Opened,
        datagram: FirstDatagram,
        until: Time,
    ) -> Collected {
        if let Err(why) = Self::wants(slot.as_deref(), kind, fragment) {
            return Collected::Refused(why);
        }
        let here = slot.take().filter(|here| here.kind == kind && here.total == fragment.total);
        let mut here = here.unwrap_or_else(|| Box::new(Self::new(kind, fragment.total, until)));
        let (first, content) = opened.into_parts();
        here.octets = here.octets.saturating_add(content.len());
        if fragment.is_first() {
            here.octets = here.octets.saturating_add(datagram.head.len());
        }
        if here.octets > MAX_CONTENT {
            return Collected::Refused("fragments of more octets than any message has");
        }
        if fragment.is_first() {
            here.first = Some(First { kind: first, datagram });
        }
        here.parts.insert(fragment.number, content);
        if here.parts.len() == usize::from(here.total)
            && let Some(First { kind, datagram }) = here.first.take()
        {
            return Collected::Whole(Opened::joined(kind, here.parts.values()), datagram);
        }
        *slot = Some(here);
        Collected::Waiting
    }
}
