//! The words of proposals: the algorithm of each, and why some are refused.

use super::refusal::{Why, because};
use testudo_ike::config::{ADDITIONAL_KE, EspEncryption, IkeEncryption, Integrity, KeyExchange, Prf};
use testudo_ipsec::sa::{AesKey, CcmAlgorithm, Cipher, IcvLen, Mac};

/// An algorithm by its name in a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Encryption(IkeEncryption),
    Prf(Prf),
    /// `sha256` and the like: beside an AEAD it names the PRF of IKE, unless another word does
    /// (strongSwan).
    Integrity(Integrity),
    Ke(KeyExchange),
    /// `ke1_mlkem768` and the like: the index of the additional key exchange, from 0, and its
    /// method; none for an optional one.
    AdditionalKe(usize, Option<KeyExchange>),
    Esn(bool),
    /// An encryption algorithm of ESP only.
    EspEncryption(EspEncryption),
    /// An integrity algorithm of ESP only.
    EspIntegrity(Mac),
}

/// The protocol of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Ike,
    Esp,
    Ah,
}

/// The algorithms that a configuration may name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Those that RFC 8221 and RFC 8247 require, recommend or allow.
    #[default]
    Modern,
    /// Also the weak ones that are implemented: `legacy = true`.
    Legacy,
}

use IkeEncryption::{
    Aes128Cbc, Aes128Ccm16, Aes128Gcm16, Aes192Cbc, Aes192Ccm16, Aes192Gcm16, Aes256Cbc, Aes256Ccm16,
    Aes256Gcm16, ChaCha20Poly1305,
};

/// strongSwan's names; the first is shown.
const TOKENS: &[(&[&str], Token)] = &[
    (&["aes128gcm16", "aes128gcm128", "aes128gcm"], Token::Encryption(Aes128Gcm16)),
    (&["aes192gcm16", "aes192gcm128", "aes192gcm"], Token::Encryption(Aes192Gcm16)),
    (&["aes256gcm16", "aes256gcm128", "aes256gcm"], Token::Encryption(Aes256Gcm16)),
    (&["aes128ccm16", "aes128ccm128", "aes128ccm"], Token::Encryption(Aes128Ccm16)),
    (&["aes192ccm16", "aes192ccm128", "aes192ccm"], Token::Encryption(Aes192Ccm16)),
    (&["aes256ccm16", "aes256ccm128", "aes256ccm"], Token::Encryption(Aes256Ccm16)),
    (&["chacha20poly1305"], Token::Encryption(ChaCha20Poly1305)),
    (&["aes128", "aes"], Token::Encryption(Aes128Cbc)),
    (&["aes192"], Token::Encryption(Aes192Cbc)),
    (&["aes256"], Token::Encryption(Aes256Cbc)),
    (&["sha256", "sha2_256"], Token::Integrity(Integrity::HmacSha256)),
    (&["sha384", "sha2_384"], Token::Integrity(Integrity::HmacSha384)),
    (&["sha512", "sha2_512"], Token::Integrity(Integrity::HmacSha512)),
    (&["prfsha256"], Token::Prf(Prf::HmacSha256)),
    (&["prfsha384"], Token::Prf(Prf::HmacSha384)),
    (&["prfsha512"], Token::Prf(Prf::HmacSha512)),
    (&["prfaesxcbc"], Token::Prf(Prf::AesXcbc)),
    (&["x25519", "curve25519"], Token::Ke(KeyExchange::X25519)),
    (&["ecp256"], Token::Ke(KeyExchange::Ecp256)),
    (&["ecp384"], Token::Ke(KeyExchange::Ecp384)),
    (&["ecp521"], Token::Ke(KeyExchange::Ecp521)),
    (&["modp2048"], Token::Ke(KeyExchange::Modp2048)),
    (&["modp3072"], Token::Ke(KeyExchange::Modp3072)),
    (&["modp4096"], Token::Ke(KeyExchange::Modp4096)),
    (&["mlkem512"], Token::Ke(KeyExchange::MlKem512)),
    (&["mlkem768"], Token::Ke(KeyExchange::MlKem768)),
    (&["mlkem1024"], Token::Ke(KeyExchange::MlKem1024)),
    (&["esn"], Token::Esn(true)),
    (&["noesn"], Token::Esn(false)),
];

const fn ccm(key: AesKey, icv: IcvLen) -> Token {
    Token::EspEncryption(EspEncryption::Ccm(CcmAlgorithm { key, icv }))
}

