//! Security associations: the parameters that IKE hands over when it establishes a Child SA, and
//! the SAs that the pipeline builds from them.

mod algorithm;
mod counters;
mod inbound;
mod key;
mod mss;
mod outbound;

pub use algorithm::{AesKey, CcmAlgorithm, Cipher, EspAlgorithm, IcvLen, Mac, SeparateAlgorithm};
pub(crate) use algorithm::{Around, Sizes};
pub use counters::{SaCounters, SaTotals};
pub use inbound::{InboundSa, InboundSnapshot};
pub(crate) use key::SaKey;
pub use mss::Mss;
pub(crate) use mss::MssLimit;
pub use outbound::{OutboundSa, OutboundSnapshot};

use crate::error::Error;
use crate::selector::{SelectorPair, TrafficSelector};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use testudo_base::spi::Spi;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Key material of one direction, as RFC 7296 §2.17 takes it from KEYMAT: for AEADs the key
/// followed by the salt, for separate algorithms the key of the cipher followed by that of the MAC.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub struct KeyMaterial(pub Vec<u8>);

impl std::fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyMaterial({} octets)", self.0.len())
    }
}

/// How ESP is encapsulated between the two gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encapsulation {
    /// ESP right behind the outer IP header.
    Plain,
    /// ESP in UDP (RFC 3948); the ports are those of the `local` and `remote` socket addresses.
    Udp,
}

/// The protected part of a packet (RFC 4301 §4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// All of it, inside another packet between the gateways.
    #[default]
    Tunnel,
    /// The payload of its IP header: for packets between the two ends of the SA themselves.
    Transport,
}

/// Which header fields are copied (strongSwan: copy_dscp, copy_ecn, copy_df).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderCopy {
    /// Copy DSCP from the inner to the outer header.
    pub dscp_out: bool,
    /// Copy DSCP from the outer to the inner header.
    pub dscp_in: bool,
    /// ECN by RFC 6040 normal mode; otherwise the outer header is Not-ECT.
    pub ecn: bool,
    /// Copy DF of an inner IPv4 header; otherwise the outer DF is clear.
    pub df: bool,
}

impl Default for HeaderCopy {
    fn default() -> Self {
        Self { dscp_out: true, dscp_in: false, ecn: true, df: true }
    }
}

/// A Child SA pair: all parameters of the data plane, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildSaParams {
    /// The SPI that we chose, in packets to us.
    pub spi_in: Spi,
    /// The SPI that the peer chose, in packets from us.
    pub spi_out: Spi,
    /// The algorithm of both directions.
    pub algorithm: EspAlgorithm,
    /// Key of packets to us.
    pub key_in: KeyMaterial,
    /// Key of packets from us.
    pub key_out: KeyMaterial,
    /// Extended sequence numbers (RFC 4303 §2.2.1).
    pub esn: bool,
    /// Anti-replay window in packets, 64 to 8192 (rounded up to a multiple of 64); 0 turns it off.
    pub replay_window: u32,
    /// Our side, narrowed.
    pub local_ts: Vec<TrafficSelector>,
    /// The peer's side, narrowed.
    pub remote_ts: Vec<TrafficSelector>,
    /// Our outer address; the port counts with [`Encapsulation::Udp`].
    pub local: SocketAddr,
    /// The peer's outer address; the port counts with [`Encapsulation::Udp`].
    pub remote: SocketAddr,
    /// Encapsulation of ESP.
    pub encapsulation: Encapsulation,
    /// The protected part. With [`Mode::Transport`] both sides' selectors are the outer addresses.
    pub mode: Mode,
    /// Header fields that cross the tunnel.
    pub copy: HeaderCopy,
}

impl ChildSaParams {
    /// The same Child SA as the other end sees it, if that end is configured alike.
    pub fn mirrored(&self) -> Self {
        Self {
            spi_in: self.spi_out,
            spi_out: self.spi_in,
            key_in: self.key_out.clone(),
            key_out: self.key_in.clone(),
            local_ts: self.remote_ts.clone(),
            remote_ts: self.local_ts.clone(),
            local: self.remote,
            remote: self.local,
            ..self.clone()
        }
    }

    /// The selectors, prepared for comparing.
    fn selectors(&self) -> Result<SelectorPair, Error> {
        for (list, side) in [(&self.local_ts, "local"), (&self.remote_ts, "remote")] {
            if list.is_empty() {
                return Err(Error::NoSelectors { side });
            }
        }
        Ok(SelectorPair::new(&self.local_ts, &self.remote_ts))
    }
}
