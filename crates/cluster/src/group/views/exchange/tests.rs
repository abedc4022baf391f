//! Which nodes hold the state, as the members' STATUS say.

use super::*;

const NODES: u32 = 3;

fn node(number: u32) -> NodeId {
    NodeId::new(number).unwrap()
}

/// A view of that epoch and these nodes.
fn begun(epoch: u64, members: &[u32]) -> Begun {
    let ring = RingId { seq: epoch, node: 1 };
    Begun { ring, epoch, members: members.iter().fold(0, |mask, node| mask | 1 << node) }
}

fn held(epoch: u64, count: u64, chain: u8) -> Held {
    Held { epoch, ring: RingId { seq: epoch, node: 1 }, count, chain: Chain([chain; 32]) }
}

/// The STATUS of a node that holds the state of a view of all three.
fn status(held: Held) -> Status {
    Status {
        members: 0,
        boot: 1,
        held,
        begun: if held.epoch > 0 { begun(held.epoch, &[1, 2, 3]) } else { Begun::default() },
        doubtful: false,
        synced: held.epoch > 0,
        patient: true,
        random: [7; RANDOM_LEN],
        leases: vec![],
        promises: vec![],
    }
}

/// The STATUS of a node that has begun that view, and has forgotten it.
fn forgotten(begun: Begun) -> Status {
    Status { begun, ..status(Held::NOTHING) }
}

/// The STATUS of a node that holds the state of that view.
fn in_view(begun: Begun) -> Status {
    Status { begun, ..status(held(begun.epoch, 7, 2)) }
}

/// The STATUS of a node that was fresh in that view.
fn fresh_in(begun: Begun) -> Status {
    Status { synced: false, ..in_view(begun) }
}

/// The nodes of testudo.toml.
fn first() -> Rosters {
    Rosters::first((1..=NODES).map(|number| (node(number), Vec::new())))
}

fn exchange(statuses: Vec<(u32, Option<Status>)>) -> Result<Box<Outcome>, Obstacle> {
    let members = statuses.iter().map(|(number, _)| node(*number)).collect();
    let mut exchange = Exchange::new(
        View { ring: RingId { seq: 9, node: 1 }, members, quorate: true },
        first(),
        QuorumRule::Majority,
    );
    for (number, status) in statuses {
        assert!(matches!(exchange.outcome(), Err(Obstacle::Unheard(_))));
        exchange.insert(node(number), status.map(heard));
    }
    exchange.outcome()
}

fn among(statuses: Vec<(u32, Status)>) -> Result<Box<Outcome>, Obstacle> {
    exchange(statuses.into_iter().map(|(number, status)| (number, Some(status))).collect())
}

fn outcome(statuses: Vec<Option<Status>>) -> Outcome {
    *exchange((1..).zip(statuses).collect()).unwrap()
}

fn current(statuses: Vec<Status>) -> (Vec<u8>, bool) {
    let outcome = outcome(statuses.into_iter().map(Some).collect());
    (outcome.current.iter().map(|node| node.get()).collect(), outcome.reset)
}

