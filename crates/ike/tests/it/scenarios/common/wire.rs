//! The checks of an observer of the wire.

use super::World;
use std::collections::BTreeMap;
use testudo_ike::message::{ExchangeType, Header, IkeSpi, Message};

/// No two different messages under one key have the same IV, whatever is repeated or restored (RFC
/// 5282 §3.1).
pub(crate) fn assert_ivs_never_repeat(world: &World) {
    let mut seen: BTreeMap<(IkeSpi, IkeSpi, bool, [u8; 8]), Vec<u8>> = BTreeMap::new();
    for (_, bytes) in world.hosts.iter().flat_map(|host| &host.sent) {
        let message = Message::parse(bytes).expect("what we send can be read");
        let Some(encrypted) = message.encrypted else { continue };
        let header = message.header;
        let iv = encrypted.body[..8].try_into().unwrap();
        let key = (header.initiator_spi, header.responder_spi, header.from_initiator, iv);
        let first = seen.entry(key).or_insert_with(|| bytes.clone());
        assert_eq!(first, bytes, "one IV, two messages");
    }
}

/// Messages that a host sent, by exchange and kind.
pub(crate) fn sent(world: &World, host: usize, exchange: ExchangeType, response: bool) -> Vec<&Vec<u8>> {
    let wanted = |bytes: &&Vec<u8>| {
        let header = Header::parse(bytes).expect("what we send can be read");
        (header.exchange, header.response) == (exchange, response)
    };
    world.hosts[host].sent.iter().map(|(_, bytes)| bytes).filter(wanted).collect()
}
