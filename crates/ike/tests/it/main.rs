//! IKE from outside: messages, suites, certificates, and whole endpoints in virtual time.

mod certificates;
mod chains;
mod message;
mod pki;
mod public_keys;
mod scenarios;
mod suite;
mod support;
