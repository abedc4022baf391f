//! The parts that tests of messages and of suites share.

pub(crate) mod arbitrary;
pub(crate) mod capture;
pub(crate) mod entropy;
pub(crate) mod no_entropy;
pub(crate) mod proposals;
