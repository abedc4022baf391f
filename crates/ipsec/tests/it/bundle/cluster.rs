//! Bundles on a node of a cluster: both SAs are of one shard, that of the IKE SA by which they
//! came.

use super::{AROUND, End, Kind, one, pair};
use crate::cluster::{OTHER_NODE, without};
use crate::harness::forwarded;
use crate::packets::sized;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_ipsec::dataplane::{Command, Event, Verdict};
use testudo_ipsec::drops::DropReason;

/// The policy's home, a matter of the connection's name, is where nobody has the IKE SA of these
/// ends, nor sees their ESP.
#[test]
fn the_node_that_carries_esp_asks_for_ah() {
    let (mut a, _) = pair(&Kind::default());
    let esp = a.params.spi_in.shard();
    let home = Shard(esp.0 ^ 0x55);
    a.plane().apply(Command::SetHome(AROUND, Some(home)));
    a.plane().apply(Command::SetShards(without(home)));
    let spi = a.ah_params.spi_in;
    assert!(a.plane().apply(Command::ClearOutbound(AROUND, spi)).is_some());
    let mut send = |shards| {
        a.plane().apply(Command::SetShards(shards));
        let verdict = one(a.gateway.outbound(&[sized(false, 100)])).0;
        (verdict, a.plane().drain_events().collect::<Vec<_>>())
    };
    assert_eq!(send(without(esp)), (OTHER_NODE, vec![]), "at home, without ESP");
    let (verdict, events) = send(without(home));
    assert_eq!(verdict, Verdict::Drop(DropReason::NoSa));
    assert!(matches!(events[..], [Event::NoSa { policy: AROUND, .. }]), "{events:?}");
}

/// As of two connections: where one node carries one of the SAs and another node the other, none
/// has both numbers to give.
#[test]
fn both_sas_are_carried_by_one_node() {
    let kind = Kind::default();
    let (esp, mut ah) = (kind.esp_params(), kind.ah_params());
    (ah.spi_in, ah.spi_out) = (Spi(ah.spi_in.0 ^ 0x0100_0000), Spi(ah.spi_out.0 ^ 0x0100_0000));
    let ends = || (End::new(&kind, esp.clone(), ah.clone()), End::new(&kind, esp.mirrored(), ah.mirrored()));
    let packet = sized(false, 100);
    let verdicts = |out: ShardSet, in_: ShardSet| {
        let (mut a, mut b) = ends();
        a.plane().apply(Command::SetShards(out));
        let there = one(a.gateway.outbound(std::slice::from_ref(&packet))).0;
        let counted = [a.gateway.outbound.counters(), a.ah_out.counters()].map(|sa| sa.totals().packets);
        assert_eq!(counted[0], counted[1]);
        let sent = forwarded(ends().0.gateway.outbound(std::slice::from_ref(&packet)));
        b.plane().apply(Command::SetShards(in_));
        let back = one(b.inbound(&sent)).0;
        a.is_balanced();
        b.is_balanced();
        (there, back)
    };
    let (esp_in, ah_in) = (esp.mirrored().spi_in.shard(), ah.mirrored().spi_in.shard());
    assert_ne!(esp_in, ah_in);
    assert_eq!(verdicts(without(esp.spi_in.shard()), without(esp_in)), (OTHER_NODE, OTHER_NODE));
    assert_eq!(verdicts(without(ah.spi_in.shard()), without(ah_in)), (OTHER_NODE, OTHER_NODE));
    assert_eq!(verdicts(ShardSet::ALL, ShardSet::ALL), (Verdict::Forward, Verdict::Forward));
}
