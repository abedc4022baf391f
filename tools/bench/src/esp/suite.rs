//! The cipher suites of the benchmarks, by strongSwan's names.

use std::str::FromStr;
use testudo_crypto::AeadAlgorithm;
use testudo_ipsec::sa::{AesKey, CcmAlgorithm, Cipher, EspAlgorithm, IcvLen, Mac};

/// Every suite of ESP and its name.
const SUITES: [(&str, EspAlgorithm); 51] = [
    ("aes128gcm16", EspAlgorithm::Aes128Gcm16),
    ("aes192gcm16", EspAlgorithm::Aes192Gcm16),
    ("aes256gcm16", EspAlgorithm::Aes256Gcm16),
    ("chacha20poly1305", EspAlgorithm::ChaCha20Poly1305),
    ("aes128gmac", EspAlgorithm::Aes128Gmac),
    ("aes192gmac", EspAlgorithm::Aes192Gmac),
    ("aes256gmac", EspAlgorithm::Aes256Gmac),
    ("aes128ccm8", EspAlgorithm::Ccm(CcmAlgorithm { key: AesKey::Aes128, icv: IcvLen::Eight })),
    ("aes128ccm12", EspAlgorithm::Ccm(CcmAlgorithm { key: AesKey::Aes128, icv: IcvLen::Twelve })),
    ("aes128ccm16", EspAlgorithm::Ccm(CcmAlgorithm { key: AesKey::Aes128, icv: IcvLen::Sixteen })),
    ("aes192ccm8", EspAlgorithm::Ccm(CcmAlgorithm { key: AesKey::Aes192, icv: IcvLen::Eight })),
    ("aes192ccm12", EspAlgorithm::Ccm(CcmAlgorithm { key: AesKey::Aes192, icv: IcvLen::Twelve })),
    ("aes192ccm16", EspAlgorithm::Ccm(CcmAlgorithm { key: AesKey::Aes192, icv: IcvLen::Sixteen })),
    ("aes256ccm8", EspAlgorithm::Ccm(CcmAlgorithm { key: AesKey::Aes256, icv: IcvLen::Eight })),
    ("aes256ccm12", EspAlgorithm::Ccm(CcmAlgorithm { key: AesKey::Aes256, icv: IcvLen::Twelve })),
    ("aes256ccm16", EspAlgorithm::Ccm(CcmAlgorithm { key: AesKey::Aes256, icv: IcvLen::Sixteen })),
    ("aes128-sha1", EspAlgorithm::separate(Cipher::Aes128Cbc, Mac::HmacSha1_96)),
    ("aes128-sha256", EspAlgorithm::separate(Cipher::Aes128Cbc, Mac::HmacSha256_128)),
    ("aes128-sha384", EspAlgorithm::separate(Cipher::Aes128Cbc, Mac::HmacSha384_192)),
    ("aes128-sha512", EspAlgorithm::separate(Cipher::Aes128Cbc, Mac::HmacSha512_256)),
    ("aes128-aesxcbc", EspAlgorithm::separate(Cipher::Aes128Cbc, Mac::AesXcbc96)),
    ("aes128-aescmac", EspAlgorithm::separate(Cipher::Aes128Cbc, Mac::AesCmac96)),
    ("aes128-md5", EspAlgorithm::separate(Cipher::Aes128Cbc, Mac::HmacMd5_96)),
    ("aes192-sha1", EspAlgorithm::separate(Cipher::Aes192Cbc, Mac::HmacSha1_96)),
    ("aes192-sha256", EspAlgorithm::separate(Cipher::Aes192Cbc, Mac::HmacSha256_128)),
    ("aes192-sha384", EspAlgorithm::separate(Cipher::Aes192Cbc, Mac::HmacSha384_192)),
    ("aes192-sha512", EspAlgorithm::separate(Cipher::Aes192Cbc, Mac::HmacSha512_256)),
    ("aes192-aesxcbc", EspAlgorithm::separate(Cipher::Aes192Cbc, Mac::AesXcbc96)),
    ("aes192-aescmac", EspAlgorithm::separate(Cipher::Aes192Cbc, Mac::AesCmac96)),
    ("aes192-md5", EspAlgorithm::separate(Cipher::Aes192Cbc, Mac::HmacMd5_96)),
    ("aes256-sha1", EspAlgorithm::separate(Cipher::Aes256Cbc, Mac::HmacSha1_96)),
    ("aes256-sha256", EspAlgorithm::separate(Cipher::Aes256Cbc, Mac::HmacSha256_128)),
    ("aes256-sha384", EspAlgorithm::separate(Cipher::Aes256Cbc, Mac::HmacSha384_192)),
    ("aes256-sha512", EspAlgorithm::separate(Cipher::Aes256Cbc, Mac::HmacSha512_256)),
    ("aes256-aesxcbc", EspAlgorithm::separate(Cipher::Aes256Cbc, Mac::AesXcbc96)),
    ("aes256-aescmac", EspAlgorithm::separate(Cipher::Aes256Cbc, Mac::AesCmac96)),
    ("aes256-md5", EspAlgorithm::separate(Cipher::Aes256Cbc, Mac::HmacMd5_96)),
    ("null-sha1", EspAlgorithm::separate(Cipher::Null, Mac::HmacSha1_96)),
    ("null-sha256", EspAlgorithm::separate(Cipher::Null, Mac::HmacSha256_128)),
    ("null-sha384", EspAlgorithm::separate(Cipher::Null, Mac::HmacSha384_192)),
    ("null-sha512", EspAlgorithm::separate(Cipher::Null, Mac::HmacSha512_256)),
    ("null-aesxcbc", EspAlgorithm::separate(Cipher::Null, Mac::AesXcbc96)),
    ("null-aescmac", EspAlgorithm::separate(Cipher::Null, Mac::AesCmac96)),
    ("null-md5", EspAlgorithm::separate(Cipher::Null, Mac::HmacMd5_96)),
    ("3des-sha1", EspAlgorithm::separate(Cipher::TripleDesCbc, Mac::HmacSha1_96)),
    ("3des-sha256", EspAlgorithm::separate(Cipher::TripleDesCbc, Mac::HmacSha256_128)),
    ("3des-sha384", EspAlgorithm::separate(Cipher::TripleDesCbc, Mac::HmacSha384_192)),
    ("3des-sha512", EspAlgorithm::separate(Cipher::TripleDesCbc, Mac::HmacSha512_256)),
    ("3des-aesxcbc", EspAlgorithm::separate(Cipher::TripleDesCbc, Mac::AesXcbc96)),
    ("3des-aescmac", EspAlgorithm::separate(Cipher::TripleDesCbc, Mac::AesCmac96)),
    ("3des-md5", EspAlgorithm::separate(Cipher::TripleDesCbc, Mac::HmacMd5_96)),
];

