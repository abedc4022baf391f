//! The allocator: the source of everything that an [`crate::endpoint::Endpoint`] needs from
//! outside, namely entropy, SPIs, the sender ID and the secrets of cookies.
//!
//! The endpoint makes no such choice itself. So a cluster can make it for several nodes at once, a
//! test can repeat it, and a fuzzer can steer it.

mod esp_slots;
mod single_node;

pub use esp_slots::EspSlots;
pub use single_node::SingleNodeAllocator;

use crate::message::IkeSpi;
use crate::output::Time;
use crate::suite::Entropy;
use testudo_base::spi::{SenderId, Shard, Spi};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A secret from which stateless cookies are made (RFC 7296 §2.6), and its version, which is part
/// of the cookie.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct CookieSecret {
    /// Version of the secret.
    pub version: u32,
    /// The secret.
    pub key: [u8; 32],
}

impl std::fmt::Debug for CookieSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CookieSecret").field("version", &self.version).finish_non_exhaustive()
    }
}

/// What determines the home shard of a new IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home<'a> {
    /// We respond: the initiator's SPI. The shard of its first request is found by it, before there
    /// is an SPI of ours.
    Responding(IkeSpi),
    /// We initiate: the connection's name.
    Initiating(&'a str),
    /// It replaces another IKE SA, or comes beside it, and stays in that one's shard: the Child SAs
    /// that move, or the addresses that both have, have one owner.
    Renewing(Shard),
}

/// The inputs of an endpoint.
pub trait Allocator: Entropy {
    /// An SPI for a new IKE SA with this home.
    fn ike_spi(&mut self, home: Home<'_>) -> IkeSpi;

    /// An SPI for a new inbound ESP SA with the home shard `home`. `None` if the shard has no free
    /// slot.
    fn esp_spi(&mut self, now: Time, home: Shard) -> Option<Spi>;

    /// The SPI is in use: it came with an SA that another node established.
    fn claim_esp_spi(&mut self, spi: Spi);

    /// The SPI is not in use any more. Its slot must rest before it is allotted again.
    fn release_esp_spi(&mut self, now: Time, spi: Spi);

    /// The sender ID of this node: the leftmost 16 bits of all of its IVs (RFC 6054).
    fn sender_id(&self) -> SenderId;

    /// The secret for new cookies.
    fn cookie_secret(&mut self, now: Time) -> CookieSecret;

    /// The secret of a returned cookie's version, as long as it is valid.
    fn cookie_secret_of(&mut self, now: Time, version: u32) -> Option<CookieSecret>;
}
