//! Reports of the host about datagrams: received ESP, and messages that could not be sent.

use crate::endpoint::{Discard, Endpoint};
use crate::environment::report::FAILURE;
use crate::exchange::{create_child, float};
use crate::output::{ChildSaId, IkeSaId, Path, Reason, Time};
use crate::sa::{ChildSa, IkeSa};
use crate::suite::Role;
use std::net::SocketAddr;

impl Endpoint {
    /// The newest authentic UDP-encapsulated ESP packet came from `remote`. That proves a move as
    /// well as an IKE message: a peer behind a NAT is followed (RFC 7296 §2.23).
    pub fn esp_source(&mut self, now: Time, child: ChildSaId, remote: SocketAddr) {
        let Some(id) = self.env.table.by_child(child).map(|sa| sa.id) else { return };
        self.env.with_sa(now, id, |session| {
            let is_additional = session.sa.child(child).is_some_and(|child| session.sa.is_additional(child));
            if is_additional && remote.ip() == session.sa.path.remote.ip() {
                // strongSwan may send by each of these from a port of its own, where nobody listens.
                return Ok(());
            }
            session.commit();
            if let Some(child) = session.sa.child_mut(child) {
                child.source = Some(Box::new(remote));
            }
            // ESP and IKE share a mapping, that of the ports for NAT traversal.
            let Path { local, .. } = float(session.sa.path, &session.env.config);
            if local.is_ipv4() == remote.is_ipv4() {
                session.follow(Path { local, remote });
            }
            Ok(())
        });
    }

    /// An authentic packet has arrived on the Child SA: the peer is alive, and needs no liveness
    /// check for a while. This does not hold if the packet came from where ours do not go
    /// ([`Endpoint::esp_source`]): then only a check shows whether the peer still receives ours.
    pub fn traffic_seen(&mut self, now: Time, child: ChildSaId) {
        let Some(id) = self.env.table.by_child(child).map(|sa| sa.id) else { return };
        self.env.with_sa(now, id, |session| {
            create_child::proven(session, child);
            if session.sa.child(child).is_some_and(ChildSa::is_answerable) {
                session.sa.last_heard = session.sa.last_heard.max(session.now);
            }
            Ok::<(), Reason>(())
        });
    }

    /// This host could not send a message of [`Output::Send`]. It is repeated as if it had been
    /// lost, but the error is reported to those that wait for the IKE SA, and becomes part of the
    /// reason if the SA fails.
    pub fn not_sent(&mut self, now: Time, ike: Option<IkeSaId>, path: Path, error: &str) {
        let Path { local, remote } = path;
        let has_address =
            self.env.loaded.local_addrs.is_empty() || self.env.loaded.local_addrs.contains(&local.ip());
        let hint =
            if has_address { String::new() } else { format!("; this host has no address {}", local.ip()) };
        let error = format!("{error}{hint}");
        let line = format!("cannot send from {local} to {remote}: {error}");
        let ours = |sa: &&IkeSa| sa.role == Role::Initiator || sa.is_established();
        let Some(id) = ike.and_then(|id| self.env.table.get(id)).filter(ours).map(|sa| sa.id) else {
            // Strangers can cause this at will.
            return self.env.effects.discard(now, Discard::NotSent, || line);
        };
        self.env.with_sa(now, id, |session| {
            session.commit();
            if let Some(pending) = &mut session.sa.outgoing.pending {
                pending.unsent = Some(error);
            }
            session.log(FAILURE, line);
            Ok(())
        });
    }
}
