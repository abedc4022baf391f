//! Bundles: ESP inside, AH outside, two SAs between the same ends.

mod alone;
mod cluster;
mod hostile;
mod mss;
mod refused;

use crate::harness::{Gateway, PATH_MTU, POLICY, TAILROOM, Tunnel, Way, forwarded, run};
use crate::packets::{datagram, one_hop_on, sized};
use crate::transport::{self, own, send};
use crate::turns::{Packets, in_turn, sent, whole};
use proptest::prelude::*;
use std::slice::from_ref;
use std::sync::Arc;
use testudo_base::spi::Spi;
use testudo_ipsec::dataplane::{Command, Dataplane, Event, Ingress, Item, PolicyBlock, Sources, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::sa::{
    ChildSaParams, Cipher, EspAlgorithm, InboundSa, Mac, Mode, OutboundSa, SeparateAlgorithm,
};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::selector::{SelectorPair, TrafficSelector};
use testudo_ipsec::spd::{Action, PolicyId, Rank, Spd};
use testudo_wire::ah::Ah;
use testudo_wire::ip::Protocol;
use testudo_wire::packet::PacketBuf;
use testudo_wire::{ipv4, ipv6};

const AROUND: PolicyId = PolicyId(POLICY.0 + 1);

/// Options of the bundle.
#[derive(Clone, Copy, Debug)]
struct Kind {
    esp: Tunnel,
    esp_mode: Mode,
    mac: Mac,
    ah_mode: Mode,
}

impl Default for Kind {
    fn default() -> Self {
        Self {
            esp: Tunnel::default(),
            esp_mode: Mode::Tunnel,
            mac: Mac::HmacSha256_128,
            ah_mode: Mode::Transport,
        }
    }
}

impl Kind {
    fn all() -> impl Iterator<Item = Self> {
        const MODES: [(Mode, Mode); 4] = [
            (Mode::Tunnel, Mode::Transport),
            (Mode::Transport, Mode::Transport),
            (Mode::Tunnel, Mode::Tunnel),
            (Mode::Transport, Mode::Tunnel),
        ];
        let cbc = SeparateAlgorithm { cipher: Cipher::Aes128Cbc, mac: Mac::HmacSha1_96 };
        let ciphers = [EspAlgorithm::Aes128Gcm16, EspAlgorithm::Separate(cbc)];
        let tunnels = Tunnel::all().filter(|tunnel| !tunnel.udp);
        tunnels.flat_map(move |tunnel| {
            let of_cipher = move |algorithm| {
                MODES.into_iter().flat_map(move |(esp_mode, ah_mode)| {
                    let esp = Tunnel { algorithm, ..tunnel };
                    Mac::ALL.into_iter().map(move |mac| Self { esp, esp_mode, mac, ah_mode })
                })
            };
            ciphers.into_iter().flat_map(of_cipher)
        })
    }

    fn esp_params(&self) -> ChildSaParams {
        match self.esp_mode {
            Mode::Tunnel => self.esp.params(),
            Mode::Transport => transport::params(&self.esp),
        }
    }

    fn ah_params(&self) -> ChildSaParams {
        let params = transport::params(&Tunnel { algorithm: EspAlgorithm::Ah(self.mac), ..self.esp });
        let esp_only = |ts: &TrafficSelector| TrafficSelector { protocol: Protocol::ESP.0, ..*ts };
        ChildSaParams {
            spi_in: Spi(params.spi_in.0 + 0x1000),
            spi_out: Spi(params.spi_out.0 + 0x1000),
            mode: self.ah_mode,
            local_ts: params.local_ts.iter().map(esp_only).collect(),
            remote_ts: params.remote_ts.iter().map(esp_only).collect(),
            ..params
        }
    }

    /// Octets that AH puts around ESP.
    fn ah_len(&self) -> usize {
        let (align, header) = if self.esp.outer_v6 { (8, ipv6::HEADER) } else { (4, ipv4::HEADER) };
        let own = (12 + self.mac.icv_len()).next_multiple_of(align);
        own + if self.ah_mode == Mode::Tunnel { header } else { 0 }
    }

    /// Packets that go through the SA of ESP.
    fn packets(&self) -> Packets {
        match self.esp_mode {
            Mode::Tunnel => vec![sized(false, 28), sized(true, 48), sized(false, 1000), sized(true, 1001)],
            Mode::Transport => {
                [9, 100, 1001].map(|len| own(&self.esp, Protocol::UDP, &datagram(len))).to_vec()
            }
        }
    }

    fn ingress(&self) -> Ingress {
        if self.esp_mode == Mode::Tunnel { Ingress::Port } else { Ingress::Host }
    }
}

/// A gateway with both SAs.
struct End {
    gateway: Gateway,
    params: ChildSaParams,
    ah_params: ChildSaParams,
    ah_in: Arc<InboundSa>,
    ah_out: Arc<OutboundSa>,
}

impl End {
    fn new(kind: &Kind, params: ChildSaParams, ah_params: ChildSaParams) -> Self {
        let whole = SequenceBlock::whole(kind.esp.esn);
        Self::with_numbers(kind, params, ah_params, whole)
    }

    fn with_numbers(
        kind: &Kind,
        params: ChildSaParams,
        ah_params: ChildSaParams,
        numbers: SequenceBlock,
    ) -> Self {
        let library = kind.esp.library;
        let ah_in = Arc::new(InboundSa::new(&ah_params, AROUND, PATH_MTU, library).unwrap());
        let ah_out = Arc::new(OutboundSa::new(&ah_params, AROUND, numbers, PATH_MTU, library).unwrap());
        let gateway = Gateway::new(&params, library);
        let mut end = Self { gateway, params, ah_params, ah_in, ah_out };
        end.gateway.plane = end.another(5);
        end
    }

    /// The data plane of another worker.
    fn another(&self, worker: u8) -> Dataplane {
        self.bundled(self.gateway.another(&self.params, worker))
    }

    fn bundled(&self, mut plane: Dataplane) -> Dataplane {
        let selectors = |params: &ChildSaParams| SelectorPair::new(&params.local_ts, &params.remote_ts);
        let mut spd = Spd::empty();
        let rank = |place| Rank { priority: 0, place, part: 0 };
        spd.insert(rank(1), &selectors(&self.params), Action::Protect(POLICY)).unwrap();
        spd.insert_around(rank(2), &selectors(&self.ah_params), AROUND).unwrap();
        plane.apply(Command::SetSpd(Arc::new(spd)));
        plane.apply(Command::AddPolicies(Box::new(PolicyBlock::of(AROUND))));
        plane.apply(Command::AddSlots(Box::new(SlotBlock::of(self.ah_params.spi_in))));
        assert!(plane.apply(Command::AddInbound(self.ah_in.clone())).is_none());
        assert!(plane.apply(Command::SetOutbound(AROUND, self.ah_out.clone())).is_none());
        plane
    }

    fn plane(&mut self) -> &mut Dataplane {
        &mut self.gateway.plane
    }

    fn inbound(&mut self, packets: &[Vec<u8>]) -> Vec<(Verdict, Vec<u8>)> {
        self.gateway.inbound(packets)
    }

    fn is_balanced(&self) {
        let totals = self.gateway.plane.counters().totals();
        assert!(totals.inbound.is_balanced() && totals.outbound.is_balanced(), "{totals:?}");
    }
}

fn pair(kind: &Kind) -> (End, End) {
    let (esp, ah) = (kind.esp_params(), kind.ah_params());
    let far = End::new(kind, esp.mirrored(), ah.mirrored());
    (End::new(kind, esp, ah), far)
}

/// The same without AH, at the sender.
fn bare(kind: &Kind) -> Gateway {
    Gateway::new(&kind.esp_params(), kind.esp.library)
}

fn one(results: Vec<(Verdict, Vec<u8>)>) -> (Verdict, Vec<u8>) {
    let [one] = results.try_into().unwrap();
    one
}

#[test]
fn through_both_and_back() {
    for kind in Kind::all() {
        let (mut a, mut b) = pair(&kind);
        let packets = kind.packets();
        let sent = forwarded(run(a.plane(), Way::Outbound, kind.ingress(), &packets));
        let plain = forwarded(run(&mut bare(&kind).plane, Way::Outbound, kind.ingress(), &packets));
        let header = if kind.esp.outer_v6 { ipv6::HEADER } else { ipv4::HEADER };
        for ((number, sent), plain) in (1_u32..).zip(&sent).zip(&plain) {
            assert_eq!(sent.len(), plain.len() + kind.ah_len(), "{kind:?}");
            assert_eq!(sent[if kind.esp.outer_v6 { 6 } else { 9 }], 51);
            let ah = Ah::parse(&sent[header..]).unwrap();
            assert_eq!((ah.spi, ah.sequence), (a.ah_params.spi_out.0, number));
            let esp = match (kind.ah_mode, kind.esp.outer_v6) {
                (Mode::Transport, _) => {
                    assert_eq!(ah.next, Protocol::ESP);
                    ah.payload
                }
                (Mode::Tunnel, v6) => {
                    assert_eq!(ah.next, if v6 { Protocol::IPV6 } else { Protocol::IPV4 });
                    &ah.payload[header..]
                }
            };
            let expected = [a.params.spi_out.0, number].map(u32::to_be_bytes).concat();
            assert_eq!(esp[..8], expected, "{kind:?}");
        }
        let got = b.inbound(&sent);
        for ((verdict, got), packet) in got.into_iter().zip(&packets) {
            match kind.esp_mode {
                Mode::Tunnel => {
                    assert_eq!(
                        (verdict, got),
                        (Verdict::Forward, one_hop_on(&one_hop_on(packet))),
                        "{kind:?}"
                    );
                }
                Mode::Transport => assert_eq!((verdict, &got), (Verdict::ToHost, packet), "{kind:?}"),
            }
        }
        let counted = packets.len() as u64;
        for totals in [a.gateway.outbound.counters(), a.ah_out.counters()] {
            assert_eq!(totals.totals().packets, counted);
        }
        for totals in [b.gateway.inbound.counters(), b.ah_in.counters()] {
            assert_eq!(totals.totals().packets, counted);
        }
        let octets: usize = plain.iter().map(Vec::len).sum();
        assert_eq!(a.ah_out.counters().totals().bytes, octets as u64);
        let again = b.inbound(&sent);
        assert!(again.iter().all(|(verdict, _)| *verdict == Verdict::Drop(DropReason::Replayed)));
        assert_eq!(
            b.ah_in.counters().dropped(DropReason::Replayed),
            counted,
            "by AH, which is looked at first"
        );
        a.is_balanced();
        b.is_balanced();
    }
}

/// RFC 4301 §5.2: what a policy wants in both must have come in both, wherever it says that it
/// comes from.
#[test]
fn bare_esp_is_refused() {
    for kind in Kind::all() {
        let (_, mut b) = pair(&kind);
        let plain = forwarded(run(&mut bare(&kind).plane, Way::Outbound, kind.ingress(), &kind.packets()));
        let mut elsewhere = plain.clone();
        for packet in &mut elsewhere {
            let last_of_source = if kind.esp.outer_v6 { 23 } else { 15 };
            packet[last_of_source] ^= 0x40;
            crate::ah::mend(packet);
        }
        let packets = [plain, elsewhere].concat();
        for (verdict, _) in b.inbound(&packets) {
            assert_eq!(verdict, Verdict::Drop(DropReason::NotInAh), "{kind:?}");
        }
        let counted = packets.len() as u64;
        assert_eq!(b.plane().counters().dropped_inbound(DropReason::NotInAh), counted);
        b.is_balanced();
    }
}

/// A packet that does not come from a peer with both keys changes neither window.
#[test]
fn a_forged_half_goes_no_further() {
    let kind = Kind::default();
    let (mut a, mut b) = pair(&kind);
    let packet = sized(false, 100);
    let sent = forwarded(a.gateway.outbound(from_ref(&packet))).remove(0);
    for at in 20..sent.len() {
        let mut damaged = sent.clone();
        damaged[at] ^= 1;
        let verdict = one(b.inbound(&[damaged])).0;
        let refused = matches!(verdict, Verdict::Drop(_) | Verdict::Early(_));
        assert!(refused, "octet {at}: {verdict:?}");
    }
    assert_eq!(b.ah_in.counters().totals().packets, 0);
    assert_eq!(one(b.inbound(&[sent])).0, Verdict::Forward);
    // AH by who has its key, around ESP that was made with another.
    let mut b = pair(&kind).1;
    let ah_only = |kind: &Kind| {
        let mut params = kind.ah_params();
        (params.local_ts, params.remote_ts) =
            (transport::params(&kind.esp).local_ts, transport::params(&kind.esp).remote_ts);
        Gateway::new(&params, kind.esp.library)
    };
    let mut forged = forwarded(bare(&kind).outbound(from_ref(&packet))).remove(0);
    *forged.last_mut().unwrap() ^= 1;
    let wrapped = forwarded(send(&mut ah_only(&kind), &[forged.clone(), forged])).remove(1);
    assert_eq!(one(b.inbound(&[wrapped])).0, Verdict::Drop(DropReason::AuthFailed));
    assert_eq!(b.gateway.dropped_inbound(DropReason::AuthFailed).1, 1, "of ESP");
    // The same ESP twice, each time in an AH of its own.
    let esp = forwarded(bare(&kind).outbound(&[packet.clone(), packet])).remove(1);
    let twice: Vec<_> = forwarded(send(&mut ah_only(&kind), &vec![esp; 4])).split_off(2);
    let verdicts: Vec<_> = b.inbound(&twice).into_iter().map(|(verdict, _)| verdict).collect();
    assert_eq!(verdicts, [Verdict::Forward, Verdict::Drop(DropReason::Replayed)]);
    assert_eq!(b.gateway.dropped_inbound(DropReason::Replayed), (1, 1));
    b.is_balanced();
}

/// ESP of another address inside an authentic AH is none of its selectors' business.
#[test]
fn the_inside_is_of_the_selectors_of_ah() {
    let kind = Kind { ah_mode: Mode::Tunnel, ..Kind::default() };
    let mut b = pair(&kind).1;
    let mut wide = kind.ah_params();
    wide.local_ts = vec![crate::harness::net("0.0.0.0", "255.255.255.255")];
    let mut params = kind.esp_params();
    params.local.set_ip("192.0.2.99".parse().unwrap());
    let mut a = End::new(&kind, params, wide);
    let sent = forwarded(a.gateway.outbound(&[sized(false, 100)]));
    assert_eq!(one(b.inbound(&sent)).0, Verdict::Drop(DropReason::SelectorMismatch));
    assert_eq!(b.ah_in.counters().dropped(DropReason::SelectorMismatch), 1);
}

/// The peer may have both SAs before we have the inner one.
#[test]
fn around_unknown_esp_it_is_early() {
    for kind in Kind::all() {
        let (mut a, mut b) = pair(&kind);
        let packets = kind.packets();
        let sent = forwarded(run(a.plane(), Way::Outbound, kind.ingress(), &packets));
        let esp = b.gateway.inbound.clone();
        b.plane().apply(Command::RemoveInbound(esp.spi()));
        for (verdict, found) in b.inbound(&sent) {
            assert_eq!(verdict, Verdict::Early(esp.spi()), "{kind:?}");
            assert!(sent.contains(&found), "as it came");
        }
        assert!(b.plane().apply(Command::AddInbound(esp)).is_none());
        for (verdict, _) in b.inbound(&sent) {
            assert!(matches!(verdict, Verdict::Forward | Verdict::ToHost), "{kind:?}: {verdict:?}");
        }
    }
}

#[test]
fn without_the_outer_sa_nothing_leaves_and_it_is_asked_for() {
    for kind in Kind::all() {
        let (mut a, _) = pair(&kind);
        let spi = a.ah_params.spi_in;
        assert!(a.plane().apply(Command::ClearOutbound(AROUND, spi)).is_some());
        for packet in kind.packets() {
            let verdict = one(run(a.plane(), Way::Outbound, kind.ingress(), &[packet])).0;
            assert_eq!(verdict, Verdict::Drop(DropReason::NoSa), "{kind:?}");
        }
        let events: Vec<Event> = a.plane().drain_events().collect();
        let [Event::NoSa { policy: AROUND, packet }] = events[..] else { panic!("{events:?}") };
        assert_eq!((packet.local(), packet.remote()), (kind.esp.outer(1), kind.esp.outer(2)));
        assert_eq!(packet.protocol(), Protocol::ESP.0);
        assert_eq!(a.gateway.outbound.counters().totals().packets, 0);
        a.is_balanced();
    }
}

/// A packet gets both numbers or none leaves with one.
#[test]
fn without_a_number_of_ah_it_is_not_sent() {
    let kind = Kind::default();
    let block = SequenceBlock { end: 3, ..SequenceBlock::whole(kind.esp.esn) };
    let mut a = End::with_numbers(&kind, kind.esp_params(), kind.ah_params(), block);
    let results = a.gateway.outbound(&vec![sized(false, 100); 4]);
    let sent = results.iter().filter(|(verdict, _)| *verdict == Verdict::Forward).count() as u64;
    let refused = a.ah_out.counters().dropped(DropReason::NoBlock);
    assert!((1..4).contains(&sent) && sent + refused == 4, "{results:?}");
    assert_eq!(a.gateway.outbound.counters().totals().packets, sent);
    assert_eq!(a.ah_out.counters().totals().packets, sent);
    a.is_balanced();
}

/// The largest fitting packet fills the path, and a sender of one octet more gets an ICMP error
/// with the fitting size.
#[test]
fn the_largest_packet_fills_the_path() {
    for kind in Kind::all().filter(|kind| kind.esp_mode == Mode::Tunnel) {
        let (mut a, mut b) = pair(&kind);
        let esp_alone = usize::from(a.gateway.outbound.inner_mtu());
        let fits = (1280..=esp_alone)
            .rev()
            .find(|size| one(a.gateway.outbound(&[sized(true, *size)])).0 == Verdict::Forward);
        let fits = fits.unwrap();
        let (verdict, sent) = one(a.gateway.outbound(&[sized(true, fits)]));
        assert_eq!(verdict, Verdict::Forward);
        assert!(sent.len() <= PATH_MTU.into(), "{kind:?}: {} octets", sent.len());
        let larger = one(bare(&kind).outbound(&[sized(true, fits + 1)])).1.len() + kind.ah_len();
        assert!(larger > PATH_MTU.into(), "{kind:?}: {larger} octets would fit");
        assert_eq!(one(b.inbound(&[sent])).0, Verdict::Forward);
        let (verdict, error) = one(a.gateway.outbound(&[sized(true, fits + 1)]));
        assert_eq!(verdict, Verdict::Reply);
        assert_eq!(error[44..48], (fits as u32).to_be_bytes(), "{kind:?}");
    }
}

/// TCP is told of segments that fit both, by each end.
#[test]
fn mss_is_clamped_to_what_fits_both() {
    for kind in Kind::all().filter(|kind| kind.esp_mode == Mode::Tunnel) {
        let (mut a, mut b) = pair(&kind);
        let syn = crate::tunnel::syn(true, 2, 9000);
        let clamped = forwarded(a.gateway.outbound(from_ref(&syn)));
        let got = crate::tunnel::mss_of(&forwarded(b.inbound(&clamped))[0]);
        let size = usize::from(got) + 60;
        assert_eq!(one(a.gateway.outbound(&[sized(true, size)])).0, Verdict::Forward, "{kind:?}");
        assert_eq!(one(a.gateway.outbound(&[sized(true, size + 1)])).0, Verdict::Reply, "{kind:?}");
        // From one that clamps to what fits ESP alone.
        let esp = forwarded(bare(&kind).outbound(from_ref(&syn)));
        let mut wide = kind.ah_params();
        (wide.local_ts, wide.remote_ts) =
            (transport::params(&kind.esp).local_ts, transport::params(&kind.esp).remote_ts);
        let mut wrapper = Gateway::new(&wide, kind.esp.library);
        let wrapped = forwarded(send(&mut wrapper, &[esp.clone(), esp].concat()));
        let mut b = pair(&kind).1;
        let got = crate::tunnel::mss_of(&forwarded(b.inbound(&wrapped[..1]))[0]);
        assert_eq!(usize::from(got) + 60, size, "{kind:?}");
    }
}

#[test]
fn without_room_for_both_it_is_dropped() {
    let kind = Kind::default();
    let (mut a, _) = pair(&kind);
    let packet = sized(false, 100);
    let needed = ipv4::HEADER + 16 + kind.ah_len();
    for (before, fits) in [(needed, true), (needed - 1, false)] {
        let mut frame = [&vec![0; before][..], &packet, &[0; TAILROOM]].concat();
        let buf = PacketBuf::new(&mut frame, before, packet.len()).unwrap();
        let mut items = [Item::new(buf, Ingress::Port)];
        a.plane().outbound(&mut items, &Sources::default());
        let expected = if fits { Verdict::Forward } else { Verdict::Drop(DropReason::NoRoom) };
        assert_eq!(items[0].verdict, expected, "{before} before");
    }
    a.is_balanced();
}

/// IPv6 packets that are too large and must pass leave in fragments that fit, AH included, because
/// only their source may fragment them.
#[test]
fn packets_that_must_pass_are_split_outside() {
    let esp = Tunnel { outer_v6: true, ..Tunnel::default() };
    let (mut a, mut b) = pair(&Kind { esp, ..Kind::default() });
    for half in [1300, 1340] {
        a.ah_out.set_path_mtu(half).unwrap();
        let (verdict, sent) = one(a.gateway.outbound(&[sized(true, 1280)]));
        assert_eq!(verdict, Verdict::ForwardInPieces { mtu: half });
        assert_eq!(one(b.inbound(&[sent])).0, Verdict::Forward);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Both windows and both kinds of numbers as if one worker did all.
    #[test]
    fn bundles_in_several_hands_are_bundles_in_one(
        sizes in prop::collection::vec(prop::collection::vec(48usize..1300, 1..20), 1..=4),
        copies in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..20),
    ) {
        let kind = Kind::default();
        let ((mut near, mut far), (pool_near, pool_far)) = (pair(&kind), pair(&kind));
        let clear: Vec<Packets> =
            sizes.iter().map(|burst| burst.iter().map(|size| sized(true, *size)).collect()).collect();
        let workers = |end: &End| (0..clear.len() as u8).map(|worker| end.another(worker)).collect::<Vec<_>>();
        let expected = whole(&mut near.gateway, true, &clear);
        let found = in_turn(&mut workers(&pool_near), true, &clear);
        prop_assert_eq!(found.len(), expected.len());
        let mut outer = sent(found);
        let number = |at: usize| move |packet: &Vec<u8>| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
        prop_assert!(outer.iter().map(number(28)).eq(1..=outer.len() as u32), "AH in order");
        prop_assert!(outer.iter().map(number(52)).eq(1..=outer.len() as u32), "ESP in order");
        for (from, to) in copies {
            let copy = from.get(&outer).clone();
            outer.insert(to.index(outer.len()), copy);
        }
        let received: Vec<Packets> =
            outer.chunks(outer.len().div_ceil(clear.len())).map(<[_]>::to_vec).collect();
        let found = in_turn(&mut workers(&pool_far)[..received.len()], false, &received);
        prop_assert_eq!(found, whole(&mut far.gateway, false, &received));
        prop_assert_eq!(far.ah_in.counters().totals().packets, pool_far.ah_in.counters().totals().packets);
        let (one, pool) = (far.gateway.inbound.counters().totals(), pool_far.gateway.inbound.counters().totals());
        prop_assert_eq!((one.packets, one.bytes), (pool.packets, pool.bytes));
    }
}
