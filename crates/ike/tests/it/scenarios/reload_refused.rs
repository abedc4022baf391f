//! A changed connection whose peer does not accept the change, or not yet, or not in this way.

use crate::scenarios::answers::sun;
use crate::scenarios::common::build::{esp_proposal, fqdn, range, ts};
use crate::scenarios::common::peer::{self, Peer, SPI, only_notify, status};
use crate::scenarios::common::responder::Responder;
use crate::scenarios::common::tunnels::{ike_rekeys, run_lossless};
use crate::scenarios::common::{PACKET, Random, Weather, World};
use crate::scenarios::reload::{
    assert_settled, both_ciphers, other_cipher, reload, sa_of, two_children, two_children_of,
};
use std::time::Duration;
use testudo_base::spi::Spi;
use testudo_ike::config::{Connection, IkeLifetime, Lifetime, StartAction, TsSpec};
use testudo_ike::endpoint::EndpointConfig;
use testudo_ike::message::{
    Delete, ExchangeType, Message, Nonce, Notify, NotifySa, NotifyType, Payload, Protocol, SaSpi, TsPayload,
};
use testudo_ike::suite::offer;
use testudo_ipsec::sa::EspAlgorithm;

/// The rest of the old SA ends with its lifetime, on both sides, and a child that should be up is
/// tried until the peer has changed its configuration.
#[test]
fn a_child_refused_until_its_lifetime_ends_starts_again() {
    for (side, starts) in [(0, false), (1, false), (0, true)] {
        let mut world = two_children(1, Weather::FAIR, |index, connection| {
            if index == side {
                connection.children[0].lifetime.time = Lifetime::new(0, Some(1000), None);
            }
            if index == side && starts {
                connection.children[0].start_action = StartAction::Start;
            }
        });
        reload(&mut world, side, other_cipher);
        run_lossless(&mut world, Duration::from_secs(500));
        assert_settled(&world);
        world.run_secs(700);
        let one = world.hosts.iter().all(|host| host.installed.len() == 1);
        assert!(one, "the peer does not send into nothing: {:#?}", world.hosts[side].log());
        let acquire = |world: &mut World| {
            let now = world.now;
            world.hosts[side].endpoint.acquire_for(now, "site", "net", PACKET).unwrap();
            world.settle(side);
        };
        let sent = world.hosts[side].sent.len();
        acquire(&mut world);
        assert!(world.hosts[side].sent.len() > sent, "traffic brings another try");
        world.run_secs(100);
        reload(&mut world, 1 - side, other_cipher);
        if !starts {
            acquire(&mut world);
        }
        world.run_secs(100);
        assert_settled(&world);
        assert_eq!(sa_of(&world, side, "net").1.algorithm, EspAlgorithm::Aes256Gcm16);
    }
}

/// That it is busy does not mean that it does not want to.
#[test]
fn a_busy_peer_is_asked_until_it_has_time() {
    let config = EndpointConfig {
        creation_burst: 1,
        creation_pace: Duration::from_secs(600),
        ..EndpointConfig::default()
    };
    let mut world = two_children_of(config, 2, Weather::FAIR, |index, connection| {
        if index == 1 {
            both_ciphers(index, connection);
        }
    });
    // Two within ten minutes, and that is all that the peer makes.
    let (now, (more, _)) = (world.now, sa_of(&world, 0, "more"));
    assert!(world.hosts[0].endpoint.rekey_child(now, more));
    world.settle(0);
    run_lossless(&mut world, Duration::from_secs(60));
    reload(&mut world, 0, other_cipher);
    run_lossless(&mut world, Duration::from_secs(300));
    assert_settled(&world);
    assert_eq!(sa_of(&world, 0, "net").1.algorithm, EspAlgorithm::Aes128Gcm16);
    let answered = |line: &&&str| line.contains("TEMPORARY_FAILURE");
    assert!(world.hosts[0].log().iter().filter(answered).count() > 3, "{:#?}", world.hosts[0].log());
    run_lossless(&mut world, Duration::from_secs(400));
    assert_settled(&world);
    assert_eq!(sa_of(&world, 0, "net").1.algorithm, EspAlgorithm::Aes256Gcm16);
}

