//! What clients of VICI say of paths while they use them, such as `testudo migrate`.
//!
//! It is held apart from what routers have told: when a client has ended, or has been silent for
//! some time, the path is again what routes and routers say that it is.

use super::DataPath;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use testudo_fastpath::worker::boottime;

/// What a client says is forgotten after this time unless it repeats it: it may have been killed.
pub(crate) const HOLD: Duration = Duration::from_secs(60);
/// Bound on what is held at the same time.
const MAX_HELD: usize = 1024;

/// The MTUs that holders name, by path and holder.
#[derive(Default)]
pub(super) struct HeldMtus(BTreeMap<(IpAddr, String), Held>);

struct Held {
    mtu: u16,
    until: Duration,
}

/// A path that a client has said something of, and no longer does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Released {
    pub(crate) remote: IpAddr,
    pub(crate) holder: String,
    /// What the path takes now.
    pub(crate) mtu: u16,
}

impl HeldMtus {
    /// A holder says that a path takes no more than `mtu`. False if too much is held.
    fn hold(&mut self, now: Duration, remote: IpAddr, holder: &str, mtu: u16) -> bool {
        let key = (remote, holder.to_owned());
        let has_room = self.0.len() < MAX_HELD || self.0.contains_key(&key);
        if has_room {
            self.0.insert(key, Held { mtu, until: now + HOLD });
        }
        has_room
    }

    /// The least that a holder says of a path.
    pub(super) fn get(&self, now: Duration, remote: IpAddr) -> Option<u16> {
        let of_path = self.0.range((remote, String::new())..).take_while(|((of, _), _)| *of == remote);
        of_path.filter(|(_, held)| now < held.until).map(|(_, held)| held.mtu).min()
    }

    /// Forgets what a holder says, and returns the paths.
    fn release(&mut self, holder: &str) -> Vec<(IpAddr, String)> {
        self.0.extract_if(.., |(_, by), _| by == holder).map(|(key, _)| key).collect()
    }

    /// Forgets what has not been repeated.
    fn expire(&mut self, now: Duration) -> Vec<(IpAddr, String)> {
        self.0.extract_if(.., |_, held| held.until <= now).map(|(key, _)| key).collect()
    }
}

impl DataPath {
    /// A holder says that a path takes no more than `mtu`, for a minute. `None` if too much is
    /// held; otherwise what the path takes now, and whether that is news.
    pub(crate) fn hold_path_mtu(&mut self, remote: IpAddr, holder: &str, mtu: u16) -> Option<(u16, bool)> {
        let before = self.mtus.of(&self.fib, remote);
        if !self.mtus.held.hold(boottime(), remote, holder, mtu) {
            return None;
        }
        let after = self.mtus.of(&self.fib, remote);
        // A worker may know less of one SA's path.
        if after != before {
            self.sas.set_path_mtu(remote, after);
        }
        Some((after, after != before))
    }

    /// Forgets what a holder says of paths.
    pub(crate) fn release_path_mtus(&mut self, holder: &str) -> Vec<Released> {
        let released = self.mtus.held.release(holder);
        self.restore(released)
    }

    /// What holders have not repeated.
    pub(crate) fn expire_path_mtus(&mut self) -> Vec<Released> {
        let expired = self.mtus.held.expire(boottime());
        self.restore(expired)
    }

    fn restore(&self, released: Vec<(IpAddr, String)>) -> Vec<Released> {
        let restore = |(remote, holder)| {
            let mtu = self.mtus.of(&self.fib, remote);
            self.sas.set_path_mtu(remote, mtu);
            Released { remote, holder, mtu }
        };
        released.into_iter().map(restore).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn path(host: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, host])
    }

    #[test]
    fn each_holder_speaks_for_itself() {
        let mut held = HeldMtus::default();
        for (host, holder, mtu) in [(2, "a", 1400), (2, "b", 1300), (3, "b", 1280)] {
            assert!(held.hold(SECOND, path(host), holder, mtu));
        }
        let all = |held: &HeldMtus| [1, 2, 3].map(|host| held.get(SECOND, path(host)));
        assert_eq!(all(&held), [None, Some(1300), Some(1280)]);
        assert_eq!(held.release("b"), [(path(2), "b".to_owned()), (path(3), "b".to_owned())]);
        assert_eq!(all(&held), [None, Some(1400), None]);
        assert_eq!(held.release("b"), []);
        assert!(held.hold(SECOND, path(2), "a", 1450), "the path has become better");
        assert_eq!(all(&held), [None, Some(1450), None]);
    }

    #[test]
    fn what_is_not_repeated_is_forgotten_after_a_minute() {
        let mut held = HeldMtus::default();
        let begun = 100 * SECOND;
        assert!(held.hold(begun, path(2), "a", 1400) && held.hold(begun, path(2), "killed", 1300));
        assert!(held.hold(begun + HOLD / 2, path(2), "a", 1400));
        assert_eq!(held.expire(begun + HOLD - SECOND), []);
        assert_eq!(held.get(begun + HOLD - SECOND, path(2)), Some(1300));
        assert_eq!(held.get(begun + HOLD, path(2)), Some(1400));
        assert_eq!(held.expire(begun + HOLD), [(path(2), "killed".to_owned())]);
        assert_eq!(held.get(begun + 2 * HOLD, path(2)), None);
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut held = HeldMtus::default();
        for number in 0..MAX_HELD {
            assert!(held.hold(SECOND, path(2), &number.to_string(), 1400));
        }
        assert!(!held.hold(SECOND, path(2), "one more", 1400));
        assert!(held.hold(SECOND, path(2), "7", 1300), "it is held already");
    }
}
