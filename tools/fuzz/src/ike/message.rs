//! The codec: a parsed message is written back unchanged, and its content can be processed.

use super::content;
use testudo_ike::message::{Header, Message, MessageBuilder, ParseError, Payload, PayloadType, Payloads};

/// Octets that GCM adds to the payloads of a message: IV, pad length, ICV.
const OVERHEAD: usize = 8 + 1 + 16;

/// A datagram; and, from its second octet on, the content of an Encrypted payload whose first octet
/// is the type of the first payload.
pub fn target(data: &[u8]) {
    match Message::parse(data) {
        Ok(message) => check_message(&message, data),
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control));
            let _notify = error.notify();
            if let ParseError::MajorVersion { found, .. } = error {
                assert_ne!(found, 2);
            }
        }
    }
    if let Some((first, octets)) = data.split_first()
        && let Ok(payloads) = Payloads::parse(PayloadType::from(*first), octets)
    {
        check_content(&payloads, octets.len());
    }
}

fn check_message(message: &Message<'_>, data: &[u8]) {
    assert_eq!(Header::parse(data), Ok(message.header));
    content::look_at(&message.payloads);
    let again = builder(message.header, &message.payloads).finish().expect("what was read can be written");
    match message.encrypted {
        None => {
            assert_eq!(again.len(), data.len());
            assert_eq!(Message::parse(&again).as_ref(), Ok(message));
        }
        Some(encrypted) => {
            assert_eq!([encrypted.aad, encrypted.body].concat(), data);
            let head = encrypted.head();
            assert_eq!(head.len(), encrypted.aad.len() - if encrypted.fragment.is_some() { 4 } else { 0 });
            assert_eq!(
                message.payloads.iter().next().is_none(),
                head[16] == u8::from(PayloadType::Encrypted)
            );
            let in_clear = Message::parse(&again).expect("what was written can be read");
            assert_eq!(in_clear.payloads, message.payloads);
        }
    }
}

fn check_content(payloads: &Payloads, len: usize) {
    content::look_at(payloads);
    let header = Header::parse(&HEADER).expect("a header");
    let Ok(draft) = builder(header, payloads).draft(OVERHEAD) else {
        assert!(len + Header::LENGTH + OVERHEAD + 4 > usize::from(u16::MAX));
        return;
    };
    assert_eq!(draft.plaintext.len(), len);
    let first = payloads.iter().next().map_or(PayloadType::None, Payload::kind);
    assert_eq!(Payloads::parse(first, &draft.plaintext).as_ref(), Ok(payloads));
    let total = (draft.aad.len() + len + OVERHEAD) as u32;
    assert_eq!(draft.aad[24..28], total.to_be_bytes());
}

/// An INFORMATIONAL request without payloads.
const HEADER: [u8; Header::LENGTH] =
    [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0x20, 37, 8, 0, 0, 0, 2, 0, 0, 0, 28];

fn builder(header: Header, payloads: &Payloads) -> MessageBuilder {
    payloads.iter().cloned().fold(MessageBuilder::new(header), MessageBuilder::with)
}
