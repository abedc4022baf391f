//! Signatures by RSASSA-PKCS1-v1_5 with SHA-1, for IKE with peers that have nothing better.
//! aws-lc-rs verifies them but does not make them, so AWS-LC is called.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_sys::{
    CBS, EVP_PKEY, EVP_PKEY_free, EVP_PKEY_get0_RSA, EVP_parse_private_key, NID_sha1, RSA_sign, RSA_size,
};
use std::ptr::NonNull;

/// A private key of AWS-LC, which is freed, and cleansed by that, when this is dropped.
struct RsaKey(NonNull<EVP_PKEY>);

impl RsaKey {
    fn parse(pkcs8: &[u8]) -> Option<Self> {
        let mut input = CBS { data: pkcs8.as_ptr(), len: pkcs8.len() };
        // SAFETY: `input` names octets that live until the call returns; the key that it gives is
        // ours.
        let key = unsafe { EVP_parse_private_key(&raw mut input) };
        NonNull::new(key).map(Self)
    }
}

impl Drop for RsaKey {
    fn drop(&mut self) {
        // SAFETY: no other reference to the key exists, and it is not used again.
        unsafe { EVP_PKEY_free(self.0.as_ptr()) }
    }
}

/// Signs a message with an RSA key in PKCS #8. `None` if it is no such key, or the library could
/// not sign.
pub fn sign(pkcs8: &[u8], message: &[u8]) -> Option<Vec<u8>> {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, message);
    let key = RsaKey::parse(pkcs8)?;
    // SAFETY: the key lives as long as `key`, and what this gives belongs to it.
    let rsa = NonNull::new(unsafe { EVP_PKEY_get0_RSA(key.0.as_ptr()) })?;
    // SAFETY: `rsa` is the valid key of above.
    let size = usize::try_from(unsafe { RSA_size(rsa.as_ptr()) }).ok()?;
    let (mut signature, mut length) = (vec![0; size], 0);
    let hash = digest.as_ref();
    // SAFETY: `hash` is as long as is said, `signature` has the room of RSA_size that is demanded,
    // and `rsa` is valid.
    let signed = unsafe {
        RSA_sign(NID_sha1, hash.as_ptr(), hash.len(), signature.as_mut_ptr(), &raw mut length, rsa.as_ptr())
    };
    (signed == 1 && usize::try_from(length) == Ok(size)).then_some(signature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
        RsaKeyPair, UnparsedPublicKey,
    };

    #[test]
    fn signatures_verify() {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let pkcs8: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        let signature = sign(pkcs8.as_ref(), b"a message").unwrap();
        assert_eq!(signature.len(), 256);
        let algorithm = &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY;
        let public = UnparsedPublicKey::new(algorithm, pair.public_key().as_ref());
        assert!(public.verify(b"a message", &signature).is_ok());
        assert!(public.verify(b"another message", &signature).is_err());
    }

    #[test]
    fn malformed_rsa_keys_are_refused() {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        let pkcs8 = pair.to_pkcs8v1().unwrap();
        assert_eq!(sign(pkcs8.as_ref(), b"a message"), None);
        assert_eq!(sign(b"nothing", b"a message"), None);
        assert_eq!(sign(b"", b"a message"), None);
    }
}
