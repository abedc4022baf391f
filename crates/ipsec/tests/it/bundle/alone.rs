//! Packets that get no AH although a bundle's policy covers their ends: that policy is about ESP of
//! other policies, not about AH and not about relay SAs.

use super::{AROUND, Kind, bare, pair};
use crate::cluster::verdicts;
use crate::harness::{PATH_MTU, POLICY, Tunnel, Way, forwarded, run};
use crate::packets::sized;
use crate::relay_nodes::{Setting, relayed, relaying};
use std::sync::Arc;
use testudo_ipsec::dataplane::{Command, Ingress, Verdict};
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::sa::{ChildSaParams, EspAlgorithm, Mac, Mode, OutboundSa};
use testudo_ipsec::selector::{AddrRange, SelectorPair, TrafficSelector};
use testudo_ipsec::spd::{Action, PolicyId, Rank, Spd};

#[test]
fn ah_of_another_policy_gets_no_second_ah() {
    for (mode, ah_mode) in
        [(Mode::Tunnel, Mode::Transport), (Mode::Tunnel, Mode::Tunnel), (Mode::Transport, Mode::Transport)]
    {
        let esp = Tunnel { algorithm: EspAlgorithm::Ah(Mac::HmacSha256_128), ..Tunnel::default() };
        let kind = Kind { esp, esp_mode: mode, ah_mode, ..Kind::default() };
        let (mut a, mut b) = pair(&kind);
        let packets = kind.packets();
        let sent = forwarded(run(a.plane(), Way::Outbound, kind.ingress(), &packets));
        let plain = forwarded(run(&mut bare(&kind).plane, Way::Outbound, kind.ingress(), &packets));
        assert_eq!(sent, plain, "{kind:?}");
        let arrived = b.inbound(&sent);
        let is_accepted = |verdict| matches!(verdict, Verdict::Forward | Verdict::ToHost);
        assert!(arrived.iter().all(|(verdict, _)| is_accepted(*verdict)), "{:?}", verdicts(&arrived));
        assert_eq!(a.ah_out.counters().totals().packets, 0);
        a.is_balanced();
    }
}

/// The carrier knows no AH around what another node relays to it.
#[test]
fn relayed_packets_get_no_ah() {
    let setting = Setting::default();
    let [mut first, mut second] = relaying(setting).0;
    let (esp, around) = (setting.tunnel.params(), PolicyId(AROUND.0 + 4));
    let [local, remote] = [1, 2].map(|node| setting.address(node));
    let only = |addr| vec![TrafficSelector::all(AddrRange::new(addr, addr).unwrap())];
    let mut ah =
        ChildSaParams { local_ts: only(local), remote_ts: only(remote), ..Kind::default().ah_params() };
    ah.local.set_ip(local);
    ah.remote.set_ip(remote);
    let whole = SequenceBlock::whole(ah.esn);
    let sa = Arc::new(OutboundSa::new(&ah, around, whole, PATH_MTU, setting.tunnel.library).unwrap());
    let mut spd = Spd::empty();
    let rank = |place| Rank { priority: 0, place, part: 0 };
    let selectors = |params: &ChildSaParams| SelectorPair::new(&params.local_ts, &params.remote_ts);
    spd.insert(rank(1), &selectors(&esp), Action::Protect(POLICY)).unwrap();
    spd.insert_around(rank(2), &selectors(&ah), around).unwrap();
    assert_eq!(spd.around(local, remote), Some(around));
    first.plane.apply(Command::SetSpd(Arc::new(spd)));
    assert!(first.plane.apply(Command::SetOutbound(around, sa.clone())).is_none());
    let sent = relayed(&mut first, Way::Outbound, &vec![sized(false, 100); 3]);
    assert_eq!(verdicts(&second.take(Way::Inbound, Ingress::Port, &sent)), [Verdict::Forward; 3]);
    assert_eq!(sa.counters().totals().packets, 0);
}
