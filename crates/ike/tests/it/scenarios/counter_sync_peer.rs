//! Unusual synchronizations by a peer that is a cluster, or by an attacker with its keys (RFC 6311
//! §5.1).

use crate::scenarios::answers::sun;
use crate::scenarios::common::peer::{Peer, exchange, message, status};
use crate::scenarios::common::{Random, World};
use testudo_ike::endpoint::Discard;
use testudo_ike::message::{
    ExchangeType, MessageId, MessageIdSync, Notify, NotifyType, Payload, ReplayCounterSync,
};
use testudo_ike::output::Path;

const NONCE: [u8; 4] = [1, 2, 3, 4];

const BOTH: [NotifyType; 2] = [NotifyType::MessageIdSyncSupported, NotifyType::ReplayCounterSyncSupported];

/// Both can, as far as `said` goes.
fn established(seed: u64, said: &[NotifyType]) -> (World, Peer) {
    established_in(sun(), seed, said)
}

fn established_in(mut world: World, seed: u64, said: &[NotifyType]) -> (World, Peer) {
    let mut peer = Peer::init(&mut world, seed, vec![]);
    let mut payloads = peer.auth_payloads();
    payloads.extend(said.iter().copied().map(status));
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).expect("an answer");
    let told = |kind| answer.iter().any(|p| matches!(p, Payload::Notify(notify) if notify.kind == kind));
    for kind in BOTH {
        assert_eq!(told(kind), said.contains(&kind), "only what was offered is answered");
    }
    (world, peer)
}

fn both(seed: u64) -> (World, Peer) {
    established(seed, &BOTH)
}

fn sync(send: u32, receive: u32) -> Payload {
    let sync = MessageIdSync { nonce: NONCE, send: MessageId(send), receive: MessageId(receive) };
    Payload::Notify(sync.notify())
}

/// Octets of a request beside the window.
fn sealed(peer: &mut Peer, payloads: Vec<Payload>) -> Vec<u8> {
    let header = peer.header(ExchangeType::Informational, false, 0);
    peer.sealer.seal(&message(header, payloads), &mut Random::new(1)).unwrap()
}

/// Gives what the answer says.
fn ask(world: &mut World, peer: &mut Peer, payloads: Vec<Payload>) -> Option<MessageIdSync> {
    let bytes = sealed(peer, payloads);
    let answers = exchange(world, peer.path, &bytes);
    let answer = peer.open(answers.first()?);
    let [Payload::Notify(notify)] = &answer[..] else { panic!("{answer:?}") };
    Some(MessageIdSync::read(notify).unwrap())
}

fn dropped(world: &World) -> u64 {
    world.hosts[0].endpoint.stats().discarded(Discard::CounterSync)
}

#[test]
fn the_answer_is_by_the_rules() {
    let (mut world, mut peer) = both(1);
    let ike = world.hosts[0].sas()[0].id;
    let ids = |world: &World| world.hosts[0].endpoint.replication().message_ids(ike).unwrap();
    assert_eq!(ids(&world), (MessageId(0), MessageId(2)));
    // The lowest M1 that was not used, and an older P1.
    let answer = ask(&mut world, &mut peer, vec![sync(2, 0)]).unwrap();
    assert_eq!(answer, MessageIdSync { nonce: NONCE, send: MessageId(0), receive: MessageId(2) });
    // Both further on.
    let answer = ask(&mut world, &mut peer, vec![sync(9, 5)]).unwrap();
    assert_eq!((answer.send, answer.receive), (MessageId(5), MessageId(9)));
    assert_eq!(ids(&world), (MessageId(5), MessageId(9)));
    // A request of ours takes the next number, and counts as used.
    let (now, child) = (world.now, world.hosts[0].sas()[0].children[0].id);
    assert!(world.hosts[0].endpoint.rekey_child(now, child));
    world.settle(0);
    let answer = ask(&mut world, &mut peer, vec![sync(10, 5)]).unwrap();
    assert_eq!((answer.send, answer.receive), (MessageId(6), MessageId(10)));
    peer.next = 10;
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![]), Some(vec![]));
    assert_eq!(dropped(&world), 0);
}

