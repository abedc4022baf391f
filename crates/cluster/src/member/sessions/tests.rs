use super::super::samples::{START, id, insert, member, millis, spread_child};
use super::*;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use testudo_base::lane::Spread;
use testudo_base::siphash::SipKey;
use testudo_base::turn::Turns;

const BEAT: u64 = 10;

fn pace() -> Pace {
    Pace::of(Duration::from_millis(BEAT))
}

fn table() -> Vec<AtomicU64> {
    (0..SLOTS).map(|_| AtomicU64::new(0)).collect()
}

/// The UDP datagram of a session, from the IP header on.
fn datagram(session: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2];
    packet.extend(session.to_be_bytes());
    packet.resize(40, 0);
    packet
}

/// The filter counts a packet.
fn count(turns: &mut Turns, words: &[AtomicU64], session: u16) {
    turns.count(SipKey::new([7; 16]), Spread::SessionRr, &datagram(session), Sessions::of(words));
}

/// What is told with each of so many heartbeats, by a node that owns all shards or every other one.
fn beats(
    told: &mut SessionsTold,
    own: ShardSet,
    words: &[AtomicU64],
    beats: std::ops::Range<u64>,
) -> Vec<Vec<Told>> {
    beats.map(|beat| told.tell(pace(), own, millis(beat * BEAT), Sessions::of(words))).collect()
}

fn even() -> ShardSet {
    ShardSet::ALL.iter().filter(|shard| shard.0 % 2 == 0).collect()
}

#[test]
fn all_known_slots_of_a_node_are_told_in_turn_and_no_others() {
    for (own, within) in [(ShardSet::ALL, 80), (even(), 40)] {
        let words = table();
        let mut state = SessionsTold::default();
        assert_eq!(beats(&mut state, own, &words, 0..83).concat(), [], "it may have missed some");
        let told = beats(&mut state, own, &words, 83..83 + within);
        assert!(told.iter().all(|told| told.len() == pace().in_turn));
        let mut slots: Vec<u16> = told.iter().flatten().map(|told| told.slot).collect();
        slots.sort();
        slots.dedup();
        assert!(slots.into_iter().eq((0..SLOTS).filter(|slot| own.contains(shard_of(*slot)))));
    }
    assert_eq!(beats(&mut SessionsTold::default(), ShardSet::EMPTY, &table(), 0..3), vec![vec![]; 3]);
}

#[test]
fn what_has_changed_is_told_within_two_heartbeats_and_once_more() {
    let (words, mut told, mut turns) = (table(), SessionsTold::default(), Turns::default());
    beats(&mut told, ShardSet::ALL, &words, 0..2);
    (0..1500).for_each(|session| count(&mut turns, &words, session));
    let taken: Vec<u16> = (0..SLOTS).filter(|slot| Sessions::of(&words).get(*slot).is_some()).collect();
    assert!(taken.len() > pace().changed);
    let own: Vec<u16> = (0..SLOTS).collect();
    let changed = |told: &mut SessionsTold| {
        Sessions::of(&words).grow_older();
        let all = told.changed(pace(), &own, true, Sessions::of(&words));
        assert!(all.iter().all(|told| Sessions::of(&words).get(told.slot) == told.session));
        all.into_iter().map(|told| told.slot).collect::<Vec<u16>>()
    };
    assert_eq!(changed(&mut told), Vec::<u16>::new(), "others may not have seen them yet");
    let (first, second, third) = (changed(&mut told), changed(&mut told), changed(&mut told));
    assert_eq!(first, taken[..pace().changed]);
    assert_eq!(second.len(), pace().changed);
    let rest = taken.len() - pace().changed;
    assert_eq!(
        (&second[..rest], &second[rest..]),
        (&taken[pace().changed..], &first[..pace().changed - rest])
    );
    assert_eq!(
        [&second, &third]
            .map(|told| told.iter().filter(|slot| taken[pace().changed..].contains(slot)).count()),
        [rest; 2]
    );
    assert_eq!(changed(&mut told), Vec::<u16>::new());
    // Somebody has come who knows none of them.
    told.tell_all();
    let all = [0, 1, 2].map(|_| changed(&mut told));
    assert_eq!(all.each_ref().map(Vec::len), [pace().changed, rest, 0]);
    assert_eq!(all.concat().into_iter().collect::<BTreeSet<u16>>(), taken.into_iter().collect());
}

#[test]
fn a_node_tells_all_slots_within_a_second_or_a_heartbeat() {
    for (heartbeat, in_turn, changed) in
        [(5, 52, 520), (10, 103, 1030), (100, 1024, 8192), (1000, 8192, 8192)]
    {
        let pace = Pace::of(Duration::from_millis(heartbeat));
        assert_eq!((pace.in_turn, pace.changed), (in_turn, changed), "{heartbeat} ms");
    }
}

/// A session that it has found by its own count, before it has heard of the slot.
#[test]
fn a_node_that_comes_back_says_nothing_of_what_it_has_invented() {
    let (words, mut state, mut turns) = (table(), SessionsTold::default(), Turns::default());
    (0..100).for_each(|session| count(&mut turns, &words, session));
    assert_eq!(beats(&mut state, ShardSet::ALL, &words, 0..83).concat(), []);
    let slot = (0..SLOTS).find(|slot| Sessions::of(&words).get(*slot).is_some()).unwrap();
    let told = Told { slot, session: Some(Session { tag: 1, lane: Shard(2) }) };
    state.heard(&[told]);
    Sessions::of(&words).follow(told);
    assert!(beats(&mut state, ShardSet::ALL, &words, 83..85)[0].len() >= 90, "nobody else knows of them");
    assert_eq!(Sessions::of(&words).get(slot), told.session);
}

