//! Renewal by word of the operator, by use, and after a takeover.

use crate::endpoint::Endpoint;
use crate::exchange::counter_sync::{is_sync, replay_notify};
use crate::exchange::reauth;
use crate::output::{ChildSaId, IkeSaId, Time};
use crate::sa::{ChildPhase, ChildSa, IkeSa, Reauth, Task, Wear};

impl Endpoint {
    /// See [`Endpoint::sync_message_ids`].
    pub(crate) fn want_sync(&mut self, now: Time, id: IkeSaId) -> bool {
        let able = |sa: &&IkeSa| sa.is_in_charge() && sa.extensions.counter_sync.message_ids;
        if self.env.table.get(id).filter(able).is_none() {
            return false;
        }
        self.env.with_sa(now, id, |session| {
            session.commit();
            // One that the node before has begun may have been answered to that node, and the peer takes none twice.
            session.sa.outgoing.pending.take_if(|pending| is_sync(pending.kind));
            if !session.sa.outgoing.tasks.contains(&Task::SyncMessageIds) {
                session.sa.outgoing.tasks.push_front(Task::SyncMessageIds);
            }
            session.next_task()
        });
        true
    }

    /// See [`Endpoint::replay_sync_of`].
    pub(crate) fn may_sync_replay(&self, child: ChildSaId) -> Option<IkeSaId> {
        let sa = self.env.table.by_child(child)?;
        let proven = sa.child(child).is_some_and(ChildSa::is_proven);
        (proven && sa.is_in_charge() && replay_notify(sa, 0).is_some()).then_some(sa.id)
    }

    /// See [`Endpoint::sync_replay_counters`].
    pub(crate) fn want_replay_sync(&mut self, now: Time, id: IkeSaId, by: u64) -> bool {
        let able = |sa: &&IkeSa| sa.is_in_charge() && replay_notify(sa, by).is_some();
        if self.env.table.get(id).filter(able).is_none() {
            return false;
        }
        self.env.with_sa(now, id, |session| {
            session.commit();
            session.sa.outgoing.queue(Task::SyncReplayCounters(by));
            session.next_task()
        });
        true
    }

    /// See [`Endpoint::reauthenticate_ike`].
    pub(super) fn reauthenticate(&mut self, now: Time, id: IkeSaId) -> bool {
        let able = self.env.table.get(id).is_some_and(|sa| sa.is_in_charge() && sa.reauth.is_none());
        if able {
            self.env.with_sa(now, id, |session| {
                session.sa.reauth_at = None;
                reauth::begin_reauth(session);
                Ok(())
            });
        }
        able && self.env.table.get(id).is_some_and(|sa| sa.reauth == Some(Reauth::Begun))
    }

    /// See [`Endpoint::rekey_ike`].
    pub(crate) fn renew_ike(&mut self, now: Time, id: IkeSaId) -> bool {
        let able = self.env.table.get(id).is_some_and(IkeSa::is_in_charge);
        if able {
            self.env.with_sa(now, id, |session| session.want_new_ike_keys());
        }
        able
    }

    /// See [`Endpoint::rekey_child`].
    pub(crate) fn renew_child(&mut self, now: Time, id: ChildSaId) -> bool {
        let Some(sa) = self.env.table.by_child(id) else { return false };
        let able = sa.closing.is_none() && sa.child(id).is_some_and(|child| child.is_proven());
        let ike = sa.id;
        if able {
            self.env.with_sa(now, ike, |session| session.want_new_keys(id));
        }
        able
    }

    /// See [`Endpoint::child_used`].
    pub(crate) fn used(&mut self, now: Time, id: ChildSaId, bytes: u64, packets: u64) {
        let Some((sa, child)) = self.env.table.by_child(id).and_then(|sa| Some((sa, sa.child(id)?))) else {
            return;
        };
        let ike = sa.id;
        let wear = child.limits.wear(bytes, packets);
        let due = match child.phase {
            ChildPhase::Installed => {
                let waits = sa.outgoing.is_waiting(|task| *task == Task::RekeyChild(id));
                wear == Wear::Over || wear == Wear::Renew && !waits
            }
            ChildPhase::Rekeyed | ChildPhase::Deleting => wear == Wear::Over,
            ChildPhase::Deleted(_) => false,
        };
        if due {
            self.env.with_sa(now, ike, |session| session.worn_child(id, wear, "its volume"));
        }
    }

    /// See [`Endpoint::next_limit`].
    pub(crate) fn limit_behind(&self, id: ChildSaId, bytes: u64, packets: u64) -> (u64, u64) {
        let child = self.env.table.by_child(id).and_then(|sa| sa.child(id));
        child.map_or((u64::MAX, u64::MAX), |child| child.limits.next(bytes, packets))
    }
}
