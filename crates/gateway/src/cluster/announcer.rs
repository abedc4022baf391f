//! Whether routers are to give this node packets: host routes to the virtual addresses, which a
//! routing daemon announces (`cluster.announce_table`).

use std::time::Duration;
use testudo_fastpath::netlink::AnnouncedRoutes;
use testudo_ike::output::Time;

/// A fence that shuts for less than this costs less than routers that compute their routes anew.
const FENCE_TOLERANCE: Duration = Duration::from_millis(300);
/// Pause before routes that could not be set are tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Announcer {
    routes: AnnouncedRoutes,
    wanted: Wanted,
    shown: bool,
    /// When the routes are next set, if that has failed.
    retry: Option<Time>,
}

/// What decides whether the addresses are announced.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    /// The node carries shards, and is not giving them away.
    serves: bool,
    /// Packets may leave until then.
    fence: Time,
}

impl Wanted {
    /// `shown`: they are announced at present.
    fn holds(self, now: Time, shown: bool) -> bool {
        let tolerance = if shown { FENCE_TOLERANCE } else { Duration::ZERO };
        self.serves && now < self.fence.plus(tolerance)
    }
}

impl Announcer {
    /// Nothing is announced yet.
    pub(crate) fn new(routes: AnnouncedRoutes) -> Self {
        Self { routes, wanted: Wanted::default(), shown: false, retry: None }
    }

    /// This node carries shards and is not giving them away, or no longer.
    pub(crate) fn set_serves(&mut self, now: Time, serves: bool) {
        self.wanted.serves = serves;
        self.look(now);
    }

    /// Packets may leave until then.
    pub(crate) fn set_fence(&mut self, until: Time) {
        self.wanted.fence = until;
    }

    /// True if routers are told of this node.
    pub(crate) fn is_announced(&self) -> bool {
        self.shown
    }

    /// Sets or removes the routes, if that is due.
    pub(crate) fn look(&mut self, now: Time) {
        let wanted = self.wanted.holds(now, self.shown);
        if wanted == self.shown || self.retry.is_some_and(|at| now < at) {
            return;
        }
        match self.routes.set(wanted) {
            Ok(()) => {
                (self.shown, self.retry) = (wanted, None);
                let what = if wanted { "announced to" } else { "withdrawn from" };
                tracing::info!("this node is {what} routers");
            }
            Err(error) => {
                self.retry = Some(now.plus(RETRY_INTERVAL));
                tracing::error!("routers learn the wrong thing of this node, trying again: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_announced_while_it_serves_and_its_fence_is_open() {
        let at = |millis| Time(Duration::from_millis(millis));
        let wanted = Wanted { serves: true, fence: at(1000) };
        assert!(wanted.holds(at(999), false) && !wanted.holds(at(1000), false));
        assert!(wanted.holds(at(1299), true), "it was shut for a moment");
        assert!(!wanted.holds(at(1300), true));
        assert!(!Wanted { serves: false, ..wanted }.holds(at(999), true));
        assert!(!Wanted::default().holds(at(0), false));
    }
}
