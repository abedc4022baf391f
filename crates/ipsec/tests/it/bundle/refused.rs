//! Packets that a bundle's policy does not send, and those that it does not accept.

use super::{AROUND, End, Kind, bare, one, pair};
use crate::ah::mend;
use crate::harness::{Gateway, PATH_MTU, Tunnel, Way, forwarded, run};
use crate::packets::{datagram, sized};
use crate::transport::{own, send, with_options};
use std::slice::from_ref;
use std::sync::Arc;
use testudo_base::spi::Spi;
use testudo_ipsec::dataplane::{Command, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::sa::{ChildSaParams, InboundSa, Mode};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_ipsec::spd::PolicyId;
use testudo_wire::ip::Protocol;

const NOT_IN_AH: Verdict = Verdict::Drop(DropReason::NotInAh);

/// AH is never in UDP (RFC 7296 §2.23), so that such ESP can have none, and without it nothing
/// passes.
#[test]
fn esp_in_udp_does_not_pass_without_ah() {
    for outer_v6 in [false, true] {
        let plain = Kind { esp: Tunnel { outer_v6, ..Tunnel::default() }, ..Kind::default() };
        for esp_mode in [Mode::Tunnel, Mode::Transport] {
            let kind = Kind { esp: Tunnel { udp: true, ..plain.esp }, esp_mode, ..plain };
            let (esp, ah) = (kind.esp_params(), plain.ah_params());
            let mut a = End::new(&kind, esp.clone(), ah.clone());
            let mut b = End::new(&kind, esp.mirrored(), ah.mirrored());
            let packets = kind.packets();
            let refuse_all = |a: &mut End| {
                for (verdict, _) in run(a.plane(), Way::Outbound, kind.ingress(), &packets) {
                    assert_eq!(verdict, NOT_IN_AH, "{kind:?}");
                }
            };
            refuse_all(&mut a);
            let spi = a.ah_params.spi_in;
            assert!(a.plane().apply(Command::ClearOutbound(AROUND, spi)).is_some());
            refuse_all(&mut a);
            assert_eq!(a.plane().drain_events().count(), 0, "no SA of AH would help");
            assert_eq!(a.gateway.outbound.counters().totals().packets, 0);
            // From one that has no such policy.
            let sent = forwarded(run(&mut bare(&kind).plane, Way::Outbound, kind.ingress(), &packets));
            for (verdict, _) in b.inbound(&sent) {
                assert_eq!(verdict, NOT_IN_AH, "{kind:?}");
            }
            a.is_balanced();
            b.is_balanced();
        }
    }
}

/// The view of a third party with AH for all that it and B have to say to each other.
fn third_party(kind: &Kind) -> ChildSaParams {
    let params = kind.ah_params();
    let only = |host| {
        let addr = kind.esp.outer(host);
        vec![TrafficSelector::all(AddrRange::new(addr, addr).unwrap())]
    };
    let mut third = ChildSaParams {
        spi_in: Spi(params.spi_in.0 + 0x2000),
        spi_out: Spi(params.spi_out.0 + 0x2000),
        local_ts: only(77),
        remote_ts: only(2),
        ..params
    };
    third.local.set_ip(kind.esp.outer(77));
    third
}

/// A node that captures A's ESP, removes AH and adds its own AH is not A (RFC 4301 §5.2).
#[test]
fn esp_in_the_ah_of_another_is_refused() {
    let modes = [Mode::Transport, Mode::Tunnel].map(|ah_mode| Kind { ah_mode, ..Kind::default() });
    let kinds = modes.map(|kind| [kind, Kind { esp: Tunnel { outer_v6: true, ..kind.esp }, ..kind }]);
    for kind in kinds.into_iter().flatten() {
        let (mut a, mut b) = pair(&kind);
        let third = third_party(&kind);
        let at_b = third.mirrored();
        let sa = InboundSa::new(&at_b, PolicyId(AROUND.0 + 1), PATH_MTU, kind.esp.library).unwrap();
        b.plane().apply(Command::AddSlots(Box::new(SlotBlock::of(at_b.spi_in))));
        let sa = Arc::new(sa);
        assert!(b.plane().apply(Command::AddInbound(sa.clone())).is_none());
        let packet = sized(false, 100);
        let mut esp = forwarded(bare(&kind).outbound(from_ref(&packet))).remove(0);
        esp[if kind.esp.outer_v6 { 23 } else { 15 }] = 77;
        mend(&mut esp);
        let wrapped = forwarded(send(&mut Gateway::new(&third, kind.esp.library), &[esp])).remove(0);
        assert_eq!(one(b.inbound(&[wrapped])).0, NOT_IN_AH, "{kind:?}");
        let counted = [&sa, &b.ah_in, &b.gateway.inbound].map(|sa| sa.counters().totals().packets);
        assert_eq!(counted, [0; 3]);
        let own = forwarded(a.gateway.outbound(&[packet]));
        assert_eq!(one(b.inbound(&own)).0, Verdict::Forward, "{kind:?}");
        b.is_balanced();
    }
}

/// Packets that AH in transport mode cannot cover are refused by that name before either SA uses a
/// number; in a tunnel nothing has to be covered.
#[test]
fn headers_that_ah_cannot_cover_are_refused_before_numbering() {
    for (outer_v6, ah_mode) in
        [false, true].into_iter().flat_map(|v6| [Mode::Transport, Mode::Tunnel].map(|mode| (v6, mode)))
    {
        let esp = Tunnel { outer_v6, ..Tunnel::default() };
        let kind = Kind { esp, esp_mode: Mode::Transport, ah_mode, ..Kind::default() };
        let packet = if outer_v6 {
            let routing = [Protocol::UDP.0, 0, 4, 1, 0, 0, 0, 0];
            own(&esp, Protocol::ROUTING, &[&routing[..], &datagram(50)].concat())
        } else {
            with_options(&own(&esp, Protocol::UDP, &datagram(50)), &[131, 7, 4, 192, 0, 2, 9, 0])
        };
        let (mut a, _) = pair(&kind);
        let numbers = |a: &End| [&a.gateway.outbound, &a.ah_out].map(|sa| sa.numbers().block());
        let before = numbers(&a);
        let verdict = one(send(&mut a.gateway, &[packet])).0;
        if ah_mode == Mode::Tunnel {
            assert_eq!(verdict, Verdict::Forward, "{kind:?}");
        } else {
            assert_eq!(verdict, Verdict::Drop(DropReason::AhNotCovered), "{kind:?}");
            assert_eq!(numbers(&a), before);
        }
        a.is_balanced();
    }
}