/// A peer that makes no further Child SA on an IKE SA (RFC 7296 §1.3) may make it on another.
#[test]
fn a_peer_without_room_gets_another_ike_sa() {
    let config = EndpointConfig { child_limit: 2, ..EndpointConfig::default() };
    let mut world = two_children_of(config, 3, Weather::FAIR, |index, connection| {
        if index == 1 {
            both_ciphers(index, connection);
        }
    });
    let old = world.hosts[0].sas()[0].id;
    reload(&mut world, 0, other_cipher);
    run_lossless(&mut world, Duration::from_secs(100));
    assert_settled(&world);
    assert!(world.hosts[0].sas()[0].id > old, "{:#?}", world.hosts[0].log());
    assert_eq!(sa_of(&world, 0, "net").1.algorithm, EspAlgorithm::Aes256Gcm16);
}

/// One that refuses another IKE SA too keeps what it has: neither is tried for ever.
#[test]
fn a_peer_without_room_that_refuses_another_ike_sa_is_left_alone() {
    let config = EndpointConfig { child_limit: 2, ..EndpointConfig::default() };
    let mut world = two_children_of(config, 3, Weather::FAIR, |index, connection| {
        if index == 1 {
            both_ciphers(index, connection);
        }
    });
    let old = world.hosts[0].sas()[0].id;
    reload(&mut world, 0, |index, connection| {
        other_cipher(index, connection);
        connection.local.id = Some(fqdn("mars"));
    });
    run_lossless(&mut world, Duration::from_secs(3000));
    assert_settled(&world);
    assert_eq!(world.hosts[0].sas()[0].id, old);
    let log = world.hosts[0].log();
    let count = |part: &str| log.iter().filter(|line| line.contains(part)).count();
    assert_eq!(count("reauthenticating IKE_SA"), 3, "{log:#?}");
    assert_eq!(count("by the new configuration: the peer answered NO_ADDITIONAL_SAS"), 3, "{log:#?}");
}

/// A peer that cannot be reached at the time.
#[test]
fn a_start_that_is_taken_away_is_not_tried_again() {
    let edits: [fn(usize, &mut Connection); 2] =
        [|_, _| {}, |_, connection| connection.children[0].name = "other".into()];
    for edit in edits {
        let mut world = World::pair_with(4, Weather::FAIR, |index, connection| {
            if index == 0 {
                connection.children[0].start_action = StartAction::Start;
            }
        });
        world.hosts[1].stopped = true;
        world.settle(0);
        world.run_secs(180);
        assert!(world.hosts[0].results().iter().all(Result::is_err), "it waits for its next try");
        assert_eq!(world.hosts[0].sas(), []);
        let (sent, tries) = (world.hosts[0].sent.len(), world.hosts[0].results().len());
        assert!(sent > 0 && tries > 0);
        reload(&mut world, 0, |index, connection| {
            edit(index, connection);
            connection.children[0].start_action = StartAction::None;
        });
        world.run_secs(600);
        assert_eq!(world.hosts[0].sent.len(), sent, "{:#?}", world.hosts[0].log());
        assert!(!world.hosts[0].logged("cannot initiate"));
    }
}

/// Lets so much time pass, while the peer answers all that host 0 asks, and makes no Child SA.
fn refusing(world: &mut World, peer: &mut Peer, seconds: u64) {
    for _ in 0..seconds / 5 {
        let before = world.hosts[0].sent.len();
        world.run_secs(5);
        let said: Vec<_> = world.hosts[0].sent[before..].iter().map(|(_, bytes)| bytes.clone()).collect();
        for bytes in said {
            let header = Message::parse(&bytes).unwrap().header;
            if header.response {
                continue;
            }
            let refused = header.exchange == ExchangeType::CreateChildSa;
            let answer = refused.then(|| status(NotifyType::NoProposalChosen)).into_iter().collect();
            let header = peer.header(header.exchange, true, header.message_id.0);
            let answer = peer.sealer.seal(&peer::message(header, answer), &mut Random::new(1)).unwrap();
            peer::exchange(world, peer.path, &answer);
        }
    }
}

