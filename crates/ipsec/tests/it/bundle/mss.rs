//! The MSS of TCP connections through ESP inside AH.

use super::{Kind, pair};
use crate::harness::forwarded;
use crate::tunnel::{mss_of, syn};
use std::num::NonZeroU16;
use testudo_ipsec::sa::{Mode, Mss};

/// The setting of ESP counts, whose policy selects the packets, and that of AH does not.
#[test]
fn esp_decides_at_each_end() {
    let [number, smaller] = [1000, 600].map(|octets| Mss::AtMost(NonZeroU16::new(octets).unwrap()));
    for kind in Kind::all().filter(|kind| kind.esp_mode == Mode::Tunnel) {
        for (near, far, expected) in
            [(number, Mss::Off, 1000), (Mss::Off, number, 1000), (Mss::Off, Mss::Off, 1460)]
        {
            let (mut a, mut b) = pair(&kind);
            for (end, mss) in [(&a, near), (&b, far)] {
                end.gateway.inbound.set_mss(mss);
                end.gateway.outbound.set_mss(mss);
                end.ah_in.set_mss(smaller);
                end.ah_out.set_mss(smaller);
            }
            let sent = forwarded(a.gateway.outbound(&[syn(true, 2, 1460)]));
            assert_eq!(mss_of(&forwarded(b.inbound(&sent))[0]), expected, "{kind:?}");
        }
    }
}
