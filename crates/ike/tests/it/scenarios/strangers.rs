//! Unauthenticated messages: they cost little, change nothing, bring their sender nothing, and are
//! counted.

use crate::scenarios::answers::sun;
use crate::scenarios::common::peer::{self, Peer};
use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Random, Weather, World};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use testudo_ike::endpoint::{Discard, EndpointConfig};
use testudo_ike::message::{
    ExchangeType, Header, IkeSpi, Message, MessageBuilder, MessageId, Notify, NotifyType, Payload,
};
use testudo_ike::output::{Event, Path};
use testudo_ike::suite::Entropy;

pub(crate) fn from(addr: &str) -> Path {
    Path { local: addr.parse().unwrap(), remote: "192.0.2.2:500".parse().unwrap() }
}

pub(crate) fn init_request(random: &mut Random) -> Vec<u8> {
    let (payloads, _, _) = peer::init_payloads(random);
    peer::message(peer::init_header(random), payloads).finish().unwrap()
}

#[test]
fn noise_is_counted_and_not_answered() {
    let mut world = sun();
    let mut random = Random::new(1);
    for round in 0..10_000_u64 {
        let mut bytes = vec![0; random.below(300) as usize];
        random.fill(&mut bytes);
        // Half of it begins like a message, so that more than the version check is reached.
        if round % 2 == 0 && bytes.len() >= 28 {
            let length = u32::try_from(bytes.len()).unwrap();
            bytes[17] = 0x20;
            bytes[18] = 34 + bytes[18] % 4;
            bytes[24..28].copy_from_slice(&length.to_be_bytes());
        }
        peer::exchange(&mut world, from("192.0.2.1:500"), &bytes);
        if round % 10 == 0 {
            world.run(Duration::from_millis(100));
        }
    }
    let stats = world.hosts[0].endpoint.stats();
    let discarded: u64 = stats.discards().map(|(_, count)| count).sum();
    assert_eq!((stats.received, discarded), (10_000, 10_000), "each is counted once");
    assert_eq!(world.hosts[0].endpoint.states().count(), 0);
    for (_, answer) in &world.hosts[0].sent {
        let message = Message::parse(answer).unwrap();
        assert!(message.header.response);
        let kinds: Vec<_> = message.payloads.notifies().map(|notify| notify.kind).collect();
        assert!(
            matches!(kinds[..], [NotifyType::InvalidMajorVersion | NotifyType::InvalidIkeSpi]),
            "{kinds:?}"
        );
    }
    let lines = world.hosts[0].log().len();
    assert!(lines <= 100 * 5, "{lines} lines in 100 seconds");
}

#[test]
fn forged_requests_fill_nothing_up_and_a_true_peer_gets_through() {
    let mut world = World::pair(2, Weather::FAIR);
    world.hosts.reverse();
    world.restore = false;
    let now = world.now;
    let mut anybody = crate::scenarios::common::connection(("192.0.2.2", "sun"), ("192.0.2.1", "moon"));
    anybody.name = "anybody".into();
    anybody.remote_addrs = vec![];
    world.hosts[0].load(now, anybody);
    let mut random = Random::new(2);
    let mut received = 0;
    for round in 0..20_000_u32 {
        let request = init_request(&mut random);
        received += request.len();
        let addr = SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | round)), 500);
        let path = Path { local: addr, remote: "192.0.2.2:500".parse().unwrap() };
        peer::exchange(&mut world, path, &request);
        world.run(Duration::from_micros(500));
        if round == 10_000 {
            // In the midst of it the true one comes, and returns its cookie.
            world.initiate(1);
        }
    }
    world.assert_tunnel();
    let config = EndpointConfig::default();
    assert_eq!(world.hosts[0].endpoint.half_open(), config.cookie_threshold);
    let answered: usize = world.hosts[0].sent.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(answered < received * 2 / 3, "{answered} octets for {received}");
    world.run_secs(60);
    assert_eq!(world.hosts[0].endpoint.half_open(), 0, "what was forged expires");
}

