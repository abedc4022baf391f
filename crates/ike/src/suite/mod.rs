//! Everything cryptographic in IKEv2, over injected entropy.
