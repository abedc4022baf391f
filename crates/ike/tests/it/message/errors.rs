//! Each way to be wrong has its error, which says where and what.

use testudo_ike::message::{
    ExchangeType, Fragment, Header, Message, MessageId, NotifyType, ParseError, Payload, PayloadType,
    Payloads,
};

const INIT: [u8; 28] =
    [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 34, 8, 0, 0, 0, 0, 0, 0, 0, 28];

/// Parses content and gives its error as text.
fn content(first: u8, octets: &[u8]) -> String {
    Payloads::parse(PayloadType::from(first), octets).unwrap_err().to_string()
}

/// The error of one payload with this body.
fn body(kind: u8, octets: &[u8]) -> String {
    let length = u8::try_from(octets.len() + 4).unwrap();
    content(kind, &[&[0, 0, 0, length], octets].concat())
}

/// A message from these payloads.
fn message(first: u8, octets: &[u8]) -> Vec<u8> {
    let mut message = [&INIT, octets].concat();
    message[16] = first;
    message[27] = u8::try_from(message.len()).unwrap();
    message
}

#[test]
fn the_header_is_checked() {
    assert!(Header::parse(&INIT).is_ok());
    for length in 0..28 {
        let found = Header::parse(&INIT[..length]);
        let Err(ParseError::Truncated { place, needed, left, .. }) = found else {
            panic!("{length} octets: {found:?}")
        };
        assert_eq!((place.payload, place.offset + left), (PayloadType::None, length));
        assert!(needed > left);
    }
    let longer = [&INIT[..], &[0]].concat();
    assert_eq!(Header::parse(&longer), Err(ParseError::MessageLength { stated: 28, found: 29 }));
}

#[test]
fn flags_and_minor_version_that_mean_nothing_are_ignored() {
    let mut strange = INIT;
    strange[17] = 0x2f;
    strange[19] = 0xd7;
    let header = Header::parse(&strange).unwrap();
    assert!(!header.from_initiator && !header.response);
    strange[19] = 0x28;
    let header = Header::parse(&strange).unwrap();
    assert!(header.from_initiator && header.response);
}

#[test]
fn another_major_version_is_told_with_what_an_answer_needs() {
    for version in [0x00, 0x10, 0x30, 0xff] {
        let mut other = INIT;
        other[17] = version;
        other[23] = 9;
        let error = Message::parse(&other).unwrap_err();
        assert_eq!(error.notify(), NotifyType::InvalidMajorVersion);
        let ParseError::MajorVersion { found, header } = error else { panic!("{error}") };
        assert_eq!(found, version >> 4);
        assert_eq!((header.exchange, header.message_id), (ExchangeType::IkeSaInit, MessageId(9)));
        assert_eq!(header.initiator_spi.0, 0x0101_0101_0101_0101);
    }
}

#[test]
fn an_unknown_payload_is_kept_unless_it_is_critical() {
    for kind in [1, 32, 49, 54, 200] {
        let payloads = Payloads::parse(PayloadType::from(kind), &[0, 0, 0, 5, 7]).unwrap();
        assert_eq!(payloads.iter().map(|payload| u8::from(payload.kind())).collect::<Vec<_>>(), [kind]);
        let error = Payloads::parse(PayloadType::from(kind), &[0, 0x80, 0, 5, 7]).unwrap_err();
        assert_eq!(error, ParseError::Critical(PayloadType::from(kind)));
        assert_eq!(error.notify(), NotifyType::UnsupportedCriticalPayload);
    }
}

#[test]
fn the_critical_bit_of_payloads_of_the_rfc_says_nothing() {
    for kind in [37, 38, 43, 48] {
        assert!(Payloads::parse(PayloadType::from(kind), &[0, 0x80, 0, 5, 7]).is_ok(), "payload {kind}");
    }
}

#[test]
fn the_other_bits_beside_the_critical_bit_are_ignored() {
    for kind in [43, 200] {
        assert!(Payloads::parse(PayloadType::from(kind), &[0, 0x7f, 0, 5, 7]).is_ok(), "payload {kind}");
    }
}