#[test]
fn one_source_cannot_fill_everything_even_with_cookies() {
    let config = EndpointConfig {
        cookie_threshold: 5,
        source_cookie_threshold: 2,
        source_half_open_limit: 3,
        ..EndpointConfig::default()
    };
    let mut world = World::pair_of(["192.0.2.1", "192.0.2.2"], 3, Weather::FAIR, config, |_, _| {});
    world.hosts.remove(0);
    let mut random = Random::new(3);
    let mut admitted = 0;
    for _ in 0..50 {
        let (payloads, _, _) = peer::init_payloads(&mut random);
        let header = peer::init_header(&mut random);
        let first = peer::message(header, payloads.clone()).finish().unwrap();
        let answers = peer::exchange(&mut world, from("192.0.2.1:500"), &first);
        let cookie = answers
            .first()
            .and_then(|answer| Message::parse(answer).unwrap().payloads.notify(NotifyType::Cookie).cloned());
        let Some(cookie) = cookie else { continue };
        let mut payloads = payloads;
        payloads.insert(0, Payload::Notify(cookie));
        let second = peer::message(header, payloads).finish().unwrap();
        admitted += peer::exchange(&mut world, from("192.0.2.1:500"), &second).len();
    }
    assert_eq!(admitted, 3);
    assert_eq!(world.hosts[0].endpoint.half_open(), 2 + 3);
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::SourceLimit), 45);
}

#[test]
fn a_half_open_ike_sa_expires() {
    let mut world = sun();
    let mut peer = Peer::init(&mut world, 4, vec![]);
    assert_eq!(world.hosts[0].endpoint.half_open(), 1);
    world.run_secs(29);
    assert_eq!(world.hosts[0].endpoint.half_open(), 1);
    world.run_secs(2);
    world.assert_nothing_left();
    let payloads = peer.auth_payloads();
    let late = peer.seal(ExchangeType::IkeAuth, payloads);
    peer::exchange(&mut world, peer.path, &late);
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::UnknownSpi), 1);
    world.assert_nothing_left();
    let event = |event: &Event| matches!(event, Event::IkeDown(..));
    assert!(!world.hosts[0].events.iter().any(event), "strangers are no event");
}

#[test]
fn a_forged_ike_auth_does_not_end_the_half_open_ike_sa() {
    let mut world = sun();
    let mut peer = Peer::init(&mut world, 5, vec![]);
    let payloads = peer.auth_payloads();
    let good = peer.seal(ExchangeType::IkeAuth, payloads);
    for index in 28..good.len() {
        let mut bad = good.clone();
        bad[index] ^= 0x40;
        assert!(peer::exchange(&mut world, peer.path, &bad).is_empty(), "octet {index}");
    }
    let stats = world.hosts[0].endpoint.stats();
    assert!(stats.discarded(Discard::Integrity) > stats.discarded(Discard::Malformed));
    assert!(peer.request_bytes(&mut world, good).is_some());
    assert_eq!(world.hosts[0].installed.len(), 1);
}

#[test]
fn a_higher_version_is_answered_and_a_lower_one_is_not() {
    let mut world = sun();
    let mut random = Random::new(6);
    let mut request = init_request(&mut random);
    request[17] = 0x31;
    let answers = peer::exchange(&mut world, from("192.0.2.1:500"), &request);
    let answer = Message::parse(&answers[0]).unwrap();
    assert!(answer.payloads.notify(NotifyType::InvalidMajorVersion).is_some());
    request[17] = 0x10;
    assert!(peer::exchange(&mut world, from("192.0.2.1:500"), &request).is_empty());
    request[17] = 0x30;
    request[19] |= 0x20;
    assert!(peer::exchange(&mut world, from("192.0.2.1:500"), &request).is_empty(), "a response");
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::Version), 3);
    // A higher minor version is none of our business (RFC 7296 §2.5).
    request[17] = 0x2f;
    request[19] &= !0x20;
    assert_eq!(peer::exchange(&mut world, from("192.0.2.1:500"), &request).len(), 1);
    assert_eq!(world.hosts[0].endpoint.half_open(), 1);
}

