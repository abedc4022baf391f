//! Timers: repetitions, giving up, liveness checks, keepalives, expiry, and due initiations.

use crate::alloc::Home;
use crate::endpoint::Discard;
use crate::environment::report::{FAILURE, ORDINARY};
use crate::exchange::create_child;
use crate::exchange::init;
use crate::exchange::session::Session;
use crate::output::{Output, Reason};
use crate::sa::{Attempt, Phase, RequestKind};

impl Session<'_> {
    pub(crate) fn fire(&mut self) -> Result<(), Reason> {
        if let Some(closing) = self.sa.closing.as_ref().filter(|closing| closing.deadline <= self.now) {
            return Err(closing.reason.clone());
        }
        match &self.sa.phase {
            Phase::Gone { .. } => return Ok(()),
            phase if phase.half_open().is_some_and(|half| half.until <= self.now) => {
                self.note_silent_initiator();
                self.end_half_open("IKE_AUTH did not come");
                return Ok(());
            }
            Phase::InitSent(init) => {
                if let Some(error) = init.error.as_ref().filter(|error| error.until <= self.now) {
                    return Err(Reason::Notify(error.text.clone()));
                }
            }
            _ => {}
        }
        if self.sa.expire_fragments(self.now) {
            self.commit();
            let remote = self.sa.path.remote;
            self.env.effects.discard(self.now, Discard::FragmentsExpired, || {
                format!("dropped fragments of a message from {remote}: the others did not arrive")
            });
        }
        if self.sa.followup.as_ref().is_some_and(|followup| followup.until <= self.now) {
            self.log(ORDINARY, "the peer does not go on with its key exchanges");
            create_child::forget_followup(self);
        }
        if self.sa.outgoing.pending.as_ref().is_some_and(|pending| pending.next <= self.now) {
            self.repeat_request()?;
        }
        if self.sa.liveness_due().is_some_and(|due| due <= self.now) {
            self.check_liveness()?;
        }
        self.renew()?;
        if self.sa.keepalive_due(self.env.config.keepalive_interval).is_some_and(|due| due <= self.now) {
            self.sa.last_sent = self.now;
            self.env.effects.outputs.push_back(Output::Keepalive { path: self.sa.path });
        }
        Ok(())
    }

    /// IKE_AUTH did not come. Scanners do that to every gateway, but from a peer that a connection
    /// names it is a tunnel that fails.
    fn note_silent_initiator(&mut self) {
        let remote = self.sa.path.remote;
        let line = format!("deleted a half open IKE_SA: no valid IKE_AUTH came from {remote}");
        if self.env.loaded.connections.naming(remote.ip()) > 0 {
            self.env.effects.discard_named(self.now, Discard::HalfOpenExpired, line);
        } else {
            self.env.effects.discard(self.now, Discard::HalfOpenExpired, || line);
        }
    }

    /// Repeats the pending request, octet for octet, or gives up.
    fn repeat_request(&mut self) -> Result<(), Reason> {
        let Some(pending) = self.sa.outgoing.pending.as_mut() else { return Ok(()) };
        let policy = self.env.config.retransmit;
        if pending.transmissions > policy.tries {
            let (kind, transmissions, remote) = (pending.kind, pending.transmissions, self.sa.path.remote);
            let refused = match &self.sa.phase {
                Phase::InitSent(init) => init.error.as_ref().map(|error| Reason::Notify(error.text.clone())),
                _ => None,
            };
            // No better response came than an error that any host may have sent: it says more than
            // silence.
            let silent = refused.unwrap_or_else(|| match pending.unsent.take() {
                Some(error) => Reason::Unsent { remote, transmissions, error },
                None => Reason::Timeout { remote, transmissions },
            });
            return self.unanswered(kind, silent);
        }
        pending.unsent = None;
        pending.transmissions = pending.transmissions.saturating_add(1);
        pending.next = self.now.plus(policy.wait_after(pending.transmissions));
        let number = pending.transmissions.saturating_sub(1);
        let (id, remote) = (pending.id, self.sa.path.remote);
        let line =
            format!("no answer from {remote} yet: retransmit {number} of request with message ID {id}");
        let datagrams = pending.datagrams.clone();
        self.commit();
        self.log(ORDINARY, line);
        self.env.effects.stats.retransmitted += 1;
        self.send(self.sa.path, datagrams);
        Ok(())
    }

    /// The peer is silent: begins another attempt if we are still trying to reach it; otherwise the
    /// SA ends.
    fn unanswered(&mut self, kind: RequestKind, silent: Reason) -> Result<(), Reason> {
        if let Some(closing) = &self.sa.closing {
            return Err(closing.reason.clone());
        }
        if !matches!(kind, RequestKind::Init | RequestKind::Intermediate | RequestKind::Auth) {
            return Err(silent);
        }
        let Some(connection) = self.env.loaded.connections.get(&self.sa.connection) else {
            return Err(silent);
        };
        let Some(number) = self.sa.phase.attempt().map(|attempt| attempt.number) else { return Err(silent) };
        if connection.keyingtries != 0 && number >= connection.keyingtries {
            return Err(silent);
        }
        self.env.names.look_names_up(&connection);
        let Ok(path) = self.env.loaded.path_again(&connection, self.sa) else { return Err(silent) };
        let Some(Attempt { child, .. }) = self.end_attempt() else { return Err(silent) };
        let next = Attempt { child, number: number.saturating_add(1), outdated: false };
        let of =
            if connection.keyingtries == 0 { String::new() } else { format!("/{}", connection.keyingtries) };
        self.log(FAILURE, format!("{silent}, trying again ({}{of})", next.number));
        self.env.loaded.connections.note_failure(
            self.now,
            &self.sa.connection,
            &next.child,
            silent.to_string(),
        );
        let home = Home::Renewing(self.sa.our_spi().shard());
        init::begin_attempt(self, &connection, next, path, home)
    }
}
