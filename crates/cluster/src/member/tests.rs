use super::counter::Counter;
use super::samples::{START, first, id, member, spread_child, stripe};
use super::*;
use crate::alloc::ClusterAllocator;
use crate::group::RelayKeys;
use crate::update::Stripe;
use std::sync::Arc;
use std::time::Duration;
use testudo_base::spi::Spi;
use testudo_ike::alloc::Allocator;
use zeroize::Zeroizing;

/// What the engine has told it is of another time.
#[test]
fn a_machine_that_was_set_back_joins_the_engine_anew() {
    let mut member = member();
    member.rolled_back(START);
    let outputs = std::iter::from_fn(|| member.poll_output());
    assert_eq!(outputs.filter(|output| matches!(output, MemberOutput::Rejoin)).count(), 1);
}

/// A node with very many neighbours does not offer its shards any later.
#[test]
fn the_neighbours_of_a_node_are_those_that_it_was_last_told_up_to_a_bound() {
    let mut member = member();
    let neighbour = |number: u32| (3, IpAddr::from(number.to_be_bytes()));
    for (known, kept) in [(0..2, 0..2), (5..8, 5..8), (0..5000, 0..1024)] {
        member.set_neighbours(known.map(neighbour));
        assert_eq!(member.shards.neighbours, kept.map(neighbour).collect::<Vec<_>>());
    }
}

/// The next one is always granted ahead: no node runs out of numbers.
#[test]
fn once_the_clock_has_come_to_the_last_stripe_the_owner_grants_the_next() {
    let mut member = member();
    let child = spread_child(first(member.core.table.owned_by(id(1))), 0);
    let spi = child.params.spi_in;
    let last = Stripe { first_row: 1 << 16, ..stripe(spi) };
    member.replication.replicas.insert_child(child);
    member.replication.replicas.set_stripe(last.clone());
    let mut latest = |running, row: u64| {
        member.core.view.running = running;
        member.show_clocks(START, |_| row);
        member.replication.replicas.child(spi).unwrap().spread.as_ref().unwrap().stripe.clone()
    };
    assert_eq!(latest(true, (1 << 16) - 1), last);
    assert_eq!(latest(false, 1 << 16), last, "there is no view to agree on it");
    let next = latest(true, 1 << 16);
    assert_eq!((next.first_row, next.start), (last.end_row(), last.end()));
    assert_eq!(latest(true, 3 << 16), next, "not all nodes know of it yet");
}

#[test]
fn what_the_group_has_for_the_host_is_passed_on() {
    let [key_in, key_out] = [1, 2].map(|octet| Zeroizing::new([octet; RelayKeys::LEN]));
    let keys = RelayKeys { node: id(2), spi_in: Spi(1), spi_out: Spi(2), key_in, key_out };
    let passed = passed_on(GroupOutput::RelayKeys(vec![keys]));
    assert!(matches!(passed, Some(MemberOutput::RelayKeys(keys)) if keys[0].node == id(2)));
    let (level, line) = (LogLevel::Warning, "a line".to_owned());
    let passed = passed_on(GroupOutput::Log { level, message: line.clone() });
    let Some(MemberOutput::Ike(Output::Event(Event::Log { level, message, .. }))) = passed else {
        panic!("a line for the log");
    };
    assert_eq!((level, message), (LogLevel::Warning, line));
    assert!(passed_on(GroupOutput::NoView).is_none(), "that is the member's");
}

/// Of all nodes and of all its parts: certificates end then, and cookies are as old.
#[test]
fn nodes_whose_clocks_begin_at_other_times_share_the_time_of_day() {
    let ahead = |seconds| Time(Duration::from_secs(seconds));
    let [mut one, mut other] = [member(), member()];
    one.set_unix_time(ahead(60), UnixTime(1_700_000_040));
    other.set_unix_time(ahead(90_000), UnixTime(1_700_000_040));
    assert_eq!(one.core.endpoint.unix_time(ahead(65)), UnixTime(1_700_000_045));
    assert_eq!(other.core.endpoint.unix_time(ahead(90_005)), UnixTime(1_700_000_045));
    let [at_one, at_other] = [(&one, ahead(60)), (&other, ahead(90_000))].map(|(member, now)| {
        let shared = Arc::clone(&member.core.shared);
        let mut alloc = ClusterAllocator::new(Box::new(Counter(1)), &[7; 32], member.hash_key(), shared);
        alloc.cookie_secret(now)
    });
    assert_eq!((at_one.version, at_one.key), (at_other.version, at_other.key));
}
