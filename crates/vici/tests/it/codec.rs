//! The codec: what is written is read back, and nothing that a stranger writes does harm.

use proptest::collection::vec;
use proptest::prelude::*;
use testudo_vici::Error;
use testudo_vici::codec::{self, Deframer, MAX_DEPTH, MAX_PACKET, Packet};
use testudo_vici::message::{Element, Message};
use testudo_vici::session::Session;

fn blob() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_ä%.-]{0,20}"
}

fn message() -> impl Strategy<Value = Message> {
    let leaf = prop_oneof![
        (name(), blob()).prop_map(|(name, value)| Element::Value(name, value.into())),
        (name(), vec(blob(), 0..4))
            .prop_map(|(name, items)| Element::List(name, items.into_iter().map(Into::into).collect())),
    ];
    let element = leaf.prop_recursive(4, 40, 5, |inner| {
        (name(), vec(inner, 0..5)).prop_map(|(name, elements)| Element::Section(name, collect(elements)))
    });
    vec(element, 0..6).prop_map(collect)
}

fn collect(elements: Vec<Element>) -> Message {
    let mut message = Message::new();
    elements.into_iter().for_each(|element| message.push(element));
    message
}

fn packet() -> impl Strategy<Value = Packet> {
    prop_oneof![
        (name(), message()).prop_map(|(name, message)| Packet::CmdRequest(name, message)),
        message().prop_map(Packet::CmdResponse),
        Just(Packet::CmdUnknown),
        name().prop_map(Packet::EventRegister),
        name().prop_map(Packet::EventUnregister),
        Just(Packet::EventConfirm),
        Just(Packet::EventUnknown),
        (name(), message()).prop_map(|(name, message)| Packet::Event(name, message)),
    ]
}

fn encoded(packet: &Packet) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes).unwrap();
    bytes
}

