//! What a bundle's policy keeps back, and what it does not take in.

use super::{AROUND, End, Kind, bare};
use crate::harness::{Tunnel, Way, forwarded, run};
use testudo_ipsec::dataplane::{Command, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::sa::Mode;

const NOT_IN_AH: Verdict = Verdict::Drop(DropReason::NotInAh);

/// AH is never in UDP (RFC 7296 §2.23), so that such ESP can have none, and without it nothing passes.
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
