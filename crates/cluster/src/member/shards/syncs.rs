//! Synchronising Message IDs of IKE SAs that were taken over from a dead node (RFC 6311).
//!
//! By the commit rule the windows of a survivor equal those of the dead node, so nothing depends on
//! this: it is for operators who want the peer's confirmation. Each IKE SA asks once for a
//! takeover. Like any request, this one is published to the other nodes before it leaves, so that
//! the next takeover asks for more.

use super::Shards;
use crate::member::core::Core;
use std::collections::BTreeSet;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_ike::message::IkeSpi;
use testudo_ike::output::Time;

/// Bound on the IKE SAs that ask at a time, and the pause before the next ones ask.
const MAX_SYNCS_AT_ONCE: usize = 16;
const SYNC_INTERVAL: Duration = Duration::from_millis(20);

/// IKE SAs that are to ask.
#[derive(Debug, Default)]
pub(in crate::member) struct Syncs {
    /// Shards of dead nodes whose IKE SAs are still being decoded.
    departed: ShardSet,
    waiting: BTreeSet<IkeSpi>,
    next: Time,
}

impl Syncs {
    /// These shards come from dead nodes.
    pub(in crate::member) fn departed(&mut self, shards: ShardSet) {
        self.departed = self.departed.union(shards);
    }

    /// An IKE SA has been decoded.
    pub(in crate::member) fn imported(&mut self, spi: IkeSpi) {
        if self.departed.contains(spi.shard()) {
            self.waiting.insert(spi);
        }
    }

    /// All IKE SAs of these shards have been decoded.
    pub(in crate::member) fn all_imported(&mut self, shards: ShardSet) {
        self.departed = self.departed.without(shards);
    }

    pub(in crate::member) fn next_timeout(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.next)
    }
}

impl Shards {
    /// Has some of the IKE SAs ask, if it is time.
    pub(in crate::member) fn sync_some(&mut self, core: &mut Core, now: Time) {
        if now < self.syncs.next || self.syncs.waiting.is_empty() || !core.may_speak(now) {
            return;
        }
        if !core.has_control_plane() {
            return self.syncs.waiting.clear();
        }
        let mut asked = 0;
        while asked < MAX_SYNCS_AT_ONCE
            && let Some(spi) = self.syncs.waiting.pop_first()
        {
            let here =
                core.endpoint.replication().by_spi(spi).filter(|_| self.shown.ike.contains(spi.shard()));
            let asks = here.is_some_and(|id| core.endpoint.replication_mut().sync_message_ids(now, id));
            asked += usize::from(asks);
        }
        self.syncs.next = now.plus(SYNC_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Member;
    use crate::member::samples::{START, only, routed_member};
    use testudo_base::spi::{SenderId, Shard};

    const IKE: IkeSpi = IkeSpi(1 << 56 | 1);

    fn syncs() -> Syncs {
        let mut syncs = Syncs { next: START, ..Syncs::default() };
        syncs.departed([Shard(1), Shard(2)].into_iter().collect());
        syncs
    }

    /// Those that are handed over later ask for nothing.
    #[test]
    fn ike_sas_of_a_dead_node_ask_until_all_of_its_shard_have_been_decoded() {
        let mut syncs = syncs();
        syncs.all_imported(only(Shard(1)));
        syncs.imported(IKE);
        assert_eq!(syncs.next_timeout(), None);
        syncs.imported(IkeSpi(2 << 56 | 1));
        assert_eq!(syncs.next_timeout(), Some(START));
    }

    #[test]
    fn they_ask_when_it_is_time_and_the_node_may_speak() {
        let Member { mut core, mut shards, .. } = routed_member();
        core.fence = START.plus(SYNC_INTERVAL * 9);
        shards.syncs = syncs();
        shards.syncs.imported(IKE);
        shards.sync_some(&mut core, START);
        assert_eq!(shards.syncs.next_timeout(), Some(START), "it has no sender ID");
        core.sender = Some(SenderId(1));
        shards.syncs.next = START.plus(SYNC_INTERVAL);
        shards.sync_some(&mut core, START);
        assert!(shards.syncs.next_timeout().is_some(), "it is too early");
        shards.sync_some(&mut core, START.plus(SYNC_INTERVAL));
        assert_eq!(shards.syncs.next_timeout(), None);
    }
}
