//! How far the MSS of TCP connections through an SA is lowered.

use std::num::NonZeroU16;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;

/// How far the MSS of TCP connections is lowered, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mss {
    /// To what fits the path.
    #[default]
    Auto,
    /// Not at all.
    Off,
    /// To this many octets, or to what fits the path if that is less.
    AtMost(NonZeroU16),
}

impl Mss {
    /// The smallest MSS of an IPv4 host, which counts without the option (RFC 9293 §3.7.1).
    pub const MIN: u16 = 536;
    /// What the largest IPv4 packet holds behind headers without options.
    pub const MAX: u16 = u16::MAX - 40;
}

/// The [`Mss`] of an SA in one word: control changes it while workers read it. No connection has an
/// MSS of 0, and none is above the largest value.
#[derive(Debug)]
pub(crate) struct MssLimit(AtomicU16);

const OFF: u16 = 0;
const AUTO: u16 = u16::MAX;

impl MssLimit {
    pub(crate) fn new(mss: Mss) -> Self {
        Self(AtomicU16::new(word(mss)))
    }

    pub(crate) fn set(&self, mss: Mss) {
        self.0.store(word(mss), Relaxed);
    }

    /// The limit where `fits` octets fit the path. `None` if the MSS is to stay as it is.
    pub(crate) fn of_path(&self, fits: u16) -> Option<u16> {
        match self.0.load(Relaxed) {
            OFF => None,
            at_most => Some(at_most.min(fits)),
        }
    }
}

impl Clone for MssLimit {
    fn clone(&self) -> Self {
        Self(AtomicU16::new(self.0.load(Relaxed)))
    }
}

fn word(mss: Mss) -> u16 {
    match mss {
        Mss::Auto => AUTO,
        Mss::Off => OFF,
        Mss::AtMost(octets) => octets.get(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_limit_is_never_above_what_fits(fits in any::<u16>(), octets in 1..=u16::MAX) {
            let limit = MssLimit::new(Mss::Auto);
            prop_assert_eq!(limit.of_path(fits), Some(fits));
            limit.set(Mss::AtMost(NonZeroU16::new(octets).unwrap()));
            prop_assert_eq!(limit.of_path(fits), Some(octets.min(fits)));
            prop_assert_eq!(limit.clone().of_path(fits), Some(octets.min(fits)));
            limit.set(Mss::Off);
            prop_assert_eq!(limit.of_path(fits), None);
        }
    }
}
