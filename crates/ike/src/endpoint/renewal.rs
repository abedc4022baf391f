//! Renewal by an operator, by use, and after a takeover.

use crate::endpoint::replication::{Replication, ReplicationMut};
use crate::endpoint::{Endpoint, Target};
use crate::exchange::counter_sync::{is_sync, replay_notify};
use crate::exchange::reauth;
use crate::output::{ChildSaId, IkeSaId, Time};
use crate::sa::{ChildPhase, ChildSa, IkeSa, Reauth, Task, Wear};

impl Endpoint {
    /// Renews the SAs of a target. `reauth`: reauthenticates an IKE SA. Returns false if there is
    /// nothing to renew.
    pub fn renew_target(&mut self, now: Time, target: &Target, reauth: bool) -> bool {
        match *target {
            Target::Ike(id) if reauth => self.reauthenticate_ike(now, id),
            Target::Ike(id) => self.rekey_ike(now, id),
            Target::Child(id) => self.rekey_child(now, id),
            Target::Connection(_) | Target::ChildName { .. } | Target::All => false,
        }
    }

    /// Reauthenticates an IKE SA: a new IKE SA with all Child SAs takes its place (RFC 7296
    /// §2.8.3). Returns false if that is impossible.
    pub fn reauthenticate_ike(&mut self, now: Time, id: IkeSaId) -> bool {
        let able = self.env.table.get(id).is_some_and(|sa| sa.is_in_charge() && sa.reauth.is_none());
        if able {
            self.env.with_sa(now, id, |session| {
                session.sa.reauth_at = None;
                reauth::begin(session);
                Ok(())
            });
        }
        able && self.env.table.get(id).is_some_and(|sa| sa.reauth == Some(Reauth::Begun))
    }

    /// Rekeys an IKE SA. Returns false if there is nothing to rekey.
    pub fn rekey_ike(&mut self, now: Time, id: IkeSaId) -> bool {
        let able = self.env.table.get(id).is_some_and(IkeSa::is_in_charge);
        if able {
            self.env.with_sa(now, id, |session| session.want_new_ike_keys());
        }
        able
    }

    /// Rekeys a Child SA, because an operator asks for it, or because its sequence numbers run low.
    /// Returns false if there is nothing to rekey.
    pub fn rekey_child(&mut self, now: Time, id: ChildSaId) -> bool {
        let Some(sa) = self.env.table.by_child(id) else { return false };
        let able = sa.closing.is_none() && sa.child(id).is_some_and(|child| child.is_proven());
        let ike = sa.id;
        if able {
            self.env.with_sa(now, ike, |session| session.want_new_keys(id));
        }
        able
    }

    /// Reports what the Child SA has carried so far, in the busier direction. To be called as soon
    /// as [`Endpoint::next_limit`] is reached: it rekeys an SA by its volume, and ends it.
    pub fn child_used(&mut self, now: Time, id: ChildSaId, bytes: u64, packets: u64) {
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

    /// The next limit of the Child SA in octets and packets of the busier direction, after it has
    /// carried this many; `u64::MAX`: none.
    pub fn next_limit(&self, id: ChildSaId, bytes: u64, packets: u64) -> (u64, u64) {
        let child = self.env.table.by_child(id).and_then(|sa| sa.child(id));
        child.map_or((u64::MAX, u64::MAX), |child| child.limits.next(bytes, packets))
    }
}

impl Replication<'_> {
    /// The IKE SA of a Child SA, if its peer can be asked to skip sequence numbers of it (RFC
    /// 6311). The peer would ignore a Child SA that it does not know yet.
    pub fn replay_sync_of(&self, child: ChildSaId) -> Option<IkeSaId> {
        let sa = self.env.table.by_child(child)?;
        let proven = sa.child(child).is_some_and(ChildSa::is_proven);
        (proven && sa.is_in_charge() && replay_notify(sa, 0).is_some()).then_some(sa.id)
    }
}

impl ReplicationMut<'_> {
    /// Synchronises the next Message IDs of an IKE SA that was taken over from a dead node (RFC
    /// 6311), as soon as pending exchanges are answered. Once for each takeover. Returns false if
    /// the peer does not support it.
    pub fn sync_message_ids(&mut self, now: Time, id: IkeSaId) -> bool {
        let able = |sa: &&IkeSa| sa.is_in_charge() && sa.extensions.counter_sync.message_ids;
        if self.env.table.get(id).filter(able).is_none() {
            return false;
        }
        self.env.with_sa(now, id, |session| {
            session.commit();
            // A request that the former node has begun may have been answered to that node, and the
            // peer accepts none twice.
            session.sa.outgoing.pending.take_if(|pending| is_sync(pending.kind));
            if !session.sa.outgoing.tasks.contains(&Task::SyncMessageIds) {
                session.sa.outgoing.tasks.push_front(Task::SyncMessageIds);
            }
            session.next_task()
        });
        true
    }

    /// Asks the peer to skip this many sequence numbers in all Child SAs of an IKE SA. Returns
    /// false if the peer does not support it.
    pub fn sync_replay_counters(&mut self, now: Time, id: IkeSaId, by: u64) -> bool {
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
}
