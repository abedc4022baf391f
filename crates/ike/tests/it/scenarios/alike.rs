//! Connections by which a peer proves itself in the same way: what it may have it has once,
//! whichever it chooses by its selectors.

use crate::pki::cert;
use crate::scenarios::common::build::{child, fqdn, ts};
use crate::scenarios::common::peer::{self, Peer, only_notify, status};
use crate::scenarios::common::{Weather, World};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use testudo_ike::config::{
    IkeEncryption, IkeProposal, KeyExchange, LocalAuth, PpkPolicy, Prf, Revocation, Unique,
};
use testudo_ike::endpoint::{Contact, EndpointConfig, Older};
use testudo_ike::message::{ExchangeType, IkeSpi, Message, NotifyType, Payload, TsPayload};

/// Host 0 is sun, with `site` for moon, and `a-first`, which comes before it.
fn sun(twin_limit: usize, unique: Unique) -> World {
    let config = EndpointConfig { twin_limit: NonZeroUsize::new(twin_limit), ..EndpointConfig::default() };
    let addrs = ["192.0.2.1", "192.0.2.2"];
    let mut world =
        World::pair_of(addrs, 1, Weather::FAIR, config, |_, connection| connection.unique = unique);
    world.hosts.remove(0);
    let now = world.now;
    let mut other = world.hosts[0].endpoint.connections().next().unwrap().clone();
    other.name = "a-first".into();
    other.children = vec![child("other", "10.200.0.0-10.200.0.255", "10.201.0.0-10.201.0.255")];
    world.hosts[0].load(now, other);
    world
}

/// Moon sets up an IKE SA from a port of its own, which is no reauthentication, with the child of
/// one or the other, in turn.
fn set_up(world: &mut World, number: u16, extra: Option<Payload>) -> Option<Vec<Payload>> {
    let mut peer = Peer::init(world, 70 + u64::from(number), vec![]);
    peer.path.local.set_port(20_000 + number);
    let mut payloads = peer.auth_payloads();
    if number % 2 == 1 {
        payloads[3] = Payload::TsInitiator(TsPayload::new(vec![ts("10.201.0.0-10.201.0.255")]));
        payloads[4] = Payload::TsResponder(TsPayload::new(vec![ts("10.200.0.0-10.200.0.255")]));
    }
    payloads.extend(extra);
    let bytes = peer.seal(ExchangeType::IkeAuth, payloads);
    let said = peer::exchange(world, peer.path, &bytes);
    // Not the delete of an IKE SA that makes room.
    said.iter().find(|bytes| Message::parse(bytes).unwrap().header.response).map(|answer| peer.open(answer))
}

fn made(answer: &Option<Vec<Payload>>) -> bool {
    answer.iter().flatten().any(|payload| matches!(payload, Payload::Sa(_)))
}

#[test]
fn the_limit_counts_all_of_them() {
    let mut world = sun(3, Unique::No);
    let answers: Vec<_> = (0..20).map(|number| set_up(&mut world, number, None)).collect();
    assert_eq!(answers.iter().filter(|answer| made(answer)).count(), 3);
    assert_eq!(only_notify(answers.into_iter().next_back().unwrap()), NotifyType::AuthenticationFailed);
    let used: BTreeSet<_> = world.hosts[0].sas().into_iter().map(|sa| sa.connection).collect();
    assert_eq!(used.len(), 2, "both are there, and each was chosen: {used:?}");
}

#[test]
fn unique_looks_at_all_of_them() {
    for unique in [Unique::Replace, Unique::Keep] {
        let mut world = sun(256, unique);
        for number in 0..5 {
            let answer = set_up(&mut world, number, None);
            assert_eq!(made(&answer), number == 0 || unique == Unique::Replace);
            // Moon does not answer, so what is replaced goes without its word.
            world.run_secs(200);
        }
        let left = world.hosts[0].sas();
        assert!(left.len() == 1, "{unique:?}: {left:#?}");
        assert_eq!(left[0].connection.as_deref(), Some("site"), "the first stays, or the fifth");
    }
}

