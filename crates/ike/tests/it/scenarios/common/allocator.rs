//! An allocator that sees to it that ESP SPIs are taken and given back in pairs.

use super::Random;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_ike::alloc::{Allocator, CookieSecret, Home, SingleNodeAllocator};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::Time;
use testudo_ike::suite::Entropy;

/// The ESP SPIs in use.
pub(crate) type InUse = Arc<Mutex<BTreeSet<Spi>>>;

/// Where IKE SAs are at home that the peer has begun.
pub(crate) const RESPONDING: Shard = Shard(0x11);
/// Where those are that began here.
pub(crate) const INITIATING: Shard = Shard(0x22);

pub(crate) struct Watched {
    inner: SingleNodeAllocator<Random>,
    in_use: InUse,
}

impl Watched {
    pub(crate) fn new(seed: u64, sender: SenderId) -> (Self, InUse) {
        let in_use = InUse::default();
        let inner = SingleNodeAllocator::new(Random::new(seed), sender);
        (Self { inner, in_use: Arc::clone(&in_use) }, in_use)
    }
}

impl Entropy for Watched {
    fn fill(&mut self, out: &mut [u8]) {
        self.inner.fill(out);
    }
}

impl Allocator for Watched {
    fn ike_spi(&mut self, home: Home<'_>) -> IkeSpi {
        let shard = match home {
            Home::Responding(_) => RESPONDING,
            Home::Initiating(_) => INITIATING,
            Home::Renewing(shard) => shard,
        };
        IkeSpi(self.inner.ike_spi(home).0 << 8 >> 8 | u64::from(shard.0) << 56)
    }

    fn esp_spi(&mut self, now: Time, home: Shard) -> Option<Spi> {
        let spi = self.inner.esp_spi(now, home)?;
        assert!(self.in_use.lock().unwrap().insert(spi), "{spi} is given out once");
        Some(spi)
    }

    fn claim_esp_spi(&mut self, spi: Spi) {
        self.inner.claim_esp_spi(spi);
        self.in_use.lock().unwrap().insert(spi);
    }

    fn release_esp_spi(&mut self, now: Time, spi: Spi) {
        assert!(self.in_use.lock().unwrap().remove(&spi), "{spi} is given back once");
        self.inner.release_esp_spi(now, spi);
    }

    fn sender_id(&self) -> SenderId {
        self.inner.sender_id()
    }

    fn cookie_secret(&mut self, now: Time) -> CookieSecret {
        self.inner.cookie_secret(now)
    }

    fn cookie_secret_of(&mut self, now: Time, version: u32) -> Option<CookieSecret> {
        self.inner.cookie_secret_of(now, version)
    }
}
