//! Octets from an attacker: nothing panics, nothing makes us allocate more than a multiple of what
//! was sent.

use crate::support::arbitrary::{header, payloads};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use testudo_ike::message::{MAX_PAYLOADS, Message, MessageBuilder, Payload, PayloadType, Payloads};

/// Octets of memory for each octet received. The worst are attributes: 4 octets on the wire, 32 in
/// memory, and three times that while a vector grows.
const FACTOR: u64 = 16;
/// For the list of payloads, whatever the length.
const CONSTANT: u64 = 2 * (MAX_PAYLOADS * size_of::<Payload>()) as u64;

/// Parses as message and as content, and checks what that cost.
fn parse(octets: &[u8]) -> bool {
    let mut good = false;
    let used = allocation_counter::measure(|| {
        good = Message::parse(octets).is_ok();
        for first in [33, 40, 41, 42, 44, 99] {
            good |= Payloads::parse(PayloadType::from(first), octets).is_ok();
        }
    });
    let bound = FACTOR * octets.len() as u64 + CONSTANT;
    assert!(used.bytes_max <= bound, "{} octets of memory for {} received", used.bytes_max, octets.len());
    good
}

/// Corrects the length in the header, so that damage further back is looked at.
fn fix_length(octets: &mut [u8]) {
    let length = u32::try_from(octets.len()).unwrap();
    if let Some(field) = octets.get_mut(24..28) {
        field.copy_from_slice(&length.to_be_bytes());
    }
}

fn encoded() -> impl Strategy<Value = Vec<u8>> {
    (header(), payloads()).prop_map(|(header, payloads)| {
        payloads.into_iter().fold(MessageBuilder::new(header), MessageBuilder::with).finish().unwrap()
    })
}

fn config() -> ProptestConfig {
    let persistence = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { failure_persistence: Some(Box::new(persistence)), ..ProptestConfig::with_cases(2048) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_octets(octets in vec(any::<u8>(), 0..600)) {
        parse(&octets);
    }

    #[test]
    fn random_octets_behind_a_good_header(first in any::<u8>(), body in vec(any::<u8>(), 0..600)) {
        let mut octets = [&[1; 16][..], &[first, 0x20, 34, 8, 0, 0, 0, 0, 0, 0, 0, 0], &body].concat();
        fix_length(&mut octets);
        parse(&octets);
    }

    #[test]
    fn truncated_messages_are_refused(message in encoded(), at in any::<prop::sample::Index>()) {
        let mut octets = message[..at.index(message.len())].to_vec();
        prop_assert!(Message::parse(&octets).is_err());
        fix_length(&mut octets);
        parse(&octets);
    }

    #[test]
    fn lengthened_messages_are_refused(message in encoded(), more in vec(any::<u8>(), 1..20)) {
        let mut octets = [message, more].concat();
        prop_assert!(Message::parse(&octets).is_err());
        fix_length(&mut octets);
        prop_assert!(Message::parse(&octets).is_err());
        parse(&octets);
    }

    #[test]
    fn damaged_messages(
        mut message in encoded(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..10),
    ) {
        for (at, octet) in damage {
            let at = at.index(message.len());
            message[at] = octet;
        }
        fix_length(&mut message);
        parse(&message);
    }

    #[test]
    fn what_is_accepted_is_written_and_read_the_same(
        mut message in encoded(),
        (at, octet) in (any::<prop::sample::Index>(), any::<u8>()),
    ) {
        let at = at.index(message.len());
        message[at] = octet;
        if let Ok(first) = Message::parse(&message) {
            prop_assume!(first.encrypted.is_none());
            let payloads = Vec::from(first.payloads);
            let again = payloads.iter().cloned().fold(MessageBuilder::new(first.header), MessageBuilder::with);
            let again = again.finish().unwrap();
            let second = Message::parse(&again).unwrap();
            prop_assert_eq!((second.header, Vec::from(second.payloads)), (first.header, payloads));
        }
    }
}

/// Octets that a UDP datagram over IPv4 can carry.
const DATAGRAM: usize = 65_507;

/// A message of the largest datagram, with one payload of `kind`: `head`, then as many `unit`s as
/// fit.
fn flood(kind: u8, head: &[u8], unit: &[u8]) -> Vec<u8> {
    let count = (DATAGRAM - 28 - 4 - head.len()) / unit.len();
    let body = [head, &unit.repeat(count)].concat();
    let mut octets = [&[1; 16][..], &[kind, 0x20, 34, 8, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    octets.extend_from_slice(&[0, 0]);
    octets.extend_from_slice(&u16::try_from(body.len() + 4).unwrap().to_be_bytes());
    octets.extend_from_slice(&body);
    fix_length(&mut octets);
    octets
}

/// Sets the length of the structure from `start` to the end.
fn set_length(octets: &mut [u8], start: usize) {
    let length = u16::try_from(octets.len() - start).unwrap();
    octets[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
}

#[test]
fn endless_proposals_and_transforms() {
    assert!(!parse(&flood(33, &[], &[2, 0, 0, 8, 1, 1, 0, 0])));
    let mut transforms = flood(33, &[0, 0, 0, 0, 1, 1, 0, 255], &[3, 0, 0, 8, 1, 0, 0, 20]);
    set_length(&mut transforms, 32);
    assert!(!parse(&transforms));
}

#[test]
fn endless_attributes() {
    // Short ones, and long ones without a value.
    for unit in [[0x80, 99, 0, 0], [0, 99, 0, 0]] {
        let head = [0, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 20];
        let mut octets = flood(33, &head, &unit);
        set_length(&mut octets, 32);
        set_length(&mut octets, 40);
        assert!(parse(&octets));
    }
}

#[test]
fn as_many_of_everything_as_the_format_counts() {
    let transforms = [3, 0, 0, 8, 1, 0, 0, 20].repeat(31);
    let proposal = [&[2, 0, 1, 8, 1, 1, 0, 32][..], &transforms, &[0, 0, 0, 8, 1, 0, 0, 20]].concat();
    let mut octets = flood(33, &[], &proposal);
    let last = octets.len() - proposal.len();
    octets[last] = 0;
    assert!(parse(&octets));
    let spis = u16::try_from((DATAGRAM - 28 - 4 - 4) / 4).unwrap().to_be_bytes();
    assert!(parse(&flood(42, &[3, 4, spis[0], spis[1]], &[1, 2, 3, 4])));
    let selectors = [&[255, 0, 0, 0][..], &[99, 0, 0, 4].repeat(255)].concat();
    let mut octets = flood(44, &selectors, &[0; 65_000]);
    octets[30..32].copy_from_slice(&u16::try_from(selectors.len() + 4).unwrap().to_be_bytes());
    fix_length(&mut octets);
    assert!(parse(&octets));
}

/// A chain of `count` payloads of type `kind`, all empty.
fn chain(kind: u8, count: usize) -> Vec<u8> {
    let mut octets = [&[1; 16][..], &[kind, 0x20, 34, 8, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    for left in (0..count).rev() {
        octets.extend_from_slice(&[if left == 0 { 0 } else { kind }, 0, 0, 4]);
    }
    fix_length(&mut octets);
    octets
}

#[test]
fn the_number_of_payloads_is_bounded() {
    assert!(Message::parse(&chain(43, MAX_PAYLOADS)).is_ok());
    assert!(Message::parse(&chain(43, MAX_PAYLOADS + 1)).is_err());
    assert!(!parse(&chain(43, 16_000)));
}
