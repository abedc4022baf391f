use super::*;

const HASH: u64 = 0x1234_5678_0000_2a07;

fn table() -> Vec<AtomicU64> {
    (0..SLOTS).map(|_| AtomicU64::new(0)).collect()
}

fn session(lane: u8) -> Option<Session> {
    Some(Session { tag: 0x1234_5678, lane: Shard(lane) })
}

fn told(session: Option<Session>) -> Told {
    Told { slot: 0x2a, session }
}

#[test]
fn each_slot_has_a_shard() {
    let of_shards = (0..=255).map(Shard).flat_map(|shard| slots_of(shard).map(move |slot| (slot, shard)));
    assert!(
        of_shards
            .map(|(slot, shard)| (slot, shard_of(slot) == shard))
            .eq((0..SLOTS).map(|slot| (slot, true)))
    );
}

#[test]
fn a_session_is_known_by_half_of_its_hash() {
    let words = table();
    let sessions = Sessions::of(&words);
    assert_eq!(sessions.find(HASH), Found::Nothing);
    sessions.enter(HASH, Shard(9));
    assert_eq!(sessions.find(HASH), Found::Lane(Shard(9)));
    assert_eq!(sessions.find(HASH ^ 1 << 32), Found::Other);
    assert_eq!(sessions.find(HASH ^ 1 << 8), Found::Nothing, "that is another slot");
    assert_eq!((sessions.get(0x2a), sessions.get(0x2b)), (session(9), None));
    assert_eq!(Sessions::NONE.find(HASH), Found::Other, "its hash decides");
}

#[test]
fn the_authority_forgets_sessions_that_were_not_seen() {
    let words = table();
    let sessions = Sessions::of(&words);
    sessions.enter(HASH, Shard(9));
    sessions.forget(0x2a);
    assert_eq!(sessions.get(0x2a), session(9), "it was seen");
    assert!(sessions.was_seen(0x2a) && !sessions.was_seen(0x2a));
    sessions.find(HASH);
    assert!(sessions.was_seen(0x2a));
    sessions.forget(0x2a);
    assert_eq!((sessions.get(0x2a), sessions.find(HASH)), (None, Found::Nothing));
}

/// What an authority says was true some moments ago.
#[test]
fn a_new_session_outlives_what_was_said_before_it_began() {
    let words = table();
    let sessions = Sessions::of(&words);
    assert_eq!(sessions.follow(told(None)), Followed::Nothing);
    assert_eq!(sessions.follow(told(session(7))), Followed::Learned);
    assert_eq!(sessions.find(HASH), Found::Lane(Shard(7)));
    assert_eq!(sessions.follow(told(session(7))), Followed::Nothing);
    assert_eq!(sessions.follow(told(None)), Followed::Forgotten);

    let other = Some(Session { tag: 1, lane: Shard(3) });
    assert_eq!(sessions.tell(0x2a), Some(told(None)));
    sessions.enter(HASH, Shard(9));
    for _ in 0..2 {
        assert_eq!(sessions.tell(0x2a), None);
        assert_eq!([None, other].map(|word| sessions.follow(told(word))), [Followed::Nothing; 2]);
        sessions.grow_older();
    }
    assert_eq!(sessions.tell(0x2a), Some(told(session(9))));
    assert_eq!(sessions.follow(told(other)), Followed::PutRight);
    assert_eq!((sessions.get(0x2a), sessions.find(HASH)), (other, Found::Other));
    // The authority has seen the session, too.
    words[0x2a].store(0, Relaxed);
    sessions.enter(HASH, Shard(9));
    assert_eq!(sessions.follow(told(session(8))), Followed::PutRight);
    assert_eq!(sessions.find(HASH), Found::Lane(Shard(8)));
}
