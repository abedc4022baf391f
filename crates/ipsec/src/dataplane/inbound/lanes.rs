//! Packets of spread SAs, whose numbers are accepted lane by lane.

use super::InboundPlan;
use crate::drops::DropReason;
use crate::replay::Lanes;
use crate::sa::InboundSa;
use testudo_base::lane;
use testudo_base::spi::Shard;

impl InboundSa {
    /// Refuses a number that counts as seen in its lane, before the packet is opened.
    pub(super) fn check_lane(&self, lane: Shard, number: u64) -> Result<u64, DropReason> {
        match self.lanes() {
            Some(lanes) if lanes.is_seen(lane, number) => Err(DropReason::Replayed),
            _ => Ok(number),
        }
    }
}

/// Takes the authentic packets of a spread SA into its window.
///
/// The floors are asked once more. A worker applies floors before it admits packets of the lane, so
/// that none of its own packets needs this. But workers apply commands at different times, and the
/// floors that one of them has set count for all: once they are set, no worker accepts a number
/// below them, not even one that has admitted it before. The question is the moment of acceptance.
/// Whoever asks before the floor is set has accepted the number before, in a lane that it carries.
#[inline(never)]
pub(super) fn accept(sa: &InboundSa, lanes: &Lanes, run: &mut [InboundPlan<'_>]) {
    let lane = |number: u64| lane::of_number(sa.spi, number as u32);
    for plan in run.iter_mut().filter(|plan| plan.verdict.is_ok()) {
        if lanes.is_seen(lane(plan.sequence), plan.sequence) {
            plan.verdict = Err(DropReason::Replayed);
        }
    }
    let number = |plan: &InboundPlan<'_>| plan.verdict.is_ok().then_some(plan.sequence);
    sa.window.accept_run(run, number, |plan, reason| plan.verdict = Err(reason));
    for number in run.iter().filter_map(number) {
        lanes.note(lane(number), number);
    }
}
