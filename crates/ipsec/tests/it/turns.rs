//! Bursts of one SA in several hands: whatever overtakes whatever between their turns, they come
//! out as one after the other.

use crate::harness::{Gateway, HEADROOM, TAILROOM, Tunnel, pair};
use crate::packets::sized;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use testudo_ipsec::dataplane::{Dataplane, Event, Ingress, Item, Sources, Turn, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::sa::{ChildSaParams, Cipher, EspAlgorithm};
use testudo_wire::packet::PacketBuf;

/// Bursts at most: each has a worker of its own.
const BURSTS: usize = 5;
/// Packets of a burst at most.
const PACKETS: usize = 40;

pub(crate) type Packets = Vec<Vec<u8>>;
pub(crate) type Results = Vec<(Verdict, Vec<u8>)>;

/// All that came earlier is done while a burst waits for its turn: what it did before, it did
/// before all of them.
struct Earlier<F: FnMut()> {
    catch_up: Option<F>,
    begun: bool,
}

impl<F: FnMut()> Turn for Earlier<F> {
    fn begin(&mut self) {
        assert!(!self.begun, "one turn a burst");
        self.begun = true;
        if let Some(mut catch_up) = self.catch_up.take() {
            catch_up();
        }
    }

    fn end(&mut self) {
        assert!(self.begun, "a turn ends that has not begun");
    }
}

/// A burst through a data plane.
fn run(burst: &Packets, through: impl FnOnce(&mut [Item<'_>])) -> Results {
    let octets = |packet: &Vec<u8>| [&[0xee; HEADROOM][..], packet, &[0xee; TAILROOM]].concat();
    let mut frames: Packets = burst.iter().map(octets).collect();
    let item = |(frame, packet): (_, &Vec<u8>)| {
        let frame: &mut Vec<u8> = frame;
        Item::new(PacketBuf::new(frame, HEADROOM, packet.len()).unwrap(), Ingress::Port)
    };
    let mut items: Vec<Item<'_>> = frames.iter_mut().zip(burst).map(item).collect();
    through(&mut items);
    // Why something is dropped may differ: a damaged copy is found to be damaged before its
    // original is accepted.
    let result = |item: &Item<'_>| match item.verdict {
        Verdict::Drop(_) => (Verdict::Drop(DropReason::Replayed), Vec::new()),
        verdict => (verdict, item.buf.data().to_vec()),
    };
    items.iter().map(result).collect()
}

fn through(plane: &mut Dataplane, outbound: bool, items: &mut [Item<'_>], turn: &mut dyn Turn) {
    match outbound {
        true => plane.outbound_in_turn(items, &Sources::default(), turn),
        false => plane.inbound_in_turn(items, turn),
    }
}

/// The last burst begins first, and at its turn the one before it begins.
pub(crate) fn in_turn(planes: &mut [Dataplane], outbound: bool, bursts: &[Packets]) -> Results {
    let Some((burst, earlier_bursts)) = bursts.split_last() else { return Vec::new() };
    let (plane, earlier_planes) = planes.split_last_mut().expect("a worker for each burst");
    let mut results = Vec::new();
    let mut earlier = Earlier {
        catch_up: Some(|| results = in_turn(earlier_planes, outbound, earlier_bursts)),
        begun: false,
    };
    let last = run(burst, |items| through(plane, outbound, items, &mut earlier));
    assert!(earlier.begun, "each burst takes its turn");
    results.extend(last);
    results
}

/// The same by one worker, one after the other.
pub(crate) fn whole(gateway: &mut Gateway, outbound: bool, bursts: &[Packets]) -> Results {
    let plane = &mut gateway.plane;
    let one = |burst| {
        run(burst, |items| match outbound {
            true => plane.outbound(items, &Sources::default()),
            false => plane.inbound(items),
        })
    };
    bursts.iter().flat_map(one).collect()
}

fn planes(gateway: &Gateway, params: &ChildSaParams) -> Vec<Dataplane> {
    (0..BURSTS as u8).map(|worker| gateway.another(params, worker)).collect()
}

/// Bursts of packets of these sizes; those of size 0 are no packets.
fn bursts(sizes: &[Vec<(bool, usize)>]) -> Vec<Packets> {
    let packet = |(v6, size): &(bool, usize)| if *size == 0 { vec![0x45; 7] } else { sized(*v6, *size) };
    sizes.iter().map(|burst| burst.iter().map(packet).collect()).collect()
}

fn verdicts(results: &Results) -> Vec<Verdict> {
    results.iter().map(|(verdict, _)| *verdict).collect()
}

/// ESP packets among what has come out.
pub(crate) fn sent(results: Results) -> Packets {
    results
        .into_iter()
        .filter(|(verdict, _)| *verdict == Verdict::Forward)
        .map(|(_, packet)| packet)
        .collect()
}

/// Sequence number and IV of an ESP packet without options or UDP before it.
fn marks(packet: &[u8]) -> (u32, [u8; 8]) {
    (u32::from_be_bytes(packet[24..28].try_into().unwrap()), packet[28..36].try_into().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn bursts_in_several_hands_are_bursts_in_one(
        sizes in prop::collection::vec(
            prop::collection::vec(
                (any::<bool>(), prop_oneof![1 => Just(0), 9 => 48usize..1400]), 1..PACKETS), 1..=BURSTS),
        moves in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..40),
        algorithm in prop::sample::select(EspAlgorithm::all().collect::<Vec<_>>()),
    ) {
        let tunnel = Tunnel { algorithm, ..Tunnel::default() };
        let params = tunnel.params();
        let ((mut near, mut far), (pool_near, pool_far)) = (pair(&tunnel), pair(&tunnel));
        let clear = bursts(&sizes);
        let expected = whole(&mut near, true, &clear);
        let found = in_turn(&mut planes(&pool_near, &params)[..clear.len()], true, &clear);
        prop_assert_eq!(verdicts(&found), verdicts(&expected));
        prop_assert_eq!(near.outbound.counters().totals(), pool_near.outbound.counters().totals());
        let mut outer = sent(found);
        prop_assert!(outer.iter().map(|packet| marks(packet).0).eq(1..=outer.len() as u32), "in order");
        let ivs: BTreeSet<_> = outer.iter().map(|packet| marks(packet).1).collect();
        let has_iv = !matches!(algorithm, EspAlgorithm::Separate(separate) if separate.cipher == Cipher::Null);
        prop_assert!(!has_iv || ivs.len() == outer.len(), "an IV twice");

        // Some come twice, in any burst, and some are damaged on their way.
        for (from, to) in moves {
            if !outer.is_empty() {
                let copy = from.get(&outer).clone();
                outer.insert(to.index(outer.len()), copy);
            }
        }
        for packet in outer.iter_mut().step_by(17) {
            if let Some(last) = packet.last_mut() {
                *last ^= 1;
            }
        }
        let received: Vec<Packets> = outer.chunks(outer.len().div_ceil(BURSTS).max(1)).map(<[_]>::to_vec).collect();
        let mut workers = planes(&pool_far, &params.mirrored());
        let found = in_turn(&mut workers[..received.len()], false, &received);
        prop_assert_eq!(found, whole(&mut far, false, &received));
        let (one, pool) = (far.inbound.counters().totals(), pool_far.inbound.counters().totals());
        prop_assert_eq!((one.packets, one.bytes), (pool.packets, pool.bytes));
    }
}

#[test]
fn an_early_packet_is_not_counted_as_received() {
    let (mut near, far) = pair(&Tunnel::default());
    let outer = sent(whole(&mut near, true, &[vec![sized(false, 200), sized(true, 300)]]));
    let octets: usize = outer.iter().map(Vec::len).sum();
    let mut plane = far.another(&Tunnel::default().params().mirrored(), 1);
    let before = plane.counters().totals();
    plane.apply(testudo_ipsec::dataplane::Command::RemoveInbound(far.inbound.spi()));
    let results = run(&outer, |items| plane.inbound(items));
    assert!(results.iter().all(|(verdict, _)| matches!(verdict, Verdict::Early(_))), "{results:?}");
    plane.pass_early(outer.len() as u64, octets as u64);
    let after = plane.counters().totals();
    assert_eq!((after.inbound.received, after.inbound.received_bytes, after.inbound.early), (0, 0, 0));
    assert!(before.inbound.is_balanced() && after.inbound.is_balanced());
}

/// Accepts later numbers as soon as a burst has had its turn, as other workers do that have waited
/// for it.
struct Overtaken<'f> {
    far: &'f Gateway,
    turns: u32,
}

impl Turn for Overtaken<'_> {
    fn begin(&mut self) {}

    fn end(&mut self) {
        self.turns += 1;
        self.far.inbound.window().accept(1000).unwrap();
    }
}

#[test]
fn a_peer_that_has_moved_is_found_though_later_bursts_are_accepted_at_once() {
    let tunnel = Tunnel { udp: true, ..Tunnel::default() };
    let (mut near, far) = pair(&tunnel);
    let mut outer = sent(whole(&mut near, true, &[vec![sized(false, 200), sized(true, 300)]]));
    // As behind a NAT that has forgotten the port; UDP's checksum is zero.
    outer.iter_mut().for_each(|packet| packet[20..22].copy_from_slice(&4711_u16.to_be_bytes()));
    let mut plane = far.another(&tunnel.params().mirrored(), 1);
    let mut turn = Overtaken { far: &far, turns: 0 };
    let results = run(&outer, |items| plane.inbound_in_turn(items, &mut turn));
    assert!(results.iter().all(|(verdict, _)| *verdict == Verdict::Forward), "{results:?}");
    assert_eq!(turn.turns, 1);
    let remote = SocketAddr::new(tunnel.outer(1), 4711);
    let moved = Event::AddressChanged { spi: far.inbound.spi(), remote };
    assert!(plane.drain_events().any(|event| event == moved), "nobody is told");
}
