//! NAT detection (RFC 7296 §2.23): our notifies, and the conclusions from the peer's.

use crate::endpoint::{EndpointConfig, NatStatus};
use crate::message::{Notify, NotifyType, Payload, Payloads};
use crate::output::Path;
use crate::suite::{IkeSpis, nat_detection_hash};
use std::net::{Ipv4Addr, SocketAddr};
use subtle::ConstantTimeEq;

/// The two notifies about the message's path. With `force` the source is wrong on purpose, so that
/// the peer takes us to be behind a NAT and encapsulates ESP in UDP (strongSwan's `encap`).
pub(crate) fn notifies(spis: IkeSpis, path: Path, force: bool) -> [Payload; 2] {
    let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    let source = if force { nowhere } else { path.local };
    [(NotifyType::NatDetectionSourceIp, source), (NotifyType::NatDetectionDestinationIp, path.remote)]
        .map(|(kind, addr)| Payload::Notify(Notify::new(kind, nat_detection_hash(spis, addr))))
}

/// True if the peer supports NAT traversal.
pub(crate) fn spoken(payloads: &Payloads) -> bool {
    payloads.notify(NotifyType::NatDetectionSourceIp).is_some()
        && payloads.notify(NotifyType::NatDetectionDestinationIp).is_some()
}

/// The conclusions from the notifies of a received message. `spis` as in its header; `fake`: we
/// pretend to be behind a NAT.
pub(crate) fn detect(payloads: &Payloads, spis: IkeSpis, path: Path, fake: bool) -> NatStatus {
    if !spoken(payloads) {
        return NatStatus::default();
    }
    let names = |kind, addr| {
        let expected = nat_detection_hash(spis, addr);
        let mut hashes = payloads.notifies().filter(|notify| notify.kind == kind);
        hashes.any(|notify| bool::from(notify.data.ct_eq(&expected)))
    };
    NatStatus {
        local: !names(NotifyType::NatDetectionDestinationIp, path.local),
        remote: !names(NotifyType::NatDetectionSourceIp, path.remote),
        fake,
    }
}

/// The path on the ports for NAT traversal. A configured port stays.
pub(crate) fn float(path: Path, config: &EndpointConfig) -> Path {
    let float = |mut addr: SocketAddr| {
        if addr.port() == config.ike_port {
            addr.set_port(config.nat_port);
        }
        addr
    };
    Path { local: float(path.local), remote: float(path.remote) }
}
