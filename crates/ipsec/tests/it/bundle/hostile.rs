//! Whatever a peer with all keys puts inside, and anybody damages on the way.

use super::{Kind, bare, pair};
use crate::ah::mend;
use crate::harness::{Gateway, Way, forwarded, net, run};
use crate::turns::Packets;
use proptest::prelude::*;
use proptest::sample::Index;
use testudo_ipsec::dataplane::{Ingress, Verdict};
use testudo_ipsec::sa::{ChildSaParams, Mode};

/// The change to a packet before it arrives.
#[derive(Clone, Debug)]
struct Harm {
    of: Index,
    octets: Vec<(Index, u8)>,
    cut: Option<Index>,
    /// Its checksum fits again.
    mended: bool,
    /// It comes in an authentic AH.
    wrapped: bool,
}

prop_compose! {
    fn harm()(
        of: Index,
        octets in prop::collection::vec(any::<(Index, u8)>(), 0..4),
        cut in prop::option::weighted(0.2, any::<Index>()),
        mended: bool,
        wrapped in prop::bool::weighted(0.3),
    ) -> Harm {
        Harm { of, octets, cut, mended, wrapped }
    }
}

impl Harm {
    fn done(&self, good: &Packets) -> Vec<u8> {
        let mut packet = self.of.get(good).clone();
        for (at, octet) in &self.octets {
            // Most of the distinguishable changes are in the headers.
            let at = at.index(packet.len().min(120));
            packet[at] = *octet;
        }
        if let Some(cut) = &self.cut {
            packet.truncate(1 + cut.index(packet.len()));
        }
        if self.mended && packet.len() >= 60 {
            mend(&mut packet);
        }
        packet
    }
}

/// AH of the peer, who puts anything into it.
fn wrapper(kind: &Kind) -> Gateway {
    let all = vec![net("0.0.0.0", "255.255.255.255"), net("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")];
    let params = ChildSaParams { local_ts: all.clone(), remote_ts: all, ..kind.ah_params() };
    Gateway::new(&params, kind.esp.library)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn whatever_comes_is_taken_in_or_counted(
        kind: Index,
        bursts in prop::collection::vec(prop::collection::vec(harm(), 1..80), 1..6),
    ) {
        let kinds: Vec<Kind> = Kind::all().collect();
        let kind = kind.get(&kinds);
        let (mut a, mut b) = pair(kind);
        let mut good = forwarded(run(a.plane(), Way::Outbound, kind.ingress(), &kind.packets()));
        good.extend(forwarded(run(&mut bare(kind).plane, Way::Outbound, kind.ingress(), &kind.packets())));
        let mut wrapper = wrapper(kind);
        let ingress = if kind.ah_mode == Mode::Tunnel { Ingress::Port } else { Ingress::Host };
        for burst in bursts {
            let (wrapped, plain): (Vec<&Harm>, Vec<&Harm>) = burst.iter().partition(|harm| harm.wrapped);
            let done = |harms: Vec<&Harm>| harms.into_iter().map(|harm| harm.done(&good)).collect::<Packets>();
            let wrapped = run(&mut wrapper.plane, Way::Outbound, ingress, &done(wrapped));
            let wrapped = wrapped.into_iter().filter(|(verdict, _)| *verdict == Verdict::Forward);
            let mut burst = done(plain);
            // Between the others.
            wrapped.for_each(|(_, packet)| burst.insert(burst.len() / 2, packet));
            for (verdict, _) in b.inbound(&burst) {
                prop_assert_ne!(verdict, Verdict::Pending);
            }
            b.is_balanced();
        }
    }
}
