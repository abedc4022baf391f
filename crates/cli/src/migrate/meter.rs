//! What a Child SA carries, as the source's testudod counts it.

use super::channel::{self, ChildSa, Packets};
use testudo_vici::client::Client;

/// The counters of a Child SA from one moment on.
pub(super) struct Meter {
    client: Client,
    pub(super) sa: ChildSa,
}

/// Why there is no count.
#[derive(Debug, thiserror::Error)]
pub(super) enum MeterError {
    #[error("the Child SA has ended")]
    Ended,
    #[error("testudod: {0}")]
    Daemon(#[from] testudo_vici::Error),
}

impl Meter {
    pub(super) fn new(client: Client, sa: ChildSa) -> Self {
        Self { client, sa }
    }

    /// Counts from now on.
    pub(super) fn begin(&mut self) -> Result<(), MeterError> {
        self.sa.packets = self.count()?;
        Ok(())
    }

    /// Packets since the begin. Fails if the SA has ended, or was replaced by a rekeying.
    pub(super) fn read(&mut self) -> Result<Packets, MeterError> {
        let (now, before) = (self.count()?, self.sa.packets);
        Ok(Packets {
            inbound: now.inbound.saturating_sub(before.inbound),
            outbound: now.outbound.saturating_sub(before.outbound),
        })
    }

    fn count(&mut self) -> Result<Packets, MeterError> {
        let found = channel::list(&mut self.client)?.into_iter().find(|found| found.is(&self.sa));
        found.map(|sa| sa.packets).ok_or(MeterError::Ended)
    }
}