/// An ESP cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suite {
    name: &'static str,
    esp: EspAlgorithm,
}

/// Octets that a suite adds around a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Around {
    /// ESP's header and the IV.
    pub(super) before: usize,
    /// Text and padding are a multiple of this.
    pub(super) align: usize,
    /// The integrity check value.
    pub(super) icv: usize,
}

impl Suite {
    /// AES-GCM with a key of 128 bits.
    pub(crate) const AES128GCM16: Self = Self { name: SUITES[0].0, esp: SUITES[0].1 };

    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    /// `None` if cipher and integrity are separate, and for AES-CCM.
    pub(super) fn aead(self) -> Option<AeadAlgorithm> {
        self.esp.aead()
    }

    pub(crate) fn esp(self) -> EspAlgorithm {
        self.esp
    }

    pub(super) fn around(self) -> Around {
        match self.esp {
            EspAlgorithm::Separate(algorithm) => Around {
                before: algorithm.before_text(),
                align: algorithm.cipher.block_len().max(4),
                icv: algorithm.mac.icv_len(),
            },
            EspAlgorithm::Ah(_) => unreachable!("SUITES is of ESP"),
            EspAlgorithm::Ccm(algorithm) => Around { before: 16, align: 4, icv: algorithm.icv.octets() },
            _ => Around { before: 16, align: 4, icv: 16 },
        }
    }
}

/// No suite has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {}", SUITES.map(|(name, _)| name).join(", "))]
pub(crate) struct UnknownSuite;

impl FromStr for Suite {
    type Err = UnknownSuite;

    fn from_str(text: &str) -> Result<Self, UnknownSuite> {
        let found = SUITES.iter().find(|(name, _)| *name == text);
        found.map(|(name, esp)| Self { name, esp: *esp }).ok_or(UnknownSuite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_its_name() {
        for algorithm in EspAlgorithm::all() {
            let found: Vec<_> = SUITES.iter().filter(|(_, esp)| *esp == algorithm).collect();
            let [(name, _)] = found[..] else { panic!("{algorithm:?}: {found:?}") };
            assert_eq!(name.parse(), Ok(Suite { name, esp: algorithm }));
        }
        let error = "aes512-md4".parse::<Suite>().unwrap_err().to_string();
        assert!(error.starts_with("expected one of aes128gcm16, "), "{error}");
    }
}