#[test]
fn invalid_counter_syncs_are_dropped_silently() {
    let (mut world, mut peer) = both(2);
    assert!(ask(&mut world, &mut peer, vec![sync(9, 5)]).is_some());
    let ike = world.hosts[0].sas()[0].id;
    let ids = world.hosts[0].endpoint.replication().message_ids(ike);
    let skip = |by, esn| Payload::Notify(ReplayCounterSync(by).notify(esn).unwrap());
    let bare = |kind, data| Payload::Notify(Notify::new(kind, data));
    let esn = world.hosts[0].installed.values().next().unwrap().esn;
    let cases: Vec<Vec<Payload>> = vec![
        vec![sync(9, 5)],
        vec![sync(8, 50)],
        vec![sync(0, 50)],
        vec![sync(u32::MAX, 5)],
        vec![sync(20, u32::MAX)],
        vec![],
        vec![skip(1, esn)],
        vec![sync(20, 5), skip(1, !esn)],
        vec![sync(20, 5), skip(1, esn), skip(1, esn)],
        vec![sync(20, 5), sync(21, 5)],
        vec![sync(20, 5), status(NotifyType::Cookie)],
        vec![sync(20, 5), Payload::Delete(testudo_ike::message::Delete::IkeSa)],
        vec![bare(NotifyType::MessageIdSync, vec![0; 11])],
        vec![bare(NotifyType::MessageIdSync, vec![0; 13])],
    ];
    for (number, payloads) in cases.into_iter().enumerate() {
        assert_eq!(ask(&mut world, &mut peer, payloads.clone()), None, "{payloads:?}");
        assert_eq!(dropped(&world), number as u64 + 1, "{payloads:?}");
        assert_eq!(world.hosts[0].endpoint.replication().message_ids(ike), ids);
    }
    assert!(world.hosts[0].skipped.is_empty());
    peer.next = 9;
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![]), Some(vec![]));
}

/// A message that was used before cannot move the tunnel.
#[test]
fn an_old_one_from_elsewhere_is_no_sign_of_a_move() {
    let (mut world, mut peer) = both(3);
    let old = sealed(&mut peer, vec![sync(9, 5)]);
    assert_eq!(exchange(&mut world, peer.path, &old).len(), 1);
    assert!(ask(&mut world, &mut peer, vec![sync(12, 5)]).is_some());
    let (path, heard) = (world.hosts[0].sas()[0].remote, world.hosts[0].sent.len());
    let elsewhere = Path { local: "198.51.100.9:4500".parse().unwrap(), ..peer.path };
    assert!(exchange(&mut world, elsewhere, &old).is_empty());
    assert_eq!((world.hosts[0].sas()[0].remote, world.hosts[0].sent.len()), (path, heard));
}

#[test]
fn both_counters_in_one_message_and_numbers_alone() {
    let (mut world, mut peer) = both(4);
    let child = world.hosts[0].sas()[0].children[0].id;
    let esn = world.hosts[0].installed.values().next().unwrap().esn;
    let skip = |by| Payload::Notify(ReplayCounterSync(by).notify(esn).unwrap());
    assert!(ask(&mut world, &mut peer, vec![skip(1000), sync(9, 5)]).is_some());
    assert_eq!(world.hosts[0].skipped, [(child, 1000)]);
    // A window of its own: an ordinary request.
    peer.next = 9;
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![skip(7)]), Some(vec![]));
    assert_eq!(world.hosts[0].skipped, [(child, 1000), (child, 7)]);
    // Of another size it counts nothing, but the request is answered.
    let wrong = Payload::Notify(ReplayCounterSync(7).notify(!esn).unwrap());
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![wrong]), Some(vec![]));
    assert_eq!((world.hosts[0].skipped.len(), dropped(&world)), (2, 1));
}

#[test]
fn a_counter_sync_without_agreement_is_ignored() {
    let (mut world, mut peer) = established(5, &[]);
    assert_eq!(ask(&mut world, &mut peer, vec![sync(9, 5)]), None);
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::MessageId), 1);

    let (mut world, mut peer) = established(6, &[NotifyType::MessageIdSyncSupported]);
    let esn = world.hosts[0].installed.values().next().unwrap().esn;
    let skip = Payload::Notify(ReplayCounterSync(7).notify(esn).unwrap());
    assert_eq!(ask(&mut world, &mut peer, vec![sync(9, 5), skip.clone()]), None);
    assert!(ask(&mut world, &mut peer, vec![sync(9, 5)]).is_some());
    peer.next = 9;
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![skip]), Some(vec![]));
    assert_eq!((dropped(&world), world.hosts[0].skipped.len()), (2, 0));
}

