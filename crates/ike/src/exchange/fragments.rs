//! Reassembling messages that come in fragments (RFC 7383 §2.6).

use crate::endpoint::Discard;
use crate::exchange::receive::Datagram;
use crate::exchange::session::Session;
use crate::message::{Encrypted, Fragment, Header, PayloadType};
use crate::output::Reason;
use crate::sa::{Collected, FirstDatagram, IkeSa, MessageKind, Phase, Reassembly, digest};
use crate::suite::Opened;

/// Offset of the first payload's type in the header.
const NEXT_PAYLOAD: usize = 16;

/// True if the first payload of a message, by its header, is an Encrypted Fragment payload.
pub(crate) fn is_fragment(message: &[u8]) -> bool {
    message.get(NEXT_PAYLOAD) == Some(&u8::from(PayloadType::EncryptedFragment))
}

/// Checks, without a key, whether a fragment can be used.
pub(super) fn wants_fragment(sa: &IkeSa, header: Header, fragment: Fragment) -> Result<(), &'static str> {
    if !sa.extensions.fragmentation {
        return Err("a fragment although fragmentation was not negotiated");
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

impl Session<'_> {
    /// Keeps an authentic fragment. Returns the message once it is whole.
    pub(crate) fn collect(
        &mut self,
        datagram: Datagram<'_>,
        header: Header,
        fragment: Fragment,
        first: FirstDatagram,
        opened: Opened,
    ) -> Option<(Opened, FirstDatagram)> {
        let until = datagram.now.plus(self.env.config.fragment_timeout);
        let slot = if header.response {
            &mut self.sa.outgoing.pending.as_mut()?.fragments
        } else {
            &mut self.sa.incoming.fragments
        };
        match Reassembly::collect(slot, kind(header), fragment, opened, first, until) {
            Collected::Whole(opened, first) => Some((opened, first)),
            Collected::Waiting => None,
            Collected::Refused(why) => {
                let remote = datagram.path.remote;
                self.env
                    .effects
                    .discard(datagram.now, Discard::Fragment, || format!("ignored {why} from {remote}"));
                None
            }
        }
    }

    /// A fragment of a request that was answered. The first one gets the answer again, the others
    /// nothing (RFC 7383 §2.6.1); one of another size is recognised by its authenticity.
    pub(super) fn repeated_fragment(
        &mut self,
        datagram: Datagram<'_>,
        header: Header,
        encrypted: &Encrypted<'_>,
        fragment: Fragment,
    ) -> Result<(), Reason> {
        let seen = digest(datagram.bytes);
        let known = match self.sa.incoming.last.as_ref().map(|last| last.digest) {
            Some(last) if fragment.is_first() && last != seen => {
                // The keys may have changed with the answer (RFC 9370 §2.2.2).
                let opener = match &self.sa.phase {
                    Phase::HalfOpen(half) => half.last_opener.as_ref(),
                    _ => None,
                };
                let opener = opener.or(self.sa.keys.as_ref().map(|keys| &keys.opener));
                if opener
                    .and_then(|opener| self.env.effects.unseal(datagram, opener, header, encrypted))
                    .is_none()
                {
                    return Ok(());
                }
                last
            }
            _ => seen,
        };
        self.repeat(datagram, known)
    }
}
