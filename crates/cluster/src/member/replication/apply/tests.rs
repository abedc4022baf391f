use super::*;
use crate::member::Member;
use crate::member::samples::{
    START, asked, child, first, has_published, id, insert, member, only, spread_child, stripe,
    waiting_switches,
};

/// Another node publishes a Child SA. True if this node is to send with the stripe.
fn publish(member: &mut Member, child: &ChildReplica, stripe: &Stripe) -> bool {
    let Member { core, replication, .. } = member;
    replication.numbers.stripes.clear();
    replication.spread_child_added(core, START, Position::default(), child.state(), stripe.clone());
    replication.numbers.is_asked(stripe.spi)
}

/// Its owner publishes it once more for a node that has joined.
#[test]
fn a_spread_child_sa_is_installed_once_and_its_stripe_is_used_once() {
    let member = &mut member();
    let child = spread_child(first(member.core.table.owned_by(id(2))), 0);
    let spi = child.params.spi_in;
    assert!(publish(member, &child, &stripe(spi)));
    assert_eq!(asked(member), [format!("install {spi}")]);
    let known = member.replication.replicas.child(spi).unwrap().id;
    let next = Stripe { first_row: 1 << 16, start: 1 + (2 << 16), ..stripe(spi) };
    assert!(!publish(member, &child, &next), "that stripe has an update of its own");
    assert_eq!(asked(member), [""; 0]);
    let found = member.replication.replicas.child(spi).unwrap();
    assert_eq!((found.id, &found.spread.as_ref().unwrap().stripe), (known, &next));
    // Another Child SA may have the SPI of one that ended while this node was away.
    let mut other = spread_child(spi.shard(), 0);
    other.params.spi_out = Spi(0x3000);
    assert!(publish(member, &other, &stripe(spi)));
    assert_eq!(asked(member), [format!("remove {spi}"), format!("install {spi}")]);
}

/// Exactly up to there numbers count as seen on the node that carries the lanes next.
#[test]
fn how_far_a_carrier_got_in_its_lanes_is_kept() {
    let member = &mut member();
    let replication = &mut member.replication;
    let spis = insert(&mut replication.replicas, [spread_child(Shard(1), 0), child(Shard(1), 1)]);
    let told = spis.map(|spi| (spi, vec![(Shard(4), 70), (Shard(5), 80)]));
    replication.lane_tops_told(&told);
    replication.lane_tops_told(&[(spis[0], vec![(Shard(5), 90)])]);
    let tops = &replication.replicas.child(spis[0]).unwrap().spread.as_ref().unwrap().tops;
    assert_eq!(tops.iter().map(|(lane, top)| (lane.0, *top)).collect::<Vec<_>>(), [(4, 70), (5, 90)]);
    assert!(replication.replicas.child(spis[1]).unwrap().spread.is_none());
}

/// A switch waits until the new Child SA has numbers. It does not outlive either of the two.
#[test]
fn a_switch_that_waits_takes_place_before_one_of_its_child_sas_goes() {
    for gone in 0..2 {
        let member = &mut member();
        let spis = waiting_switches(member);
        let Member { core, replication, .. } = &mut *member;
        replication.child_gone(core, START, spis[gone]);
        let switched = format!("switch {} to {}", spis[0].0, spis[1].0);
        assert_eq!(asked(member), [switched, format!("remove {}", spis[gone])]);
        let Member { core, replication, .. } = &mut *member;
        replication.numbers.stripes_stable(core, &replication.replicas, Position::default());
        assert_eq!(asked(member), [format!("switch {} to {}", spis[2].0, spis[3].0)]);
    }
}

/// Both would send on it, and the peer does not know the new one yet.
#[test]
fn a_child_sa_that_is_published_again_starts_to_send_only_if_it_did_meanwhile() {
    let before = Spi(0x0100_0900);
    for (replaced, switched, replaces, starts) in [
        (Some(before), false, None, true),
        (Some(before), false, Some(before), false),
        (Some(before), true, None, false),
        (None, false, None, false),
    ] {
        let member = &mut member();
        let known = ChildReplica { replaces: replaced, switched, ..child(Shard(1), 0) };
        let state = ChildState { replaces, ..known.state() };
        let Member { core, replication, .. } = &mut *member;
        replication.replicas.insert_child(known);
        replication.child_added(core, START, Position::default(), state);
        let started = |output| matches!(output, MemberOutput::Ike(Output::StartChild { .. }));
        assert_eq!(core.outputs.drain(..).any(started), starts, "{replaced:?} {switched} {replaces:?}");
    }
}

/// Its former owner died between two updates that belong together.
#[test]
fn a_child_sa_without_an_ike_sa_is_removed_by_who_takes_its_shard() {
    let member = &mut member();
    let Member { core, replication, .. } = &mut *member;
    let spis = insert(&mut replication.replicas, [child(Shard(1), 0), child(Shard(2), 0)]);
    replication.remove_orphans(core, START, only(Shard(1)));
    assert!(has_published(core), "the other nodes remove it too");
    assert_eq!(asked(member), [format!("remove {}", spis[0])]);
}
