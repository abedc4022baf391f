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

use crate::config::{Connection, Identity, LocalAuth};
use crate::endpoint::report::IMPORTANT;
use crate::exchange::session::Session;
use crate::output::{Event, Path};
use crate::sa::{Phase, Times, draw_reauth};

/// Who we are in a round: as configured or by what we sign with, and without either our address.
pub(crate) fn local_identity(local: &LocalAuth, path: Path) -> Identity {
    local.identity().unwrap_or(Identity::Addr(path.local.ip()))
}

/// An identity for a log line.
fn shown(id: Option<&Identity>) -> String {
    id.map_or_else(|| "%any".to_owned(), Identity::to_string)
}

impl Session<'_> {
    /// Both sides are authenticated.
    fn establish(&mut self, connection: &Connection) {
        self.sa.phase = Phase::Established;
        self.sa.established = Some(self.now);
        self.sa.last_heard = self.now;
        self.sa.dpd_delay = connection.dpd_delay;
        self.sa.childless = Some(self.now.plus(self.env.config.childless_timeout));
        self.sa.reauth_at = draw_reauth(&connection.lifetime, self.now, self.env.entropy());
        self.sa.times = Times::of_ike(&connection.lifetime, self.sa.reauth_at, self.now, self.env.entropy());
        self.env.effects.stats.established += 1;
        let (local, remote) = (shown(self.sa.local_id.as_ref()), shown(self.sa.remote_id.as_ref()));
        let line = format!(
            "IKE_SA {}[{}] established between {}[{local}]...{}[{remote}]",
            self.sa.connection,
            self.sa.id.0,
            self.sa.path.local.ip(),
            self.sa.path.remote.ip()
        );
        self.log(IMPORTANT, line);
        self.env.effects.event(Event::IkeUp(self.sa.id));
        if let Some(keys) = &mut self.sa.keys {
            keys.ike.forget_all_but_root();
        }
    }
}
