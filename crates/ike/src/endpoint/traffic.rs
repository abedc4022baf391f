//! What the host tells of datagrams: ESP that came, and messages that did not leave.

use crate::endpoint::report::FAILURE;
use crate::endpoint::{Discard, Endpoint};
use crate::exchange::create_child;
use crate::exchange::float;
use crate::output::{ChildSaId, IkeSaId, Path, Reason, Time};
use crate::sa::{ChildSa, IkeSa};
use crate::suite::Role;
use std::net::SocketAddr;

impl Endpoint {
    /// See [`Endpoint::esp_source`].
    pub(crate) fn found_elsewhere(&mut self, now: Time, child: ChildSaId, remote: SocketAddr) {
        let Some(id) = self.env.table.by_child(child).map(|sa| sa.id) else { return };
        self.env.with_sa(now, id, |session| {
            session.commit();
            if let Some(child) = session.sa.child_mut(child) {
                child.source = Some(Box::new(remote));
            }
            // ESP and IKE share a mapping: those of the ports for NAT traversal.
            let Path { local, .. } = float(session.sa.path, &session.env.config);
            if local.is_ipv4() == remote.is_ipv4() {
                session.follow(Path { local, remote });
            }
            Ok(())
        });
    }

    /// See [`Endpoint::traffic_seen`].
    pub(crate) fn heard_on(&mut self, now: Time, child: ChildSaId) {
        let Some(id) = self.env.table.by_child(child).map(|sa| sa.id) else { return };
        self.env.with_sa(now, id, |session| {
            create_child::proven(session, child);
            if session.sa.child(child).is_some_and(ChildSa::is_answerable) {
                session.sa.last_heard = session.sa.last_heard.max(session.now);
            }
            Ok::<(), Reason>(())
        });
    }

    /// See [`Endpoint::not_sent`].
    pub(crate) fn failed_to_send(&mut self, now: Time, ike: Option<IkeSaId>, path: Path, error: &str) {
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