/// The request of a peer that renews the Child SA of that SPI, with all that it has carried.
fn whole(old: Spi, new: Spi) -> Vec<Payload> {
    let about = NotifySa { protocol: Protocol::Esp, spi: SaSpi::Child(old) };
    let esp = esp_proposal(EspAlgorithm::Aes128Gcm16);
    vec![
        Payload::Notify(Notify { sa: Some(about), ..Notify::new(NotifyType::RekeySa, Vec::new()) }),
        Payload::Sa(offer::esp(&[esp], new, offer::ChildExchange::CreateChildSa)),
        Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()),
        Payload::TsInitiator(TsPayload::new(vec![ts("10.109.0.0-10.109.255.255")])),
        Payload::TsResponder(TsPayload::new(vec![ts("10.115.0.0-10.115.255.255")])),
    ]
}

/// The peer renews it so, and deletes the old one.
fn renew_whole(world: &mut World, peer: &mut Peer, old: Spi, new: Spi) {
    let answer = peer.request(world, ExchangeType::CreateChildSa, whole(old, new)).unwrap();
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Sa(_))), "{answer:?}");
    let delete = vec![Payload::Delete(Delete::Esp(vec![old]))];
    peer.request(world, ExchangeType::Informational, delete).unwrap();
}

/// Rekeying does not keep a child that the operator has reduced: the new SA carries the remaining
/// traffic, and no longer than the old one would have.
#[test]
fn a_peer_does_not_keep_what_was_taken_away() {
    let mut world = sun();
    reload(&mut world, 0, |_, connection| {
        connection.children[0].lifetime.time = Lifetime::new(0, Some(3000), None);
    });
    let mut peer = Peer::establish(&mut world, 64);
    reload(&mut world, 0, |_, connection| {
        connection.children[0].remote_ts = vec![TsSpec::Fixed(ts("10.109.7.0-10.109.7.255"))];
    });
    refusing(&mut world, &mut peer, 1000);
    assert!(world.hosts[0].logged("it stays until its time is over"));
    let carried = |world: &World| world.hosts[0].installed.values().next().map(|sa| sa.remote_ts.clone());
    assert_eq!(carried(&world), Some(vec![ts("10.109.0.0-10.109.255.255")]), "until then");
    for (old, new) in [(SPI, Spi(SPI.0 + 1)), (Spi(SPI.0 + 1), Spi(SPI.0 + 2))] {
        renew_whole(&mut world, &mut peer, old, new);
        refusing(&mut world, &mut peer, 900);
        assert_eq!(world.hosts[0].installed.len(), 1);
        assert_eq!(carried(&world), Some(vec![ts("10.109.7.0-10.109.7.255")]));
    }
    refusing(&mut world, &mut peer, 300);
    assert_eq!(carried(&world), None, "3000 seconds have passed");
}

/// Nor without a lifetime: from when the new configuration is refused, the old SA has the default
/// one, and no peer that renews it faster than it is asked puts that off.
#[test]
fn without_a_lifetime_a_peer_does_not_keep_what_was_taken_away_either() {
    for pace in [25, 1000] {
        let mut world = sun();
        let mut peer = Peer::establish(&mut world, 67);
        reload(&mut world, 0, |_, connection| {
            assert_eq!(connection.children[0].lifetime.time, Lifetime::default());
            connection.children[0].remote_ts = vec![TsSpec::Fixed(ts("10.109.7.0-10.109.7.255"))];
        });
        let mut spi = SPI;
        let mut passed = 0;
        while passed < 3900 {
            refusing(&mut world, &mut peer, pace);
            passed += pace;
            assert_eq!(world.hosts[0].installed.len(), 1, "{pace}, {passed}");
            let next = Spi(spi.0 + 1);
            renew_whole(&mut world, &mut peer, spi, next);
            spi = next;
        }
        refusing(&mut world, &mut peer, 200);
        let left = world.hosts[0].installed.len();
        assert_eq!(left, 0, "{pace}: 66 minutes have passed: {:#?}", world.hosts[0].log());
    }
}

