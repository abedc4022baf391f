//! A burst in three stages comes out as in one call, however many are between their stages and in whatever order they are worked on.

use crate::harness::{Gateway, HEADROOM, TAILROOM, Tunnel, pair};
use crate::packets::sized;
use proptest::prelude::*;
use testudo_ipsec::dataplane::{Away, Ingress, Item, Sources, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::sa::EspAlgorithm;
use testudo_wire::packet::PacketBuf;

/// A packet in its frame: where it lies, and what has become of it.
#[derive(Clone, Debug)]
struct Frame {
    octets: Vec<u8>,
    start: usize,
    len: usize,
    verdict: Verdict,
    /// The first stage has left it to the others.
    away: bool,
}

impl Frame {
    fn new(packet: &[u8]) -> Self {
        let octets = [&[0xee; HEADROOM][..], packet, &[0xee; TAILROOM]].concat();
        Self { octets, start: HEADROOM, len: packet.len(), verdict: Verdict::Pending, away: false }
    }

    /// What is sent. Why something is dropped may differ: a damaged copy of a packet that is between its stages is found to be
    /// damaged, where it would have been found to be a copy.
    fn result(&self) -> (Verdict, Vec<u8>) {
        let octets = self.octets[self.start..][..self.len].to_vec();
        match self.verdict {
            Verdict::Drop(_) => (Verdict::Drop(DropReason::Replayed), Vec::new()),
            verdict => (verdict, octets),
        }
    }
}

/// One stage over a burst of frames.
fn stage<R>(frames: &mut [Frame], run: impl FnOnce(&mut [Item<'_>]) -> R) -> R {
    let mut items: Vec<Item<'_>> = frames
        .iter_mut()
        .map(|frame| {
            let buf = PacketBuf::new(&mut frame.octets, frame.start, frame.len).unwrap();
            Item { verdict: frame.verdict, ..Item::new(buf, Ingress::Port) }
        })
        .collect();
    let result = run(&mut items);
    let extents: Vec<_> = items.iter().map(|item| (item.buf.start(), item.buf.len(), item.verdict)).collect();
    for (frame, (start, len, verdict)) in frames.iter_mut().zip(extents) {
        (frame.start, frame.len, frame.verdict) = (start, len, verdict);
    }
    result
}

/// A later stage, over what the first one has left.
fn rest(frames: &mut [Frame], run: impl FnOnce(&mut [Item<'_>])) {
    let is_left = |frame: &&mut Frame| frame.away;
    let mut left: Vec<Frame> = frames.iter_mut().filter(is_left).map(|frame| frame.clone()).collect();
    stage(&mut left, run);
    frames.iter_mut().filter(is_left).zip(left).for_each(|(frame, left)| *frame = left);
}

/// Bursts through one gateway: all begin, are worked on in an order of their own, and end.
fn staged(
    gateway: &mut Gateway,
    outbound: bool,
    bursts: &[Vec<Vec<u8>>],
    order: &[usize],
) -> Vec<(Verdict, Vec<u8>)> {
    let mut all: Vec<(Vec<Frame>, Option<Away>)> = Vec::new();
    for burst in bursts {
        let mut frames: Vec<Frame> = burst.iter().map(|packet| Frame::new(packet)).collect();
        let away = stage(&mut frames, |items| match outbound {
            true => gateway.plane.begin_outbound(items, &Sources::default()),
            false => gateway.plane.begin_inbound(items),
        });
        frames.iter_mut().for_each(|frame| frame.away = frame.verdict == Verdict::Pending);
        assert_eq!(frames.iter().any(|frame| frame.away), away.is_some());
        all.push((frames, away));
    }
    for at in order {
        if let (frames, Some(away)) = &mut all[*at] {
            rest(frames, |items| away.work(items));
        }
    }
    for (frames, away) in &mut all {
        if let Some(away) = away {
            rest(frames, |items| gateway.plane.end(away, items));
        }
    }
    all.iter().flat_map(|(frames, _)| frames.iter().map(Frame::result)).collect()
}

fn whole(gateway: &mut Gateway, outbound: bool, bursts: &[Vec<Vec<u8>>]) -> Vec<(Verdict, Vec<u8>)> {
    let mut results = Vec::new();
    for burst in bursts {
        let mut frames: Vec<Frame> = burst.iter().map(|packet| Frame::new(packet)).collect();
        stage(&mut frames, |items| match outbound {
            true => gateway.plane.outbound(items, &Sources::default()),
            false => gateway.plane.inbound(items),
        });
        results.extend(frames.iter().map(Frame::result));
    }
    results
}

/// Bursts of packets of these sizes; those of size 0 are no packets.
fn bursts(sizes: &[Vec<(bool, usize)>]) -> Vec<Vec<Vec<u8>>> {
    let packet = |(v6, size): &(bool, usize)| if *size == 0 { vec![0x45; 7] } else { sized(*v6, *size) };
    sizes.iter().map(|burst| burst.iter().map(packet).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn stages_are_the_whole(
        sizes in prop::collection::vec(
            prop::collection::vec((any::<bool>(), prop_oneof![1 => Just(0), 9 => 48usize..1400]), 1..64), 1..5),
        shuffled in Just((0..5).collect::<Vec<usize>>()).prop_shuffle(),
        moves in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..40),
        algorithm in prop::sample::select(EspAlgorithm::all().collect::<Vec<_>>()),
    ) {
        let tunnel = Tunnel { algorithm, ..Tunnel::default() };
        let ((mut near, mut far), (mut other_near, mut other_far)) = (pair(&tunnel), pair(&tunnel));
        let order: Vec<usize> = shuffled.into_iter().filter(|at| *at < sizes.len()).collect();
        let clear = bursts(&sizes);
        let expected = whole(&mut near, true, &clear);
        let found = staged(&mut other_near, true, &clear, &order);
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(near.plane.counters().totals(), other_near.plane.counters().totals());

        // Some come twice, in any burst, and some are damaged on their way.
        let mut outer: Vec<Vec<u8>> =
            expected.into_iter().filter(|(verdict, _)| *verdict == Verdict::Forward).map(|(_, packet)| packet).collect();
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
        let received: Vec<Vec<Vec<u8>>> = outer.chunks(40).map(<[_]>::to_vec).collect();
        let order: Vec<usize> = (0..received.len()).rev().collect();
        prop_assert_eq!(staged(&mut other_far, false, &received, &order), whole(&mut far, false, &received));
        prop_assert_eq!(far.plane.counters().totals(), other_far.plane.counters().totals());
        prop_assert_eq!(far.inbound.counters().totals(), other_far.inbound.counters().totals());
    }
}

#[test]
fn what_ends_behind_a_shut_fence_goes_nowhere() {
    let (mut near, mut far) = pair(&Tunnel::default());
    let clear = vec![sized(false, 200), sized(true, 200)];
    let outer = near.outbound(&clear).into_iter().map(|(_, packet)| packet).collect::<Vec<_>>();
    for (gateway, packets, outbound) in [(&mut near, &clear, true), (&mut far, &outer, false)] {
        let mut frames: Vec<Frame> = packets.iter().map(|packet| Frame::new(packet)).collect();
        let mut away = stage(&mut frames, |items| match outbound {
            true => gateway.plane.begin_outbound(items, &Sources::default()),
            false => gateway.plane.begin_inbound(items),
        })
        .expect("there is something to do");
        stage(&mut frames, |items| away.work(items));
        gateway.plane.set_open(false);
        stage(&mut frames, |items| gateway.plane.end(&away, items));
        assert!(frames.iter().all(|frame| matches!(frame.verdict, Verdict::Drop(_))), "{frames:?}");
    }
}
