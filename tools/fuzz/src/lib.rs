//! Fuzz targets: all parsers and handlers of hostile input, as plain functions over octets.
//!
//! A target may panic only if there is a bug. So it does more than call a parser: it compares the
//! result with the input, or with a simple model. The corpus of each target is in
//! `fuzz/corpus/<name>` at the root of the repository; `fuzz/` wraps the targets for libFuzzer, and
//! the tests of this crate replay the corpus.
#![forbid(unsafe_code)]

pub mod ike;
mod input;
pub mod ipsec;
mod repair;
pub mod seeds;
pub mod vici;
pub mod wire;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its binary in `fuzz/` and of its corpus.
    pub name: &'static str,
    /// Runs it on one input.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "wire_headers", run: wire::headers::target },
    Target { name: "wire_fragment", run: wire::fragment::target },
    Target { name: "wire_icmp", run: wire::icmp::target },
    Target { name: "wire_offload", run: wire::offload::target },
    Target { name: "ipsec_outbound", run: ipsec::outbound::target },
    Target { name: "ipsec_inbound", run: ipsec::inbound::target },
    Target { name: "ipsec_reassembly", run: ipsec::reassembly::target },
    Target { name: "ipsec_transport", run: ipsec::transport::target },
    Target { name: "ipsec_ah", run: ipsec::ah::target },
    Target { name: "ike_message", run: ike::message::target },
    Target { name: "ike_endpoint", run: ike::endpoint::target },
    Target { name: "ike_conversation", run: ike::conversation::target },
    Target { name: "ike_cert", run: ike::cert::target },
    Target { name: "vici_codec", run: vici::codec::target },
    Target { name: "vici_schema", run: vici::schema::target },
    Target { name: "vici_server", run: vici::server::target },
];
