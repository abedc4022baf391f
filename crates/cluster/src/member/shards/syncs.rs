//! Message IDs of IKE SAs that were taken over from a node that died (RFC 6311).
//!
//! By the commit rule the windows of a survivor are those of the node before it, so that nothing
//! depends on this: it is for operators who want the peer's word for it. Each IKE SA asks once for
//! a takeover, and what it asks is told to the other nodes like any request before it leaves:
//! whoever takes over next asks for more.

use super::Shards;
use crate::member::core::Core;
use std::collections::BTreeSet;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_ike::message::IkeSpi;
use testudo_ike::output::Time;

/// IKE SAs that ask at once, and after how long the next may.
const MAX_SYNCS_AT_ONCE: usize = 16;
const SYNC_INTERVAL: Duration = Duration::from_millis(20);

/// IKE SAs that are to ask.
#[derive(Debug, Default)]
pub(in crate::member) struct Syncs {
    /// Shards of nodes that died whose IKE SAs are still being read.
    departed: ShardSet,
    waiting: BTreeSet<IkeSpi>,
    next: Time,
}

impl Syncs {
    /// These shards come from nodes that died.
    pub(in crate::member) fn departed(&mut self, shards: ShardSet) {
        self.departed = self.departed.union(shards);
    }

    /// An IKE SA has been read.
    pub(in crate::member) fn imported(&mut self, spi: IkeSpi) {
        if self.departed.contains(spi.shard()) {
            self.waiting.insert(spi);
        }
    }

    /// All of the IKE SAs of these shards have been read.
    pub(in crate::member) fn all_imported(&mut self, shards: ShardSet) {
        self.departed = self.departed.without(shards);
    }

    pub(in crate::member) fn next_timeout(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.next)
    }
}

impl Shards {
    /// Some of those that are to ask do, if it is time.
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