#[test]
fn the_chain_is_checked() {
    let cases: [(u8, &[u8], &str); 8] = [
        (43, &[], "payload V, octet 0: next payload needs 1 octets, 0 are left"),
        (43, &[0, 0, 0], "payload V, octet 2: payload length needs 2 octets, 1 are left"),
        (43, &[0, 0, 0, 3], "payload V, octet 0: payload length is 3, expected at least 4"),
        (43, &[0, 0, 0, 6, 1], "payload V, octet 4: body of the payload needs 2 octets, 1 are left"),
        (43, &[0, 0, 0, 4, 1], "message, octet 4: 1 octets are left behind the last payload"),
        (0, &[1], "message, octet 0: 1 octets are left behind the last payload"),
        (
            43,
            &[200, 0, 0, 5, 1, 0, 0, 1, 0],
            "payload (200), octet 9: body of the payload needs 252 octets, 0 are left",
        ),
        (46, &[0, 0, 0, 4], "payload SK, octet 4: payload type is 46, expected any but SK and SKF within SK"),
    ];
    for (first, octets, expected) in cases {
        assert_eq!(content(first, octets), expected);
    }
}

#[test]
fn the_encrypted_payload_is_the_last_and_gives_what_is_authenticated() {
    let octets = message(43, &[46, 0, 0, 5, 1, 41, 0, 0, 7, 8, 8, 8]);
    let parsed = Message::parse(&octets).unwrap();
    assert!(parsed.payloads.iter().map(Payload::kind).eq([PayloadType::VendorId]));
    let encrypted = parsed.encrypted.unwrap();
    assert_eq!((encrypted.first, encrypted.body), (PayloadType::Notify, &[8, 8, 8][..]));
    assert_eq!(encrypted.aad, &octets[..28 + 5 + 4]);
    let error = Message::parse(&message(46, &[43, 0, 0, 4, 0, 0, 0, 4])).unwrap_err();
    assert_eq!(error.to_string(), "message, octet 32: 4 octets are left behind the Encrypted payload");
}

#[test]
fn payloads_that_stand_once_stand_once() {
    let bodies: [(u8, &[u8]); 8] = [
        (33, &[0, 0, 0, 8, 1, 1, 0, 0]),
        (34, &[0, 31, 0, 0]),
        (35, &[1, 0, 0, 0]),
        (36, &[1, 0, 0, 0]),
        (39, &[2, 0, 0, 0]),
        (40, &[7; 16]),
        (44, &[1, 0, 0, 0, 99, 0, 0, 4]),
        (45, &[1, 0, 0, 0, 99, 0, 0, 4]),
    ];
    for (kind, body) in bodies {
        let length = u8::try_from(body.len() + 4).unwrap();
        let payload = |next| [&[next, 0, 0, length], body].concat();
        assert!(Payloads::parse(PayloadType::from(kind), &payload(0)).is_ok(), "payload {kind}");
        let twice = [payload(kind), payload(0)].concat();
        let expected = ParseError::Duplicate(PayloadType::from(kind));
        assert_eq!(Payloads::parse(PayloadType::from(kind), &twice), Err(expected));
    }
}

#[test]
fn sa_payloads_are_checked() {
    let cases: [(&[u8], &str); 9] = [
        (&[], "payload SA, octet 4: proposal needs 1 octets, 0 are left"),
        (
            &[3, 0, 0, 8, 1, 1, 0, 0],
            "payload SA, octet 4: last substructure is 3, expected 0 (last) or 2 (more proposals)",
        ),
        (&[2, 0, 0, 8, 1, 1, 0, 0], "payload SA, octet 12: proposal needs 1 octets, 0 are left"),
        (&[0, 0, 0, 3], "payload SA, octet 4: length of the substructure is 3, expected at least 4"),
        (&[0, 0, 0, 8, 1, 1, 4, 0], "payload SA, octet 12: SPI needs 4 octets, 0 are left"),
        (
            &[0, 0, 0, 8, 1, 1, 0, 1],
            "payload SA, octet 11: number of transforms is 1, expected as many as follow",
        ),
        (&[0, 0, 0, 8, 1, 1, 0, 0, 9], "payload SA, octet 12: 1 octets are left behind the last proposal"),
        (
            &[0, 0, 0, 16, 1, 1, 0, 1, 2, 0, 0, 8, 1, 0, 0, 20],
            "payload SA, octet 12: last substructure is 2, expected 0 (last) or 3 (more transforms)",
        ),
        (
            &[0, 0, 0, 20, 1, 1, 0, 1, 0, 0, 0, 12, 1, 0, 0, 20, 0, 14, 0, 1],
            "payload SA, octet 24: attribute value needs 1 octets, 0 are left",
        ),
    ];
    for (octets, expected) in cases {
        assert_eq!(body(33, octets), expected);
    }
}

