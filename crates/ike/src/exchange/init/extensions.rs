//! What the two sides tell each other in IKE_SA_INIT that they can. The responder names only what the initiator did, so that
//! its answer is no larger than it must be.

use crate::config::{Connection, Fragmentation};
use crate::message::{Notify, NotifyType, Payload, Payloads};
use crate::sa::Extensions;

/// What an initiator says.
pub(super) fn offer(connection: &Connection) -> Vec<Payload> {
    ours(connection).map(notify).collect()
}

/// What a responder says to that.
pub(super) fn answer(connection: &Connection, request: &Payloads) -> Vec<Payload> {
    ours(connection).filter(|kind| request.notify(*kind).is_some()).map(notify).collect()
}

/// What follows, on either side, from what we can and what the peer said.
pub(super) fn agreed(connection: &Connection, peer: &Payloads) -> Extensions {
    let both = |wanted| ours(connection).any(|kind| kind == wanted) && peer.notify(wanted).is_some();
    let fragmentation = both(NotifyType::FragmentationSupported);
    Extensions { fragmentation, fragment: fragmentation && connection.fragmentation == Fragmentation::Yes }
}

/// What we can on that connection.
fn ours(connection: &Connection) -> impl Iterator<Item = NotifyType> {
    let fragmentation = connection.fragmentation != Fragmentation::No;
    [fragmentation.then_some(NotifyType::FragmentationSupported)].into_iter().flatten()
}

fn notify(kind: NotifyType) -> Payload {
    Payload::Notify(Notify::new(kind, Vec::new()))
}
