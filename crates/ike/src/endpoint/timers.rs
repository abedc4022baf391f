//! What time brings: repetitions, giving up, liveness checks, keepalives, expiry, and initiations that are due.

use super::report::{DETAIL, FAILURE, ORDINARY};
use super::{Discard, Endpoint};
use crate::alloc::Home;
use crate::output::{Output, Reason, Time};
use crate::sa::{Attempt, IkeSa, Phase, RequestKind};

impl Endpoint {
    /// Serves every IKE SA whose deadline has come, once.
    pub(crate) fn run_timers(&mut self, now: Time) {
        for id in self.table.due(now) {
            self.with_sa(now, id, |endpoint, sa| endpoint.fire(now, sa));
        }
    }

    fn fire(&mut self, now: Time, sa: &mut IkeSa) -> Result<(), Reason> {
        if let Some(closing) = sa.closing.as_ref().filter(|closing| closing.deadline <= now) {
            return Err(closing.reason.clone());
        }
        match &sa.phase {
            Phase::Gone { .. } => return Ok(()),
            phase if phase.half_open().is_some_and(|half| half.until <= now) => {
                let remote = sa.path.remote;
                self.discard(now, Discard::HalfOpenExpired, || {
                    format!("deleted a half open IKE_SA: no valid IKE_AUTH came from {remote}")
                });
                self.end_half_open(now, sa, "IKE_AUTH did not come");
                return Ok(());
            }
            Phase::InitSent(init) => {
                if let Some(error) = init.error.as_ref().filter(|error| error.until <= now) {
                    return Err(Reason::Notify(error.text.clone()));
                }
            }
            _ => {}
        }
        if sa.expire_fragments(now) {
            self.commit(sa);
            let remote = sa.path.remote;
            self.discard(now, Discard::FragmentsExpired, || {
                format!("gave up fragments of a message from {remote}: the others did not come")
            });
        }
        if sa.followup.as_ref().is_some_and(|followup| followup.until <= now) {
            self.log(sa, ORDINARY, "the peer does not go on with its key exchanges");
            self.forget_followup(now, sa);
        }
        if sa.outgoing.pending.as_ref().is_some_and(|pending| pending.next <= now) {
            self.repeat_request(now, sa)?;
        }
        if sa.liveness_due().is_some_and(|due| due <= now) {
            self.check_liveness(now, sa)?;
        }
        self.renew(now, sa)?;
        if sa.keepalive_due(self.config.keepalive_interval).is_some_and(|due| due <= now) {
            sa.last_sent = now;
            self.outputs.push_back(Output::Keepalive { path: sa.path });
        }
        Ok(())
    }

    /// Sends the request under way again, octet for octet, or gives up.
    fn repeat_request(&mut self, now: Time, sa: &mut IkeSa) -> Result<(), Reason> {
        let Some(pending) = sa.outgoing.pending.as_mut() else { return Ok(()) };
        let policy = self.config.retransmit;
        if pending.transmissions > policy.tries {
            let (kind, transmissions, remote) = (pending.kind, pending.transmissions, sa.path.remote);
            let refused = match &sa.phase {
                Phase::InitSent(init) => init.error.as_ref().map(|error| Reason::Notify(error.text.clone())),
                _ => None,
            };
            // Nothing better came than an error that anybody may have sent: it tells more than
            // silence.
            let silent = refused.unwrap_or_else(|| match pending.unsent.take() {
                Some(error) => Reason::Unsent { remote, transmissions, error },
                None => Reason::Timeout { remote, transmissions },
            });
            return self.unanswered(now, sa, kind, silent);
        }
        pending.unsent = None;
        pending.transmissions = pending.transmissions.saturating_add(1);
        pending.next = now.plus(policy.wait_after(pending.transmissions));
        let number = pending.transmissions.saturating_sub(1);
        let (id, remote) = (pending.id, sa.path.remote);
        let line =
            format!("no answer from {remote} yet: retransmit {number} of request with message ID {id}");
        let datagrams = pending.datagrams.clone();
        self.commit(sa);
        self.log(sa, ORDINARY, line);
        self.stats.retransmitted += 1;
        self.send(now, sa, sa.path, datagrams);
        Ok(())
    }

    /// The peer is silent: another attempt where we still try to reach it, else the end.
    fn unanswered(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        kind: RequestKind,
        silent: Reason,
    ) -> Result<(), Reason> {
        if let Some(closing) = &sa.closing {
            return Err(closing.reason.clone());
        }
        if !matches!(kind, RequestKind::Init | RequestKind::Intermediate | RequestKind::Auth) {
            return Err(silent);
        }
        let Some(connection) = self.connections.get(&sa.connection) else { return Err(silent) };
        let Some(number) = sa.phase.attempt().map(|attempt| attempt.number) else { return Err(silent) };
        if connection.keyingtries != 0 && number >= connection.keyingtries {
            return Err(silent);
        }
        self.look_names_up(&connection);
        let Ok(path) = self.path_again(&connection, sa) else { return Err(silent) };
        let Some(Attempt { child, .. }) = self.end_attempt(now, sa) else { return Err(silent) };
        let next = Attempt { child, number: number.saturating_add(1), outdated: false };
        let of =
            if connection.keyingtries == 0 { String::new() } else { format!("/{}", connection.keyingtries) };
        self.log(sa, FAILURE, format!("{silent}, trying again ({}{of})", next.number));
        self.note_failure(now, &sa.connection, &next.child, silent.to_string());
        let home = Home::Renewing(sa.our_spi().shard());
        self.begin_attempt(now, sa, &connection, next, path, home)
    }

    /// Initiates the children whose turn it is.
    pub(crate) fn run_starts(&mut self, now: Time) {
        for (connection, child) in self.starts.due(now) {
            if self.home_of(&connection, &child).is_none() {
                // Another node's to start; here it waits for its turn to come with its shard.
                continue;
            }
            if let Err(error) = self.initiate(now, Some(&connection), &child) {
                self.log_connection(&connection, FAILURE, format!("cannot initiate {child}: {error}"));
                self.note_failure(now, &connection, &child, error.to_string());
                self.starts.schedule(&connection, &child, now.plus(self.config.start_retry));
            } else {
                self.log_connection(&connection, DETAIL, format!("initiated {child} by itself"));
            }
        }
    }
}