#[test]
fn short_payloads_are_checked() {
    let cases: [(u8, &[u8], &str); 9] = [
        (34, &[0, 31, 0], "payload KE, octet 6: reserved octets of KE needs 2 octets, 1 are left"),
        (35, &[1, 0], "payload IDi, octet 5: reserved octets of ID needs 3 octets, 1 are left"),
        (39, &[2], "payload AUTH, octet 5: reserved octets of AUTH needs 3 octets, 0 are left"),
        (40, &[0; 15], "payload Nonce, octet 4: length of the nonce is 15, expected 16 to 256"),
        (41, &[1, 4, 0, 11, 9], "payload N, octet 8: SPI of a notify needs 4 octets, 1 are left"),
        (
            42,
            &[9, 0, 0, 0],
            "payload D, octet 4: protocol of a delete is 9, expected 1 (IKE), 2 (AH) or 3 (ESP)",
        ),
        (42, &[1, 4, 0, 0], "payload D, octet 4: SPI size of a delete is 4, expected 0 for IKE"),
        (42, &[3, 8, 0, 0], "payload D, octet 4: SPI size of a delete is 8, expected 4 for AH and ESP"),
        (
            42,
            &[3, 4, 0, 2, 1, 1, 1, 1],
            "payload D, octet 4: number of SPIs is 2, expected as many as follow",
        ),
    ];
    for (kind, octets, expected) in cases {
        assert_eq!(body(kind, octets), expected);
    }
    let long = Payloads::parse(PayloadType::Nonce, &[&[0, 0, 1, 5][..], &[0; 257]].concat());
    assert!(long.unwrap_err().to_string().ends_with("length of the nonce is 257, expected 16 to 256"));
}

#[test]
fn traffic_selectors_are_checked() {
    let v4 = |ports: [u8; 4], start: u8, end: u8| {
        [&[1, 0, 0, 0, 7, 0, 0, 16][..], &ports, &[10, 0, 0, start], &[10, 0, 0, end]].concat()
    };
    for ports in [[0, 0, 255, 255], [0, 80, 0, 80], [255, 255, 0, 0]] {
        let octets = [&[0, 0, 0, 24][..], &v4(ports, 1, 1)].concat();
        assert!(Payloads::parse(PayloadType::TsInitiator, &octets).is_ok(), "ports {ports:?}");
    }
    let cases = [
        (v4([0, 81, 0, 80], 1, 1), "octet 8: last port is 80, expected not below the first, or 65535 to 0"),
        (v4([0, 0, 0, 0], 2, 1), "octet 8: last address is below the first"),
        (vec![0, 0, 0, 0], "octet 4: number of traffic selectors is 0, expected at least 1"),
        (vec![1, 0, 0, 0], "octet 8: TS type needs 1 octets, 0 are left"),
        (vec![1, 0, 0, 0, 7, 0, 0, 3], "octet 8: selector length is 3, expected at least 4"),
        (vec![1, 0, 0, 0, 7, 0, 0, 4], "octet 12: first port needs 2 octets, 0 are left"),
        (
            [&v4([0; 4], 1, 1)[..], &[0]].concat(),
            "octet 24: 1 octets are left behind the last traffic selector",
        ),
        (
            vec![1, 0, 0, 0, 7, 0, 0, 17, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 9],
            "octet 24: 1 octets are left behind the addresses of a selector",
        ),
        (
            vec![1, 0, 0, 0, 8, 0, 0, 16, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1],
            "octet 16: IPv6 address needs 16 octets, 8 are left",
        ),
    ];
    for (octets, expected) in cases {
        assert_eq!(body(44, &octets), format!("payload TSi, {expected}"));
    }
}

/// RFC 7383 §2.6.
#[test]
fn the_place_of_a_fragment_is_checked() {
    let datagram = |content: &[u8]| {
        let mut octets = vec![1; 16];
        octets.extend([53, 0x20, 35, 8, 0, 0, 0, 1, 0, 0, 0, (32 + content.len()) as u8]);
        octets.extend([39, 0, 0, (4 + content.len()) as u8]);
        octets.extend(content);
        octets
    };
    let good = datagram(&[0, 2, 0, 3, 9, 9]);
    let encrypted = Message::parse(&good).unwrap().encrypted.unwrap();
    assert_eq!(encrypted.fragment, Some(Fragment { number: 2, total: 3 }));
    assert_eq!((encrypted.aad, encrypted.body), (&good[..36], &[9, 9][..]));
    for content in [[0, 0, 0, 3], [0, 4, 0, 3], [0, 0, 0, 0], [1, 0, 0, 255]] {
        let error = Message::parse(&datagram(&content)).unwrap_err().to_string();
        assert!(
            error.contains("Fragment Number is") && error.contains("expected 1 to Total Fragments"),
            "{error}"
        );
    }
    assert!(Message::parse(&datagram(&[0, 1, 0])).is_err());
}