#[test]
fn requests_for_unknown_ike_sas_are_answered_now_and_then_and_responses_never() {
    let mut world = sun();
    let header = Header {
        initiator_spi: IkeSpi(1),
        responder_spi: IkeSpi(2),
        exchange: ExchangeType::Informational,
        from_initiator: true,
        response: false,
        message_id: MessageId(7),
    };
    let padding = Payload::Notify(Notify::new(NotifyType::Unknown(50_000), vec![0; 100]));
    let request = MessageBuilder::new(header).with(padding.clone()).finish().unwrap();
    for _ in 0..1000 {
        peer::exchange(&mut world, from("192.0.2.1:500"), &request);
    }
    assert_eq!(world.hosts[0].sent.len(), 100, "a hundred a second");
    let answer = Message::parse(&world.hosts[0].sent[0].1).unwrap();
    assert!(answer.header.response && !answer.header.from_initiator);
    assert_eq!(answer.header.message_id, MessageId(7));
    assert!(answer.payloads.notify(NotifyType::InvalidIkeSpi).is_some() && answer.encrypted.is_none());
    let response = Header { response: true, ..header };
    let response = MessageBuilder::new(response).with(padding).finish().unwrap();
    world.run_secs(2);
    assert!(peer::exchange(&mut world, from("192.0.2.1:500"), &response).is_empty());
    // Where the answer would be larger than the request, there is none.
    let bare = MessageBuilder::new(header).finish().unwrap();
    assert!(peer::exchange(&mut world, from("192.0.2.1:500"), &bare).is_empty());
}

#[test]
fn messages_above_the_limit_are_not_parsed() {
    let mut world = sun();
    let mut random = Random::new(8);
    let (mut payloads, _, _) = peer::init_payloads(&mut random);
    payloads.push(Payload::Notify(Notify::new(NotifyType::Unknown(50_000), vec![0; 5000])));
    let header = peer::init_header(&mut random);
    let request = peer::message(header, payloads).finish().unwrap();
    assert!(peer::exchange(&mut world, from("192.0.2.1:500"), &request).is_empty());
    assert!(peer::exchange(&mut world, from("192.0.2.1:500"), &vec![0; 65_507]).is_empty());
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::TooLarge), 2);
}

#[test]
fn errors_in_clear_do_not_stop_an_initiator() {
    let mut world = World::pair(9, Weather::FAIR);
    world.hosts[1].stopped = true;
    world.initiate(0);
    let forge = |world: &mut World, exchange, kind| {
        let request = sent(world, 0, exchange, false)[0].clone();
        let header = Header { response: true, from_initiator: false, ..Header::parse(&request).unwrap() };
        let notify = Payload::Notify(Notify::new(kind, Vec::new()));
        let message = MessageBuilder::new(header).with(notify).finish().unwrap();
        world.forge("192.0.2.2:500", "192.0.2.1:500", &message);
        world.run(Duration::from_millis(100));
    };
    // In IKE_SA_INIT the true answer still counts, if it comes soon.
    forge(&mut world, ExchangeType::IkeSaInit, NotifyType::NoProposalChosen);
    let request = sent(&world, 0, ExchangeType::IkeSaInit, false)[0].clone();
    world.hosts[1].stopped = false;
    world.forge("192.0.2.1:500", "192.0.2.2:500", &request);
    world.run_until(|world| !sent(world, 0, ExchangeType::IkeAuth, false).is_empty());
    // In IKE_AUTH only what is protected counts.
    for kind in [NotifyType::AuthenticationFailed, NotifyType::InvalidSyntax, NotifyType::InvalidIkeSpi] {
        forge(&mut world, ExchangeType::IkeAuth, kind);
    }
    world.run_secs(10);
    world.assert_tunnel();
    assert!(world.hosts[0].results()[0].is_ok());
}

#[test]
fn a_forged_answer_that_cannot_be_true_is_passed_over() {
    let mut world = World::pair(10, Weather::FAIR);
    world.hosts[1].stopped = true;
    world.initiate(0);
    let request = sent(&world, 0, ExchangeType::IkeSaInit, false)[0].clone();
    let asked = Message::parse(&request).unwrap();
    let header = Header {
        response: true,
        from_initiator: false,
        responder_spi: IkeSpi(99),
        ..Header::parse(&request).unwrap()
    };
    let whole: Vec<Payload> = asked.payloads.iter().cloned().collect();
    let mut zero = whole.clone();
    zero[1] = Payload::Ke(testudo_ike::message::KePayload {
        method: testudo_ike::message::KeMethod::X25519,
        data: vec![0; 32],
    });
    // A point of no use, parts missing, a reserved SPI, and a host that was not asked.
    let cases = [
        (header, zero, "192.0.2.2:500"),
        (header, whole[..2].to_vec(), "192.0.2.2:500"),
        (Header { responder_spi: IkeSpi::ZERO, ..header }, whole.clone(), "192.0.2.2:500"),
        (header, vec![], "192.0.2.2:500"),
        (header, whole, "203.0.113.9:500"),
    ];
    for (header, payloads, from) in cases {
        let forged = peer::message(header, payloads).finish().unwrap();
        world.forge(from, "192.0.2.1:500", &forged);
        world.run(Duration::from_millis(50));
    }
    let stats = world.hosts[0].endpoint.stats();
    let counts = (stats.discarded(Discard::Unacceptable), stats.discarded(Discard::UnexpectedResponse));
    assert_eq!(counts, (4, 1));
    assert!(sent(&world, 0, ExchangeType::IkeAuth, false).is_empty());
    world.hosts[1].stopped = false;
    world.run_secs(10);
    world.assert_tunnel();
}

