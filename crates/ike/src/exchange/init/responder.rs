//! The responder's side of IKE_SA_INIT. Until IKE_AUTH any host may have sent the request, with any
//! address: a refusal leaves no state, and is never larger than the request.

use crate::alloc::Home;
use crate::config::{Connection, KeyExchange, RemoteAuth};
use crate::endpoint::{Discard, ExchangeCounter, NatStatus};
use crate::environment::Environment;
use crate::environment::half_open::{Admission, Claimant};
use crate::environment::report::Way;
use crate::exchange::auth::known_rounds;
use crate::exchange::init::{certificate_request, extensions, key_request, nonce_fits};
use crate::exchange::{describe, nat};
use crate::message::{
    EncodeError, Header, IkeSpi, KePayload, Message, MessageBuilder, MessageId, Nonce, Notify, NotifyType,
    Payload, SaPayload,
};
use crate::output::{Path, Reason, Time};
use crate::sa::{
    Answered, Extensions, HalfOpen, HalfOpenSource, IkeSa, Incoming, InitKey, Keys, Phase, digest,
};
use crate::suite::cookie::Claim;
use crate::suite::{IkeChoice, IkeKeys, IkeSpis, IntAuth, KeDraw, Nonces, Role, SuiteError, cookie, select};
use std::sync::Arc;

/// A request for a new IKE SA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InitRequest<'a> {
    pub(crate) path: Path,
    pub(crate) message: &'a Message<'a>,
    pub(crate) bytes: &'a [u8],
    pub(crate) key: InitKey,
}

/// The payloads that a request must have.
#[derive(Clone, Copy)]
struct Offer<'a> {
    sa: &'a SaPayload,
    ke: &'a KePayload,
    nonce: &'a Nonce,
}

/// An accepted request, while the keys are computed.
struct PendingInit {
    began: Time,
    path: Path,
    key: InitKey,
    claimant: Claimant,
    connection: String,
    request: Vec<u8>,
    response: PendingResponse,
    spis: IkeSpis,
    nonces: Nonces,
    nat: NatStatus,
    extensions: Extensions,
}

/// A response without the KE payload.
struct PendingResponse {
    header: Header,
    choice: SaPayload,
    behind_ke: Vec<Payload>,
}

/// Answers requests for new IKE SAs, for which there is no IKE SA yet.
pub(crate) struct InitResponder<'e> {
    pub(crate) now: Time,
    pub(crate) env: &'e mut Environment,
}

