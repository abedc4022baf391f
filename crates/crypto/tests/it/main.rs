//! Ciphers and MACs from outside: published vectors, and one library against the other.

mod ccm;
mod common;
mod libraries;
mod separate;
mod separate_vectors;
mod wycheproof;
