//! HKDF with SHA-256 (RFC 5869): derives one key for each purpose from the cluster's key.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use zeroize::Zeroizing;

/// A pseudorandom key, from which several keys may be expanded.
pub(crate) struct Hkdf(Prk);

impl Hkdf {
    pub(crate) fn extract(salt: &[u8], key: &[u8]) -> Self {
        Self(Salt::new(HKDF_SHA256, salt).extract(key))
    }

    /// `LEN` octets for one purpose. It does not compile above 255 * 32, the limit of HKDF.
    pub(crate) fn expand<const LEN: usize>(&self, info: &[u8]) -> Zeroizing<[u8; LEN]> {
        struct Len(usize);
        impl KeyType for Len {
            fn len(&self) -> usize {
                self.0
            }
        }
        const { assert!(LEN <= 255 * 32) };
        let mut out = Zeroizing::new([0; LEN]);
        let expanded = self.0.expand(&[info], Len(LEN)).and_then(|okm| okm.fill(&mut out[..]));
        assert!(expanded.is_ok(), "HKDF gives up to 255 blocks, and {LEN} octets are asked for");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5869 §A.1 and §A.3.
    #[test]
    fn the_vectors_of_the_rfc() {
        let salt: Vec<u8> = (0..=0x0c).collect();
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let hex = |octets: &[u8]| octets.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
        let hkdf = Hkdf::extract(&salt, &[0x0b; 22]);
        let expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        assert_eq!(hex(&hkdf.expand::<42>(&info)[..]), expected);
        assert_eq!(hex(&hkdf.expand::<16>(&info)[..]), expected[..32]);
        let expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8";
        assert_eq!(hex(&Hkdf::extract(&[], &[0x0b; 22]).expand::<42>(&[])[..]), expected);
    }
}
