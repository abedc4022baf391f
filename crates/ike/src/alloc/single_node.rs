//! The allocator of a lone gateway, which owns every shard.

use super::{Allocator, CookieSecret, EspSlots, Home};
use crate::message::IkeSpi;
use crate::output::Time;
use crate::suite::Entropy;
use std::time::Duration;
use testudo_base::spi::{SenderId, Shard, Spi};

/// Makes every choice from entropy alone.
pub struct SingleNodeAllocator<E> {
    entropy: E,
    sender: SenderId,
    slots: EspSlots,
    cookies: Option<(Time, CookieSecret)>,
    previous_cookies: Option<CookieSecret>,
}

impl<E: Entropy> SingleNodeAllocator<E> {
    /// How long a secret makes new cookies. It verifies cookies for as long again.
    pub const COOKIE_SECRET_LIFE: Duration = Duration::from_secs(60);

    /// `sender` must differ from that of every other node that ever holds the same keys.
    pub fn new(entropy: E, sender: SenderId) -> Self {
        Self { entropy, sender, slots: EspSlots::default(), cookies: None, previous_cookies: None }
    }

    fn renew_cookie_secret(&mut self, now: Time) -> CookieSecret {
        if let Some((since, secret)) = &self.cookies {
            if now.0.saturating_sub(since.0) < Self::COOKIE_SECRET_LIFE {
                return secret.clone();
            }
            // A secret that was unused for two lives need not be kept.
            let fresh = now.0.saturating_sub(since.0) < 2 * Self::COOKIE_SECRET_LIFE;
            self.previous_cookies = fresh.then(|| secret.clone());
        }
        let mut secret = CookieSecret { version: 0, key: [0; 32] };
        self.entropy.fill(&mut secret.key);
        secret.version = self.cookies.as_ref().map_or(1, |(_, old)| old.version.wrapping_add(1));
        self.cookies = Some((now, secret.clone()));
        secret
    }
}

impl<E: Entropy> Entropy for SingleNodeAllocator<E> {
    fn fill(&mut self, out: &mut [u8]) {
        self.entropy.fill(out);
    }
}

impl<E: Entropy> Allocator for SingleNodeAllocator<E> {
    fn ike_spi(&mut self, _home: Home<'_>) -> IkeSpi {
        let mut octets = [0; 8];
        self.entropy.fill(&mut octets);
        // Zero means "none yet" (RFC 7296 §3.1).
        IkeSpi(u64::from_be_bytes(octets).max(1))
    }

    fn esp_spi(&mut self, now: Time, home: Shard) -> Option<Spi> {
        self.slots.allocate(now, home, &mut self.entropy)
    }

    fn claim_esp_spi(&mut self, spi: Spi) {
        self.slots.claim(spi);
    }

    fn release_esp_spi(&mut self, now: Time, spi: Spi) {
        self.slots.release(now, spi);
    }

    fn sender_id(&self) -> SenderId {
        self.sender
    }

    fn cookie_secret(&mut self, now: Time) -> CookieSecret {
        self.renew_cookie_secret(now)
    }

    fn cookie_secret_of(&mut self, now: Time, version: u32) -> Option<CookieSecret> {
        let current = self.renew_cookie_secret(now);
        if current.version == version {
            return Some(current);
        }
        self.previous_cookies.clone().filter(|old| old.version == version)
    }
}
