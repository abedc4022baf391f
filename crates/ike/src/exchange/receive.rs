//! Receiving: whether a message of an IKE SA is authentic, and its exchange.

use crate::endpoint::Discard;
use crate::environment::exchanges::Counted;
use crate::environment::report::Way;
use crate::exchange::auth;
use crate::exchange::counter_sync;
use crate::exchange::create_child;
use crate::exchange::fragments::wants_fragment;
use crate::exchange::init;
use crate::exchange::intermediate;
use crate::exchange::reauth;
use crate::exchange::send::Request;
use crate::exchange::session::Session;
use crate::exchange::{Reply, WindowPlace, place};
use crate::message::{Delete, Encrypted, ExchangeType, Header, Message, NotifyType, ParseError, Payloads};
use crate::output::{Path, Reason, Time};
use crate::sa::{FirstDatagram, IkeSa, RequestKind, digest};
use crate::suite::{IntAuth, Opened};
use std::net::IpAddr;
use std::time::Duration;

/// Least interval between liveness checks that forged hints can cause (RFC 7296 §2.21.4).
pub(super) const HINT_INTERVAL: Duration = Duration::from_secs(10);

/// A datagram with its context.
#[derive(Clone, Copy)]
pub(crate) struct Datagram<'a> {
    pub(crate) now: Time,
    pub(crate) path: Path,
    pub(crate) bytes: &'a [u8],
}

