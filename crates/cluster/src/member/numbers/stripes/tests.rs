use super::*;
use crate::member::samples::{START, child, first, id, insert, member, spread_child, stripe};

const ENDED: Spi = Spi(0x0100_0400);
const OTHER: Spi = Spi(0x0100_0800);
const HOME: Shard = Shard(1);

fn ms(ms: u64) -> Time {
    START.plus(Duration::from_millis(ms))
}

/// A stripe of each Child SA in one of the places where stripes wait: about to be published, until
/// all nodes know of it, and that of another node.
fn waiting_in(place: usize, spis: [Spi; 2]) -> StripesUnderWay {
    let mut waiting = StripesUnderWay::default();
    for spi in spis {
        match place {
            0 => waiting.new.push(stripe(spi)),
            1 => waiting.own.push_back((Ticket(1), stripe(spi))),
            _ => waiting.others.push_back((Position::default(), stripe(spi))),
        }
    }
    waiting
}

/// Its SPI may come round again: a stripe of the old Child SA must not be used for the new one.
#[test]
fn of_a_child_sa_that_ends_no_stripe_is_left() {
    for place in 0..3 {
        let mut waiting = waiting_in(place, [ENDED, OTHER]);
        assert!(waiting.awaits(ENDED) && waiting.awaits(OTHER) && !waiting.awaits(Spi(0x0100_0c00)));
        waiting.forget(ENDED);
        assert!(!waiting.awaits(ENDED) && waiting.awaits(OTHER), "in place {place}");
        waiting.published(Ticket(2));
        let mut used = waiting.own_stable(|_| true);
        used.extend(waiting.others_stable(Position::default()));
        assert_eq!(used, [stripe(OTHER)]);
    }
}

#[test]
fn the_rate_of_a_clock_is_measured_over_half_a_second() {
    let mut clocks = StripesUnderWay::default();
    assert_eq!((clocks.row(HOME), clocks.rate(HOME), clocks.notice(HOME)), (0, 0, 0), "it is not known");
    clocks.clock_shows(ms(0), HOME, 7000);
    assert_eq!((clocks.row(HOME), clocks.rate(HOME)), (7000, 0), "what was before does not count");
    clocks.clock_shows(ms(400), HOME, 9000);
    assert_eq!((clocks.row(HOME), clocks.rate(HOME)), (9000, 0), "it is too early");
    clocks.clock_shows(ms(500), HOME, 12_000);
    assert_eq!((clocks.row(HOME), clocks.rate(HOME)), (12_000, 10_000));
    assert_eq!(clocks.notice(HOME), 1000, "the rows of a tenth of a second");
    clocks.clock_shows(ms(2500), HOME, 11_000);
    assert_eq!((clocks.row(HOME), clocks.rate(HOME)), (12_000, 0), "it stands still, and never goes back");
    assert_eq!((clocks.row(Shard(2)), clocks.rate(Shard(2))), (0, 0));
}

/// A stripe has two seconds of rows, and no number twice. One for all nodes begins at once, when
/// they know of it.
#[test]
fn stripes_follow_each_other_row_by_row_and_number_by_number() {
    let member = &mut member();
    let (core, numbers, replicas) =
        (&member.core, &mut member.replication.numbers, &mut member.replication.replicas);
    let shard = first(core.table.owned_by(id(1)));
    numbers.stripes.clock_shows(ms(0), shard, 5);
    let mut new = child(shard, 0);
    let spi = new.params.spi_in;
    let rows = |stripe: &Stripe| (stripe.first_row, stripe.end_row(), stripe.start, stripe.end());
    let granted = numbers.first_stripe(core, &mut new, Spread::PacketHash);
    assert_eq!(rows(&granted), (5, 5 + (1 << 16), 1, 1 + (2 << 16)));
    replicas.insert_child(new);
    let next = numbers.next_stripe(core, replicas, spi, 0, false).unwrap();
    assert_eq!(rows(&next), (5 + (1 << 16), 5 + (2 << 16), 1 + (2 << 16), 1 + (4 << 16)));
    // 100 000 rows a second.
    numbers.stripes.clock_shows(ms(1000), shard, 100_005);
    let next = numbers.next_stripe(core, replicas, spi, 9, true).unwrap();
    let (row, start) = (100_005 + 10_000, 1 + (4 << 16) + 9);
    assert_eq!(rows(&next), (row, row + (1 << 18), start, start + (2 << 18)));
}

/// Other nodes may send all packets of the shard.
#[test]
fn the_owner_grants_a_stripe_once_the_clock_has_come_to_its_last_one() {
    let member = &mut member();
    let (core, numbers, replicas) =
        (&mut member.core, &mut member.replication.numbers, &mut member.replication.replicas);
    let (own, theirs) = (first(core.table.owned_by(id(1))), first(core.table.owned_by(id(2))));
    let children = [(own, 0), (own, 1), (theirs, 0)].map(|(shard, number)| spread_child(shard, number));
    let [begun, ahead, _] = insert(replicas, children);
    replicas.set_stripe(Stripe { first_row: 0, ..stripe(begun) });
    replicas.set_stripe(Stripe { first_row: 900, ..stripe(ahead) });
    assert_eq!(numbers.stripes_that_run_low(core, replicas), [], "no clock is known");
    numbers.show_clocks(core, replicas, ms(0), |_| 899);
    assert_eq!(numbers.stripes_that_run_low(core, replicas), [begun]);
    numbers.show_clocks(core, replicas, ms(1), |_| 900);
    assert_eq!(numbers.stripes_that_run_low(core, replicas), [begun, ahead]);
    // Beside a node of an older version there are no clocks.
    core.view.version = crate::update::SPREADING - 1;
    numbers.show_clocks(core, replicas, ms(2), |_| 2000);
    assert_eq!(numbers.stripes.row(own), 900);
}

/// A Child SA that the peer has just made cannot be rekeyed at the first attempt.
#[test]
fn spread_child_sas_that_a_member_does_not_know_are_renewed_again_and_again() {
    let member = &mut member();
    let (core, numbers, replicas) =
        (&mut member.core, &mut member.replication.numbers, &member.replication.replicas);
    numbers.gather_spread(core, replicas, ms(0));
    assert_eq!(numbers.stripes.gathered, None, "all members know them");
    core.view.version = crate::update::SPREADING - 1;
    let tried: Vec<u64> = (0..=2500)
        .step_by(500)
        .filter(|at| {
            numbers.gather_spread(core, replicas, ms(*at));
            numbers.stripes.gathered == Some(ms(*at))
        })
        .collect();
    assert_eq!(tried, [0, 1000, 2000]);
}

/// An older node that joins is told of a hash, and so is everybody else in that view.
#[test]
fn a_child_sa_keeps_its_scheme_whatever_an_update_for_older_nodes_says() {
    let member = &mut member();
    let replicas = &mut member.replication.replicas;
    let [spi] = insert(replicas, [spread_child(first(member.core.table.owned_by(id(1))), 0)]);
    let by = |replicas: &Replicas| replicas.child(spi).unwrap().spread.as_ref().unwrap().stripe.by;
    assert_eq!(by(replicas), Spread::PacketHash);
    replicas.set_stripe(Stripe { by: Spread::PacketRr, first_row: 7, ..stripe(spi) });
    assert_eq!(by(replicas), Spread::PacketHash);
    assert_eq!(replicas.child(spi).unwrap().spread.as_ref().unwrap().stripe.first_row, 7);
}
