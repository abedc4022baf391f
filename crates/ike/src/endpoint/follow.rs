//! A peer behind a NAT moves: where its messages and its ESP come from is where ours go (RFC 7296 §2.23).

use super::Endpoint;
use super::report::ORDINARY;
use crate::config::Connection;
use crate::exchange::float;
use crate::output::{ChildSaId, Path, Reason, Time};
use crate::sa::{ChildSa, Ends, IkeSa};
use crate::suite::Role;
use std::net::SocketAddr;

impl Endpoint {
    /// Follows a peer behind a NAT to where its authentic messages come from. Not if we are behind
    /// one ourselves and began: then an attacker on the way could lead us anywhere by changing
    /// addresses (RFC 7296 §2.23). Who is behind a NAT and was found all the same has an address
    /// there that does not change. Nor to where its connection takes no peer.
    pub(crate) fn follow(&mut self, sa: &mut IkeSa, path: Path) {
        let fixed = !sa.nat.local || sa.role == Role::Responder;
        if sa.is_established() && sa.nat.remote && fixed && path != sa.path && self.takes_at(sa, path) {
            let (from, to) = (sa.path.remote, path.remote);
            sa.move_to(path);
            self.log(sa, ORDINARY, format!("the peer moved from {from} to {to}"));
            self.move_children(sa);
        }
    }

    /// True if the connection of an IKE SA has room for that path, or only a port is another.
    fn takes_at(&self, sa: &IkeSa, path: Path) -> bool {
        let fit = |connection: &Connection| connection.address_fit(path.local.ip(), path.remote.ip());
        Ends::from(path) == Ends::from(sa.path)
            || self.known_connection(&sa.connection).and_then(fit).is_some()
    }

    /// See [`Endpoint::esp_source`].
    pub(crate) fn found_elsewhere(&mut self, now: Time, child: ChildSaId, remote: SocketAddr) {
        let Some(id) = self.table.by_child(child).map(|sa| sa.id) else { return };
        self.with_sa(now, id, |endpoint, sa| {
            endpoint.commit(sa);
            if let Some(child) = sa.child_mut(child) {
                child.source = Some(Box::new(remote));
            }
            // ESP and IKE share a mapping: those of the ports for NAT traversal.
            let Path { local, .. } = float(sa.path, &endpoint.config);
            if local.is_ipv4() == remote.is_ipv4() {
                endpoint.follow(sa, Path { local, remote });
            }
            Ok(())
        });
    }

    /// See [`Endpoint::traffic_seen`].
    pub(crate) fn heard_on(&mut self, now: Time, child: ChildSaId) {
        let Some(id) = self.table.by_child(child).map(|sa| sa.id) else { return };
        self.with_sa(now, id, |endpoint, sa| {
            endpoint.proven(sa, child);
            if sa.child(child).is_some_and(ChildSa::is_answerable) {
                sa.last_heard = sa.last_heard.max(now);
            }
            Ok::<(), Reason>(())
        });
    }
}