impl InitResponder<'_> {
    /// Answers a request for a new IKE SA that is no repetition.
    pub(crate) fn init_request(&mut self, request: &InitRequest<'_>) {
        let payloads = &request.message.payloads;
        let (Some(sa), Some(ke), Some(nonce)) = (payloads.sa(), payloads.ke(), payloads.nonce()) else {
            let remote = request.path.remote;
            self.env.effects.discard(self.now, Discard::Malformed, || {
                format!("ignored an IKE_SA_INIT request from {remote} without SA, KE or Nonce")
            });
            return;
        };
        let offer = Offer { sa, ke, nonce };
        let Some(claimant) = self.admit(request, nonce) else { return };
        self.env.effects.stats.exchanges.count(None, ExchangeCounter::IkeInitInReq);
        let Some((connection, choice)) = self.choose(request, &offer) else { return };
        if ke.method != choice.suite.ke.into() {
            self.refuse(request, Notify::invalid_ke(choice.suite.ke.into()));
            return;
        }
        if let Err(error) = self.open(request, &offer, claimant, &connection, &choice) {
            self.unacceptable(request.path, &error);
        }
    }

    /// Decides by load whether to process the request. `None`: it was refused, or a cookie was
    /// demanded.
    fn admit(&mut self, request: &InitRequest<'_>, nonce: &Nonce) -> Option<Claimant> {
        let addr = request.path.remote.ip();
        let claim = Claim { spi: request.message.header.initiator_spi, addr, nonce };
        let returned = request.message.payloads.notify(NotifyType::Cookie);
        let proven = returned.is_some_and(|notify| self.proves(&claim, &notify.data));
        let claimant = self.env.claimant(HalfOpenSource { addr, proven });
        match self.env.half_opens.admit(&self.env.config, self.now, claimant) {
            Admission::Admit => Some(claimant),
            Admission::DemandCookie => {
                if returned.is_some() {
                    self.env
                        .effects
                        .discard(self.now, Discard::BadCookie, || format!("wrong or old cookie from {addr}"));
                }
                let secret = self.env.alloc.cookie_secret(self.now);
                if let Ok(data) = cookie::make(secret.version, &secret.key, &claim) {
                    self.env.effects.stats.cookies_demanded += 1;
                    self.refuse(request, Notify::new(NotifyType::Cookie, data));
                }
                None
            }
            Admission::Refuse(reason) => {
                let open = self.env.half_opens.total();
                self.env.effects.discard(self.now, reason, || {
                    format!("ignored an IKE_SA_INIT request from {addr}: {open} IKE SAs are half open")
                });
                None
            }
        }
    }

    fn proves(&mut self, claim: &Claim<'_>, data: &[u8]) -> bool {
        let Some(secret) = cookie::version(data).and_then(|v| self.env.alloc.cookie_secret_of(self.now, v))
        else {
            return false;
        };
        cookie::verify(secret.version, &secret.key, claim, data).unwrap_or(false)
    }

    /// The first connection between the addresses that has a proposal in common, and the choice.
    fn choose(
        &mut self,
        request: &InitRequest<'_>,
        offer: &Offer<'_>,
    ) -> Option<(Arc<Connection>, IkeChoice)> {
        let Path { local, remote } = request.path;
        let candidates = self.env.loaded.connections.between(local.ip(), remote.ip());
        let offered = extensions::understood(offer.sa, &request.message.payloads);
        for connection in &candidates {
            if let Ok(choice) = select::ike(&offered, &connection.proposals) {
                return Some((connection.clone(), choice));
            }
        }
        let reason = if candidates.is_empty() { Discard::NoConnection } else { Discard::NoProposal };
        self.env.half_opens.refused(self.now);
        self.env.effects.discard(self.now, reason, || match candidates.first() {
            None => format!("no connection is configured between {local} and {remote}"),
            Some(first) => format!(
                "no common IKE proposal with {remote}: offered {}, configured for {} {}",
                describe::sa(offer.sa),
                first.name,
                describe::ike_proposals(&first.proposals)
            ),
        });
        self.refuse(request, Notify::new(NotifyType::NoProposalChosen, Vec::new()));
        None
    }

    /// Answers with a notify, and keeps no state.
    pub(crate) fn refuse(&mut self, request: &InitRequest<'_>, notify: Notify) {
        let header = response_header(request, IkeSpi::ZERO);
        // charon's counters do not include cookie exchanges.
        if notify.kind != NotifyType::Cookie {
            self.env.effects.stats.exchanges.count(None, ExchangeCounter::IkeInitOutResp);
        }
        let message = MessageBuilder::new(header).with(Payload::Notify(notify));
        self.env.answer_stranger(request.path, request.bytes, &message);
    }

    /// Makes all of our choices, and continues once the keys are computed.
    fn open(
        &mut self,
        request: &InitRequest<'_>,
        offer: &Offer<'_>,
        claimant: Claimant,
        connection: &Connection,
        choice: &IkeChoice,
    ) -> Result<(), Reason> {
        let &InitRequest { path, message, bytes, key } = request;
        let initiator = message.header.initiator_spi;
        let suite = choice.suite;
        if !nonce_fits(offer.nonce, suite.prf) {
            return Err(Reason::Refused("its nonce is too short for the PRF".into()));
        }
        let (Some(responder), Some(nonce)) =
            (self.env.new_ike_spi(Home::Responding(initiator)), self.env.new_nonce())
        else {
            self.env.effects.stats.discard(Discard::Exhausted);
            return Ok(());
        };
        let spis = IkeSpis { initiator, responder };
        let draw = KeDraw::new(suite.ke, self.env.entropy());
        let nonces = Nonces { initiator: offer.nonce.clone(), responder: nonce };
        let ppk = self.env.loaded.secrets.has_ppk();
        let mut said = extensions::answer(connection, &message.payloads, ppk);
        let possible = self.env.loaded.connections.between(path.local.ip(), path.remote.ip());
        said.extend(self.proofs_wanted(&possible));
        // A peer that may have to authenticate in several rounds is told that we support them (RFC
        // 4739).
        said.extend(possible.iter().find_map(|connection| known_rounds(connection)));
        // The notifies were made before our SPI was known.
        let seen = IkeSpis { initiator, responder: IkeSpi::ZERO };
        let opening = PendingInit {
            began: self.now,
            path,
            key,
            claimant,
            connection: connection.name.clone(),
            request: bytes.to_vec(),
            response: response(request, connection, choice, &nonces, spis, said),
            spis,
            nonces: nonces.clone(),
            nat: nat::detect(&message.payloads, seen, path, connection.encap),
            extensions: extensions::agreed(connection, &message.payloads, ppk),
        };
        let theirs = offer.ke.clone();
        let compute = move || {
            let (ours, shared) = draw.respond(&theirs)?;
            Ok((ours, IkeKeys::derive(suite, &shared, &nonces, spis)?))
        };
        let takes_long = !matches!(suite.ke, KeyExchange::X25519 | KeyExchange::Ecp256);
        self.env.compute_for_stranger(
            takes_long,
            self.now,
            key,
            claimant,
            compute,
            move |env, now, computed| {
                let mut responder = InitResponder { now, env };
                if let Err(error) = responder.opened(opening, computed) {
                    responder.unacceptable(path, &error);
                }
            },
        );
        Ok(())
    }

    /// Makes the half-open IKE SA and answers.
    fn opened(
        &mut self,
        opening: PendingInit,
        computed: Result<(KePayload, IkeKeys), SuiteError>,
    ) -> Result<(), Reason> {
        let (ke, keys) = computed?;
        let PendingInit { began, path, key, claimant, connection, spis, nonces, nat, extensions, .. } =
            opening;
        if self.env.table.by_spi(spis.responder).is_some() {
            self.env.effects.stats.discard(Discard::Exhausted);
            return Ok(());
        }
        if self.env.loaded.connections.get(&connection).is_none() {
            return Err(Reason::Refused("the connection was unloaded meanwhile".into()));
        }
        let response = opening.response.with_ke(ke)?;
        let seen = digest(&opening.request);
        let half = HalfOpen {
            nonces,
            init_request: opening.request,
            init_response: response.clone(),
            int_auth: IntAuth::default(),
            place: 0,
            last_opener: None,
            source: claimant.source,
            until: began.plus(self.env.config.half_open_timeout),
        };
        let id = self.env.numbers.new_ike_id();
        let mut sa = IkeSa::new(id, Role::Responder, spis, connection, path, began);
        sa.phase = Phase::HalfOpen(Box::new(half));
        sa.keys = Some(Keys::new(keys, Role::Responder, self.env.alloc.sender_id()));
        sa.init = Some(key);
        sa.nat = nat;
        sa.extensions = extensions;
        let response = vec![response];
        let answered = Answered {
            id: MessageId(0),
            digest: seen,
            response: response.as_slice().into(),
            repeated_until: self.now,
        };
        sa.incoming = Incoming { expected: MessageId(1), last: Some(answered), ..Incoming::default() };
        self.env.half_opens.enter(id, claimant);
        self.env.effects.stats.exchanges.count(None, ExchangeCounter::IkeInitOutResp);
        self.env.commit(&mut sa);
        if let Phase::HalfOpen(half) = &sa.phase {
            self.env.show_clear(&sa, Way::Received, &half.init_request);
            self.env.show_clear(&sa, Way::Sent, &half.init_response);
        }
        self.env.session(self.now, &mut sa).send(path, response);
        self.env.put(sa);
        Ok(())
    }

    fn unacceptable(&mut self, path: Path, why: &Reason) {
        self.env.effects.discard(self.now, Discard::Unacceptable, || {
            format!("ignored an IKE_SA_INIT request from {}: {why}", path.remote)
        });
    }
}

