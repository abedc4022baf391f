//! Missing credentials of loaded connections, now or soon: secrets, private keys, certificates of
//! our own.

use crate::cert::{Candidate, Certificate};
use crate::config::{AuthMethod, Connection, Identity, LocalAuth, RemoteAuth};
use crate::environment::loaded::Loaded;
use crate::output::{Time, UnixTime};

/// How long before its end our own certificate is reported, in seconds: 30 days.
const NEAR_END: u64 = 30 * DAY;
const DAY: u64 = 24 * 60 * 60;

impl Loaded {
    /// What a loaded connection lacks to prove who we are and to check who the peer is, and what it
    /// will lack within 30 days: a line for each. Nothing where only the peer's message will tell
    /// which secret it takes.
    pub(crate) fn lacks(&self, now: Time, connection: &str) -> Vec<String> {
        let Some(connection) = self.connections.get(connection) else { return Vec::new() };
        if !connection.children.iter().any(|child| child.mode.is_negotiated()) {
            return Vec::new();
        }
        let mut lacks = Vec::new();
        for (number, local) in connection.local_rounds().enumerate() {
            lacks.extend(match local.method {
                AuthMethod::Psk => self.lack_of_secret(&connection, local, connection.remote_beside(number)),
                AuthMethod::Pubkey { .. } => self.lack_of_certificate(now, &connection, local),
            });
        }
        for (number, remote) in connection.remote_rounds().enumerate() {
            let local = connection.local_beside(number);
            // A key that both use is reported once.
            let is_told = local.method == AuthMethod::Psk && connection.local_round(number).is_some();
            if remote.method == AuthMethod::Psk && !is_told {
                lacks.extend(self.lack_of_secret(&connection, local, remote));
            }
        }
        let ppk = connection.ppk.id.as_ref().filter(|_| connection.ppk.required);
        let ppk = ppk.filter(|_| !self.has_ppk_for(&connection));
        let ppk = ppk.map(|id| format!("PPK '{id}', which ppk_required asks for, is not loaded"));
        lacks.extend(ppk);
        lacks
    }

    fn lack_of_secret(
        &self,
        connection: &Connection,
        local: &LocalAuth,
        remote: &RemoteAuth,
    ) -> Option<String> {
        let named = remote.name();
        let remote = named.cloned().or_else(|| connection.peer_address().map(Identity::Addr));
        let locals = self.local_identities(connection, local);
        // The needed secret is known once both ends are.
        let (false, Some(remote)) = (locals.is_empty(), remote) else {
            let none = !self.secrets.has_ike();
            return none.then(|| "no secret is loaded: load one of type ike".to_owned());
        };
        let fits = |local: &Identity| {
            let find = |remote| self.secrets.find(Some(local), remote).is_some();
            find(Some(&remote)) || named.is_none() && find(None)
        };
        let local = locals.first().filter(|_| !locals.iter().any(fits))?;
        Some(format!("no secret fits {local} and {remote}: load one of type ike with their identities"))
    }

    fn lack_of_certificate(&self, now: Time, connection: &Connection, local: &LocalAuth) -> Option<String> {
        let identities = self.local_identities(connection, local);
        let found = identities.iter().find_map(|id| self.credentials.own_key(local, id));
        match found {
            Some((Candidate::Certificate(certificate), _)) => {
                return trouble_with(certificate, self.unix_time(now));
            }
            Some((Candidate::Key(_), _)) => return None,
            None => {}
        }
        Some(match (local.certs.first(), local.pubkeys.first(), identities.first()) {
            (Some(certificate), ..) => {
                format!("the private key of our certificate '{}' is not loaded", certificate.subject())
            }
            (None, Some(key), _) => format!("the private key of our public key {key} is not loaded"),
            (None, None, Some(id)) => {
                format!("no certificate of {id} is loaded together with its private key")
            }
            (None, None, None) => return None,
        })
    }

    /// The identities that we may use.
    fn local_identities(&self, connection: &Connection, local: &LocalAuth) -> Vec<Identity> {
        if let Some(id) = local.identity() {
            return vec![id];
        }
        let hosts = connection.local_hosts();
        let ours = self.local_addrs.iter().copied().filter(|addr| hosts.contains(*addr));
        hosts.singles().chain(ours).map(Identity::Addr).collect()
    }
}

/// Why our own certificate is useless to a peer, or will soon be.
fn trouble_with(certificate: &Certificate, now: UnixTime) -> Option<String> {
    let subject = certificate.subject();
    if let Some(why) = certificate.out_of_date(now) {
        return Some(format!("our certificate '{subject}' is not valid: {why}"));
    }
    let (end, left) = (certificate.not_after(), certificate.not_after().0.saturating_sub(now.0));
    (left < NEAR_END).then(|| format!("our certificate '{subject}' ends in {} days, at {end}", left / DAY))
}