#[test]
fn a_nonce_too_short_for_the_prf_is_refused() {
    let mut world = sun();
    let now = world.now;
    let mut strong = crate::scenarios::common::connection(("192.0.2.2", "sun"), ("192.0.2.1", "moon"));
    strong.proposals[0].prf = vec![testudo_ike::config::Prf::HmacSha384];
    world.hosts[0].load(now, strong.clone());
    let mut random = Random::new(11);
    for (length, answered) in [(16, 0), (23, 0), (24, 1)] {
        let (mut payloads, _, _) = peer::init_payloads(&mut random);
        payloads[0] = Payload::Sa(testudo_ike::suite::offer::ike(&strong.proposals, None));
        payloads[2] = Payload::Nonce(testudo_ike::message::Nonce::new(vec![7; length]).unwrap());
        let header = peer::init_header(&mut random);
        let request = peer::message(header, payloads).finish().unwrap();
        let answers = peer::exchange(&mut world, from("192.0.2.1:500"), &request);
        assert_eq!(answers.len(), answered, "{length} octets, half the key of PRF_HMAC_SHA2_384 are 24");
    }
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::Unacceptable), 2);
}

/// A sender of forged addresses gains almost nothing, even before cookies are required: our longer
/// nonce, and the notify that an IKE SA may come without a child (RFC 6023 §3).
#[test]
fn an_answer_is_hardly_larger_than_its_request() {
    let mut world = sun();
    let mut random = Random::new(13);
    let (mut payloads, _, _) = peer::init_payloads(&mut random);
    payloads[2] = Payload::Nonce(testudo_ike::message::Nonce::new(vec![7; 16]).unwrap());
    let header = peer::init_header(&mut random);
    let request = peer::message(header, payloads).finish().unwrap();
    let answers = peer::exchange(&mut world, from("192.0.2.1:500"), &request);
    assert_eq!(answers.iter().map(Vec::len).collect::<Vec<_>>(), [request.len() + 16 + 8]);
}

#[test]
fn the_peers_spi_must_be_right_too() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 12);
    let mut request = peer.seal(ExchangeType::Informational, vec![]);
    request[0] ^= 1;
    assert!(peer::exchange(&mut world, peer.path, &request).is_empty());
    let stats = world.hosts[0].endpoint.stats();
    assert_eq!((stats.discarded(Discard::UnknownSpi), stats.discarded(Discard::Integrity)), (1, 0));
}

/// A request that no cookie vouches for may be forged: its repetitions must not be a way to shower
/// somebody.
#[test]
fn a_repeated_request_is_answered_a_few_times_only() {
    let mut world = sun();
    let request = init_request(&mut Random::new(14));
    let answers = (0..100).flat_map(|_| peer::exchange(&mut world, from("192.0.2.1:500"), &request));
    assert_eq!(answers.count(), 17);
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::MessageId), 83);
}

/// A refused request also causes a look-up of the connections, so that a flood of such requests
/// requires cookies too.
#[test]
fn requests_that_nobody_wants_lead_to_cookies() {
    let mut world = sun();
    let mut random = Random::new(15);
    for last in 0..200 {
        let stranger =
            Path { remote: format!("198.51.100.{last}:500").parse().unwrap(), ..from("192.0.2.1:500") };
        peer::exchange(&mut world, stranger, &init_request(&mut random));
    }
    let stats = world.hosts[0].endpoint.stats();
    let threshold = EndpointConfig::default().cookie_threshold as u64;
    assert_eq!(stats.discarded(Discard::NoConnection), threshold);
    assert_eq!(stats.cookies_demanded, 200 - threshold);
}
