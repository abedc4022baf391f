//! IKE_AUTH (RFC 7296 §1.2): who the sides are, and the first Child SA.

mod choose;
mod form;
mod initiator;
mod later;
mod ppk;
mod prove;
mod responder;
mod rounds;
mod tries;
mod verify;

pub(super) use initiator::{Draft, Made};
pub(super) use rounds::known as known_rounds;

use crate::config::{AuthMethod, Connection, Identity, LocalAuth, RemoteAuth, SharedSecret};
use crate::endpoint::Endpoint;
use crate::endpoint::report::IMPORTANT;
use crate::output::{Event, Path, Time};
use crate::sa::{IkeSa, Phase, Times, draw_reauth};

/// Who we are in a round: as configured or by what we sign with, and without either our address.
pub(crate) fn local_identity(local: &LocalAuth, path: Path) -> Identity {
    local.identity().unwrap_or(Identity::Addr(path.local.ip()))
}

/// An identity for a log line.
fn shown(id: Option<&Identity>) -> String {
    id.map_or_else(|| "%any".to_owned(), Identity::to_string)
}

impl Endpoint {
    /// The shared key between us and the peer as configured, before it has said who it is.
    pub(crate) fn key_to(&self, local: &LocalAuth, remote: &RemoteAuth, path: Path) -> Option<&SharedSecret> {
        let local = local_identity(local, path);
        // A peer without a configured identity is most likely known by its address.
        let by_addr = Identity::Addr(path.remote.ip());
        let named = remote.name();
        let remote = named.unwrap_or(&by_addr);
        self.secrets
            .find(Some(&local), Some(remote))
            .or_else(|| named.is_none().then(|| self.secrets.find(Some(&local), None))?)
    }

    /// By which method we have nothing to prove ourselves with, as far as that can be told before
    /// the peer has said who it is. `None`: every round of ours can be proven.
    pub(crate) fn cannot_prove(&self, connection: &Connection, path: Path) -> Option<AuthMethod> {
        let can = |number: usize, local: &LocalAuth| match local.method {
            AuthMethod::Psk => self.key_to(local, connection.remote_beside(number), path).is_some(),
            AuthMethod::Pubkey { .. } => {
                self.credentials.own_key(local, &local_identity(local, path)).is_some()
            }
        };
        let rounds = connection.local_rounds().enumerate();
        rounds.filter(|(number, local)| !can(*number, local)).map(|(_, local)| local.method).next()
    }

    /// Both sides are authenticated.
    fn establish(&mut self, now: Time, sa: &mut IkeSa, connection: &Connection) {
        sa.phase = Phase::Established;
        sa.established = Some(now);
        sa.last_heard = now;
        sa.dpd_delay = connection.dpd_delay;
        sa.childless = Some(now.plus(self.config.childless_timeout));
        sa.reauth_at = draw_reauth(&connection.lifetime, now, self.entropy());
        sa.times = Times::of_ike(&connection.lifetime, sa.reauth_at, now, self.entropy());
        self.stats.established += 1;
        let (local, remote) = (shown(sa.local_id.as_ref()), shown(sa.remote_id.as_ref()));
        let line = format!(
            "IKE_SA {}[{}] established between {}[{local}]...{}[{remote}]",
            sa.connection,
            sa.id.0,
            sa.path.local.ip(),
            sa.path.remote.ip()
        );
        self.log(sa, IMPORTANT, line);
        self.event(Event::IkeUp(sa.id));
        if let Some(keys) = &mut sa.keys {
            keys.ike.forget_all_but_root();
        }
    }
}