#[test]
fn a_node_that_comes_back_says_in_turn_what_it_has_heard() {
    let (words, mut state) = (table(), SessionsTold::default());
    state.heard(&[Told { slot: 9, session: None }]);
    assert_eq!(beats(&mut state, ShardSet::ALL, &words, 0..79).concat(), [Told { slot: 9, session: None }]);
}

/// Only the authority forgets, because the others would at other moments. It says so at once.
#[test]
fn the_authority_forgets_sessions_that_were_not_seen_for_ten_seconds() {
    let (words, mut state, mut turns) = (table(), SessionsTold::default(), Turns::default());
    let taken = || (0..SLOTS).filter(|slot| Sessions::of(&words).get(*slot).is_some()).collect::<Vec<_>>();
    (0..300).for_each(|session| count(&mut turns, &words, session));
    let (own, others): (Vec<u16>, Vec<u16>) =
        taken().into_iter().partition(|slot| even().contains(shard_of(*slot)));
    assert!(own.len() > 100 && others.len() > 100);
    let on = |session| {
        let (words, mut turns) = (table(), Turns::default());
        count(&mut turns, &words, session);
        (0..SLOTS).find(|slot| Sessions::of(&words).get(*slot).is_some()).unwrap()
    };
    let goes_on = (0..300).find(|session| own.contains(&on(*session))).unwrap();
    let mut before = taken();
    for second in 1..=20 {
        count(&mut turns, &words, goes_on);
        for beat in (second - 1) * 100..second * 100 {
            let told = beats(&mut state, even(), &words, beat..beat + 1).concat();
            let after = taken();
            let over = before.iter().filter(|slot| !after.contains(slot));
            over.for_each(|slot| assert!(told.contains(&Told { slot: *slot, session: None })));
            before = after;
        }
        let (left, _): (Vec<u16>, Vec<u16>) = taken().into_iter().partition(|slot| own.contains(slot));
        assert_eq!(left, if second <= 10 { own.clone() } else { vec![on(goes_on)] }, "{second}");
    }
    assert!(others.iter().all(|slot| Sessions::of(&words).get(*slot).is_some()));
}

/// What is in the table may be of another time.
#[test]
fn a_node_whose_state_is_void_forgets_all_sessions() {
    let mut member = member();
    let forgets = |member: &mut Member| {
        let outputs = std::mem::take(&mut member.core.outputs);
        outputs.iter().filter(|output| matches!(output, MemberOutput::ForgetSessions)).count()
    };
    member.void(START, false);
    assert_eq!(forgets(&mut member), 1, "the filter fills it, whatever the member knows");
    member.core.view.running = true;
    let owner = member.core.table.owned_by(id(2)).iter().next().unwrap();
    let told = Told { slot: slots_of(owner).start, session: None };
    member.sessions_told(id(2), vec![told]);
    assert_eq!(forgets(&mut member), 0);
    member.void(START, false);
    assert_eq!(forgets(&mut member), 1);
    assert!(member.sessions.slots.is_empty());
}

#[test]
fn only_the_owner_of_a_shard_is_believed() {
    let mut member = member();
    member.core.view.running = true;
    let shards = [1, 2].map(|node| member.core.table.owned_by(id(node)));
    let said: Vec<Told> = (0..SLOTS).map(|slot| Told { slot, session: None }).collect();
    let believed = |member: &mut Member| {
        member.core.outputs.clear();
        member.sessions_told(id(2), said.clone());
        match member.core.outputs.pop_front() {
            Some(MemberOutput::Sessions(told)) => told.iter().map(|told| shard_of(told.slot)).collect(),
            None => ShardSet::EMPTY,
            Some(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(believed(&mut member), shards[1]);
    // Beside a node of an older version nobody lets sessions take turns.
    member.core.view.version = 28;
    assert_eq!(believed(&mut member), ShardSet::EMPTY);
    (member.core.view.version, member.core.view.running) = (29, false);
    assert_eq!(believed(&mut member), ShardSet::EMPTY);
}

/// A tunnel of another scheme costs nothing: no word of the table is read.
#[test]
fn nothing_is_told_without_a_tunnel_whose_sessions_take_turns() {
    let running = || {
        let mut member = member();
        (member.core.view.running, member.core.view.members) = (true, vec![id(1), id(2)]);
        member
    };
    let mut member = running();
    let home = member.core.table.owned_by(id(1)).iter().next().unwrap();
    let words = table();
    let tells = |member: &mut Member, by| {
        let mut child = spread_child(home, 1);
        child.spread.as_mut().unwrap().stripe.by = by;
        insert(&mut member.replication.replicas, [child]);
        member.show_sessions(START, Sessions::of(&words));
        !member.sessions.slots.is_empty()
    };
    for (by, expected) in Spread::ALL.map(|by| (by, by.has_sessions())) {
        assert_eq!(tells(&mut running(), by), expected, "{by:?}");
    }
    member.core.view.version = 28;
    assert!(!tells(&mut member, Spread::SessionRr));
}
