//! Bursts in three stages, so that another worker may do the middle one.
//!
//! The first stage is all that must be done in order: look-up, replay check, sequence numbers and IVs. The middle one is the cipher, most
//! of the work where packets are long; it touches the packets and nothing of the data plane, so any thread may do it. The last
//! one accepts numbers, checks what was decrypted, and counts. Bursts begin and end in order, one after the other; in between they may
//! be anywhere. What has a verdict after the first stage is done with; only the others, in their order, are worked on and ended. A burst
//! keeps the SAs that it needs: one that is removed meanwhile lives until the last burst has ended.
//!
//! What the later stages share with bursts that are not taken apart is generic over `AWAY`, and so compiled twice: within `outbound` and
//! `inbound` it stands at one place only, the compiler puts it in line there, and who works alone pays nothing for the stages.

use super::Dataplane;
use super::burst::Item;
use super::inbound::Opening;
use super::outbound::Sealing;

/// A burst that has begun and not ended.
#[derive(Debug)]
pub struct Away(Kind);

#[derive(Debug)]
enum Kind {
    Outbound(Sealing),
    Inbound(Opening),
}

impl Away {
    pub(super) fn outbound(sealing: Sealing) -> Self {
        Self(Kind::Outbound(sealing))
    }

    pub(super) fn inbound(opening: Opening) -> Self {
        Self(Kind::Inbound(opening))
    }

    /// The middle stage, on the packets that had no verdict, in the same order.
    pub fn work(&mut self, burst: &mut [Item<'_>]) {
        match &mut self.0 {
            Kind::Outbound(sealing) => sealing.work(burst),
            Kind::Inbound(opening) => opening.work(burst),
        }
    }
}

impl Dataplane {
    /// The last stage of a burst that has been worked on, for the same packets: gives each its verdict.
    pub fn end(&mut self, away: &Away, burst: &mut [Item<'_>]) {
        match &away.0 {
            Kind::Outbound(sealing) => self.end_outbound(sealing, burst),
            Kind::Inbound(opening) => self.end_inbound(opening, burst),
        }
    }
}
