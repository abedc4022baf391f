//! The part of a received message that RFC 9242 §3.3.2 authenticates before its content: everything
//! up to and including the generic header of the Encrypted payload, as if the message had come
//! whole.

use super::error::EncodeError;
use super::header::Header;
use super::number::PayloadType;
use super::parse::{Encrypted, GENERIC_HEADER};
use super::writer::narrow_u16;

/// Fragment Number and Total Fragments.
const FRAGMENT_FIELDS: usize = 4;
/// Offset of the first payload's type in the header.
const NEXT_PAYLOAD: usize = 16;
/// Offset of the message's length in the header.
const LENGTH: usize = 24;

impl Encrypted<'_> {
    /// IntAuth_A of the message, if this is a whole one or its first fragment, with the lengths
    /// still to be [`adjusted`].
    pub fn head(&self) -> Vec<u8> {
        if self.fragment.is_none() {
            return self.aad.to_vec();
        }
        let length = self.aad.len().saturating_sub(FRAGMENT_FIELDS);
        let mut head = self.aad.get(..length).unwrap_or_default().to_vec();
        if let Some(kind) = announcement(&head).and_then(|at| head.get_mut(at)) {
            *kind = u8::from(PayloadType::Encrypted);
        }
        head
    }
}

/// Offset of the octet that announces the Encrypted Fragment payload: in the header, or in a
/// payload in clear.
fn announcement(head: &[u8]) -> Option<usize> {
    let mut at = NEXT_PAYLOAD;
    let mut payload = Header::LENGTH;
    while *head.get(at)? != u8::from(PayloadType::EncryptedFragment) {
        let length = head.get(payload.checked_add(2)?..)?.first_chunk::<2>()?;
        at = payload;
        // A length below that of the generic header would not advance.
        payload = payload.checked_add(usize::from(u16::from_be_bytes(*length)).max(GENERIC_HEADER))?;
    }
    Some(at)
}

/// The same head with the lengths of a message with this many octets of content and nothing else.
pub(crate) fn adjusted(head: &[u8], content: usize) -> Result<Vec<u8>, EncodeError> {
    let length = u32::from(narrow_u16("length of the message", head.len().saturating_add(content))?);
    let payload = narrow_u16("length of a payload", content.saturating_add(GENERIC_HEADER))?;
    let mut adjusted = head.to_vec();
    if let Some(field) = adjusted.get_mut(LENGTH..).and_then(|rest| rest.first_chunk_mut()) {
        *field = length.to_be_bytes();
    }
    if let Some(field) = adjusted.last_chunk_mut() {
        *field = payload.to_be_bytes();
    }
    Ok(adjusted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{
        ExchangeType, Fragment, IkeSpi, Message, MessageBuilder, MessageId, Notify, NotifyType, Payload,
    };

    fn builder() -> MessageBuilder {
        let header = Header {
            initiator_spi: IkeSpi(1),
            responder_spi: IkeSpi(2),
            exchange: ExchangeType::IkeIntermediate,
            from_initiator: true,
            response: false,
            message_id: MessageId(1),
        };
        let notify = Notify::new(NotifyType::SetWindowSize, vec![7; 300]);
        MessageBuilder::new(header).with(Payload::Notify(notify))
    }

    #[test]
    fn whole_messages_and_first_fragments_have_the_same_head() {
        let (message, content) = (builder(), builder().plaintext().unwrap());
        let expected = message.draft(0).unwrap().aad;
        let whole = [message.aad(content.len() + 25).unwrap(), vec![0; content.len() + 25]].concat();
        let place = Fragment { number: 1, total: 3 };
        let fragment = [message.fragment_aad(place, 60).unwrap(), vec![0; 60]].concat();
        for datagram in [whole, fragment] {
            let head = Message::parse(&datagram).unwrap().encrypted.unwrap().head();
            assert_eq!(adjusted(&head, content.len()).unwrap(), expected);
        }
    }

    #[test]
    fn payloads_in_clear_and_reserved_bits_belong_to_the_head() {
        let place = Fragment { number: 1, total: 2 };
        let mut datagram = [builder().fragment_aad(place, 60).unwrap(), vec![0; 60]].concat();
        // A Vendor ID before the Encrypted Fragment payload, in whose header a reserved bit is set.
        datagram[NEXT_PAYLOAD] = 43;
        datagram.splice(28..28, [53, 0, 0, 6, 0xab, 0xcd]);
        datagram[LENGTH + 3] += 6;
        datagram[28 + 6 + 1] = 0x20;
        let head = Message::parse(&datagram).unwrap().encrypted.unwrap().head();
        assert_eq!(head.len(), 28 + 6 + 4);
        assert_eq!((head[NEXT_PAYLOAD], head[28], head[28 + 6 + 1]), (43, 46, 0x20));
        let adjusted = adjusted(&head, 300).unwrap();
        assert_eq!(adjusted[LENGTH..28], 338_u32.to_be_bytes());
        assert_eq!(adjusted[36..], 304_u16.to_be_bytes());
    }
}