/// Neither number of an answer may be lower than what was asked for, and neither may be the last.
#[test]
fn an_answer_that_goes_back_in_one_number_is_dropped() {
    for (case, (send_by, receive_by)) in [(-1, 0), (0, -1), (-1, 9), (9, -1)].into_iter().enumerate() {
        let (mut world, asked, mut peer) = asking();
        let moved = |id: MessageId, by: i64| MessageId(u32::try_from(i64::from(id.0) + by).unwrap());
        let sync = MessageIdSync {
            nonce: asked.nonce,
            send: moved(asked.receive, send_by),
            receive: moved(asked.send, receive_by),
        };
        answer_sync(&mut world, &mut peer, sync);
        assert_eq!(dropped(&world), 1, "case {case}");
    }
    for send_is_last in [true, false] {
        let (mut world, MessageIdSync { nonce, send, receive }, mut peer) = asking();
        let last = MessageId(u32::MAX);
        let sync = match send_is_last {
            true => MessageIdSync { nonce, send: last, receive: send },
            false => MessageIdSync { nonce, send: receive, receive: last },
        };
        answer_sync(&mut world, &mut peer, sync);
        assert_eq!(dropped(&world), 1);
    }
}

/// A world whose host synchronizes, and its request.
fn asking() -> (World, MessageIdSync, Peer) {
    let (mut world, peer) = both(8);
    let (now, ike) = (world.now, world.hosts[0].sas()[0].id);
    assert!(world.hosts[0].endpoint.replication_mut().sync_message_ids(now, ike));
    world.settle(0);
    let asked = peer.open(&world.hosts[0].sent.last().unwrap().1.clone());
    let [Payload::Notify(notify)] = &asked[..] else { panic!("{asked:?}") };
    (world, MessageIdSync::read(notify).unwrap(), peer)
}

fn answer_sync(world: &mut World, peer: &mut Peer, sync: MessageIdSync) {
    let header = peer.header(ExchangeType::Informational, true, 0);
    let content = message(header, vec![Payload::Notify(sync.notify())]);
    let bytes = peer.sealer.seal(&content, &mut Random::new(1)).unwrap();
    assert!(exchange(world, peer.path, &bytes).is_empty());
}

/// Without extended numbers the peer says in four octets how many are to be left out.
#[test]
fn numbers_that_are_not_extended_are_left_out_too() {
    let mut world = sun();
    let now = world.now;
    let mut connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    connection.children[0].proposals[0].esn = vec![false];
    world.hosts[0].load(now, connection);
    let (mut world, mut peer) = established_in(world, 9, &BOTH);
    let child = world.hosts[0].sas()[0].children[0].id;
    assert!(!world.hosts[0].installed.values().next().unwrap().esn);
    let skip = |esn| Payload::Notify(ReplayCounterSync(7).notify(esn).unwrap());
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![skip(true)]), Some(vec![]));
    assert_eq!((world.hosts[0].skipped.len(), dropped(&world)), (0, 1));
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![skip(false)]), Some(vec![]));
    assert_eq!(world.hosts[0].skipped, [(child, 7)]);
}

/// An answer to another request may say what would fit: its nonce alone tells them apart.
#[test]
fn an_answer_with_another_nonce_is_dropped_though_it_would_fit() {
    let (mut world, mut peer) = both(7);
    let (now, ike) = (world.now, world.hosts[0].sas()[0].id);
    assert!(world.hosts[0].endpoint.replication_mut().sync_message_ids(now, ike));
    world.settle(0);
    let asked = peer.open(&world.hosts[0].sent.last().unwrap().1.clone());
    let [Payload::Notify(notify)] = &asked[..] else { panic!("{asked:?}") };
    let MessageIdSync { nonce, send, receive } = MessageIdSync::read(notify).unwrap();
    let mut answer = |world: &mut World, nonce| {
        // The peer has seen more requests than this node knows of.
        let sync = MessageIdSync { nonce, send: receive, receive: MessageId(send.0 + 3) };
        let header = peer.header(ExchangeType::Informational, true, 0);
        let content = message(header, vec![Payload::Notify(sync.notify())]);
        let bytes = peer.sealer.seal(&content, &mut Random::new(1)).unwrap();
        assert!(exchange(world, peer.path, &bytes).is_empty());
        world.hosts[0].endpoint.replication().message_ids(ike).unwrap()
    };
    for octet in 0..nonce.len() {
        let mut another = nonce;
        another[octet] ^= 1;
        assert_eq!(answer(&mut world, another), (send, receive), "octet {octet}");
        assert_eq!(dropped(&world), octet as u64 + 1);
    }
    assert_eq!(answer(&mut world, nonce), (MessageId(send.0 + 3), receive));
    assert_eq!(dropped(&world), nonce.len() as u64);
}