/// A later change of the lifetime alone does not put off the end of what an earlier change has taken
/// away.
#[test]
fn another_lifetime_does_not_keep_what_was_taken_away() {
    for edit in [
        |connection: &mut Connection| {
            connection.children[0].lifetime.time = Lifetime::new(0, Some(9000), None);
        },
        |connection: &mut Connection| connection.children[0].lifetime.time = Lifetime::default(),
    ] {
        let mut world = sun();
        reload(&mut world, 0, |_, connection| {
            connection.children[0].lifetime.time = Lifetime::new(0, Some(3000), None);
        });
        let mut peer = Peer::establish(&mut world, 68);
        reload(&mut world, 0, |_, connection| {
            connection.children[0].remote_ts = vec![TsSpec::Fixed(ts("10.109.7.0-10.109.7.255"))];
        });
        refusing(&mut world, &mut peer, 1000);
        assert!(world.hosts[0].logged("it stays until its time is over"));
        reload(&mut world, 0, |_, connection| edit(connection));
        refusing(&mut world, &mut peer, 1900);
        assert_eq!(world.hosts[0].installed.len(), 1);
        refusing(&mut world, &mut peer, 200);
        assert_eq!(world.hosts[0].installed.len(), 0, "{:#?}", world.hosts[0].log());
    }
}

/// Nor does a peer that is not configured any more live on by new keys.
#[test]
fn an_ike_sa_that_was_set_up_otherwise_keeps_its_end() {
    let mut world = two_children(5, Weather::FAIR, |index, connection| {
        let rekey = if index == 0 { 200 } else { 1000 };
        connection.lifetime = IkeLifetime::new(rekey, Some(100), Some(0));
    });
    reload(&mut world, 1, |_, connection| connection.remote.id = Some(fqdn("luna")));
    run_lossless(&mut world, Duration::from_secs(900));
    assert!(world.hosts[1].logged("stays as it was made until its time is over"));
    let renewed = ike_rekeys(&world.hosts[1]);
    assert!(renewed >= 2, "{renewed}: {:#?}", world.hosts[1].log());
    assert_settled(&world);
    world.run_secs(300);
    world.hosts.iter().for_each(|host| assert_eq!(host.sas(), [], "{:#?}", host.log()));
}

/// The same without a lifetime: from when its new configuration is given up, it has the default one.
#[test]
fn an_ike_sa_without_a_lifetime_that_was_set_up_otherwise_ends_too() {
    let mut world = two_children(8, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.lifetime = IkeLifetime::new(1000, Some(100), Some(0));
        }
    });
    reload(&mut world, 1, |_, connection| connection.remote.id = Some(fqdn("luna")));
    run_lossless(&mut world, Duration::from_secs(4 * 3600));
    assert!(world.hosts[1].logged("stays as it was made until its time is over"));
    assert!(ike_rekeys(&world.hosts[1]) >= 10);
    assert_settled(&world);
    world.run_secs(30 * 60);
    world.hosts.iter().for_each(|host| assert_eq!(host.sas(), [], "{:#?}", host.log()));
}

/// A peer that cannot be initiated to by its configuration is initiated to at its present address
/// before its IKE SA ends: no packet is lost.
#[test]
fn a_road_warrior_is_set_up_anew_before_the_end() {
    for renewing in 0..2 {
        let mut world = two_children(6, Weather::FAIR, |index, connection| {
            if index == 1 {
                connection.lifetime = IkeLifetime::new(1000, Some(200), Some(0));
                connection.remote_addrs = vec![range("192.0.2.0-192.0.2.255")];
            }
        });
        reload(&mut world, 1, |_, connection| connection.encap = true);
        run_lossless(&mut world, Duration::from_secs(500));
        assert!(world.hosts[1].logged("stays as it was set up until the peer sets it up anew"));
        let (now, ike) = (world.now, world.hosts[renewing].sas()[0].id);
        assert!(world.hosts[renewing].endpoint.rekey_ike(now, ike));
        world.settle(renewing);
        run_lossless(&mut world, Duration::from_secs(1000));
        assert_settled(&world);
        assert!(world.hosts[1].sas()[0].nat.fake, "{renewing}: {:#?}", world.hosts[1].log());
    }
}