impl Session<'_> {
    /// Processes a message that belongs to an IKE SA by its header.
    pub(crate) fn of_sa(&mut self, datagram: Datagram<'_>, message: &Message<'_>) -> Result<(), Reason> {
        let Datagram { path, bytes, .. } = datagram;
        let header = message.header;
        let place = place(self.sa, &header);
        let is_new = header.response
            || header.message_id >= self.sa.incoming.expected
            || place == WindowPlace::BesideWindow;
        if is_new && self.env.is_computing(self.sa.id, header.response) {
            self.env.effects.stats.discard(Discard::Repeated);
            return Ok(());
        }
        if header.exchange == ExchangeType::IkeSaInit {
            self.env.show(self.sa, Way::Received, &header, message.payloads.iter().as_slice());
            return init::handle_response(self, Reply { path, message, bytes });
        }
        let Some(encrypted) = &message.encrypted else {
            self.unprotected(datagram, message);
            return Ok(());
        };
        if !may_come_from(self.sa, path) {
            self.env.effects.discard(self.now, Discard::Elsewhere, || {
                let first = self.sa.path.remote.ip();
                format!(
                    "ignored {} from {}: IKE_SA_INIT came from {first}, and there is no NAT",
                    header.exchange, path.remote
                )
            });
            return Ok(());
        }
        let shown = self.shown_source(path);
        self.env.effects.stats.set_source(shown);
        let seen = digest(bytes);
        let is_old = header.message_id < self.sa.incoming.expected
            && (place != WindowPlace::BesideWindow || encrypted.fragment.is_some());
        if !header.response && (is_old || self.sa.incoming.answered(&seen).is_some()) {
            return match encrypted.fragment {
                None => self.repeat(datagram, seen),
                Some(fragment) => self.repeated_fragment(datagram, header, encrypted, fragment),
            };
        }
        if let Some(fragment) = encrypted.fragment
            && let Err(why) = wants_fragment(self.sa, header, fragment)
        {
            self.env
                .effects
                .discard(self.now, Discard::Fragment, || format!("ignored {why} from {}", path.remote));
            return Ok(());
        }
        let opener = self.sa.keys.as_ref().map(|keys| &keys.opener);
        let Some(opened) =
            opener.and_then(|opener| self.env.effects.unseal(datagram, opener, header, encrypted))
        else {
            return Ok(());
        };
        if let Some(payloads) = beside_window(place, encrypted, &opened) {
            return counter_sync::sync_message(self, datagram, header, seen, &payloads);
        }
        self.heard(path);
        let first = FirstDatagram { digest: seen, head: encrypted.head() };
        let whole = match encrypted.fragment {
            None => Some((opened, first)),
            Some(fragment) => self.collect(datagram, header, fragment, first, opened),
        };
        let Some((opened, first)) = whole else { return Ok(()) };
        let counted = if header.response { Counted::InResponse } else { Counted::InRequest };
        self.env.effects.count_message(self.sa, header.exchange, counted);
        if self.env.config.details
            && let Ok(payloads) = opened.payloads()
        {
            self.env.show(self.sa, Way::Received, &header, payloads.iter().as_slice());
        }
        let digest = first.digest;
        let request = Request { exchange: header.exchange, id: header.message_id, path, digest };
        match (header.exchange, header.response) {
            (ExchangeType::IkeIntermediate, response) => {
                let covered = covered(self.sa, &first, &opened)?;
                match response {
                    true => intermediate::handle_response(self, covered, opened.payloads()),
                    false => intermediate::handle_request(self, &request, covered, opened.payloads()),
                }
            }
            (_, true) => self.protected_response(header, opened.payloads()),
            (_, false) => self.protected_request(&request, opened.payloads()),
        }
    }

    /// The source of a message, if its sender has shown that it receives what is sent there: of a
    /// half-open IKE SA, where IKE_SA_INIT came from, because the SPI that only its answer has is in
    /// the message; later, where the peer is. Behind a NAT a message may name any other.
    pub(super) fn shown_source(&self, path: Path) -> Option<IpAddr> {
        let half_open = self.sa.phase.half_open_source().map(|source| source.addr);
        let shown = half_open.unwrap_or_else(|| self.sa.path.remote.ip());
        (shown == path.remote.ip()).then_some(shown)
    }

    /// An authentic message has arrived: the peer is alive, and reachable at its source.
    pub(crate) fn heard(&mut self, path: Path) {
        self.commit();
        self.sa.last_heard = self.now;
        self.follow(path);
    }

    fn protected_request(
        &mut self,
        request: &Request,
        payloads: Result<Payloads, ParseError>,
    ) -> Result<(), Reason> {
        if request.exchange == ExchangeType::IkeAuth {
            return auth::handle_request(self, request, payloads);
        }
        if self.sa.rival_of.is_some() && payloads.as_ref().is_ok_and(|payloads| !ends_ike_sa(payloads)) {
            create_child::decide_for(self)?;
        }
        reauth::peer_is_ready(self);
        match (payloads, request.exchange) {
            (Err(error), _) => self.unreadable_request(request, &error),
            (Ok(payloads), ExchangeType::CreateChildSa | ExchangeType::IkeFollowupKe) => {
                create_child::handle_request(self, request, payloads)
            }
            (Ok(payloads), _) => self.informational_request(request, &payloads),
        }
    }

    fn protected_response(
        &mut self,
        header: Header,
        payloads: Result<Payloads, ParseError>,
    ) -> Result<(), Reason> {
        if header.exchange == ExchangeType::IkeAuth {
            return auth::handle_response(self, payloads);
        }
        let Some(kind) = self.sa.outgoing.asked(header.exchange, header.message_id) else { return Ok(()) };
        let payloads = payloads
            .map_err(|error| Reason::Refused(format!("the peer sent a malformed response: {error}")))?;
        if kind == RequestKind::CreateChild {
            return create_child::handle_response(self, header, payloads);
        }
        self.sa.outgoing.answered(header.exchange, header.message_id);
        if self.sa.is_established() {
            reauth::peer_is_ready(self);
        }
        self.informational_response(kind, &payloads)
    }

    /// Repeats the answer to an answered request, octet for octet. It goes to the source of the
    /// request, which a NAT may have changed; but without a NAT another address may be a victim's.
    pub(crate) fn repeat(&mut self, datagram: Datagram<'_>, digest: [u8; 32]) -> Result<(), Reason> {
        let Datagram { path, .. } = datagram;
        let elsewhere = path.remote.ip() != self.sa.path.remote.ip();
        let may = self.sa.nat.remote || !elsewhere;
        let response = match self.sa.incoming.answered(&digest).filter(|_| may) {
            None => Err("an old request"),
            Some(last) if last.is_repeated_too_often(self.now, elsewhere) => {
                Err("a request that was repeated too often")
            }
            Some(last) => {
                last.repeated(self.now);
                Ok(last.response.to_vec())
            }
        };
        match response {
            Ok(response) => {
                self.env.effects.stats.responses_repeated += 1;
                self.send(path, response);
            }
            Err(what) => {
                self.env
                    .effects
                    .discard(self.now, Discard::MessageId, || format!("ignored {what} from {}", path.remote));
            }
        }
        Ok(())
    }

    /// A message in clear within an IKE SA changes nothing. One that says that the peer has lost
    /// the SA causes a liveness check now and then (RFC 7296 §2.21.4).
    fn unprotected(&mut self, datagram: Datagram<'_>, message: &Message<'_>) {
        let Datagram { path, .. } = datagram;
        let hint = message.payloads.notify(NotifyType::InvalidIkeSpi).is_some();
        if hint
            && self.sa.is_established()
            && self.sa.outgoing.pending.is_none()
            && self.now >= self.sa.next_hint
        {
            self.sa.next_hint = self.now.plus(HINT_INTERVAL);
            // The request cannot be sealed only if no IV is left; then nothing else can be sent
            // either.
            if self.check_liveness().is_err() {
                self.env.effects.stats.discard(Discard::Exhausted);
            }
        }
        self.env.effects.discard(self.now, Discard::Unprotected, || {
            let kind = message.payloads.error().map_or_else(|| "nothing".to_owned(), |n| n.kind.to_string());
            format!("ignored an unprotected message from {} that tells {kind}", path.remote)
        });
    }
}

