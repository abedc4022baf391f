//! The MODP groups of RFC 3526 and group 2 of RFC 2409, generator 2.
//!
//! Exponents have 512 bits, at least twice the strength of the largest group (RFC 3526 §8). All
//! computations on them take the same time whatever their value (crypto-bigint).

use super::error::SuiteError;
use super::secret::Secret;
use crate::config::KeyExchange;
use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Odd, U512, U1024, U1536, U2048, U3072, U4096, Uint};
use std::sync::LazyLock;
use zeroize::Zeroizing;

/// Octets of a private exponent.
pub(super) const PRIVATE_LENGTH: usize = 64;

#[rustfmt::skip]
static P1024: LazyLock<FixedMontyParams<{ U1024::LIMBS }>> = LazyLock::new(|| FixedMontyParams::new_vartime(Odd::<U1024>::from_be_hex(concat!(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404D",
    "DEF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7",
    "EDEE386BFB5A899FA5AE9F24117C4B1FE649286651ECE65381FFFFFFFFFFFFFFFF",
))));

#[rustfmt::skip]
static P1536: LazyLock<FixedMontyParams<{ U1536::LIMBS }>> = LazyLock::new(|| FixedMontyParams::new_vartime(Odd::<U1536>::from_be_hex(concat!(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404D",
    "DEF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7",
    "EDEE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24C",
    "F5F83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA237327FFFFFFFFFFFF",
    "FFFF",
))));

#[rustfmt::skip]
static P2048: LazyLock<FixedMontyParams<{ U2048::LIMBS }>> = LazyLock::new(|| FixedMontyParams::new_vartime(Odd::<U2048>::from_be_hex(concat!(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD",
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED",
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F",
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B",
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510",
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF",
))));

#[rustfmt::skip]
static P3072: LazyLock<FixedMontyParams<{ U3072::LIMBS }>> = LazyLock::new(|| FixedMontyParams::new_vartime(Odd::<U3072>::from_be_hex(concat!(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD",
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED",
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F",
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B",
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510",
    "15728E5A8AAAC42DAD33170D04507A33A85521ABDF1CBA64ECFB850458DBEF0A8AEA71575D060C7DB3970F85A6E1E4C7",
    "ABF5AE8CDB0933D71E8C94E04A25619DCEE3D2261AD2EE6BF12FFA06D98A0864D87602733EC86A64521F2B18177B200C",
    "BBE117577A615D6C770988C0BAD946E208E24FA074E5AB3143DB5BFCE0FD108E4B82D120A93AD2CAFFFFFFFFFFFFFFFF",
))));

#[rustfmt::skip]
static P4096: LazyLock<FixedMontyParams<{ U4096::LIMBS }>> = LazyLock::new(|| FixedMontyParams::new_vartime(Odd::<U4096>::from_be_hex(concat!(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD",
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED",
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F",
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B",
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510",
    "15728E5A8AAAC42DAD33170D04507A33A85521ABDF1CBA64ECFB850458DBEF0A8AEA71575D060C7DB3970F85A6E1E4C7",
    "ABF5AE8CDB0933D71E8C94E04A25619DCEE3D2261AD2EE6BF12FFA06D98A0864D87602733EC86A64521F2B18177B200C",
    "BBE117577A615D6C770988C0BAD946E208E24FA074E5AB3143DB5BFCE0FD108E4B82D120A92108011A723C12A787E6D7",
    "88719A10BDBA5B2699C327186AF4E23C1A946834B6150BDA2583E9CA2AD44CE8DBBBC2DB04DE8EF92E8EFC141FBECAA6",
    "287C59474E6BC05D99B2964FA090C3A2233BA186515BE7ED1F612970CEE2D7AFB81BDD762170481CD0069127D5B05AA9",
    "93B4EA988D8FDDC186FFB7DC90A6C08F4DF435C934063199FFFFFFFFFFFFFFFF",
))));

/// g^x.
pub(super) fn public_value(method: KeyExchange, private: &Secret) -> Result<Vec<u8>, SuiteError> {
    let invalid = SuiteError::KePrivate(method.into());
    match method {
        KeyExchange::Modp1024 => public(&P1024, private),
        KeyExchange::Modp1536 => public(&P1536, private),
        KeyExchange::Modp2048 => public(&P2048, private),
        KeyExchange::Modp3072 => public(&P3072, private),
        KeyExchange::Modp4096 => public(&P4096, private),
        _ => None,
    }
    .ok_or(invalid)
}

/// The peer's value to the power of x, with the length of the modulus (RFC 7296 §2.14). The peer's
/// value must be from 2 to p - 2 (RFC 6989 §2.1); these groups of safe primes need no other test.
pub(super) fn agree(method: KeyExchange, private: &Secret, peer: &[u8]) -> Result<Secret, SuiteError> {
    let invalid = SuiteError::KePublic(method.into());
    match method {
        KeyExchange::Modp1024 => shared(&P1024, private, peer),
        KeyExchange::Modp1536 => shared(&P1536, private, peer),
        KeyExchange::Modp2048 => shared(&P2048, private, peer),
        KeyExchange::Modp3072 => shared(&P3072, private, peer),
        KeyExchange::Modp4096 => shared(&P4096, private, peer),
        _ => None,
    }
    .ok_or(invalid)
}

/// 0 and 1 are no private exponents.
fn exponent(private: &Secret) -> Option<Zeroizing<U512>> {
    let octets = private.expose();
    let exponent = (octets.len() == PRIVATE_LENGTH).then(|| Zeroizing::new(U512::from_be_slice(octets)))?;
    (*exponent > U512::ONE).then_some(exponent)
}

fn public<const L: usize>(group: &FixedMontyParams<L>, private: &Secret) -> Option<Vec<u8>> {
    let base = FixedMontyForm::new(&Uint::from_u8(2), group);
    Some(octets(&base.pow(&*exponent(private)?).retrieve()))
}

fn shared<const L: usize>(group: &FixedMontyParams<L>, private: &Secret, peer: &[u8]) -> Option<Secret> {
    let length = Uint::<L>::BYTES;
    let peer = (peer.len() == length).then(|| Uint::<L>::from_be_slice(peer))?;
    let last = group.modulus().get().wrapping_sub(&Uint::from_u8(2));
    if peer < Uint::from_u8(2) || peer > last {
        return None;
    }
    let power = Zeroizing::new(FixedMontyForm::new(&peer, group).pow(&*exponent(private)?));
    Some(Secret::new(octets(&Zeroizing::new(power.retrieve()))))
}

fn octets<const L: usize>(number: &Uint<L>) -> Vec<u8> {
    number.as_words().iter().rev().flat_map(|word| word.to_be_bytes()).collect()
}
