//! IKE SAs leave and enter as octets.

use super::{Endpoint, SnapshotError};
use crate::output::IkeSaId;
use crate::sa::{IkeSa, Phase, decode};

impl Endpoint {
    /// See [`Endpoint::import_sa`].
    pub(crate) fn take_over(&mut self, bytes: &[u8]) -> Result<IkeSaId, SnapshotError> {
        let mut sa = decode(bytes)?;
        let id = sa.id;
        if let Some(here) = self.table.get(id)
            && here.commit > sa.commit
        {
            return Err(SnapshotError::Stale { found: sa.commit, current: here.commit });
        }
        if self.table.by_spi(sa.our_spi()).is_some_and(|other| other.id != id) {
            return Err(SnapshotError::SpiInUse(sa.our_spi()));
        }
        if let Some(replaced) = self.table.take(id)
            && let Phase::HalfOpen(half) = &replaced.phase
        {
            self.half_opens.leave(half.source);
        }
        self.claim(&sa);
        if let Some(keys) = &mut sa.keys {
            // From now on this node makes the IVs.
            keys.sealer.set_sender(self.alloc.sender_id());
        }
        self.put(sa);
        Ok(id)
    }

    /// Numbers and SPIs that the SA uses are not to be given out again.
    fn claim(&mut self, sa: &IkeSa) {
        self.last_ike = self.last_ike.max(sa.id.0);
        self.commit = self.commit.max(sa.commit);
        match &sa.phase {
            Phase::HalfOpen(half) => self.half_opens.enter(half.source),
            Phase::AuthSent(sent) => self.alloc.claim_esp_spi(sent.spi_in),
            _ => {}
        }
        for child in &sa.children {
            self.last_child = self.last_child.max(child.id.0);
            self.alloc.claim_esp_spi(child.params.spi_in);
            self.reqids.entry((sa.connection.clone(), child.name.clone())).or_insert(child.reqid);
        }
    }
}
