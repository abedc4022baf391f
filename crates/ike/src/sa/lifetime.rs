//! Lifetimes of an SA: drawn once, when it comes up.

use crate::config::{CHILD_REKEY_SECONDS, ChildLifetime, IkeLifetime, Lifetime};
use crate::output::Time;
use crate::suite::Entropy;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When an SA is rekeyed, and when it ends in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    /// `None`: never, or it has begun.
    pub(crate) rekey: Option<Time>,
    pub(crate) end: Option<Time>,
}

/// Bound on what a Child SA may carry in one direction; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volume {
    pub(crate) rekey: u64,
    pub(crate) end: u64,
}

/// The limits of a Child SA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildLimits {
    pub(crate) times: Times,
    pub(crate) bytes: Volume,
    pub(crate) packets: Volume,
}

/// What the use of a Child SA requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wear {
    Good,
    Renew,
    Over,
}

impl Times {
    /// The times of an IKE SA that comes up now and is reauthenticated at `reauth`.
    pub(crate) fn of_ike(
        lifetime: &IkeLifetime,
        reauth: Option<Time>,
        now: Time,
        entropy: &mut dyn Entropy,
    ) -> Self {
        let IkeLifetime { rekey, reauth: _, over, rand } = *lifetime;
        let rekey = draw_ike(rekey, rand, now, entropy);
        let first = earlier(rekey, reauth);
        Self { rekey, end: first.map(|at| at.plus(Duration::from_secs(over))) }
    }

    /// The times of an SA that came up at `came_up`, by another lifetime than its own. One that is
    /// older than the lifetime allows counts as younger, so that it is rekeyed within the
    /// spread: a thousand SAs whose lifetimes become shorter are not all due at once.
    pub(crate) fn again(lifetime: &Lifetime, came_up: Time, now: Time, entropy: &mut dyn Entropy) -> Self {
        let Lifetime { rekey, life, rand } = *lifetime;
        let earliest = if rekey == 0 { life } else { rekey.saturating_sub(rand) };
        let latest_start = Time(now.since(Time(Duration::from_secs(earliest))));
        Self::of_child(lifetime, came_up.max(latest_start), entropy)
    }

    fn of_child(lifetime: &Lifetime, came_up: Time, entropy: &mut dyn Entropy) -> Self {
        let at = |millis: u64| came_up.plus(Duration::from_millis(millis));
        let time = lifetime.scaled(MILLIS);
        Self { rekey: time.draw(entropy).map(at), end: (time.life > 0).then(|| at(time.life)) }
    }

    /// The end, for a Child SA whose configuration is gone: without one of its own it ends by the
    /// default lifetime, counted from now, so that it does not live on for ever.
    pub(crate) fn end_of_outdated(&self, now: Time) -> Time {
        let usual = Lifetime::new(CHILD_REKEY_SECONDS, None, None);
        self.end.unwrap_or_else(|| now.plus(Duration::from_secs(usual.life)))
    }

    /// The earlier of both.
    pub(super) fn first(&self) -> Option<Time> {
        earlier(self.rekey, self.end)
    }

    /// Visits every time.
    pub(super) fn for_each(&mut self, visit: impl FnMut(&mut Time)) {
        self.rekey.iter_mut().chain(&mut self.end).for_each(visit);
    }
}

/// The earlier one. `None`: never.
pub(crate) fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    one.into_iter().chain(other).min()
}

/// When an IKE SA whose peer is authenticated now is reauthenticated.
pub(crate) fn draw_reauth(lifetime: &IkeLifetime, now: Time, entropy: &mut dyn Entropy) -> Option<Time> {
    draw_ike(lifetime.reauth, lifetime.rand, now, entropy)
}

fn draw_ike(seconds: u64, rand: u64, now: Time, entropy: &mut dyn Entropy) -> Option<Time> {
    let drawn = Lifetime { rekey: seconds, life: 0, rand }.scaled(MILLIS).draw(entropy);
    drawn.map(|millis| now.plus(Duration::from_millis(millis)))
}

const MILLIS: u64 = 1000;

impl ChildLimits {
    /// The limits of a Child SA that comes up now.
    pub(crate) fn draw(lifetime: &ChildLifetime, now: Time, entropy: &mut dyn Entropy) -> Self {
        let times = Times::of_child(&lifetime.time, now, entropy);
        let mut volume = |of: &Lifetime| Volume { rekey: of.draw(entropy).unwrap_or_default(), end: of.life };
        Self { times, bytes: volume(&lifetime.bytes), packets: volume(&lifetime.packets) }
    }

    /// What this many octets and packets in the busier direction require.
    pub(crate) fn wear(&self, bytes: u64, packets: u64) -> Wear {
        self.bytes.wear(bytes).max(self.packets.wear(packets))
    }

    /// The next limits beyond this many octets and packets.
    pub(crate) fn next(&self, bytes: u64, packets: u64) -> (u64, u64) {
        (self.bytes.next(bytes), self.packets.next(packets))
    }
}

impl Volume {
    fn next(self, used: u64) -> u64 {
        [self.rekey, self.end].into_iter().filter(|limit| *limit > used).min().unwrap_or(u64::MAX)
    }

    fn wear(self, used: u64) -> Wear {
        let reached = |limit: u64| limit != 0 && used >= limit;
        match (reached(self.end), reached(self.rekey)) {
            (true, _) => Wear::Over,
            (false, true) => Wear::Renew,
            (false, false) => Wear::Good,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_measure_counts() {
        let volume = |rekey, end| Volume { rekey, end };
        let limits =
            ChildLimits { times: Times::default(), bytes: volume(1000, 1100), packets: volume(0, 50) };
        assert_eq!(limits.wear(999, 49), Wear::Good);
        assert_eq!(limits.wear(1000, 49), Wear::Renew);
        assert_eq!(limits.wear(1100, 0), Wear::Over);
        assert_eq!(limits.wear(0, 50), Wear::Over);
        assert_eq!(ChildLimits::default().wear(u64::MAX, u64::MAX), Wear::Good);
        assert_eq!(limits.next(0, 0), (1000, 50));
        assert_eq!(limits.next(1000, 49), (1100, 50));
        assert_eq!(limits.next(1100, 50), (u64::MAX, u64::MAX));
    }
}