proptest! {
    #[test]
    fn messages_survive_the_wire(message in message()) {
        let mut bytes = Vec::new();
        codec::encode(&message, &mut bytes).unwrap();
        prop_assert_eq!(codec::encoded_len(&message), bytes.len());
        prop_assert_eq!(codec::parse(&bytes).unwrap(), message);
    }

    #[test]
    fn packets_survive_a_stream_cut_anywhere(packets in vec(packet(), 1..6), cuts in vec(1usize..50, 1..20)) {
        let stream: Vec<u8> = packets.iter().flat_map(encoded).collect();
        let mut deframer = Deframer::default();
        let mut found = Vec::new();
        let mut rest = stream.as_slice();
        for cut in cuts.iter().cycle() {
            let (head, tail) = rest.split_at((*cut).min(rest.len()));
            rest = tail;
            deframer.push(head).unwrap();
            while let Some(bytes) = deframer.next_packet().unwrap() {
                found.push(Packet::parse(&bytes).unwrap());
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(found, packets);
        prop_assert!(deframer.is_empty());
    }

    #[test]
    fn a_shorter_message_is_an_error_or_another_message(packet in packet(), cut in 0usize..200) {
        let bytes = encoded(&packet);
        let body = &bytes[4..];
        if cut < body.len() {
            // Cut between two elements of the root, or inside of something.
            if let Ok(shorter) = Packet::parse(&body[..cut]) {
                prop_assert_ne!(shorter, packet);
            }
        }
    }

    #[test]
    fn garbage_never_panics(bytes in vec(prop_oneof![0u8..8, any::<u8>()], 0..300)) {
        if let Ok(packet) = Packet::parse(&bytes) {
            // Whatever parses is a complete packet, and has one encoding.
            prop_assert_eq!(&encoded(&packet)[4..], bytes.as_slice());
        }
        let mut session = Session::new();
        session.receive(&bytes).unwrap();
        while let Ok(Some(request)) = session.next_request() {
            session.respond(request.id, Message::new()).unwrap();
        }
    }
}

#[test]
fn the_example_of_the_protocol_description_is_read() {
    let bytes = b"\x03\x04key1\0\x06value1\x01\x08section1\x01\x0bsub-section\x03\x04key2\0\x06value2\x02\
        \x04\x05list1\x05\0\x05item1\x05\0\x05item2\x06\x02";
    let message = codec::parse(bytes).unwrap();
    assert_eq!(message.text("key1"), Some("value1"));
    let section = message.section("section1").unwrap();
    assert_eq!(section.section("sub-section").unwrap().text("key2"), Some("value2"));
    assert_eq!(section.texts("list1").collect::<Vec<_>>(), ["item1", "item2"]);
}

#[test]
fn malformed_messages_are_named() {
    for (bytes, message) in [
        (&b"\x02"[..], "element type 2 found outside of any section, expected 1, 3 or 4"),
        (b"\x01\x01a", "message ends inside a section"),
        (b"\x01\x05a", "message ends inside the name of a section"),
        (b"\x03\x01a\x00\x05x", "message ends inside a value"),
        (b"\x03\x01a\x00", "message ends inside a value"),
        (b"\x05\x00\x00", "element type 5 found in a section, expected 1 to 4"),
        (b"\x04\x01a\x04\x01b\x06\x06", "element type 4 found in a list, expected 5 or 6"),
        (b"\x04\x01a\x05\x00\x00", "message ends inside a list"),
        (b"\x00", "element type 0 found in a section, expected 1 to 4"),
        (b"\x03\x01\xff\x00\x00", "found the name \"\\xff\", expected UTF-8"),
    ] {
        assert_eq!(codec::parse(bytes).unwrap_err().to_string(), message);
    }
    assert_eq!(Packet::parse(b"").unwrap_err().to_string(), "message ends inside the packet type");
    assert_eq!(Packet::parse(b"\x08").unwrap_err().to_string(), "packet type 8 found, expected 0 to 7");
    assert!(matches!(Packet::parse(b"\x05\x00"), Err(Error::TrailingOctets { found: 1 })));
}

#[test]
fn depth_and_length_are_bounded_both_ways() {
    let nested =
        |depth: usize| (0..depth).fold(Message::new(), |inner, _| Message::new().with_section("s", inner));
    let mut bytes = Vec::new();
    codec::encode(&nested(MAX_DEPTH), &mut bytes).unwrap();
    assert_eq!(codec::parse(&bytes).unwrap(), nested(MAX_DEPTH));
    assert!(matches!(codec::encode(&nested(MAX_DEPTH + 1), &mut Vec::new()), Err(Error::TooDeep)));
    assert!(matches!(codec::parse(&b"\x01\x00".repeat(MAX_DEPTH + 1)), Err(Error::TooDeep)));

    let value = |len| Message::new().with("v", vec![0; len]);
    assert!(codec::encode(&value(65535), &mut Vec::new()).is_ok());
    assert!(matches!(codec::encode(&value(65536), &mut Vec::new()), Err(Error::TooLong { .. })));
    let named = |len| Message::new().with(&"n".repeat(len), "");
    assert!(codec::encode(&named(255), &mut Vec::new()).is_ok());
    assert!(matches!(codec::encode(&named(256), &mut Vec::new()), Err(Error::TooLong { .. })));

    let long = Message::new().with_list("l", (0..8).map(|_| vec![0u8; 65500]));
    assert!(Packet::CmdResponse(long.clone()).encode(&mut Vec::new()).is_ok());
    let mut out = b"before".to_vec();
    let longer = Packet::CmdResponse(long.with("v", vec![0; 300]));
    assert!(matches!(longer.encode(&mut out), Err(Error::TooLong { .. })));
    assert_eq!(out, b"before", "a packet that cannot be written leaves no trace");
}

#[test]
fn the_length_field_is_checked_before_anything_is_buffered() {
    for len in [0, MAX_PACKET as u32 + 1, u32::MAX] {
        let mut deframer = Deframer::default();
        deframer.push(&len.to_be_bytes()).unwrap();
        assert!(matches!(deframer.next_packet(), Err(Error::PacketLength { .. })), "{len}");
    }
    let mut deframer = Deframer::default();
    deframer.push(&(MAX_PACKET as u32).to_be_bytes()).unwrap();
    assert!(deframer.next_packet().unwrap().is_none());
    let flood = vec![0; Deframer::MAX_BUFFER];
    assert!(matches!(deframer.push(&flood), Err(Error::Flood { .. })));
}

#[test]
fn values_do_not_show_in_debug_output() {
    let message = Message::new().with("data", "a secret").with_list("list", ["another secret"]);
    let shown = format!("{message:?}");
    assert!(!shown.contains("secret"), "{shown}");
}
