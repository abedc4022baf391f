//! A gateway under test, and bursts through it.

use std::sync::Arc;
use testudo_base::spi::SenderId;
use testudo_crypto::Library;
use testudo_ipsec::dataplane::{
    Command, Config, Counters, Dataplane, DirectionTotals, Ingress, Item, LocalAddrs, PolicyBlock, Sources,
    Verdict,
};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::{SequenceBlock, WorkerId};
use testudo_ipsec::sa::{ChildSaParams, InboundSa, OutboundSa};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::spd::{PolicyId, Spd};
use testudo_wire::packet::PacketBuf;

/// Room before and after a packet in a frame; `TIGHT` is too little for a tunnel.
pub(super) const ROOMY: (usize, usize) = (128, 64);
pub(super) const TIGHT: (usize, usize) = (48, 12);

/// The direction of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Outbound,
    Inbound,
}

/// A packet to send through the pipeline.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) packet: Vec<u8>,
    pub(super) ingress: Ingress,
    pub(super) room: (usize, usize),
}

/// A processed packet.
pub(super) type Done = (Verdict, Vec<u8>);

/// True if the packet is to be sent, whole or in pieces.
pub(super) fn is_forwarded(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Forward | Verdict::ForwardInPieces { .. })
}

/// A pipeline with its tables.
pub(super) struct Gateway {
    plane: Dataplane,
    counters: Arc<Counters>,
}

impl Gateway {
    /// A gateway with these policies that owns these addresses.
    pub(super) fn new(spd: Spd, local: impl IntoIterator<Item = std::net::IpAddr>) -> Self {
        let worker = WorkerId::new(5).expect("a worker");
        let config = Config { flow_bits: 3, ..Config::new(worker, SenderId(1), 0x5eed) };
        let mut plane = Dataplane::new(&config);
        plane.apply(Command::AddPolicies(Box::new(PolicyBlock::of(PolicyId(0)))));
        plane.apply(Command::SetSpd(Arc::new(spd)));
        plane.apply(Command::SetLocalAddrs(Arc::new(local.into_iter().collect::<LocalAddrs>())));
        let counters = plane.counters().clone();
        Self { plane, counters }
    }

    pub(super) fn add_inbound(&mut self, params: &ChildSaParams, policy: PolicyId, path_mtu: u16) {
        let sa = InboundSa::new(params, policy, path_mtu, Library::detect()).expect("an SA");
        let slots = SlotBlock::of(params.spi_in);
        assert!(self.plane.apply(Command::AddSlots(Box::new(slots))).is_none());
        assert!(self.plane.apply(Command::AddInbound(Arc::new(sa))).is_none());
    }

    pub(super) fn add_outbound(
        &mut self,
        params: &ChildSaParams,
        policy: PolicyId,
        numbers: SequenceBlock,
        path_mtu: u16,
    ) {
        let sa = OutboundSa::new(params, policy, numbers, path_mtu, Library::detect()).expect("an SA");
        assert!(self.plane.apply(Command::SetOutbound(policy, Arc::new(sa))).is_none());
    }

    pub(super) fn set_now(&mut self, milliseconds: u64) {
        self.plane.set_now(milliseconds);
    }

    /// Runs a burst, and compares the counters with the verdicts.
    pub(super) fn run(&mut self, way: Way, given: &[Given]) -> Vec<Done> {
        let before = self.tally(way);
        let mut frames: Vec<Vec<u8>> = given
            .iter()
            .map(|Given { packet, room: (head, tail), .. }| {
                [&vec![0xee; *head][..], packet, &vec![0xee; *tail]].concat()
            })
            .collect();
        let mut items: Vec<Item<'_>> = frames
            .iter_mut()
            .zip(given)
            .map(|(frame, given)| {
                let buf = PacketBuf::new(frame, given.room.0, given.packet.len()).expect("it fits");
                Item::new(buf, given.ingress)
            })
            .collect();
        match way {
            Way::Outbound => self.plane.outbound(&mut items, &Sources::default()),
            Way::Inbound => self.plane.inbound(&mut items),
        }
        let done: Vec<Done> = items.iter().map(|item| (item.verdict, item.buf.data().to_vec())).collect();
        let bytes: usize = given.iter().map(|given| given.packet.len()).sum();
        self.check(way, &before, &done, bytes as u64);
        self.plane.drain_events().for_each(drop);
        done
    }

    fn tally(&self, way: Way) -> Tally {
        let totals = self.counters.totals();
        let drops = DropReason::ALL.map(|reason| match way {
            Way::Outbound => self.counters.dropped_outbound(reason),
            Way::Inbound => self.counters.dropped_inbound(reason),
        });
        let totals = if way == Way::Outbound { totals.outbound } else { totals.inbound };
        Tally { totals, drops }
    }

    /// Every packet must be counted, under its own reason.
    fn check(&self, way: Way, before: &Tally, done: &[Done], bytes: u64) {
        let now = self.tally(way);
        assert!(now.totals.is_balanced(), "{:?}", now.totals);
        let count =
            |wanted: fn(&Verdict) -> bool| done.iter().filter(|(verdict, _)| wanted(verdict)).count() as u64;
        let replies = count(|verdict| *verdict == Verdict::Reply);
        let forwarded = done.iter().filter(|(verdict, _)| is_forwarded(*verdict));
        let octets: u64 = forwarded.map(|(_, packet)| packet.len() as u64).sum();
        let counted = |field: fn(&DirectionTotals) -> u64| field(&now.totals) - field(&before.totals);
        assert_eq!(counted(|totals| totals.received), done.len() as u64);
        assert_eq!(counted(|totals| totals.received_bytes), bytes);
        assert_eq!(counted(|totals| totals.generated), replies);
        assert_eq!(counted(|totals| totals.replies), replies);
        assert_eq!(counted(|totals| totals.forwarded), count(|verdict| is_forwarded(*verdict)));
        assert_eq!(counted(|totals| totals.forwarded_bytes), octets);
        assert_eq!(counted(|totals| totals.to_host), count(|verdict| *verdict == Verdict::ToHost));
        assert_eq!(counted(|totals| totals.onward), count(|verdict| *verdict == Verdict::Onward));
        assert_eq!(counted(|totals| totals.early), count(|verdict| matches!(verdict, Verdict::Early(_))));
        let split = count(|verdict| matches!(verdict, Verdict::Fragment { .. } | Verdict::Behind));
        assert_eq!(counted(|totals| totals.to_split), split);
        let joined = count(|verdict| *verdict == Verdict::Reassemble);
        assert_eq!(counted(|totals| totals.to_join), joined);
        let dropped = count(|verdict| matches!(verdict, Verdict::Drop(_)));
        assert_eq!(counted(|totals| totals.dropped), dropped + replies);
        let mut answered = 0;
        for reason in DropReason::ALL {
            let counted = now.drops[reason as usize] - before.drops[reason as usize];
            let dropped = done.iter().filter(|(verdict, _)| *verdict == Verdict::Drop(reason)).count() as u64;
            assert!(counted >= dropped, "{}", reason.name());
            if matches!(reason, DropReason::TooBig | DropReason::TtlExceeded) {
                answered += counted - dropped;
            } else {
                assert_eq!(counted, dropped, "{}", reason.name());
            }
        }
        assert_eq!(answered, replies);
    }
}

/// Counters of one direction.
struct Tally {
    totals: DirectionTotals,
    drops: [u64; DropReason::COUNT],
}