/// False while an initiator is not authenticated, if its message comes by another path than
/// IKE_SA_INIT and no NAT can have changed that: the tunnels would end at an address that has
/// proved nothing. Its port may differ (RFC 7296 §2.23).
fn may_come_from(sa: &IkeSa, path: Path) -> bool {
    let moved = |changeable: bool, from: IpAddr, to: IpAddr| !changeable && from != to;
    sa.phase.half_open().is_none()
        || !moved(sa.nat.local, sa.path.local.ip(), path.local.ip())
            && !moved(sa.nat.remote, sa.path.remote.ip(), path.remote.ip())
}

/// True for a delete of the IKE SA.
fn ends_ike_sa(payloads: &Payloads) -> bool {
    payloads.deletes().any(|delete| *delete == Delete::IkeSa)
}

/// The part of the message that AUTH covers, under the keys with which it came (RFC 9242 §3.3.2).
/// The SA stores it once the message has had its effect.
fn covered(sa: &IkeSa, first: &FirstDatagram, opened: &Opened) -> Result<IntAuth, Reason> {
    let mut int_auth = sa.phase.int_auth().cloned().unwrap_or_default();
    if let Some(keys) = &sa.keys {
        int_auth.received(&keys.ike, sa.role.peer(), &first.head, opened)?;
    }
    Ok(int_auth)
}

/// The payloads of a message outside the windows. One that may be in the window too is recognised
/// by its contents.
fn beside_window(place: WindowPlace, encrypted: &Encrypted<'_>, opened: &Opened) -> Option<Payloads> {
    let payloads = || opened.payloads().unwrap_or_default();
    let syncs = |payloads: &Payloads| payloads.notify(NotifyType::MessageIdSync).is_some();
    match place {
        WindowPlace::Window => None,
        WindowPlace::BesideWindow => Some(payloads()),
        WindowPlace::Either => encrypted.fragment.is_none().then(payloads).filter(syncs),
    }
}
