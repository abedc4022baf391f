//! Worlds in which nodes die one after another, down to the last.

use super::{Outcome, World};
use crate::checks::Invariant;
use crate::engine::{MILLI, Nanos};
use crate::trace::Who;

/// Time for all tunnels to come up: some peers begin late.
const START_TIME: Nanos = 16_000 * MILLI;
/// Time after a death until the others expect no more votes than they have.
const SETTLE_TIME: Nanos = 3000 * MILLI;
/// Time in which a node that returns gets the state.
const RETURN_TIME: Nanos = 8000 * MILLI;

impl World {
    /// Nodes die in this order, and nothing else fails. After each death the others have all
    /// tunnels. At the end the last one that died returns.
    pub fn run_to_last(mut self, order: &[usize]) -> Outcome {
        self.fate.may_strike = false;
        self.run_until(START_TIME);
        for node in order {
            self.crash(*node);
            self.go_on(SETTLE_TIME);
        }
        if let Some(node) = order.last() {
            self.boot(*node);
            self.go_on(RETURN_TIME);
        }
        self.outcome()
    }

    /// Lets time pass, then checks that the nodes agree and carry all tunnels.
    fn go_on(&mut self, time: Nanos) {
        self.run_until(self.schedule.now + time);
        let disagreement = self.disagreement();
        self.traffic.watch(self.schedule.now);
        self.run_until(self.schedule.now + self.scenario.watch);
        if let Some(amiss) = disagreement.or_else(|| self.poor_flow()) {
            self.blame(amiss);
        }
        self.check_peers_accounts();
        if self.fate.state_lost > 0 {
            let what = "the state is lost".to_owned();
            self.checks.violate(Invariant::Recovery, self.schedule.now, Who::World, what);
        }
    }
}
