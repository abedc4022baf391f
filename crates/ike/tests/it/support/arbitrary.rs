//! Random messages, all of them well formed.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::net::IpAddr;
use testudo_base::spi::Spi;
use testudo_ike::message::{
    Attribute, AuthPayload, CertPayload, CfgAttribute, Configuration, Delete, Header, IdPayload, IkeSpi,
    KePayload, MessageId, Nonce, Notify, NotifySa, Payload, Proposal, SaPayload, SaSpi, Transform,
    TransformId, TsPayload, UnknownPayload, UnknownSelector, VendorId,
};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

/// Any header.
pub(crate) fn header() -> impl Strategy<Value = Header> {
    (any::<[u64; 2]>(), any::<u8>(), any::<[bool; 2]>(), any::<u32>()).prop_map(
        |([initiator, responder], exchange, [from_initiator, response], id)| Header {
            initiator_spi: IkeSpi(initiator),
            responder_spi: IkeSpi(responder),
            exchange: exchange.into(),
            from_initiator,
            response,
            message_id: MessageId(id),
        },
    )
}

/// Payloads in any order; those that stand at most once do.
pub(crate) fn payloads() -> impl Strategy<Value = Vec<Payload>> {
    let once = (
        option::of(sa().prop_map(Payload::Sa)),
        option::of(ke().prop_map(Payload::Ke)),
        option::of(id().prop_map(Payload::IdInitiator)),
        option::of(id().prop_map(Payload::IdResponder)),
        option::of(auth().prop_map(Payload::Auth)),
        option::of(nonce().prop_map(Payload::Nonce)),
        option::of(ts().prop_map(Payload::TsInitiator)),
        option::of(ts().prop_map(Payload::TsResponder)),
        option::of(configuration().prop_map(Payload::Configuration)),
    )
        .prop_map(|(a, b, c, d, e, f, g, h, i)| [a, b, c, d, e, f, g, h, i].into_iter().flatten().collect());
    (once, vec(repeatable(), 0..8)).prop_map(|(once, more): (Vec<_>, _)| [once, more].concat()).prop_shuffle()
}

fn configuration() -> impl Strategy<Value = Configuration> {
    // The first bit of an attribute's type is reserved.
    let attribute =
        (0_u16..0x8000, octets(20)).prop_map(|(kind, value)| CfgAttribute { kind: kind.into(), value });
    (any::<u8>(), vec(attribute, 0..6))
        .prop_map(|(kind, attributes)| Configuration { kind: kind.into(), attributes })
}

fn octets(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=most)
}

fn repeatable() -> impl Strategy<Value = Payload> {
    prop_oneof![
        notify().prop_map(Payload::Notify),
        delete().prop_map(Payload::Delete),
        octets(40).prop_map(|id| Payload::VendorId(VendorId(id))),
        cert().prop_map(Payload::Certificate),
        cert().prop_map(Payload::CertificateRequest),
        (unknown_type(), octets(40))
            .prop_map(|(kind, body)| Payload::Unknown(UnknownPayload { kind: kind.into(), body })),
    ]
}

fn cert() -> impl Strategy<Value = CertPayload> {
    (any::<u8>(), octets(40)).prop_map(|(encoding, data)| CertPayload { encoding: encoding.into(), data })
}

/// Payload types that have no variant of their own, and can stand in a chain.
fn unknown_type() -> impl Strategy<Value = u8> {
    prop_oneof![1_u8..=32, Just(48), 49_u8..=52, 54_u8..=255]
}

fn spi() -> impl Strategy<Value = SaSpi> {
    prop_oneof![
        any::<u32>().prop_map(|spi| SaSpi::Child(Spi(spi))),
        any::<u64>().prop_map(|spi| SaSpi::Ike(IkeSpi(spi))),
        octets(20)
            .prop_filter("lengths with a meaning", |spi| !matches!(spi.len(), 0 | 4 | 8))
            .prop_map(SaSpi::Other),
    ]
}