/// Bound on the CAs that a responder names to a stranger.
const MAX_NAMED_CAS: usize = 10;

impl InitResponder<'_> {
    /// A responder's requests for certificates and public keys that any of the possible connections
    /// could want (RFC 7296 §1.2: the request is part of IKE_SA_INIT).
    fn proofs_wanted(&self, connections: &[Arc<Connection>]) -> Vec<Payload> {
        let asking = connections.iter().filter(|connection| connection.send_certreq);
        let rounds = asking.flat_map(|connection| connection.remote_rounds());
        let keys = rounds.clone().any(RemoteAuth::takes_public_keys);
        let wanting = rounds.filter(|remote| remote.takes_certificates());
        let any = wanting.clone().any(|remote| remote.cacerts.is_empty());
        let named = wanting.flat_map(|remote| &remote.cacerts);
        let all = if any { self.env.loaded.cas() } else { Vec::new() };
        let certificates = certificate_request(named.chain(all), MAX_NAMED_CAS);
        certificates.into_iter().chain(keys.then(key_request)).collect()
    }
}

fn response_header(request: &InitRequest<'_>, responder_spi: IkeSpi) -> Header {
    Header { responder_spi, from_initiator: false, response: true, ..request.message.header }
}

/// The response without the KE payload.
fn response(
    request: &InitRequest<'_>,
    connection: &Connection,
    choice: &IkeChoice,
    nonces: &Nonces,
    spis: IkeSpis,
    said: Vec<Payload>,
) -> PendingResponse {
    // The choice is no larger than the offer, the key as large as the initiator's, and an initiator
    // without NAT notifies gets none. Only our nonce may be longer, by 16 octets; if we want
    // certificates, their CAs are named; and 8 octets each announce that we accept IKE SAs without
    // a child, and several rounds where a connection has them. A sender with forged addresses gains
    // no more than that. Cookies bound how often, and a limit of repetitions bounds it for one
    // request.
    let mut behind_ke = vec![Payload::Nonce(nonces.responder.clone())];
    if nat::spoken(&request.message.payloads) {
        behind_ke.extend(nat::notifies(spis, request.path, connection.encap));
    }
    behind_ke.extend(said);
    let header = response_header(request, spis.responder);
    PendingResponse { header, choice: choice.answer(None), behind_ke }
}

impl PendingResponse {
    fn with_ke(self, ke: KePayload) -> Result<Vec<u8>, EncodeError> {
        let mut message =
            MessageBuilder::new(self.header).with(Payload::Sa(self.choice)).with(Payload::Ke(ke));
        for payload in self.behind_ke {
            message.push(payload);
        }
        message.finish()
    }
}
