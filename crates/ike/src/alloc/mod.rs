//! Where an [`crate::endpoint::Endpoint`] gets everything that must come from outside: entropy,
//! SPIs, the sender ID and the secrets of cookies.
//!
//! The endpoint makes no such choice itself, so that a cluster can make it for several nodes at
//! once, a test can repeat it, and a fuzzer can steer it.

mod esp_slots;
mod single_node;

pub use esp_slots::EspSlots;
pub use single_node::SingleNodeAllocator;

use crate::message::IkeSpi;
use crate::output::Time;
use crate::suite::Entropy;
use testudo_base::spi::{SenderId, Shard, Spi};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A secret from which stateless cookies are made (RFC 7296 §2.6), and its version, which stands in
/// the cookie.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct CookieSecret {
    /// Which secret it is.
    pub version: u32,
    /// The secret.
    pub key: [u8; 32],
}

impl std::fmt::Debug for CookieSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CookieSecret").field("version", &self.version).finish_non_exhaustive()
    }
}

/// What decides the home shard of a new IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home<'a> {
    /// We respond: the initiator's SPI. Its first request finds the shard by it, before there is an
    /// SPI of ours.
    Responding(IkeSpi),
    /// We initiate: the connection's name.
    Initiating(&'a str),
    /// It takes the place of another, or comes beside it, and stays in its shard: the Child SAs
    /// that move, or the addresses that both have, have one owner.
    Renewing(Shard),
}

/// Everything that an endpoint must be given.
pub trait Allocator: Entropy {
    /// An SPI for a new IKE SA whose home shard is decided by that.
    fn ike_spi(&mut self, home: Home<'_>) -> IkeSpi;

    /// An SPI for a new inbound ESP SA whose home is `home`; `None` when the shard has no free
    /// slot.
    fn esp_spi(&mut self, now: Time, home: Shard) -> Option<Spi>;

    /// The SPI is in use: it came with an SA that another node established.
    fn claim_esp_spi(&mut self, spi: Spi);

    /// The SPI is in use no longer. Its slot must rest before it is given out again.
    fn release_esp_spi(&mut self, now: Time, spi: Spi);

    /// The sender ID of this node: the leftmost 16 bits of every IV that it makes (RFC 6054).
    fn sender_id(&self) -> SenderId;

    /// The secret to make cookies with.
    fn cookie_secret(&mut self, now: Time) -> CookieSecret;

    /// The secret that a returned cookie names, as long as it is still good.
    fn cookie_secret_of(&mut self, now: Time, version: u32) -> Option<CookieSecret>;
}
