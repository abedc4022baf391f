//! AES-CCM of RustCrypto.

use super::{AesKey, CCM_NONCE_LEN, CcmAlgorithm, IcvLen};
use aes::cipher::{BlockCipherEncrypt, BlockSizeUser};
use aes::{Aes128Enc, Aes192Enc, Aes256Enc};
use ccm::aead::{AeadInOut, KeyInit, Nonce, Tag};
use ccm::consts::{U8, U11, U12, U16};
use ccm::{AeadCore, Ccm};

/// An expanded key; `aes` overwrites it when it is dropped.
pub(super) enum Schedule {
    Aes128(WithIcv<Aes128Enc>),
    Aes192(WithIcv<Aes192Enc>),
    Aes256(WithIcv<Aes256Enc>),
}

/// By the ICV's length, which the type has.
pub(super) enum WithIcv<C: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt> {
    Eight(Ccm<C, U8, U11>),
    Twelve(Ccm<C, U12, U11>),
    Sixteen(Ccm<C, U16, U11>),
}

impl<C: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + KeyInit> WithIcv<C> {
    fn new(icv: IcvLen, key: &[u8]) -> Option<Self> {
        match icv {
            IcvLen::Eight => Ccm::new_from_slice(key).ok().map(Self::Eight),
            IcvLen::Twelve => Ccm::new_from_slice(key).ok().map(Self::Twelve),
            IcvLen::Sixteen => Ccm::new_from_slice(key).ok().map(Self::Sixteen),
        }
    }

    fn ccm(&self) -> &dyn Ccms {
        match self {
            Self::Eight(ccm) => ccm,
            Self::Twelve(ccm) => ccm,
            Self::Sixteen(ccm) => ccm,
        }
    }
}

impl Schedule {
    /// `None` for a key of another length.
    pub(super) fn new(CcmAlgorithm { key: kind, icv }: CcmAlgorithm, key: &[u8]) -> Option<Self> {
        match kind {
            AesKey::Aes128 => WithIcv::new(icv, key).map(Self::Aes128),
            AesKey::Aes192 => WithIcv::new(icv, key).map(Self::Aes192),
            AesKey::Aes256 => WithIcv::new(icv, key).map(Self::Aes256),
        }
    }

    pub(super) fn ccm(&self) -> &dyn Ccms {
        match self {
            Self::Aes128(ccm) => ccm.ccm(),
            Self::Aes192(ccm) => ccm.ccm(),
            Self::Aes256(ccm) => ccm.ccm(),
        }
    }
}

/// CCM with a nonce of ESP.
pub(super) trait Ccms {
    /// False, with `text` in an unknown state, if the ICV is of another length.
    fn seal(&self, nonce: &[u8; CCM_NONCE_LEN], aad: &[u8], text: &mut [u8], icv: &mut [u8]) -> bool;

    /// False, with `text` in an unknown state, if the ICV does not fit. It is compared in constant
    /// time.
    fn open(&self, nonce: &[u8; CCM_NONCE_LEN], aad: &[u8], text: &mut [u8], icv: &[u8]) -> bool;
}

impl<C: AeadInOut + AeadCore<NonceSize = U11>> Ccms for C {
    fn seal(&self, nonce: &[u8; CCM_NONCE_LEN], aad: &[u8], text: &mut [u8], icv: &mut [u8]) -> bool {
        let sealed = self.encrypt_inout_detached(&Nonce::<Self>::from(*nonce), aad, text.into());
        match sealed {
            Ok(tag) if tag.len() == icv.len() => {
                icv.copy_from_slice(&tag);
                true
            }
            _ => false,
        }
    }

    fn open(&self, nonce: &[u8; CCM_NONCE_LEN], aad: &[u8], text: &mut [u8], icv: &[u8]) -> bool {
        let Ok(tag) = Tag::<Self>::try_from(icv) else { return false };
        self.decrypt_inout_detached(&Nonce::<Self>::from(*nonce), aad, text.into(), &tag).is_ok()
    }
}
