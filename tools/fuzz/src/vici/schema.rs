//! `load-conn` and `load-shared`: from text to configuration, or a refusal.

use super::text;
use testudo_ike::config::{Connection, TsSpec};
use testudo_vici::codec::Packet;
use testudo_vici::message::Message;
use testudo_vici::render;
use testudo_vici::schema::{self, Refusal};

/// Lines as [`text`] reads them.
pub fn target(data: &[u8]) {
    let message = text::message(data);
    match schema::connection(&message, schema::Policy::Legacy) {
        Ok(connection) => check_connection(&connection),
        Err(refusal) => check_refusal(&refusal),
    }
    match schema::shared_secret(&message) {
        Ok(secret) => {
            assert!(!secret.secret.is_empty() && !secret.name.is_empty());
            let data = message.value("data").map(|data| data.bytes());
            assert_eq!(data, Some(secret.secret.as_slice()));
        }
        Err(refusal) => check_refusal(&refusal),
    }
}

/// An accepted connection has the properties that the rest of the gateway relies on, and can be
/// listed.
fn check_connection(connection: &Connection) {
    assert!(!connection.name.is_empty() && !connection.proposals.is_empty());
    for proposal in &connection.proposals {
        assert!(!proposal.encryption.is_empty() && !proposal.prf.is_empty() && !proposal.ke.is_empty());
    }
    for child in &connection.children {
        assert_eq!(child.mode.is_negotiated(), !child.proposals.is_empty());
        assert!(child.proposals.iter().all(|proposal| !proposal.encryption.is_empty()));
        assert!(child.replay_window <= 8192 && child.replay_window.is_multiple_of(64));
        let selectors = child.local_ts.iter().chain(&child.remote_ts);
        assert!(!child.local_ts.is_empty() && !child.remote_ts.is_empty());
        for selector in selectors {
            let (start, end) = match selector {
                TsSpec::Dynamic { port_start, port_end, .. } => (*port_start, *port_end),
                TsSpec::Fixed(fixed) => (fixed.port_start, fixed.port_end),
            };
            assert!(
                start <= end || (start, end) == (u16::MAX, 0),
                "only OPAQUE has its ports the wrong way round"
            );
        }
        check_event(render::list_policy(&connection.name, child));
    }
    render::list_conn(connection).into_iter().for_each(check_event);
}

fn check_event(message: Message) {
    let packet = Packet::Event("list-conn".to_owned(), message);
    packet.encode(&mut Vec::new()).expect("what was taken can be shown");
}

/// A refusal is one line for an operator's terminal.
fn check_refusal(refusal: &Refusal) {
    let text = refusal.to_string();
    assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
}
