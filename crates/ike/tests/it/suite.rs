//! Suites: what is negotiated, and what is computed with it.

mod additional;
mod agreement;
mod capture;
mod cbc;
mod cookie;
mod int_auth;
mod ke;
mod keys;
mod mlkem;
mod offer;
mod prf;
mod select;
mod sk;
