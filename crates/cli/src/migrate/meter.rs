//! What the Child SA carries during a migration, as the source's testudod counts it.

use super::channel::{self, ChildSa, Packets};
use testudo_vici::client::Client;

/// The counters of a Child SA from one moment on.
pub(super) struct Meter {
    client: Client,
    sa: ChildSa,
}

impl Meter {
    pub(super) fn new(client: Client, sa: ChildSa) -> Self {
        Self { client, sa }
    }

    /// Counts from now on.
    pub(super) fn begin(&mut self) {
        if let Some(packets) = self.count() {
            self.sa.packets = packets;
        }
    }

    /// Packets since the begin. None if the SA has ended, or been replaced by a rekeying.
    pub(super) fn read(&mut self) -> Option<Packets> {
        let (now, before) = (self.count()?, self.sa.packets);
        Some(Packets {
            inbound: now.inbound.saturating_sub(before.inbound),
            outbound: now.outbound.saturating_sub(before.outbound),
        })
    }

    fn count(&mut self) -> Option<Packets> {
        let found = channel::list(&mut self.client).ok()?;
        found.into_iter().find(|found| found.is(&self.sa)).map(|sa| sa.packets)
    }
}
