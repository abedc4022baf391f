//! IKE_AUTH (RFC 7296 §1.2): who the sides are, and the first Child SA.

mod choose;
mod form;
mod initiator;
mod ppk;
mod prove;
mod responder;
mod verify;

pub(super) use initiator::{Draft, Made};

use crate::config::{AuthMethod, Connection, Identity};
use crate::endpoint::Endpoint;
use crate::endpoint::report::IMPORTANT;
use crate::output::{Event, Path, Time};
use crate::sa::{IkeSa, Phase, Times, draw_reauth};

/// Who we are on a connection: as configured or by what we sign with, and without either our
/// address.
pub(crate) fn local_identity(connection: &Connection, path: Path) -> Identity {
    connection.local.identity().unwrap_or(Identity::Addr(path.local.ip()))
}

/// An identity for a log line.
fn shown(id: Option<&Identity>) -> String {
    id.map_or_else(|| "%any".to_owned(), Identity::to_string)
}

impl Endpoint {
    /// The shared key between us and the peer as configured, before it has said who it is.
    pub(crate) fn key_to(&self, connection: &Connection, path: Path) -> Option<&crate::config::SharedSecret> {
        let local = local_identity(connection, path);
        // A peer without a configured identity is most likely known by its address.
        let by_addr = Identity::Addr(path.remote.ip());
        let named = connection.remote.id.as_ref().filter(|id| !id.has_wildcards());
        let remote = named.unwrap_or(&by_addr);
        self.secrets
            .find(Some(&local), Some(remote))
            .or_else(|| named.is_none().then(|| self.secrets.find(Some(&local), None))?)
    }

    /// Whether there is anything to prove ourselves with, as far as that can be told before the peer has said who it is.
    pub(crate) fn can_prove(&self, connection: &Connection, path: Path) -> bool {
        match connection.local.method {
            AuthMethod::Psk => self.key_to(connection, path).is_some(),
            AuthMethod::Pubkey { .. } => {
                self.credentials.own_key(&connection.local, &local_identity(connection, path)).is_some()
            }
        }
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
