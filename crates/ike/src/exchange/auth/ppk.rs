//! Post-quantum pre-shared keys in IKE_AUTH (RFC 8784 §3): selecting one, and going on without.

use crate::config::{Connection, Identity, SharedSecret};
use crate::exchange::auth::error::{AuthError, PpkError};
use crate::exchange::session::Session;
use crate::message::{AuthPayload, IdPayload, Notify, NotifyType, Payload, Payloads};
use crate::output::Reason;
use crate::sa::{Extensions, OfferedPpk};
use crate::suite::IkeKeys;

/// PPK_ID_FIXED: the rest is a name that both sides have configured (RFC 8784 §5.1).
const FIXED: u8 = 2;

/// The effect of the initiator's PPK, or of its absence, on its proof.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerPpk {
    /// Our keys with the PPK, if one is used.
    pub(super) keys: Option<IkeKeys>,
    /// That PPK, and its name on the wire.
    pub(super) used: Option<(Vec<u8>, SharedSecret)>,
    /// AUTH without a PPK, if one was meant to be used.
    pub(super) auth: Option<AuthPayload>,
    /// For the log.
    pub(super) line: Option<String>,
}

/// The PPK that an initiator names, once the responder supports PPKs, and whether the responder may
/// go without.
pub(super) fn own(
    session: &Session<'_>,
    connection: &Connection,
    extensions: Extensions,
) -> Result<Option<(Identity, SharedSecret, bool)>, Reason> {
    if !extensions.ppk {
        return Ok(None);
    }
    let refuse = |text: &str| Reason::Refused(text.to_owned());
    let id = connection.ppk.id.clone().ok_or_else(|| refuse("ppk_id was removed meanwhile"))?;
    let secret = session.env.loaded.secrets.ppk(IdPayload::from(&id).data());
    let secret = secret.ok_or_else(|| refuse("the PPK was unloaded meanwhile"))?;
    Ok(Some((id, secret.clone(), !connection.ppk.required)))
}

/// Why a tunnel has no PPK although the connection names one, as IKE_SA_INIT has shown: for the
/// log.
pub(super) fn lack(session: &Session<'_>, connection: &Connection) -> Option<String> {
    let id = connection.ppk.id.as_ref().filter(|_| !session.sa.extensions.ppk)?;
    let why = if session.env.loaded.has_ppk_for(connection) {
        "the peer has no PPK to use"
    } else {
        "no PPK of that name is loaded"
    };
    Some(format!("going on without PPK '{id}': {why}"))
}

/// The responder uses the PPK that we have named. If another one was loaded since then, the keys
/// depend on none that is loaded.
pub(super) fn note_own(session: &mut Session<'_>, offered: &OfferedPpk) {
    let Some(keys) = session.sa.keys.as_ref().filter(|_| !session.sa.ppk) else { return };
    let id = IdPayload::from(&offered.id);
    let loaded = session.env.loaded.secrets.ppk(id.data());
    let is_it = |ppk: &&SharedSecret| keys.ike.with_ppk(&ppk.secret).is_ok_and(|mixed| mixed == offered.keys);
    let ppk = loaded.filter(is_it).cloned();
    let secret = ppk.as_ref().map_or(&[][..], |ppk| &ppk.secret);
    session.sa.note_ppk(id.data(), secret);
}

/// The effect of the initiator's PPK on this connection.
pub(super) fn of_peer(
    session: &Session<'_>,
    connection: &Connection,
    payloads: &Payloads,
    auth: &AuthPayload,
) -> Result<PeerPpk, AuthError> {
    let policy = &connection.ppk;
    if !session.sa.extensions.ppk {
        if policy.required {
            return Err(PpkError::NotNegotiated.into());
        }
        return Ok(PeerPpk { line: lack(session, connection), ..PeerPpk::default() });
    }
    let named = payloads.notify(NotifyType::PpkIdentity).ok_or(PpkError::Unnamed)?;
    let Some((&FIXED, id)) = named.data.split_first() else {
        return Err(PpkError::IdentityType.into());
    };
    let shown = Identity::KeyId(id.to_vec());
    let allowed = policy.id.as_ref().is_none_or(|own| IdPayload::from(own).data() == id);
    if let Some(secret) = session.env.loaded.secrets.ppk(id).filter(|_| allowed) {
        let keys = session.sa.keys.as_ref().ok_or(AuthError::NoKeys)?;
        let keys = keys.ike.with_ppk(&secret.secret)?;
        let line = Some(used(&shown));
        return Ok(PeerPpk { keys: Some(keys), used: Some((id.to_vec(), secret.clone())), auth: None, line });
    }
    match payloads.notify(NotifyType::NoPpkAuth) {
        Some(without) if !policy.required => Ok(PeerPpk {
            keys: None,
            used: None,
            auth: Some(AuthPayload { method: auth.method, data: without.data.clone() }),
            line: Some(format!("no PPK for '{shown}' is loaded and allowed, going on without")),
        }),
        Some(_) => Err(PpkError::Required(shown).into()),
        None => Err(PpkError::RequiredByPeer(shown).into()),
    }
}

/// The initiator's notifies about its PPK; `without` is AUTH without the PPK, if that is allowed.
pub(super) fn notifies(ppk: &OfferedPpk, without: Option<AuthPayload>) -> Vec<Payload> {
    let id = [&[FIXED], IdPayload::from(&ppk.id).data()].concat();
    let mut notifies = vec![Notify::new(NotifyType::PpkIdentity, id)];
    notifies.extend(without.map(|auth| Notify::new(NotifyType::NoPpkAuth, auth.data)));
    notifies.into_iter().map(Payload::Notify).collect()
}

/// The log line about a used PPK.
pub(super) fn used(id: &Identity) -> String {
    format!("using PPK for PPK_ID '{id}'")
}
