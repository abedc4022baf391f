//! IKE_AUTH (RFC 7296 §1.2): authentication of both sides, and the first Child SA.

mod choose;
mod error;
mod form;
mod initiator;
mod later;
mod ppk;
mod prove;
mod responder;
mod rounds;
mod tries;
mod verify;

pub(crate) use initiator::{draft, handle_response, send};
pub(crate) use responder::handle_request;

pub(super) use initiator::{AuthDraft, Made};
pub(super) use rounds::known as known_rounds;

use crate::config::{Connection, Identity, LocalAuth};
use crate::environment::report::IMPORTANT;
use crate::exchange::session::Session;
use crate::output::{Event, Path};
use crate::sa::{Phase, Times, draw_reauth};

/// Our identity in a round: as configured, or that of our certificate or key, or else our address.
pub(crate) fn local_identity(local: &LocalAuth, path: Path) -> Identity {
    local.identity().unwrap_or(Identity::Addr(path.local.ip()))
}

/// An identity for a log line.
fn shown(id: Option<&Identity>) -> String {
    id.map_or_else(|| "%any".to_owned(), Identity::to_string)
}

/// Both sides are authenticated.
fn establish(session: &mut Session<'_>, connection: &Connection) {
    session.sa.phase = Phase::Established;
    session.sa.established = Some(session.now);
    session.sa.last_heard = session.now;
    session.sa.tidy_proofs();
    session.sa.dpd_delay = connection.dpd_delay;
    session.sa.childless = Some(session.now.plus(session.env.config.childless_timeout));
    session.sa.reauth_at = draw_reauth(&connection.lifetime, session.now, session.env.entropy());
    session.sa.times =
        Times::of_ike(&connection.lifetime, session.sa.reauth_at, session.now, session.env.entropy());
    session.env.effects.stats.established += 1;
    let (local, remote) = (shown(session.sa.local_id.as_ref()), shown(session.sa.remote_id.as_ref()));
    let line = format!(
        "IKE_SA {}[{}] established between {}[{local}]...{}[{remote}]",
        session.sa.connection,
        session.sa.id.0,
        session.sa.path.local.ip(),
        session.sa.path.remote.ip()
    );
    session.log(IMPORTANT, line);
    session.env.effects.event(Event::IkeUp(session.sa.id));
    if let Some(keys) = &mut session.sa.keys {
        keys.ike.forget_all_but_root();
    }
}
