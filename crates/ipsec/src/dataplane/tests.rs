//! The end of the IVs, which cannot be reached from outside.

use super::*;
use crate::drops::DropReason;
use crate::number::SequenceBlock;
use crate::sa::{ChildSaParams, Encapsulation, EspAlgorithm, HeaderCopy, KeyMaterial, Mode, OutboundSa};
use crate::selector::{AddrRange, TrafficSelector};
use crate::spd::{Action, Policy, PolicyId};
use testudo_base::spi::Spi;
use testudo_crypto::Library;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4;
use testudo_wire::packet::PacketBuf;

const POLICY: PolicyId = PolicyId(0);

/// A pipeline that protects everything, whose IVs end after `left` more.
fn with_ivs_left(left: u64) -> (Dataplane, Arc<OutboundSa>) {
    let mut plane = Dataplane::new(&Config::new(WorkerId::new(1).unwrap(), SenderId(1), 0));
    let addrs = AddrRange::new("0.0.0.0".parse().unwrap(), "255.255.255.255".parse().unwrap()).unwrap();
    let any = vec![TrafficSelector::all(addrs)];
    let params = ChildSaParams {
        spi_in: Spi(0x1000),
        spi_out: Spi(0x2000),
        algorithm: EspAlgorithm::Aes128Gcm16,
        key_in: KeyMaterial(vec![1; 20]),
        key_out: KeyMaterial(vec![2; 20]),
        esn: true,
        replay_window: 64,
        local_ts: any.clone(),
        remote_ts: any.clone(),
        local: "192.0.2.1:0".parse().unwrap(),
        remote: "192.0.2.2:0".parse().unwrap(),
        encapsulation: Encapsulation::Plain,
        mode: Mode::Tunnel,
        copy: HeaderCopy::default(),
    };
    let numbers = SequenceBlock::whole(true);
    let sa = Arc::new(OutboundSa::new(&params, POLICY, numbers, 1500, Library::AwsLc).unwrap());
    sa.expand_key().unwrap();
    let policy = Policy { priority: 0, local: any.clone(), remote: any, action: Action::Protect(POLICY) };
    let spd = Spd::new(vec![policy]).unwrap();
    plane.apply(Command::AddPolicies(Box::new(PolicyBlock::of(POLICY))));
    plane.apply(Command::SetSpd(Arc::new(spd)));
    plane.apply(Command::SetOutbound(POLICY, sa.clone()));
    let mut used = (1 << 42) - left;
    while used > 0 {
        used -= plane.ivs.reserve(u32::try_from(used).unwrap_or(u32::MAX)).count;
    }
    (plane, sa)
}

/// Sends so many packets in one burst and returns their verdicts.
fn send(plane: &mut Dataplane, count: usize) -> Vec<Verdict> {
    let fields = ipv4::Fields {
        tos: 0,
        total_len: ipv4::HEADER as u16,
        id: 0,
        df: false,
        ttl: 9,
        protocol: Protocol(99),
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
    };
    let mut frames = vec![[0; 256]; count];
    let mut items: Vec<Item<'_>> = frames
        .iter_mut()
        .map(|frame| {
            frame[100..120].copy_from_slice(&fields.to_bytes());
            Item::new(PacketBuf::new(frame, 100, 20).unwrap(), Ingress::Port)
        })
        .collect();
    plane.outbound(&mut items, &Sources::default());
    items.iter().map(|item| item.verdict).collect()
}

#[test]
fn ivs_that_are_used_up_stop_all_sending_until_there_is_a_new_sender_id() {
    let (mut plane, sa) = with_ivs_left(5);
    let exhausted = Verdict::Drop(DropReason::IvExhausted);
    let verdicts = send(&mut plane, 8);
    assert_eq!(verdicts, [[Verdict::Forward; 5].as_slice(), &[exhausted; 3]].concat());
    assert_eq!(send(&mut plane, 2), [exhausted; 2]);
    assert_eq!(sa.counters().dropped(DropReason::IvExhausted), 5);
    assert_eq!(sa.counters().totals().packets, 5);
    assert!(plane.counters().totals().outbound.is_balanced());
    assert!(plane.apply(Command::SetSenderId(SenderId(2))).is_none());
    assert_eq!(send(&mut plane, 2), [Verdict::Forward; 2]);
}

#[test]
fn ivs_that_run_low_are_told_until_there_is_a_new_sender_id() {
    let (mut plane, _) = with_ivs_left((1 << 39) + 10);
    let events = |plane: &mut Dataplane, now, count| {
        plane.set_now(now);
        send(plane, count);
        plane.drain_events().collect::<Vec<_>>()
    };
    assert_eq!(events(&mut plane, 1, 9), []);
    assert_eq!(events(&mut plane, 1, 2), [Event::IvLow]);
    assert_eq!(events(&mut plane, 30_000, 60), [], "not with every burst");
    assert_eq!(events(&mut plane, 30_001, 1), [Event::IvLow], "the first may have got lost");
    assert!(plane.apply(Command::SetSenderId(SenderId(2))).is_none());
    assert_eq!(events(&mut plane, 90_000, 9), []);
}

#[test]
fn the_sas_of_a_worker_are_counted() {
    let (mut plane, sa) = with_ivs_left(1);
    let counted = |plane: &Dataplane| {
        let totals = plane.counters().totals();
        (totals.inbound_sas, totals.outbound_sas)
    };
    assert_eq!(counted(&plane), (0, 1));
    // In the place of another, then cleared by a command that is late, then by one that is not.
    plane.apply(Command::SetOutbound(POLICY, sa));
    plane.apply(Command::ClearOutbound(POLICY, Spi(0x2000)));
    assert_eq!(counted(&plane), (0, 1));
    plane.apply(Command::ClearOutbound(POLICY, Spi(0x1000)));
    plane.apply(Command::ClearOutbound(POLICY, Spi(0x1000)));
    assert_eq!(counted(&plane), (0, 0));
    plane.apply(Command::RemoveInbound(Spi(0x1000)));
    assert_eq!(counted(&plane), (0, 0));
}