/// The nodes that are current and whether all begin with nothing; or the nodes that are waited for.
fn told(outcome: Result<Box<Outcome>, Obstacle>) -> Result<(Vec<u8>, bool), Vec<u8>> {
    let numbers = |nodes: Vec<NodeId>| nodes.into_iter().map(NodeId::get).collect();
    match outcome {
        Ok(outcome) => Ok((numbers(outcome.current), outcome.reset)),
        Err(Obstacle::State(nodes)) => Err(numbers(nodes)),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn at_the_first_start_all_begin_with_nothing() {
    assert_eq!(current(vec![status(Held::NOTHING); 3]), (vec![1, 2, 3], true));
    assert_eq!(current(vec![status(Held::NOTHING); 2]), (vec![1, 2], true), "nobody waits for who never was");
}

#[test]
fn the_largest_set_with_the_same_messages_is_current() {
    let statuses = [held(4, 8, 1), held(4, 7, 2), held(4, 7, 2)].map(status);
    assert_eq!(
        current(statuses.to_vec()),
        (vec![2, 3], false),
        "what one alone was delivered is not taken over"
    );
    let statuses = [held(4, 7, 2), held(4, 8, 1)].map(status);
    assert_eq!(current(statuses.to_vec()).0, [2], "of sets as large the one with more");
    let statuses = [held(4, 7, 2), held(4, 7, 1)].map(status);
    assert_eq!(current(statuses.to_vec()).0, [1], "then the one with the lowest node");
}

#[test]
fn an_earlier_view_is_never_current_beside_a_later_one() {
    let later = begun(5, &[2, 3]);
    let statuses = vec![status(held(4, 7, 2)), in_view(later), in_view(later)];
    assert_eq!(current(statuses.clone()), (vec![2, 3], false));
    let lost = vec![statuses[0].clone(), forgotten(later), fresh_in(later)];
    assert_eq!(current(lost), (vec![1, 2, 3], true), "all who were in it are here, and none holds it");
}

/// Seed 60 of the simulator: node 1 was away while nodes 2 and 3 went on; then node 2 crashed and
/// node 3 was cut off.
#[test]
fn a_majority_of_which_one_has_forgotten_waits_for_who_has_not() {
    let later = begun(5, &[2, 3]);
    let old = status(held(4, 7, 2));
    let both = || vec![(1, old.clone()), (2, forgotten(later))];
    assert_eq!(told(among(both())), Err(vec![3]));
    let all = [both(), vec![(3, in_view(later))]].concat();
    assert_eq!(told(among(all)), Ok((vec![3], false)));
}

/// {1, 2}; then 3 joins; {2, 3}; and {1, 3} before node 3 was brought up to date.
#[test]
fn the_state_is_not_given_up_while_a_holder_is_away() {
    let statuses = vec![(1, status(held(4, 7, 2))), (3, fresh_in(begun(5, &[2, 3])))];
    assert_eq!(told(among(statuses)), Err(vec![2]));
}

/// Seed 113: the view began on the node that was fresh in it, and on no other node.
#[test]
fn a_view_that_a_member_has_never_begun_has_made_nothing_stable() {
    let before = status(held(4, 7, 2));
    let fresh = fresh_in(begun(5, &[1, 2, 3]));
    let statuses = vec![(1, before.clone()), (2, before.clone()), (3, fresh.clone())];
    assert_eq!(told(among(statuses)), Ok((vec![1, 2], false)));
    // A node that has lost its disk may have begun any view.
    let statuses = vec![(1, forgotten(Begun::default())), (3, fresh)];
    assert_eq!(told(among(statuses)), Err(vec![2]));
}

/// Nodes 1 and 3 were in the view before the void one, and node 2 was not.
#[test]
fn behind_a_void_view_is_the_view_that_its_members_were_in_before() {
    let (before, void) = (begun(5, &[1, 3]), begun(6, &[1, 2, 3]));
    let mut knows = Past::CLOSED;
    knows.begin(before, &[]);
    let among = |third: Option<Status>, past: &Past| {
        let members = [Some(fresh_in(void)), Some(status(held(4, 7, 2))), third];
        let members: Vec<_> =
            (1..).zip(members).filter_map(|(number, status)| Some((number, status?))).collect();
        let nodes = members.iter().map(|(number, _)| node(*number)).collect();
        let view = View { ring: RingId { seq: 9, node: 1 }, members: nodes, quorate: true };
        let mut exchange = Exchange::new(view, first(), QuorumRule::Majority);
        for (number, status) in members {
            let past = if number == 2 { Past::CLOSED } else { past.clone() };
            exchange.insert(node(number), Some(Heard { past: Some(past), ..heard(status) }));
        }
        told(exchange.outcome())
    };
    let forgets = Past::new(&void);
    assert_eq!(among(None, &knows), Err(vec![3]));
    assert_eq!(among(None, &forgets), Err(vec![3]), "node 1 cannot say that it was not there");
    assert_eq!(among(Some(in_view(before)), &Past::CLOSED), Ok((vec![3], false)));
    assert_eq!(among(Some(forgotten(void)), &forgets), Ok((vec![1, 2, 3], true)), "none is left");
}

/// Node 3 has begun a void view and forgotten what it began before. It alone cannot have made
/// anything stable.
#[test]
fn a_node_that_has_forgotten_makes_a_majority_that_remembers_no_less_current() {
    let (holder, void) = (status(held(4, 7, 2)), begun(6, &[1, 2, 3]));
    let among = |numbers: &[u32]| {
        let members: Vec<NodeId> = numbers.iter().copied().map(node).collect();
        let view = View { ring: RingId { seq: 9, node: 1 }, members: members.clone(), quorate: true };
        let mut exchange = Exchange::new(view, first(), QuorumRule::Majority);
        for member in members {
            let heard = match member.get() {
                3 => Heard { past: Some(Past::new(&void)), ..heard(forgotten(void)) },
                _ => heard(holder.clone()),
            };
            exchange.insert(member, Some(heard));
        }
        told(exchange.outcome())
    };
    assert_eq!(among(&[1, 2, 3]), Ok((vec![1, 2], false)));
    assert_eq!(among(&[1, 3]), Err(vec![2]), "nodes 2 and 3 may have gone on together");
}

/// Nodes 4 and 5 are away, and node 3 may have begun a view with them that it has forgotten.
#[test]
fn three_of_five_that_cannot_say_what_they_have_begun_may_have_gone_on() {
    let (last, void) = (begun(4, &[1, 2, 3, 4, 5]), begun(6, &[1, 2, 3, 4, 5]));
    let rosters = Rosters::first((1..=5).map(|number| (node(number), Vec::new())));
    let among = |members: &[u32]| {
        let members: Vec<NodeId> = members.iter().copied().map(node).collect();
        let view = View { ring: RingId { seq: 9, node: 1 }, members: members.clone(), quorate: true };
        let mut exchange = Exchange::new(view, rosters.clone(), QuorumRule::Majority);
        for member in members {
            let heard = match member.get() {
                3 => Heard { past: Some(Past::new(&void)), ..heard(forgotten(void)) },
                _ => heard(in_view(last)),
            };
            exchange.insert(member, Some(heard));
        }
        told(exchange.outcome())
    };
    assert_eq!(among(&[1, 2, 3]), Err(vec![4, 5]));
    assert_eq!(among(&[1, 2, 3, 4]), Ok((vec![1, 2, 4], false)), "two of five may not");
}

#[test]
fn who_holds_a_view_that_began_at_some_only_is_current_if_it_is_here() {
    let later = in_view(begun(5, &[1, 2, 3]));
    assert_eq!(current(vec![status(held(4, 7, 2)), later]), (vec![2], false));
}

#[test]
fn those_who_have_waited_in_vain_begin_with_nothing() {
    let mut statuses = vec![(1, status(held(4, 7, 2))), (2, forgotten(begun(5, &[2, 3])))];
    statuses[0].1.patient = false;
    assert_eq!(told(among(statuses.clone())), Err(vec![3]), "one of them has not");
    statuses[1].1.patient = false;
    assert_eq!(told(among(statuses.clone())), Ok((vec![1, 2], true)), "an older state is worse than none");
    statuses[1].1 = Status { patient: false, ..in_view(begun(5, &[2, 3])) };
    assert_eq!(told(among(statuses)), Ok((vec![2], false)));
}

#[test]
fn a_member_becomes_impatient_where_that_is_delivered() {
    let view = View { ring: RingId { seq: 9, node: 1 }, members: vec![node(1), node(2)], quorate: true };
    let mut exchange = Exchange::new(view, first(), QuorumRule::Majority);
    let statuses = [status(held(4, 7, 2)), forgotten(begun(5, &[2, 3]))];
    for (number, status) in (1..).zip(&statuses) {
        exchange.insert(node(number), Some(heard(status.clone())));
    }
    for (number, status) in (1..).zip(&statuses) {
        assert!(exchange.waits(), "before node {number} has said so");
        exchange.insert(node(number), Some(heard(Status { patient: false, ..status.clone() })));
    }
    assert!(matches!(exchange.outcome(), Ok(outcome) if outcome.reset));
}

#[test]
fn what_was_set_back_may_have_known_more_than_a_minority_can_tell() {
    let holder = status(held(4, 7, 2));
    let set_back = Status { doubtful: true, ..forgotten(begun(3, &[1, 2, 3])) };
    assert_eq!(told(among(vec![(1, holder.clone()), (2, set_back.clone())])), Err(vec![3]));
    let all = vec![(1, holder.clone()), (2, set_back), (3, holder)];
    assert_eq!(told(among(all)), Ok((vec![1, 3], false)));
}

/// Together they may have gone on, and have forgotten it. But no node is left that may know more.
#[test]
fn where_all_are_here_the_state_of_the_others_is_no_worse_for_those_that_were_set_back() {
    let set_back = || Status { doubtful: true, ..forgotten(begun(3, &[1, 2, 3])) };
    let all = vec![(1, status(held(4, 7, 2))), (2, set_back()), (3, set_back())];
    assert_eq!(told(among(all)), Ok((vec![1], false)));
}

/// Node 2 says that it has five nodes in its testudo.toml.
#[test]
fn before_the_first_change_a_node_counts_by_its_own_file() {
    let members = [1, 2].map(node).to_vec();
    let view = View { ring: RingId { seq: 9, node: 1 }, members: members.clone(), quorate: true };
    let mut exchange = Exchange::new(view, first(), QuorumRule::Majority);
    for member in members {
        let configured = Rosters::first((1..=5).map(|number| (node(number), Vec::new())));
        let holder = heard(status(held(4, 7, 2)));
        exchange.insert(member, Some(Heard { rosters: Some(configured), straight: Some(false), ..holder }));
    }
    assert_eq!(told(exchange.outcome()), Ok((vec![1, 2], false)), "two of three");
}

#[test]
fn what_a_minority_cannot_say_does_not_hold_up_the_others() {
    let good = || Some(status(held(4, 7, 2)));
    let outcome = outcome(vec![good(), None, good()]);
    assert_eq!(outcome.view.members, [node(1), node(3)]);
    assert_eq!(outcome.unreadable, [node(2)]);
    let two = exchange(vec![(1, good()), (2, None)]);
    assert_eq!(two, Err(Obstacle::Unreadable(vec![node(2)])));
    let one = exchange(vec![(1, None), (2, good()), (3, None)]);
    assert_eq!(one, Err(Obstacle::Unreadable(vec![node(1), node(3)])));
}

#[test]
fn leases_are_merged_and_promises_count_for_those_who_are_not_current() {
    let mut statuses = [held(4, 7, 2), held(4, 7, 2), held(3, 1, 1)].map(status);
    statuses[0].leases = vec![(1, 5), (2, 9), (0, 3), (99, 4)];
    statuses[2].leases = vec![(1, 6), (2, 8)];
    statuses[0].promises = vec![(2, 50_000), (3, 1000), (4, 3000), (77, 9999)];
    statuses[1].promises = vec![(4, 2000)];
    let outcome = outcome(statuses.into_iter().map(Some).collect());
    assert_eq!(outcome.leases, [(node(1), 6), (node(2), 9)]);
    assert_eq!(outcome.wait, Duration::from_micros(3000));
    assert_eq!((outcome.epoch, outcome.fresh), (5, vec![node(3)]));
}

fn heard(status: Status) -> Heard {
    Heard {
        status,
        speaks: Some(16),
        past: Some(Past::CLOSED),
        ballot: None,
        ingress: None,
        rosters: None,
        straight: None,
    }
}

#[test]
fn all_speak_the_highest_version_that_each_of_them_speaks() {
    for (said, expected) in [
        ([Some(16), Some(18), Some(17)], Some(16)),
        // Builds of before do not say.
        ([Some(16), None, Some(17)], None),
    ] {
        let view =
            View { ring: RingId { seq: 4, node: 1 }, members: (1..=3).map(node).collect(), quorate: true };
        let mut exchange = Exchange::new(view, first(), QuorumRule::Majority);
        for (number, speaks) in (1..).zip(said) {
            exchange.insert(node(number), Some(Heard { speaks, ..heard(status(Held::NOTHING)) }));
        }
        let outcome = exchange.outcome().unwrap();
        assert_eq!(outcome.version, expected);
    }
}

/// An old node passes over what stands behind a STATUS, and a new node does without it.
#[test]
fn nodes_of_before_read_a_status_and_are_read() {
    let status = status(Held::NOTHING);
    let old = postcard::to_allocvec(&status).unwrap();
    let with_version = postcard::to_allocvec(&(&status, 16_u8)).unwrap();
    let new = postcard::to_allocvec(&(&status, 16_u8, Past::CLOSED)).unwrap();
    assert_eq!(postcard::from_bytes::<Status>(&new).as_ref(), Ok(&status));
    assert_eq!(postcard::from_bytes::<(Status, u8)>(&new), Ok((status.clone(), 16)));
    assert_eq!(
        Heard::read(&old),
        Some(Heard {
            status: status.clone(),
            speaks: None,
            past: None,
            ballot: None,
            ingress: None,
            rosters: None,
            straight: None,
        })
    );
    assert_eq!(Heard::read(&with_version), Some(Heard { past: None, ..heard(status.clone()) }));
    assert_eq!(Heard::read(&new), Some(heard(status.clone())));
    assert_eq!(Heard::read(&old[..old.len() - 1]), None);
    let ballot = Ballot { rule: QuorumRule::LastManStanding, formed: begun(4, &[1, 2]) };
    let with_ballot = postcard::to_allocvec(&(&status, 16_u8, Past::CLOSED, ballot)).unwrap();
    let read = Heard::read(&with_ballot).unwrap();
    assert_eq!((read.ballot, read.rule()), (Some(ballot), QuorumRule::LastManStanding));
    assert_eq!(Heard::read(&new).unwrap().rule(), QuorumRule::Majority, "as builds of before decide");
    let with_ingress =
        postcard::to_allocvec(&(&status, 16_u8, Past::CLOSED, ballot, Ingress::Routed)).unwrap();
    let read = Heard::read(&with_ingress).unwrap();
    assert_eq!((read.ballot, read.ingress()), (Some(ballot), Ingress::Routed));
    assert_eq!(
        Heard::read(&with_ballot).unwrap().ingress(),
        Ingress::Flood,
        "builds of before know no other"
    );
    assert_eq!(postcard::from_bytes::<(Status, u8, Past, Ballot)>(&with_ingress).unwrap().3, ballot);
}
