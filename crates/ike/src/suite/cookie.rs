//! Stateless cookies (RFC 7296 §2.6): version of the secret | MAC(secret, version | SPIi | IPi |
//! Ni).
//!
//! The fields of fixed length come first, so that no two inputs give the same octets.

use super::error::SuiteError;
use crate::config::Prf;
use crate::message::{IkeSpi, Nonce};
use std::net::IpAddr;
use subtle::ConstantTimeEq;

/// What the initiator must repeat together with the cookie.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// SPIi.
    pub spi: IkeSpi,
    /// The address that the request came from.
    pub addr: IpAddr,
    /// Ni.
    pub nonce: &'a Nonce,
}

/// The data of the COOKIE notify, under the secret `key` with number `version`.
pub fn make(version: u32, key: &[u8], claim: &Claim<'_>) -> Result<Vec<u8>, SuiteError> {
    let version = version.to_be_bytes();
    // IPv4 addresses as IPv4-mapped ones: one length for both families.
    let addr = match claim.addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    };
    let input: [&[u8]; 4] = [&version, &claim.spi.to_bytes(), &addr.octets(), claim.nonce.as_ref()];
    let mac = Prf::HmacSha256.compute(key, &input)?;
    Ok([version.as_slice(), mac.expose()].concat())
}

/// The number of the secret with which a cookie claims to be made. `None` if it is too short for a
/// cookie of ours.
pub fn version(cookie: &[u8]) -> Option<u32> {
    cookie.first_chunk().map(|version| u32::from_be_bytes(*version))
}

/// True if `cookie` equals the result of [`make`].
pub fn verify(version: u32, key: &[u8], claim: &Claim<'_>, cookie: &[u8]) -> Result<bool, SuiteError> {
    Ok(make(version, key, claim)?.ct_eq(cookie).into())
}