/// A key that has changed, or is gone, on one side alone, or on both.
#[test]
fn an_ike_sa_does_not_outlive_its_key_by_new_keys() {
    let changed = |world: &mut World, host: usize| {
        let key = crate::scenarios::common::secret("psk", b"another shared key", &["moon", "sun"]);
        world.hosts[host].load_secret(key);
    };
    for case in ["changed", "gone", "changed on both sides"] {
        let mut world = two_children(7, Weather::FAIR, |index, connection| {
            let rekey = if index == 0 { 200 } else { 1000 };
            connection.lifetime = IkeLifetime::new(rekey, Some(100), Some(0));
        });
        match case {
            "gone" => assert!(world.hosts[1].endpoint.secrets_mut().unload("psk")),
            "changed" => changed(&mut world, 1),
            _ => (0..2).for_each(|host| changed(&mut world, host)),
        }
        run_lossless(&mut world, Duration::from_secs(900));
        assert_settled(&world);
        world.run_secs(300);
        if case == "changed on both sides" {
            assert_settled(&world);
        } else {
            let left = world.hosts.iter().map(|host| host.sas().len()).sum::<usize>();
            assert_eq!(left, 0, "{case}: {:#?}", world.hosts[1].log());
        }
    }
}

/// Without a lifetime it ends by the default one.
#[test]
fn an_ike_sa_without_a_lifetime_does_not_outlive_its_key() {
    for case in ["changed", "gone"] {
        let mut world = two_children(9, Weather::FAIR, |index, connection| {
            if index == 0 {
                connection.lifetime = IkeLifetime::new(1000, Some(100), Some(0));
            }
        });
        match case {
            "gone" => assert!(world.hosts[1].endpoint.secrets_mut().unload("psk")),
            _ => {
                let key = crate::scenarios::common::secret("psk", b"another shared key", &["moon", "sun"]);
                world.hosts[1].load_secret(key);
            }
        }
        run_lossless(&mut world, Duration::from_secs(3 * 3600));
        assert_settled(&world);
        world.run_secs(2 * 3600);
        let left = world.hosts.iter().map(|host| host.sas().len()).sum::<usize>();
        assert_eq!(left, 0, "{case}: {:#?}", world.hosts[1].log());
    }
}

/// The request for a replacement names no Child SA. No answer means that the old one is gone, and
/// an answer without an SA has made none that had to be deleted.
#[test]
fn an_answer_that_makes_no_replacement_ends_nothing() {
    for answer in [vec![status(NotifyType::ChildSaNotFound)], vec![]] {
        let mut world = World::pair(65, Weather::FAIR);
        world.hosts.remove(1);
        let mut sun = Responder::establish(&mut world);
        let sent = world.hosts[0].sent.len();
        reload(&mut world, 0, other_cipher);
        world.run_until(|world| world.hosts[0].sent.len() > sent);
        let (header, _) = sun.asked(&world);
        assert_eq!(header.exchange, ExchangeType::CreateChildSa);
        let said = sun.answer(&mut world, ExchangeType::CreateChildSa, header.message_id.0, answer);
        assert!(said.is_empty(), "{said:?}");
        assert_eq!(world.hosts[0].sending.len(), 1);
        assert_eq!(world.hosts[0].in_use.lock().unwrap().len(), 1);
    }
}

/// Its lifetime is over, and what is to replace it is on its way: new keys would make another.
#[test]
fn an_expired_child_that_is_being_replaced_is_not_renewed() {
    let mut world = sun();
    reload(&mut world, 0, |_, connection| {
        connection.children[0].lifetime.time = Lifetime::new(0, Some(20), None);
    });
    let mut peer = Peer::establish(&mut world, 66);
    reload(&mut world, 0, |_, connection| {
        connection.children[0].remote_ts = vec![TsSpec::Fixed(ts("10.109.7.0-10.109.7.255"))];
    });
    world.run_secs(30);
    assert!(world.hosts[0].installed.is_empty());
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, whole(SPI, Spi(SPI.0 + 1)));
    assert_eq!(only_notify(answer), NotifyType::TemporaryFailure);
}
