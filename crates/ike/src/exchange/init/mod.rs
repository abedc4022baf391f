//! IKE_SA_INIT (RFC 7296 §1.2): keys from a key exchange, with nobody authenticated yet.

mod extensions;
mod initiator;
mod responder;

pub(crate) use extensions::{certificate_request, key_request};
pub(crate) use initiator::Reply;
pub(crate) use responder::InitRequest;

use crate::alloc::Home;
use crate::endpoint::Endpoint;
use crate::message::{IkeSpi, Nonce};
use crate::suite::Entropy;

impl Endpoint {
    /// An SPI that no IKE SA of ours has.
    pub(crate) fn new_ike_spi(&mut self, home: Home<'_>) -> Option<IkeSpi> {
        const TRIES: usize = 16;
        (0..TRIES)
            .map(|_| self.alloc.ike_spi(home))
            .find(|spi| !spi.is_zero() && self.table.by_spi(*spi).is_none())
    }

    pub(crate) fn new_nonce(&mut self) -> Option<Nonce> {
        let mut octets = vec![0; Nonce::OUR_LENGTH];
        self.entropy().fill(&mut octets);
        Nonce::new(octets)
    }

    /// The source of randomness by itself.
    pub(crate) fn entropy(&mut self) -> &mut dyn Entropy {
        &mut *self.alloc
    }
}

/// Half the key size of the PRF is the least that a nonce may have (RFC 7296 §2.10).
pub(crate) fn nonce_fits(nonce: &Nonce, prf: crate::config::Prf) -> bool {
    nonce.as_ref().len() >= prf.length() / 2
}
