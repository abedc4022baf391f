//! Who may go on, by what the members remember.

use super::*;
use crate::engine::RingId;
use crate::group::frame::Chain;
use crate::group::keys::RANDOM_LEN;
use crate::group::roster::Roster;
use crate::group::views::exchange::{Held, Status};
use crate::group::views::past::Past;

/// Number of configured nodes.
const NODES: u32 = 5;

fn node(number: u32) -> NodeId {
    NodeId::new(number).unwrap()
}

/// A view of that epoch and these nodes.
fn view(epoch: u64, members: &[u32]) -> Begun {
    let ring = RingId { seq: epoch, node: 1 };
    Begun { ring, epoch, members: members.iter().fold(0, |mask, node| mask | 1 << node) }
}

fn status(begun: Begun) -> Status {
    let held = Held { epoch: begun.epoch, ring: begun.ring, count: 0, chain: Chain::default() };
    Status {
        members: 0,
        boot: 1,
        held,
        begun,
        doubtful: false,
        synced: true,
        patient: true,
        random: [7; RANDOM_LEN],
        leases: vec![],
        promises: vec![],
    }
}

/// A node that has begun these views since one that is formed, and nothing after the last.
fn remembers(number: u32, views: &[Begun]) -> (u32, Begun, Past) {
    let mut past = Past::CLOSED;
    let (last, before) = views.split_last().unwrap();
    before.iter().for_each(|view| past.begin(*view, &[]));
    (number, *last, past)
}

/// A node that has started anew, and was in that view before.
fn restarted(number: u32, last: Begun) -> (u32, Begun, Past) {
    (number, last, Past::new(&last))
}

fn vote(formed: Begun, members: &[(u32, Begun, Past)]) -> Vote {
    let statuses: Vec<_> = members.iter().map(|(number, begun, _)| (node(*number), status(*begun))).collect();
    let statuses: Vec<_> = statuses.iter().map(|(node, status)| (*node, status)).collect();
    let pasts: Vec<&Past> = members.iter().map(|(.., past)| past).collect();
    let rosters = [Roster::of(0, (1..=NODES).map(node))];
    Told { statuses: &statuses, pasts: &pasts, formed, straight: None, rosters: &rosters }.vote()
}

fn outvoted(nodes: &[u32]) -> Vote {
    Vote::Outvoted(nodes.iter().copied().map(node).collect())
}

#[test]
fn more_than_half_of_the_last_view_go_on_or_half_with_its_lowest_node() {
    let four = view(4, &[2, 3, 4, 5]);
    let of = |numbers: &[u32]| {
        vote(four, &numbers.iter().map(|number| remembers(*number, &[four])).collect::<Vec<_>>())
    };
    assert_eq!(of(&[3, 4, 5]), Vote::Carried);
    assert_eq!(of(&[2, 5]), Vote::Carried);
    assert_eq!(of(&[3, 4]), outvoted(&[2, 5]));
    assert_eq!(of(&[2]), outvoted(&[3, 4, 5]));
}

/// Of five nodes, three went on, then two of them. The third and those that left before are more
/// than half of all, and corosync calls them quorate.
#[test]
fn who_left_before_does_not_count() {
    let (all, three) = (view(4, &[1, 2, 3, 4, 5]), view(5, &[1, 2, 3]));
    let others = [remembers(3, &[three]), remembers(4, &[all]), remembers(5, &[all])];
    assert_eq!(vote(three, &others), outvoted(&[1, 2]));
    let last = view(7, &[2]);
    assert_eq!(vote(last, &[remembers(2, &[last]), remembers(5, &[all])]), Vote::Carried, "one returns");
}

