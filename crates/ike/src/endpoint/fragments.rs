//! Messages that come in fragments (RFC 7383 §2.6).

use super::dispatch::Datagram;
use super::{Discard, Endpoint};
use crate::message::{Encrypted, Fragment, Header, PayloadType};
use crate::output::Reason;
use crate::sa::{Collected, FirstDatagram, IkeSa, MessageKind, Phase, Reassembly, digest};
use crate::suite::Opened;

/// Where the type of the first payload stands in the header.
const NEXT_PAYLOAD: usize = 16;

/// True if the first payload of a message, by its header, is an Encrypted Fragment payload.
pub(super) fn is_fragment(message: &[u8]) -> bool {
    message.get(NEXT_PAYLOAD) == Some(&u8::from(PayloadType::EncryptedFragment))
}

/// Whether a fragment can be used, by what can be seen without a key.
pub(super) fn wants_fragment(sa: &IkeSa, header: Header, fragment: Fragment) -> Result<(), &'static str> {
    if !sa.extensions.fragmentation {
        return Err("a fragment, on which we had not agreed,");
    }
    let slot = if header.response {
        sa.outgoing.pending.as_ref().and_then(|pending| pending.fragments.as_deref())
    } else {
        sa.incoming.fragments.as_deref()
    };
    Reassembly::wants(slot, kind(header), fragment)
}

fn kind(header: Header) -> MessageKind {
    MessageKind { exchange: header.exchange, id: header.message_id }
}

impl Endpoint {
    /// Keeps an authentic fragment. Gives the message once it is whole.
    pub(super) fn collect(
        &mut self,
        datagram: Datagram<'_>,
        sa: &mut IkeSa,
        header: Header,
        fragment: Fragment,
        first: FirstDatagram,
        opened: Opened,
    ) -> Option<(Opened, FirstDatagram)> {
        let until = datagram.now.plus(self.config.fragment_timeout);
        let slot = if header.response {
            &mut sa.outgoing.pending.as_mut()?.fragments
        } else {
            &mut sa.incoming.fragments
        };
        match Reassembly::collect(slot, kind(header), fragment, opened, first, until) {
            Collected::Whole(opened, first) => Some((opened, first)),
            Collected::Waiting => None,
            Collected::Refused(why) => {
                let remote = datagram.path.remote;
                self.discard(datagram.now, Discard::Fragment, || format!("ignored {why} from {remote}"));
                None
            }
        }
    }

    /// A fragment of a request that was answered. The first one gets the answer again, all others nothing (RFC 7383
    /// §2.6.1); one of another size is known by being authentic.
    pub(super) fn repeated_fragment(
        &mut self,
        datagram: Datagram<'_>,
        sa: &mut IkeSa,
        header: Header,
        encrypted: &Encrypted<'_>,
        fragment: Fragment,
    ) -> Result<(), Reason> {
        let seen = digest(datagram.bytes);
        let known = match sa.incoming.last.as_ref().map(|last| last.digest) {
            Some(last) if fragment.is_first() && last != seen => {
                // The keys may have changed with the answer (RFC 9370 §2.2.2).
                let opener = match &sa.phase {
                    Phase::HalfOpen(half) => half.last_opener.as_ref(),
                    _ => None,
                };
                let opener = opener.or(sa.keys.as_ref().map(|keys| &keys.opener));
                if opener.and_then(|opener| self.unseal(datagram, opener, header, encrypted)).is_none() {
                    return Ok(());
                }
                last
            }
            _ => seen,
        };
        self.repeat(datagram, sa, known)
    }
}