/// Algorithms of ESP and AH only; the weak ones are in [`WEAK`] too, for IKE. RFC 8221 §6 allows
/// HMAC-SHA1, which is still safe: only collisions of SHA-1 are known. It requires AES-CCM with an
/// ICV of 8 octets for small devices (§5). NULL and GMAC protect integrity only, as their user
/// intends (RFC 8221 §5).
const ESP: &[(&[&str], Token)] = &[
    (&["null"], Token::EspEncryption(EspEncryption::Separate(Cipher::Null))),
    (&["aes128gmac"], Token::EspEncryption(EspEncryption::Aes128Gmac)),
    (&["aes192gmac"], Token::EspEncryption(EspEncryption::Aes192Gmac)),
    (&["aes256gmac"], Token::EspEncryption(EspEncryption::Aes256Gmac)),
    (&["aes128ccm8", "aes128ccm64"], ccm(AesKey::Aes128, IcvLen::Eight)),
    (&["aes192ccm8", "aes192ccm64"], ccm(AesKey::Aes192, IcvLen::Eight)),
    (&["aes256ccm8", "aes256ccm64"], ccm(AesKey::Aes256, IcvLen::Eight)),
    (&["aes128ccm12", "aes128ccm96"], ccm(AesKey::Aes128, IcvLen::Twelve)),
    (&["aes192ccm12", "aes192ccm96"], ccm(AesKey::Aes192, IcvLen::Twelve)),
    (&["aes256ccm12", "aes256ccm96"], ccm(AesKey::Aes256, IcvLen::Twelve)),
    (&["sha1", "sha"], Token::EspIntegrity(Mac::HmacSha1_96)),
    (&["aesxcbc"], Token::EspIntegrity(Mac::AesXcbc96)),
    (&["aescmac"], Token::EspIntegrity(Mac::AesCmac96)),
];

/// Algorithms of ESP and AH that need [`Policy::Legacy`]; all are in [`WEAK`] too. DES is always
/// refused: its keys were found by brute force in 1998.
const LEGACY_ESP: &[(&[&str], Token)] = &[
    (&["3des"], Token::EspEncryption(EspEncryption::Separate(Cipher::TripleDesCbc))),
    (&["md5"], Token::EspIntegrity(Mac::HmacMd5_96)),
];

/// Algorithms that need [`Policy::Legacy`]; all are in [`WEAK`] too.
const LEGACY: &[(&[&str], Token)] = &[
    (&["sha1", "sha"], Token::Integrity(Integrity::HmacSha1)),
    (&["prfsha1"], Token::Prf(Prf::HmacSha1)),
    (&["modp1024"], Token::Ke(KeyExchange::Modp1024)),
    (&["modp1536"], Token::Ke(KeyExchange::Modp1536)),
];

const SUPPORTED: &str = "aes{128,192,256}gcm16, aes{128,192,256}ccm16, chacha20poly1305, aes{128,192,256}, sha256, \
                         sha384, sha512, prfsha256, prfsha384, prfsha512, prfaesxcbc, x25519, ecp256, ecp384, ecp521, \
                         modp2048, modp3072, modp4096, mlkem512, mlkem768, mlkem1024, ke1_mlkem768 to ke7_... for \
                         additional key exchanges, esn and noesn";

const SUPPORTED_ESP: &str = "aes{128,192,256}gcm16, aes{128,192,256}ccm{8,12,16}, chacha20poly1305 or \
                             aes{128,192,256}gmac, or aes128, aes192, aes256 or null with sha1, sha256, sha384, sha512, aesxcbc or aescmac; \
                             key exchanges as in IKE, esn and noesn";

const SUPPORTED_AH: &str =
    "sha1, sha256, sha384, sha512, aesxcbc and aescmac, key exchanges as in IKE, esn and noesn";

const SMALL_BLOCK: &str = "blocks of 64 bits collide after a few gigabytes (RFC 8247 §2.1)";
const SHORT_KEY: &str = "its key can be found by brute force (RFC 8247 §2.1)";
const BROKEN_HASH: &str = "its hash is broken or nearly broken (RFC 8247 §2.2, §2.3)";
const SMALL_GROUP: &str = "its group is too small (RFC 8247 §2.4)";
const ODD_GROUP: &str = "the origin of its group is unknown, and small subgroups leak keys (RFC 8247 §2.4)";
const SHORT_ICV: &str =
    "its integrity check value is too short for general use in IKE and ESP (RFC 8221 §5, RFC 8247 §2.1)";
const SHORT_ICV_FOR_IKE: &str = "its integrity check value is short: RFC 8247 §2.1 allows it in IKE for small devices only; ESP accepts it";
const NO_PROTECTION: &str = "it protects nothing (RFC 8221 §5)";

