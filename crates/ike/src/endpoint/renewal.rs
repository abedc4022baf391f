//! Renewal by word of the operator, by use, and after a takeover.

use crate::endpoint::replication::{Replication, ReplicationMut};
use crate::endpoint::{Endpoint, Target};
use crate::exchange::counter_sync::{is_sync, replay_notify};
use crate::exchange::reauth;
use crate::output::{ChildSaId, IkeSaId, Time};
use crate::sa::{ChildPhase, ChildSa, IkeSa, Reauth, Task, Wear};

impl Endpoint {
    /// Renews what an operator means by a number; `reauth`: an IKE SA with authentication. False if
    /// there is nothing to renew.
    pub fn renew_target(&mut self, now: Time, target: &Target, reauth: bool) -> bool {
        match *target {
            Target::Ike(id) if reauth => self.reauthenticate_ike(now, id),
            Target::Ike(id) => self.rekey_ike(now, id),
            Target::Child(id) => self.rekey_child(now, id),
            Target::Connection(_) | Target::ChildName { .. } | Target::All => false,
        }
    }

    /// Authenticates the peer of an IKE SA anew: a new IKE SA with all Child SAs takes its place
    /// (RFC 7296 §2.8.3). False if that cannot be.
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

    /// Makes new keys for an IKE SA. False if there is nothing to renew.
    pub fn rekey_ike(&mut self, now: Time, id: IkeSaId) -> bool {
        let able = self.env.table.get(id).is_some_and(IkeSa::is_in_charge);
        if able {
            self.env.with_sa(now, id, |session| session.want_new_ike_keys());
        }
        able
    }

    /// Makes new keys for a Child SA: because an operator wants it, or because its sequence numbers
    /// run low. False if there is nothing to renew.
    pub fn rekey_child(&mut self, now: Time, id: ChildSaId) -> bool {
        let Some(sa) = self.env.table.by_child(id) else { return false };
        let able = sa.closing.is_none() && sa.child(id).is_some_and(|child| child.is_proven());
        let ike = sa.id;
        if able {
            self.env.with_sa(now, ike, |session| session.want_new_keys(id));
        }
        able
    }

    /// What the Child SA has carried so far, in the busier direction. To be told as soon as it
    /// reaches
    /// [`Endpoint::next_limit`]: it is what renews an SA by its volume, and ends it.
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

    /// At how many octets and packets in the busier direction something is to happen to the Child
    /// SA next, once it has carried so many; `u64::MAX`: never.
    pub fn next_limit(&self, id: ChildSaId, bytes: u64, packets: u64) -> (u64, u64) {
        let child = self.env.table.by_child(id).and_then(|sa| sa.child(id));
        child.map_or((u64::MAX, u64::MAX), |child| child.limits.next(bytes, packets))
    }
}

impl Replication<'_> {
    /// The IKE SA of a Child SA, if its peer can be asked to leave sequence numbers of it out (RFC
    /// 6311). What the peer does not know yet it would overlook.
    pub fn replay_sync_of(&self, child: ChildSaId) -> Option<IkeSaId> {
        let sa = self.env.table.by_child(child)?;
        let proven = sa.child(child).is_some_and(ChildSa::is_proven);
        (proven && sa.is_in_charge() && replay_notify(sa, 0).is_some()).then_some(sa.id)
    }
}

impl ReplicationMut<'_> {
    /// Makes sure that both sides of an IKE SA, which was taken over from a node that died, agree
    /// on the next Message IDs (RFC 6311): as soon as what is under way is answered. Once for each
    /// takeover. False if the peer cannot.
    pub fn sync_message_ids(&mut self, now: Time, id: IkeSaId) -> bool {
        let able = |sa: &&IkeSa| sa.is_in_charge() && sa.extensions.counter_sync.message_ids;
        if self.env.table.get(id).filter(able).is_none() {
            return false;
        }
        self.env.with_sa(now, id, |session| {
            session.commit();
            // One that the node before has begun may have been answered to that node, and the peer
            // takes none twice.
            session.sa.outgoing.pending.take_if(|pending| is_sync(pending.kind));
            if !session.sa.outgoing.tasks.contains(&Task::SyncMessageIds) {
                session.sa.outgoing.tasks.push_front(Task::SyncMessageIds);
            }
            session.next_task()
        });
        true
    }

    /// Asks the peer to leave so many sequence numbers out in all Child SAs of an IKE SA. False if
    /// it cannot.
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
