//! Initial inputs: whole packets and messages, one for each feature of a target.
//!
//! They are in the corpus as `seed-<name>`; `cargo run -p testudo-fuzz --example seeds` writes them
//! there, and a test checks that they match this code.

mod cert;
mod ike;
mod ipsec;
mod packet;
mod vici;
mod wire;

/// An input and its name.
pub type Seed = (String, Vec<u8>);

/// The seeds of a target.
pub fn of(target: &str) -> Vec<Seed> {
    match target {
        "wire_headers" => wire::headers(),
        "wire_fragment" => wire::fragment(),
        "wire_icmp" => wire::icmp(),
        "wire_offload" => wire::offload(),
        "ipsec_outbound" => ipsec::outbound(),
        "ipsec_inbound" => ipsec::inbound(),
        "ipsec_reassembly" => ipsec::reassembly(),
        "ipsec_transport" => ipsec::transport(),
        "ipsec_ah" => ipsec::ah(),
        "ike_message" => ike::message(),
        "ike_endpoint" => ike::endpoint(),
        "ike_conversation" => ike::conversation(),
        "ike_cert" => cert::all(),
        "vici_codec" => vici::codec(),
        "vici_schema" => vici::schema(),
        "vici_server" => vici::server(),
        _ => Vec::new(),
    }
}

/// Octets after a length of two octets, as [`crate::input::Input::chunk`] reads them.
fn chunk(octets: &[u8]) -> Vec<u8> {
    [&(octets.len() as u16).to_be_bytes()[..], octets].concat()
}
