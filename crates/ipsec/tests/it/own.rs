//! Workers with an SA of their own, beside the one for all workers (RFC 9611).

use crate::harness::{Gateway, PATH_MTU, POLICY, Tunnel, Way, forwarded, pair, run};
use crate::packets::sized;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use testudo_base::spi::Spi;
use testudo_ipsec::dataplane::{Command, Dataplane, Garbage, Ingress, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::{SequenceBlock, WorkerId};
use testudo_ipsec::sa::{ChildSaParams, OutboundSa};

const WORKERS: u8 = 3;

fn worker(number: u8) -> WorkerId {
    WorkerId::new(number).unwrap()
}

/// The inbound SPI of [`sa`].
fn spi_in(number: u32) -> Spi {
    Spi(0x1100_0000 + number)
}

/// Another SA with the same selectors.
fn sa(number: u32) -> Arc<OutboundSa> {
    let tunnel = Tunnel::default();
    let params =
        ChildSaParams { spi_in: spi_in(number), spi_out: Spi(0x2200_0000 + number), ..tunnel.params() };
    let numbers = SequenceBlock::whole(params.esn);
    let sa = OutboundSa::new(&params, POLICY, numbers, PATH_MTU, tunnel.library).unwrap();
    sa.expand_key().unwrap();
    Arc::new(sa)
}

/// The workers of a gateway with a tunnel, whose only SA so far is for all of them.
fn planes() -> (Gateway, Vec<Dataplane>) {
    let (gateway, _) = pair(&Tunnel::default());
    let planes = (0..WORKERS).map(|number| gateway.another(&Tunnel::default().params(), number)).collect();
    (gateway, planes)
}

/// All workers get all commands.
fn tell(planes: &mut [Dataplane], command: &Command) -> Vec<Option<Garbage>> {
    planes.iter_mut().map(|plane| plane.apply(command.clone())).collect()
}

/// The SPI by which a worker sends. `None`: it has no SA.
fn sends_by(plane: &mut Dataplane) -> Option<Spi> {
    let packets = vec![sized(false, 100); 3];
    let found = run(plane, Way::Outbound, Ingress::Port, &packets);
    if found[0].0 == Verdict::Drop(DropReason::NoSa) {
        return None;
    }
    let spis =
        forwarded(found).into_iter().map(|packet| u32::from_be_bytes(packet[20..24].try_into().unwrap()));
    let spis: Vec<u32> = spis.collect();
    assert!(spis.iter().all(|spi| *spi == spis[0]), "a burst goes through one SA");
    Some(Spi(spis[0]))
}

fn all_send_by(planes: &mut [Dataplane]) -> Vec<Option<Spi>> {
    planes.iter_mut().map(sends_by).collect()
}

#[test]
fn a_worker_sends_by_its_own_and_all_others_by_the_one_for_all() {
    let (gateway, mut planes) = planes();
    let for_all = Some(gateway.outbound.spi());
    assert_eq!(all_send_by(&mut planes), [for_all; 3]);
    let own = sa(1);
    let others = tell(&mut planes, &Command::SetOwnOutbound(worker(1), POLICY, own.clone()));
    assert!(matches!(&others[..], [Some(Garbage::NotOwn(_)), None, Some(Garbage::NotOwn(_))]), "{others:?}");
    drop(others);
    assert_eq!(all_send_by(&mut planes), [for_all, Some(own.spi()), for_all]);
    // Each has its own numbers.
    assert_eq!((own.counters().totals().packets, gateway.outbound.counters().totals().packets), (3, 15));
    // A renewed SA for all changes nothing for the worker, until its own goes.
    let renewed = sa(2);
    tell(&mut planes, &Command::SetOutbound(POLICY, renewed.clone()));
    let renewed = Some(renewed.spi());
    assert_eq!(all_send_by(&mut planes), [renewed, Some(own.spi()), renewed]);
    tell(&mut planes, &Command::ClearOutbound(POLICY, spi_in(1)));
    assert_eq!(all_send_by(&mut planes), [renewed; 3]);
    assert_eq!(Arc::strong_count(&own), 1, "no worker keeps it");
}

#[test]
fn the_one_for_all_may_go_first() {
    let (_, mut planes) = planes();
    let own = sa(1);
    tell(&mut planes, &Command::SetOwnOutbound(worker(0), POLICY, own.clone()));
    tell(&mut planes, &Command::ClearOutbound(POLICY, Tunnel::default().params().spi_in));
    assert_eq!(all_send_by(&mut planes), [Some(own.spi()), None, None]);
    tell(&mut planes, &Command::ClearOutbound(POLICY, spi_in(1)));
    assert_eq!(all_send_by(&mut planes), [None; 3]);
    let counted = |plane: &Dataplane| plane.counters().totals().outbound_sas;
    assert!(planes.iter().all(|plane| counted(plane) == 0));
}

#[test]
fn without_a_place_none_is_set() {
    let (_, mut planes) = planes();
    let far = testudo_ipsec::spd::PolicyId(70_000);
    let refused = planes[0].apply(Command::SetOwnOutbound(worker(0), far, sa(1)));
    assert!(matches!(refused, Some(Garbage::NotSet(_))), "{refused:?}");
}

/// What a worker should send by, worked out from all SAs that exist.
#[derive(Default)]
struct Model {
    for_all: Option<Spi>,
    own: BTreeMap<u8, Spi>,
}

#[derive(Clone, Debug)]
enum Step {
    ForAll,
    Own(u8),
    /// Removes one of those that were made, counted from the newest.
    Clear(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::ForAll),
        4 => (0..WORKERS).prop_map(Step::Own),
        4 => (0..6_usize).prop_map(Step::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_and_goes_each_sends_by_the_right_one(steps in proptest::collection::vec(step(), 1..25)) {
        let (gateway, mut planes) = planes();
        let mut model = Model { for_all: Some(gateway.outbound.spi()), ..Model::default() };
        let mut made = vec![(Tunnel::default().params().spi_in, gateway.outbound.spi())];
        for (number, step) in (1..).zip(steps) {
            match step {
                Step::ForAll => {
                    let new = sa(number);
                    tell(&mut planes, &Command::SetOutbound(POLICY, new.clone()));
                    model.for_all = Some(new.spi());
                    made.push((spi_in(number), new.spi()));
                }
                Step::Own(of) => {
                    let new = sa(number);
                    tell(&mut planes, &Command::SetOwnOutbound(worker(of), POLICY, new.clone()));
                    model.own.insert(of, new.spi());
                    made.push((spi_in(number), new.spi()));
                }
                Step::Clear(behind) => {
                    let Some((pair, old)) = made.iter().rev().nth(behind).copied() else { continue };
                    tell(&mut planes, &Command::ClearOutbound(POLICY, pair));
                    model.for_all = model.for_all.filter(|spi| *spi != old);
                    model.own.retain(|_, spi| *spi != old);
                    made.retain(|(_, spi)| *spi != old);
                }
            }
            let expected: Vec<Option<Spi>> =
                (0..WORKERS).map(|of| model.own.get(&of).copied().or(model.for_all)).collect();
            prop_assert_eq!(all_send_by(&mut planes), expected);
            for (of, plane) in (0..WORKERS).zip(&planes) {
                let expected = u64::from(model.for_all.is_some()) + u64::from(model.own.contains_key(&of));
                prop_assert_eq!(plane.counters().totals().outbound_sas, expected);
            }
        }
    }
}