/// Nodes 1 and 2 have begun a view of three, and cannot know whether node 3 has.
#[test]
fn a_view_that_may_not_have_formed_counts_and_so_does_the_one_before() {
    let (all, three) = (view(4, &[1, 2, 3, 4, 5]), view(5, &[1, 2, 3]));
    let [one, two] = [1, 2].map(|number| remembers(number, &[all, three]));
    assert_eq!(vote(all, &[one.clone(), two.clone()]), outvoted(&[3, 4, 5]), "three to five may go on");
    let five = remembers(5, &[all]);
    assert_eq!(vote(all, &[one.clone(), two, five.clone()]), Vote::Carried);
    let four = remembers(4, &[all]);
    assert_eq!(vote(all, &[one.clone(), four.clone(), five.clone()]), outvoted(&[2, 3]));
    // Node 3 says that it has not begun it: so it is void.
    let three = remembers(3, &[all]);
    assert_eq!(vote(all, &[one, three, five]), Vote::Carried);
}

#[test]
fn a_node_that_has_forgotten_has_no_vote_on_what_it_may_have_begun() {
    let (all, last) = (view(4, &[1, 2, 3, 4, 5]), view(6, &[1, 2]));
    let [four, five] = [4, 5].map(|number| remembers(number, &[all]));
    let members = [restarted(1, last), four.clone(), five.clone()];
    assert_eq!(vote(all, &members), outvoted(&[1, 2, 3]), "it may have been in a view of one to three");
    let members = [restarted(1, all), four, five];
    assert_eq!(vote(all, &members), Vote::Carried, "it was in no other");
}

#[test]
fn where_none_remembers_a_formed_view_all_have_to_be_there() {
    let (none, all) = (Begun::default(), view(4, &[1, 2, 3, 4, 5]));
    let of = |numbers: std::ops::RangeInclusive<u32>, last| {
        vote(none, &numbers.map(|number| restarted(number, last)).collect::<Vec<_>>())
    };
    assert_eq!(of(1..=4, all), outvoted(&[]));
    assert_eq!(of(1..=5, all), Vote::Carried, "together they know that it was formed");
    assert_eq!(of(1..=4, none), outvoted(&[]), "not even the first view");
    assert_eq!(of(1..=5, none), Vote::Unknown);
}

#[test]
fn where_all_are_there_and_those_that_remember_are_too_few_the_state_may_be_lost() {
    let last = view(4, &[1, 2]);
    let mut members: Vec<_> = (2..=5).map(|number| remembers(number, &[last])).collect();
    assert_eq!(vote(last, &members), outvoted(&[1]));
    members.push((1, Begun::default(), Past::new(&Begun::default())));
    assert_eq!(vote(last, &members), Vote::Forgotten, "node 1 has another disk");
}

/// Node 1 has started anew, and had begun a view that the others do not know to be formed.
#[test]
fn a_view_is_formed_if_all_of_its_nodes_say_that_they_have_begun_it() {
    let (two, three) = (view(4, &[1, 2]), view(6, &[1, 2, 3]));
    let others = [remembers(2, &[two, three]), remembers(3, &[three])];
    let mut members = vec![restarted(1, three)];
    members.extend(others);
    assert_eq!(vote(two, &members), Vote::Carried);
    members[0] = restarted(1, view(5, &[1, 4]));
    assert_eq!(vote(two, &members), outvoted(&[1]), "it may have gone on alone");
}

/// All have started anew since then; two of them have begun a later view with a node that is away.
#[test]
fn a_view_is_formed_also_if_some_of_its_nodes_have_begun_a_later_one_since() {
    let (three, later) = (view(4, &[1, 2, 3]), view(5, &[1, 2, 4]));
    let goes_on = |number| {
        let (_, _, mut past) = restarted(number, three);
        past.begin(three, &[]);
        (number, later, past)
    };
    let members = [goes_on(1), goes_on(2), restarted(3, three)];
    assert_eq!(vote(Begun::default(), &members), Vote::Carried);
    let members = [goes_on(1), goes_on(2), restarted(3, view(3, &[1, 2, 3, 5]))];
    assert_eq!(vote(Begun::default(), &members), outvoted(&[]), "node 3 does not say that it began it");
}
