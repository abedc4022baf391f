//! Which key asks for what: the table of docs/how-to/change-connections.md.

use super::*;
use crate::config::{
    AuthMethod, ChildMode, Childless, EspEncryption, EspProposal, Fragmentation, HostName, Identity,
    IkeEncryption, IkeProposal, KeyExchange, Lifetime, Prf, Revocation, SendCert, StartAction, TsSpec,
    Unique, UpdownScript,
};
use std::num::NonZeroU32;
use std::time::Duration;
use testudo_ipsec::sa::Mss;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

type Edit = fn(&mut Connection);

fn range(addr: &str) -> AddrRange {
    AddrRange::new(addr.parse().unwrap(), addr.parse().unwrap()).unwrap()
}

fn ts(addr: &str) -> TsSpec {
    TsSpec::Fixed(TrafficSelector::all(range(addr)))
}

fn child(name: &str) -> Child {
    let encryption = vec![EspEncryption::Aes128Gcm16];
    Child {
        name: name.into(),
        local_ts: vec![ts("10.1.0.1")],
        remote_ts: vec![ts("10.2.0.1")],
        proposals: vec![EspProposal {
            encryption,
            integrity: vec![],
            ke: vec![],
            additional: Default::default(),
            esn: vec![true],
        }],
        replay_window: 64,
        ..Child::default()
    }
}

fn connection() -> Connection {
    Connection {
        name: "site".into(),
        local_addrs: vec![range("192.0.2.1")],
        remote_addrs: vec![range("192.0.2.2")],
        proposals: vec![IkeProposal {
            encryption: vec![IkeEncryption::Aes128Gcm16],
            prf: vec![Prf::HmacSha256],
            ke: vec![KeyExchange::X25519],
            ..IkeProposal::default()
        }],
        children: vec![child("a"), child("b")],
        ..Connection::default()
    }
}

fn name() -> HostName {
    HostName { name: "gw.example.org".into(), place: 1, addrs: Vec::new() }
}

fn difference(edit: impl FnOnce(&mut Connection)) -> Difference {
    let mut new = connection();
    edit(&mut new);
    Difference::between(&connection(), &new)
}

/// The change for child `a`; the other child and the IKE SA are kept.
fn of_child(edit: impl FnOnce(&mut Child)) -> ChildChange {
    let found = difference(|connection| edit(&mut connection.children[0]));
    assert_eq!((found.ike, found.retime, found.children["b"]), (IkeChange::None, false, ChildChange::None));
    found.children["a"]
}

#[test]
fn settings_of_ike_sa_init_and_ike_auth_need_a_new_ike_sa() {
    let edits: [(&str, Edit); 16] = [
        ("local_addrs", |c| c.local_addrs.clear()),
        ("remote_addrs", |c| c.remote_addrs.push(range("192.0.2.3"))),
        ("local_addrs", |c| c.names.local.push(name())),
        ("remote_addrs", |c| c.names.remote.push(name())),
        ("local_port", |c| c.local_port = 4500),
        ("remote_port", |c| c.remote_port = 4500),
        ("encap", |c| c.encap = true),
        ("fragmentation", |c| c.fragmentation = Fragmentation::No),
        ("ppk_id, ppk_required", |c| c.ppk.required = true),
        ("vips", |c| c.vips.push("0.0.0.0".parse().unwrap())),
        ("vips_within", |c| c.vips_within.push(range("10.3.0.1"))),
        ("pools", |c| c.pools.push("pool".into())),
        ("local", |c| c.local.id = Some(Identity::Fqdn("moon".into()))),
        ("remote", |c| c.remote.method = AuthMethod::PUBKEY),
        ("remote", |c| c.remote.revocation = Revocation::Strict),
        ("further rounds of local and remote", |c| c.rounds.remote.push(c.remote.clone())),
    ];
    for (key, edit) in edits {
        let found = difference(edit);
        assert_eq!((found.ike, found.keys), (IkeChange::Reauthenticate, vec![key]));
    }
}

