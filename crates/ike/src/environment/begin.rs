//! Beginning a new IKE SA of ours.

use crate::alloc::Home;
use crate::config::{AuthMethod, Connection};
use crate::endpoint::InitiateError;
use crate::environment::Environment;
use crate::environment::report::ORDINARY;
use crate::exchange::init;
use crate::message::IkeSpi;
use crate::output::{IkeSaId, Path, Time};
use crate::sa::{Attempt, IkeSa, Reauth};
use crate::suite::{IkeSpis, Role};

/// How a new IKE SA begins.
pub(crate) struct Beginning<'a> {
    pub(crate) id: IkeSaId,
    /// The child to initiate; empty for the IKE SA alone.
    pub(crate) child: &'a str,
    pub(crate) path: Path,
    /// The IKE SA that it replaces.
    pub(crate) reauth: Option<Reauth>,
    pub(crate) home: Home<'a>,
}

impl Environment {
    /// Initiates an IKE SA.
    pub(crate) fn begin_ike_sa_at(
        &mut self,
        now: Time,
        connection: &Connection,
        beginning: Beginning<'_>,
    ) -> Result<IkeSaId, InitiateError> {
        let Beginning { id, child, path, reauth, home } = beginning;
        if let Some(method) = self.loaded.cannot_prove(connection, path) {
            let name = connection.name.clone();
            return Err(match method {
                AuthMethod::Psk => InitiateError::NoSecret(name),
                AuthMethod::Pubkey { .. } => InitiateError::NoPrivateKey(name),
            });
        }
        if connection.ppk.required && !self.loaded.has_ppk_for(connection) {
            return Err(InitiateError::NoPpk(connection.name.clone()));
        }
        let spis = IkeSpis { initiator: IkeSpi::ZERO, responder: IkeSpi::ZERO };
        let mut sa = IkeSa::new(id, Role::Initiator, spis, connection.name.clone(), path, now);
        sa.reauth = reauth;
        let line = format!("initiating IKE_SA {}[{}] to {}", connection.name, id.0, path.remote.ip());
        self.effects.log(&sa, ORDINARY, line);
        let attempt = Attempt { child: child.to_owned(), number: 1, outdated: false };
        init::begin_attempt(&mut self.session(now, &mut sa), connection, attempt, path, home)
            .map_err(InitiateError::Failed)?;
        self.put(sa);
        Ok(id)
    }
}