/// strongSwan's names for algorithms that are too weak, with the reason.
const WEAK: &[(&[&str], &str)] = &[
    (&["3des", "blowfish", "blowfish128", "blowfish192", "blowfish256", "cast128"], SMALL_BLOCK),
    (&["des"], SHORT_KEY),
    (&["null", "aes128gmac", "aes192gmac", "aes256gmac"], NO_PROTECTION),
    (&["md5", "md5_128", "sha", "sha1", "sha1_160", "prfmd5", "prfsha1"], BROKEN_HASH),
    (&["modp768", "modp1024", "modp1536", "ecp192", "ecp224", "ecp224bp"], SMALL_GROUP),
    (&["modp1024s160", "modp2048s224", "modp2048s256"], ODD_GROUP),
    (&["aes128gcm8", "aes192gcm8", "aes256gcm8", "aes128gcm64", "aes192gcm64", "aes256gcm64"], SHORT_ICV),
    (&["aes128ccm8", "aes192ccm8", "aes256ccm8"], SHORT_ICV_FOR_IKE),
    (&["aes128ccm64", "aes192ccm64", "aes256ccm64"], SHORT_ICV_FOR_IKE),
    (&["aes128ccm12", "aes192ccm12", "aes256ccm12"], SHORT_ICV_FOR_IKE),
    (&["aes128ccm96", "aes192ccm96", "aes256ccm96"], SHORT_ICV_FOR_IKE),
    (&["sha256_96", "sha2_256_96"], "it truncates the integrity check value to a length that no RFC defines"),
];

/// The ESP counterpart of an algorithm of IKE.
fn of_esp(token: Token) -> Token {
    let separate = |cipher| Token::EspEncryption(EspEncryption::Separate(cipher));
    match token {
        Token::Encryption(Aes128Gcm16) => Token::EspEncryption(EspEncryption::Aes128Gcm16),
        Token::Encryption(Aes192Gcm16) => Token::EspEncryption(EspEncryption::Aes192Gcm16),
        Token::Encryption(Aes256Gcm16) => Token::EspEncryption(EspEncryption::Aes256Gcm16),
        Token::Encryption(ChaCha20Poly1305) => Token::EspEncryption(EspEncryption::ChaCha20Poly1305),
        Token::Encryption(Aes128Cbc) => separate(Cipher::Aes128Cbc),
        Token::Encryption(Aes192Cbc) => separate(Cipher::Aes192Cbc),
        Token::Encryption(Aes256Cbc) => separate(Cipher::Aes256Cbc),
        Token::Encryption(Aes128Ccm16) => ccm(AesKey::Aes128, IcvLen::Sixteen),
        Token::Encryption(Aes192Ccm16) => ccm(AesKey::Aes192, IcvLen::Sixteen),
        Token::Encryption(Aes256Ccm16) => ccm(AesKey::Aes256, IcvLen::Sixteen),
        Token::Integrity(integrity) => Token::EspIntegrity(match integrity {
            Integrity::HmacSha1 => Mac::HmacSha1_96,
            Integrity::HmacSha256 => Mac::HmacSha256_128,
            Integrity::HmacSha384 => Mac::HmacSha384_192,
            Integrity::HmacSha512 => Mac::HmacSha512_256,
        }),
        other => other,
    }
}

/// The index, from 0, and the method of a word such as `ke1_mlkem768`.
fn additional_ke(word: &str) -> Option<(usize, &str)> {
    let (name, method) = word.split_once('_')?;
    let place = (0..ADDITIONAL_KE).find(|place| name.eq_ignore_ascii_case(&format!("ke{}", place + 1)))?;
    Some((place, method))
}

/// The algorithm of a word of a proposal, or why it cannot be used.
pub(super) fn token(word: &str, protocol: Protocol, policy: Policy) -> Result<Token, Why> {
    let named = |names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name));
    let esp = ESP.iter().filter(|_| protocol != Protocol::Ike);
    if let Some((_, token)) = esp.chain(TOKENS).find(|(names, _)| named(names)) {
        return Ok(if protocol != Protocol::Ike { of_esp(*token) } else { *token });
    }
    if let Some((place, method)) = additional_ke(word) {
        return match token(method, protocol, policy) {
            _ if method.eq_ignore_ascii_case("none") => Ok(Token::AdditionalKe(place, None)),
            Ok(Token::Ke(ke)) => Ok(Token::AdditionalKe(place, Some(ke))),
            Ok(_) => {
                Err(because(format!("but {word:?} names no key exchange; expected one such as ke1_mlkem768")))
            }
            Err(why) => Err(why),
        };
    }
    let legacy_esp = LEGACY_ESP.iter().filter(|_| protocol != Protocol::Ike);
    let legacy = legacy_esp.chain(LEGACY).find(|(names, _)| named(names)).map(|(_, token)| *token);
    let weak = WEAK.iter().find(|(names, _)| named(names)).map(|(_, why)| *why);
    match (legacy, policy, weak) {
        (Some(token), Policy::Legacy, _) => Ok(token),
        (Some(_), Policy::Modern, Some(why)) => Err(because(format!(
            "but algorithm {word:?} is refused as weak: {why}; testudo.toml can allow it with legacy = true"
        ))),
        (_, _, Some(why)) => Err(because(format!("but algorithm {word:?} is refused as weak: {why}"))),
        (_, _, None) => {
            let supported = match protocol {
                Protocol::Ike => SUPPORTED,
                Protocol::Esp => SUPPORTED_ESP,
                Protocol::Ah => SUPPORTED_AH,
            };
            Err(because(format!("but algorithm {word:?} is not supported; expected {supported}")))
        }
    }
}
