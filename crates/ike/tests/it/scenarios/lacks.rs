//! Warnings to the operator before a tunnel fails.

use crate::pki::{NOVEMBER_2026, cert, key};
use crate::scenarios::common::build::{fqdn, ppk, secret};
use crate::scenarios::common::{Weather, World};
use testudo_ike::config::{AuthMethod, ChildMode, Connection, Identity, LocalAuth, PpkPolicy};
use testudo_ike::output::UnixTime;

/// 2100-01-01, when the test's certificates end; they begin after 2020.
const END: u64 = 4_102_444_800;
const DAY: u64 = 24 * 60 * 60;

/// A host with that connection and no secret, private key or certificate but those that `edit`
/// names.
fn host(edit: impl Fn(&mut Connection)) -> World {
    let mut world = World::pair_with(1, Weather::FAIR, |_, connection| edit(connection));
    world.hosts[0].endpoint.secrets_mut().clear();
    set_time(&mut world, NOVEMBER_2026);
    world
}

fn set_time(world: &mut World, unix: UnixTime) {
    let now = world.now;
    world.hosts[0].endpoint.set_unix_time(now, unix);
}

fn lacks(world: &World) -> Vec<String> {
    world.hosts[0].endpoint.lacks(world.now, "site")
}

fn load(world: &mut World, owners: &[&str]) {
    world.hosts[0].endpoint.load_secret(secret("key", b"a key", owners));
}

#[test]
fn a_secret_that_fits_nobody_is_missed() {
    let mut world = host(|_| {});
    let missed = ["no secret fits moon and sun: load one of type ike with their identities"];
    assert_eq!(lacks(&world), missed);
    for owners in [&["venus"][..], &["moon", "venus"]] {
        load(&mut world, owners);
        assert_eq!(lacks(&world), missed, "{owners:?}");
    }
    for owners in [&["moon", "sun"][..], &["sun"], &["moon"], &[]] {
        load(&mut world, owners);
        assert!(lacks(&world).is_empty(), "{owners:?}: {:?}", lacks(&world));
    }
    assert!(world.hosts[0].endpoint.lacks(world.now, "another").is_empty(), "no such connection");
}

/// Where peers are many, and each has a secret of its own, none is missed as long as there is any.
#[test]
fn the_secrets_of_unknown_peers_are_not_missed() {
    for id in [None, Some(Identity::Fqdn("*.example.org".into()))] {
        let mut world = host(|connection| {
            connection.remote.id = id.clone();
            connection.remote_addrs.clear();
        });
        assert_eq!(lacks(&world), ["no secret is loaded: load one of type ike"]);
        world.hosts[0].endpoint.load_secret(ppk("quantum", b"a ppk", &[]));
        assert_eq!(lacks(&world).len(), 1, "a PPK is no such secret");
        load(&mut world, &["somebody.example.org"]);
        assert!(lacks(&world).is_empty());
    }
}

#[test]
fn a_connection_without_peers_lacks_nothing() {
    let world =
        host(|connection| connection.children.iter_mut().for_each(|child| child.mode = ChildMode::Pass));
    assert!(lacks(&world).is_empty());
}

#[test]
fn a_ppk_that_is_required_is_missed() {
    let mut world =
        host(|connection| connection.ppk = PpkPolicy { id: Some(fqdn("quantum")), required: true });
    load(&mut world, &[]);
    assert_eq!(lacks(&world), ["PPK 'quantum', which ppk_required asks for, is not loaded"]);
    world.hosts[0].endpoint.load_secret(ppk("quantum", b"a ppk", &["quantum"]));
    assert!(lacks(&world).is_empty());
}

/// By a certificate that the connection names, on both sides.
fn by_certificate() -> World {
    host(|connection| {
        connection.local = LocalAuth::by_certificate(None, vec![cert("moon-P-256")]);
        connection.remote.method = AuthMethod::PUBKEY;
    })
}

#[test]
fn a_private_key_that_is_not_loaded_is_missed() {
    let mut world = by_certificate();
    let missed = ["the private key of our certificate 'C=CH, O=Testudo, CN=moon' is not loaded"];
    assert_eq!(lacks(&world), missed);
    world.hosts[0].endpoint.credentials_mut().load_key(key("sun-P-256"));
    assert_eq!(lacks(&world), missed, "of another certificate");
    world.hosts[0].endpoint.credentials_mut().load_key(key("moon-P-256"));
    assert!(lacks(&world).is_empty());

    // The connection names none: one that confirms the identity will do.
    let mut world = host(|connection| {
        let id = Some(Identity::Dn("C=CH, O=Testudo, CN=moon".parse().unwrap()));
        connection.local = LocalAuth::by_certificate(id, Vec::new());
        connection.remote.method = AuthMethod::PUBKEY;
    });
    let missed = ["no certificate of C=CH, O=Testudo, CN=moon is loaded together with its private key"];
    world.hosts[0].endpoint.credentials_mut().load_key(key("moon-P-256"));
    assert_eq!(lacks(&world), missed);
    world.hosts[0].endpoint.credentials_mut().load_certificate(cert("moon-P-256"), false).unwrap();
    assert!(lacks(&world).is_empty());
}

#[test]
fn the_end_of_our_own_certificate_is_told_of_a_month_before() {
    let mut world = by_certificate();
    world.hosts[0].endpoint.credentials_mut().load_key(key("moon-P-256"));
    let our = "our certificate 'C=CH, O=Testudo, CN=moon'";
    for (time, expected) in [
        (END - 30 * DAY, None),
        (END - 30 * DAY + 1, Some(format!("{our} ends in 29 days, at 2100-01-01T00:00:00Z"))),
        (END - 1, Some(format!("{our} ends in 0 days, at 2100-01-01T00:00:00Z"))),
        (
            END + 1,
            Some(format!(
                "{our} is not valid: expired at 2100-01-01T00:00:00Z, now it is 2100-01-01T00:00:01Z"
            )),
        ),
    ] {
        set_time(&mut world, UnixTime(time));
        assert_eq!(lacks(&world), Vec::from_iter(expected), "{time}");
    }
    set_time(&mut world, UnixTime(1_500_000_000));
    let early = lacks(&world);
    assert!(early[0].starts_with(&format!("{our} is not valid: not valid before ")), "{early:?}");
}