#[test]
fn other_proposals_need_new_keys_only() {
    let edits: [Edit; 2] = [
        |c| c.proposals[0].ke = vec![KeyExchange::Ecp384],
        |c| c.proposals[0].additional[0].push(Some(KeyExchange::MlKem768)),
    ];
    for edit in edits {
        let found = difference(edit);
        assert_eq!((found.ike, found.keys), (IkeChange::Rekey, vec!["proposals"]));
    }
    let both = difference(|c| {
        c.proposals[0].ke = vec![KeyExchange::Ecp384];
        c.encap = true;
    });
    assert_eq!((both.ike, both.keys), (IkeChange::Reauthenticate, vec!["encap", "proposals"]));
}

#[test]
fn settings_for_later_events_change_no_sa() {
    let edits: [Edit; 13] = [
        |c| c.dpd_delay = Duration::from_secs(30),
        |c| c.send_cert = SendCert::Always,
        |c| c.send_certreq = false,
        |c| c.keyingtries = 0,
        |c| c.childless = Childless::Force,
        |c| c.unique = Unique::Replace,
        |c| c.children[0].start_action = StartAction::Trap,
        |c| c.children[0].dpd_action = StartAction::Start,
        |c| c.children[0].close_action = StartAction::Start,
        |c| c.children[0].reqid = NonZeroU32::new(7),
        |c| c.children[0].mss = Mss::Off,
        |c| c.children[0].icmp = true,
        |c| {
            let (program, arguments) = ("/etc/updown".into(), vec![]);
            c.children[0].updown = Some(UpdownScript { program, arguments, host_access: false });
        },
    ];
    let nothing = difference(|_| {});
    for edit in edits {
        assert_eq!(difference(edit), nothing);
    }
    assert!(difference(|c| c.lifetime.rekey = 3600).retime);
    assert_eq!(of_child(|child| child.lifetime.time = Lifetime::new(60, None, None)), ChildChange::Retime);
}

#[test]
fn negotiated_settings_of_a_child_need_a_new_child_sa() {
    let edits: [fn(&mut Child); 5] = [
        |child| child.local_ts.push(ts("10.1.0.2")),
        |child| child.remote_ts = vec![ts("10.2.0.2")],
        |child| child.proposals[0].esn = vec![false],
        |child| child.proposals[0].ke = vec![KeyExchange::X25519],
        |child| child.priority = 7,
    ];
    for edit in edits {
        assert_eq!(of_child(edit), ChildChange::Replace);
    }
    assert_eq!(of_child(|child| child.mode = ChildMode::Drop), ChildChange::Remove);
}

#[test]
fn local_settings_of_a_child_need_a_rekeying() {
    let edits: [fn(&mut Child); 4] = [
        |child| child.replay_window = 128,
        |child| child.copy.df = false,
        |child| child.lifetime.bytes = Lifetime::new(1000, None, None),
        |child| child.lifetime.packets = Lifetime::new(1000, None, None),
    ];
    for edit in edits {
        assert_eq!(of_child(edit), ChildChange::Rekey);
        let both = |child: &mut Child| {
            edit(child);
            child.priority = 7;
        };
        assert_eq!(of_child(both), ChildChange::Replace);
    }
}

#[test]
fn children_come_and_go() {
    let found = difference(|connection| {
        connection.children.remove(0);
        connection.children.push(child("c"));
        connection.children.push(Child { mode: ChildMode::Pass, ..child("d") });
    });
    let changes = [("a", ChildChange::Remove), ("b", ChildChange::None), ("c", ChildChange::Add)];
    assert_eq!(found.children, changes.map(|(name, change)| (name.to_owned(), change)).into());
}

#[test]
fn the_log_says_what_is_replaced() {
    assert_eq!(
        difference(|c| c.unique = Unique::Keep).describe("x"),
        "connection x changed: children a, b kept"
    );
    let children = difference(|c| {
        c.children[0].priority = 7;
        c.children.push(child("c"));
    });
    assert_eq!(children.describe("x"), "connection x changed: children a replaced, c added, b kept");
    let anew = difference(|c| {
        c.encap = true;
        c.children[0].priority = 7;
    });
    assert_eq!(
        anew.describe("x"),
        "connection x changed: IKE_SAs set up anew because of encap; children a replaced, b made anew with them"
    );
    let keys = difference(|c| c.children[1].replay_window = 7);
    assert_eq!(keys.describe("x"), "connection x changed: children b rekeyed, a kept");
}