fn sa() -> impl Strategy<Value = SaPayload> {
    vec(proposal(), 1..6).prop_map(|proposals| SaPayload { proposals })
}

fn proposal() -> impl Strategy<Value = Proposal> {
    let spi = prop_oneof![Just(SaSpi::None), spi()];
    (any::<u8>(), any::<u8>(), spi, vec(transform(), 0..8)).prop_map(|(number, protocol, spi, transforms)| {
        Proposal { number, protocol: protocol.into(), spi, transforms }
    })
}

fn transform() -> impl Strategy<Value = Transform> {
    (any::<u8>(), any::<u16>(), vec(attribute(), 0..3)).prop_map(|(kind, id, attributes)| Transform {
        kind: kind.into(),
        id: TransformId(id),
        attributes,
    })
}

fn attribute() -> impl Strategy<Value = Attribute> {
    prop_oneof![
        any::<u16>().prop_map(Attribute::KeyLength),
        (15_u16..0x8000, any::<u16>()).prop_map(|(kind, value)| Attribute::Short { kind, value }),
        (0_u16..0x8000, octets(20)).prop_map(|(kind, value)| Attribute::Long { kind, value }),
    ]
}

fn ke() -> impl Strategy<Value = KePayload> {
    (any::<u16>(), octets(300)).prop_map(|(method, data)| KePayload { method: method.into(), data })
}

fn id() -> impl Strategy<Value = IdPayload> {
    (any::<u8>(), octets(60)).prop_map(|(kind, data)| IdPayload::new(kind.into(), data))
}

fn auth() -> impl Strategy<Value = AuthPayload> {
    (any::<u8>(), octets(60)).prop_map(|(method, data)| AuthPayload { method: method.into(), data })
}

fn nonce() -> impl Strategy<Value = Nonce> {
    vec(any::<u8>(), 16..=256).prop_map(|octets| Nonce::new(octets).unwrap())
}

fn notify() -> impl Strategy<Value = Notify> {
    let sa = (any::<u8>(), spi()).prop_map(|(protocol, spi)| NotifySa { protocol: protocol.into(), spi });
    (any::<u16>(), option::of(sa), octets(60)).prop_map(|(kind, sa, data)| Notify {
        kind: kind.into(),
        sa,
        data,
    })
}

fn delete() -> impl Strategy<Value = Delete> {
    let spis = || vec(any::<u32>().prop_map(Spi), 0..10);
    prop_oneof![Just(Delete::IkeSa), spis().prop_map(Delete::Esp), spis().prop_map(Delete::Ah)]
}

fn ts() -> impl Strategy<Value = TsPayload> {
    let unknown = (any::<u8>(), any::<u8>(), octets(20))
        .prop_filter("types with a meaning", |(kind, ..)| !matches!(kind, 7 | 8))
        .prop_map(|(kind, protocol, body)| UnknownSelector { kind, protocol, body });
    (vec(selector(), 1..6), vec(unknown, 0..3))
        .prop_map(|(selectors, unknown)| TsPayload { selectors, unknown })
}

fn selector() -> impl Strategy<Value = TrafficSelector> {
    let v4 = any::<[[u8; 4]; 2]>().prop_map(|ends| ends.map(IpAddr::from));
    let v6 = any::<[[u8; 16]; 2]>().prop_map(|ends| ends.map(IpAddr::from));
    let ports = prop_oneof![
        any::<[u16; 2]>().prop_map(|[a, b]| (a.min(b), a.max(b))),
        Just((65535, 0)), // OPAQUE
    ];
    (prop_oneof![v4, v6], any::<u8>(), ports).prop_map(|([a, b], protocol, (port_start, port_end))| {
        let addrs = AddrRange::new(a.min(b), a.max(b)).unwrap();
        TrafficSelector { addrs, protocol, port_start, port_end }
    })
}
