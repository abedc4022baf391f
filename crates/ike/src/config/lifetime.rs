//! Lifetimes of SAs, with strongSwan's names and defaults.

use crate::suite::Entropy;
use serde::{Deserialize, Serialize};

/// `rekey_time` of a connection where none is given: 4 hours.
pub const IKE_REKEY_SECONDS: u64 = 4 * 3600;
/// `rekey_time` of a child where none is given: 1 hour.
pub const CHILD_REKEY_SECONDS: u64 = 3600;

/// `rekey_*`, `life_*` and `rand_*` of one measure: seconds, octets or packets. 0 is never, as in
/// strongSwan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetime {
    /// When the SA is rekeyed.
    pub rekey: u64,
    /// When the SA ends, rekeyed or not.
    pub life: u64,
    /// By how much at most it is rekeyed earlier, at random: so that not all SAs, nor both sides,
    /// begin at once.
    pub rand: u64,
}

impl Lifetime {
    /// Missing values follow from `rekey`: `life` is a tenth longer, and `rand` is the difference.
    pub fn new(rekey: u64, life: Option<u64>, rand: Option<u64>) -> Self {
        let life = life.unwrap_or_else(|| rekey.saturating_add(rekey / 10));
        Self { rekey, life, rand: rand.unwrap_or_else(|| life.saturating_sub(rekey)) }
    }

    /// The same lifetime in a unit smaller by this factor.
    pub(crate) fn scaled(self, by: u64) -> Self {
        let scale = |value: u64| value.saturating_mul(by);
        Self { rekey: scale(self.rekey), life: scale(self.life), rand: scale(self.rand) }
    }

    /// Draws when one SA is rekeyed. `None`: never.
    pub(crate) fn draw(&self, entropy: &mut dyn Entropy) -> Option<u64> {
        if self.rekey == 0 {
            return None;
        }
        let mut octets = [0; 8];
        entropy.fill(&mut octets);
        let span = u128::from(self.rand) + 1;
        let earlier = (u128::from(u64::from_be_bytes(octets)) * span) >> 64;
        // A spread larger than the time itself must not turn into "never".
        Some(self.rekey.saturating_sub(u64::try_from(earlier).unwrap_or(u64::MAX)).max(1))
    }
}

/// `rekey_time`, `reauth_time`, `over_time` and `rand_time` of a connection, in seconds. An IKE SA
/// that is not renewed ends `over` seconds later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IkeLifetime {
    /// `rekey_time`; 0 is never.
    pub rekey: u64,
    /// `reauth_time`; 0 is never.
    pub reauth: u64,
    /// `over_time`.
    pub over: u64,
    /// `rand_time`.
    pub rand: u64,
}

impl IkeLifetime {
    /// Lifetimes without reauthentication.
    pub fn new(rekey: u64, over: Option<u64>, rand: Option<u64>) -> Self {
        Self::with_reauth(rekey, 0, over, rand)
    }

    /// Missing values follow from the longer of both times: `over` is a tenth of it, and `rand`
    /// equals `over`, but is no more than half the time.
    pub fn with_reauth(rekey: u64, reauth: u64, over: Option<u64>, rand: Option<u64>) -> Self {
        let longer = rekey.max(reauth);
        let over = over.unwrap_or(longer / 10);
        Self { rekey, reauth, over, rand: rand.unwrap_or_else(|| over.min(longer / 2)) }
    }
}

/// All lifetimes of a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildLifetime {
    /// `rekey_time`, `life_time`, `rand_time`, in seconds.
    pub time: Lifetime,
    /// `rekey_bytes`, `life_bytes`, `rand_bytes`.
    pub bytes: Lifetime,
    /// `rekey_packets`, `life_packets`, `rand_packets`.
    pub packets: Lifetime,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Constant(u8);

    impl Entropy for Constant {
        fn fill(&mut self, out: &mut [u8]) {
            out.fill(self.0);
        }
    }

    #[test]
    fn defaults_are_those_of_strongswan() {
        assert_eq!(Lifetime::new(3600, None, None), Lifetime { rekey: 3600, life: 3960, rand: 360 });
        assert_eq!(Lifetime::new(0, None, None), Lifetime::default());
        assert_eq!(Lifetime::new(0, Some(50), None), Lifetime { rekey: 0, life: 50, rand: 50 });
        assert_eq!(Lifetime::new(100, Some(90), None).rand, 0);
        assert_eq!(Lifetime::new(u64::MAX, None, None).life, u64::MAX);
        let four_hours = IkeLifetime { rekey: 14400, reauth: 0, over: 1440, rand: 1440 };
        assert_eq!(IkeLifetime::new(14400, None, None), four_hours);
        let both = IkeLifetime { rekey: 100, reauth: 1000, over: 100, rand: 100 };
        assert_eq!(IkeLifetime::with_reauth(100, 1000, None, None), both);
        assert_eq!(IkeLifetime::new(100, Some(90), None).rand, 50);
    }

    #[test]
    fn an_sa_is_renewed_somewhere_within_the_spread() {
        let lifetime = Lifetime::new(3600, None, None);
        assert_eq!(lifetime.draw(&mut Constant(0)), Some(3600));
        assert_eq!(lifetime.draw(&mut Constant(0xff)), Some(3240));
        assert_eq!(lifetime.draw(&mut Constant(0x80)), Some(3600 - 181));
        assert_eq!(Lifetime::default().draw(&mut Constant(0)), None);
        let wide = Lifetime { rekey: 10, life: 20, rand: u64::MAX };
        assert_eq!(wide.draw(&mut Constant(0xff)), Some(1), "never is something else");
    }
}