#[test]
fn the_peer_says_that_it_knows_of_none() {
    let mut world = sun(256, Unique::No);
    for number in 0..4 {
        let anew = status(NotifyType::InitialContact);
        assert!(made(&set_up(&mut world, number, Some(anew))));
        world.run_secs(1);
        assert_eq!(world.hosts[0].sas().len(), 1);
    }
}

/// At another node of a cluster, by another connection.
#[test]
fn initial_contact_on_another_node_concerns_equal_connections() {
    for differs in ["nothing", "how the peer proves itself", "how the host does", "the PPK"] {
        let mut world = sun(256, Unique::No);
        let now = world.now;
        let alike = differs == "nothing";
        let named = |name| world.hosts[0].endpoint.connections().find(|connection| connection.name == name);
        let (mut other, mut site) = (named("a-first").unwrap().clone(), named("site").unwrap().clone());
        match differs {
            "how the peer proves itself" => other.remote.revocation = Revocation::Strict,
            "how the host does" => {
                site.local = LocalAuth::by_certificate(site.local.id, vec![cert("sun-P-256")])
            }
            "the PPK" => other.ppk.id = Some(fqdn("quantum")),
            _ => {}
        }
        world.hosts[0].load(now, other);
        world.hosts[0].load(now, site);
        assert!(made(&set_up(&mut world, 1, None)), "by the first of the two");
        let contact = Contact {
            spi: IkeSpi(7),
            connection: "site".into(),
            local: fqdn("sun"),
            remote: fqdn("moon"),
            addr: "192.0.2.1:4500".parse().unwrap(),
            anew: true,
            alone: false,
        };
        let dead = world.hosts[0].endpoint.replication_mut().contacted(now, &contact, |_| Some(Older::Known));
        world.settle(0);
        let expected = if alike { (1, 0) } else { (0, 1) };
        assert_eq!((dead.len(), world.hosts[0].sas().len()), expected, "{differs} differs");
    }
}

/// A peer that one connection serves does not get the child of another: one that needs a PPK, under
/// another name of ours, or for anybody.
#[test]
fn the_child_of_a_connection_comes_by_no_other_one() {
    for differs in ["nothing", "the PPK", "our name", "how well the peer fits"] {
        let mut world = sun(256, Unique::No);
        let mut site = world.hosts[0].endpoint.connection("site").unwrap().clone();
        match differs {
            "the PPK" => site.ppk = PpkPolicy { id: Some(fqdn("quantum")), required: true },
            "our name" => site.local.id = Some(fqdn("sol")),
            "how well the peer fits" => site.remote.id = None,
            _ => {}
        }
        let now = world.now;
        world.hosts[0].load(now, site);
        let answer = set_up(&mut world, 0, None);
        assert_eq!(made(&answer), differs == "nothing", "{differs} differs: {:#?}", world.hosts[0].log());
    }
}

/// IKE_SA_INIT agrees on what any connection between the addresses allows. IKE_AUTH finds another
/// peer's connection then.
#[test]
fn a_peer_is_not_served_by_a_connection_with_other_algorithms() {
    type Edit = fn(&mut IkeProposal);
    let edits: [(bool, Edit); 4] = [
        (true, |_| {}),
        (false, |proposal| proposal.encryption = vec![IkeEncryption::Aes256Gcm16]),
        (false, |proposal| proposal.prf = vec![Prf::HmacSha512]),
        (false, |proposal| proposal.ke = vec![KeyExchange::Ecp384]),
    ];
    for (serves, edit) in edits {
        let mut world = sun(256, Unique::No);
        let mut site = world.hosts[0].endpoint.connection("site").unwrap().clone();
        let mut other = world.hosts[0].endpoint.connection("a-first").unwrap().clone();
        site.remote.id = Some(fqdn("mars"));
        edit(&mut other.proposals[0]);
        let now = world.now;
        world.hosts[0].load(now, site);
        world.hosts[0].load(now, other);
        let answer = set_up(&mut world, 1, None);
        assert_eq!(made(&answer), serves, "{:#?}", world.hosts[0].log());
        if !serves {
            assert_eq!(only_notify(answer), NotifyType::AuthenticationFailed);
        }
    }
}
