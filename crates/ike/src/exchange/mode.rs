//! Transport mode: requested by USE_TRANSPORT_MODE, and used if both sides send it (RFC 7296
//! §1.3.1). Otherwise the SA is a tunnel.
//!
//! It is used only for packets between the two ends of the IKE SA themselves: both sides' selectors
//! are the addresses that the packets have on the way. If a NAT changes one, the ends see different
//! addresses, and at least one of them finds an unexpected address in the selectors. So checksums
//! never need a correction (RFC 3948 §3.1.2).

use super::error::AnswerError;
use super::narrow::Selectors;
use crate::config::{Child, ChildMode};
use crate::message::{Notify, NotifyType, Payload, Payloads};
use crate::sa::IkeSa;
use std::net::IpAddr;
use testudo_ipsec::sa::Mode;
use testudo_ipsec::selector::TrafficSelector;

/// The mode that an initiator requests. `renews`: the mode of the renewed SA, which the new one
/// keeps. A responder behind a NAT might agree all the same and correct checksums (RFC 7296
/// §2.23.1), which we do not.
pub(crate) fn to_ask(sa: &IkeSa, child: &Child, wanted: &Selectors, renews: Option<Mode>) -> Mode {
    let no_nat = !sa.nat.local && !sa.nat.remote;
    let asks = match renews {
        Some(mode) => mode == Mode::Transport,
        None => child.mode == ChildMode::Transport && no_nat,
    };
    if asks && is_between_hosts(sa, wanted) { Mode::Transport } else { Mode::Tunnel }
}

/// The mode to which a responder agrees.
pub(crate) fn to_answer(sa: &IkeSa, child: &Child, agreed: &Selectors, request: &Payloads) -> Mode {
    let asked = request.notify(NotifyType::UseTransportMode).is_some();
    if asked && child.mode == ChildMode::Transport && is_between_hosts(sa, agreed) {
        Mode::Transport
    } else {
        Mode::Tunnel
    }
}

/// The mode that the responder has chosen.
pub(crate) fn answered(asked: Mode, answer: &Payloads) -> Result<Mode, AnswerError> {
    match (asked, answer.notify(NotifyType::UseTransportMode)) {
        (_, None) => Ok(Mode::Tunnel),
        (Mode::Transport, Some(_)) => Ok(Mode::Transport),
        (Mode::Tunnel, Some(_)) => Err(AnswerError::Mode),
    }
}

/// The notify for a mode.
pub(crate) fn notify(mode: Mode) -> Option<Payload> {
    let notify = || Payload::Notify(Notify::new(NotifyType::UseTransportMode, Vec::new()));
    (mode == Mode::Transport).then(notify)
}

/// For the log: why a child configured for transport mode has become a tunnel.
pub(crate) fn why_tunnel(sa: &IkeSa, selectors: &Selectors) -> String {
    let why = if !is_between_hosts(sa, selectors) {
        "the selectors are not the addresses of the two hosts"
    } else if sa.nat.local || sa.nat.remote {
        "there is a NAT between the hosts"
    } else {
        "the peer does not want it"
    };
    format!("no transport mode, but a tunnel: {why}")
}

fn is_between_hosts(sa: &IkeSa, selectors: &Selectors) -> bool {
    let all = |side: &[TrafficSelector], host: IpAddr| {
        !side.is_empty() && side.iter().all(|ts| ts.addrs.start() == host && ts.addrs.end() == host)
    };
    all(&selectors.local, sa.path.local.ip()) && all(&selectors.remote, sa.path.remote.ip())
}
