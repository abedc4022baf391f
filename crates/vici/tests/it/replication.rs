//! Commands that change the configuration, in a gateway that has other nodes.

use crate::support::rig::{Rig, at, command};
use crate::support::{Gateway, message};
use testudo_ike::config::StartAction;
use testudo_vici::codec::Packet;
use testudo_vici::control::{ConfigChange, ConfigItem, ConfigItemKind, Control};
use testudo_vici::message::Message;
use testudo_vici::server::{carry_out, take_back};

fn psk(id: &str, key: &str) -> [(&'static str, String); 3] {
    [("id", id.to_owned()), ("type", "IKE".to_owned()), ("data", key.to_owned())]
}

fn load_shared(id: &str, key: &str) -> Message {
    let pairs = psk(id, key);
    message(&pairs.each_ref().map(|(name, value)| (*name, value.as_str())))
}

fn load_conn(name: &str) -> Message {
    let auth = Message::new().with("auth", "psk");
    let child = Message::new().with_list("remote_ts", ["10.2.0.0/16"]);
    let content = Message::new()
        .with_list("remote_addrs", ["192.0.2.2"])
        .with_section("local-1", auth.clone())
        .with_section("remote-1", auth)
        .with_section("children", Message::new().with_section("net", child));
    Message::new().with_section(name, content)
}

fn replicated(rig: &Rig) -> Vec<ConfigChange> {
    rig.gateway.replicated.iter().map(|(_, change, _)| change.clone()).collect()
}

fn item(kind: ConfigItemKind, name: &str) -> ConfigItem {
    ConfigItem { kind, name: name.to_owned() }
}

#[test]
fn a_client_waits_until_the_others_have_been_told() {
    let mut rig = Rig::new();
    rig.gateway.replicates = true;
    rig.send(&Packet::CmdRequest("load-conn".into(), load_conn("gw"))).unwrap();
    rig.send(&command("version", &[])).unwrap();
    assert_eq!(rig.receive(), [], "neither is answered yet");
    let (job, change, _) = rig.gateway.replicated[0].clone();
    assert_eq!(change, ConfigChange::Set(item(ConfigItemKind::Connection, "connection gw")));
    assert_eq!(rig.gateway.connections.len(), 1, "it is loaded here");
    rig.server.finish_replication(job);
    let packets = rig.receive();
    assert_eq!(packets.len(), 2);
    assert_eq!(packets[0], Packet::CmdResponse(message(&[("success", "yes")])));

    // The other nodes have not received it for too long.
    rig.send(&Packet::CmdRequest("load-conn".into(), load_conn("gw"))).unwrap();
    assert_eq!(rig.server.next_deadline(), Some(at(10)));
    rig.server.handle_deadline(at(10));
    let packets = rig.receive();
    let [Packet::CmdResponse(answer)] = packets.as_slice() else { panic!("{packets:?}") };
    assert!(answer.text("errmsg").unwrap().starts_with("done on this node"), "{answer:?}");
}

#[test]
fn failed_and_read_only_commands_are_not_replicated() {
    let mut rig = Rig::new();
    rig.gateway.replicates = true;
    for (name, arguments) in [
        ("load-conn", load_conn("full")),
        ("unload-conn", message(&[("name", "nobody")])),
        ("load-shared", message(&[("type", "IKE")])),
    ] {
        assert_eq!(rig.request(name, arguments).text("success"), Some("no"), "{name}");
    }
    for name in ["version", "stats", "get-conns", "get-shared"] {
        rig.request(name, Message::new());
    }
    assert_eq!(replicated(&rig), []);
}

#[test]
fn every_change_is_named() {
    let mut rig = Rig::new();
    let pool = Message::new().with_section("road", Message::new().with("addrs", "10.9.0.0/24"));
    for (name, arguments, expected) in [
        ("load-conn", load_conn("gw"), ConfigChange::Set(item(ConfigItemKind::Connection, "connection gw"))),
        (
            "unload-conn",
            message(&[("name", "gw")]),
            ConfigChange::Unset(item(ConfigItemKind::Connection, "connection gw")),
        ),
        ("load-pool", pool, ConfigChange::Set(item(ConfigItemKind::Pool, "pool road"))),
        (
            "unload-pool",
            message(&[("name", "road")]),
            ConfigChange::Unset(item(ConfigItemKind::Pool, "pool road")),
        ),
        (
            "load-shared",
            load_shared("ike-1", "key"),
            ConfigChange::Set(item(ConfigItemKind::Credential, "secret ike-1")),
        ),
        (
            "unload-shared",
            message(&[("id", "ike-1")]),
            ConfigChange::Unset(item(ConfigItemKind::Credential, "secret ike-1")),
        ),
        ("clear-creds", Message::new(), ConfigChange::ClearCredentials),
    ] {
        // The gateway has nobody to tell: the answer comes at once.
        assert_eq!(rig.request(name, arguments).text("success"), Some("yes"), "{name}");
        assert_eq!(replicated(&rig).last(), Some(&expected), "{name}");
    }
}

#[test]
fn another_node_carries_out_what_it_is_told_and_takes_it_back() {
    let mut rig = Rig::new();
    for (name, arguments) in [("load-conn", load_conn("gw")), ("load-shared", load_shared("ike-1", "key"))] {
        assert_eq!(rig.request(name, arguments).text("success"), Some("yes"));
    }
    let octets: Vec<Vec<u8>> = rig.gateway.replicated.iter().map(|(_, _, octets)| octets.clone()).collect();
    let mut other = Gateway::default();
    for octets in &octets {
        carry_out(octets, &mut other).unwrap();
    }
    assert_eq!(other.connections, rig.gateway.connections);
    assert_eq!(other.secret_names(), ["ike-1"]);
    for octets in &octets {
        take_back(octets, &mut other).unwrap();
    }
    assert_eq!((other.connections.len(), other.secrets.len()), (0, 0));
}

/// In a cluster the policy is a part of the configuration that all nodes have.
#[test]
fn a_policy_is_installed_on_all_nodes_by_loading_its_connection_otherwise() {
    let mut rig = Rig::new();
    rig.gateway.replicates = true;
    let mut other = Gateway::default();
    let mut carried_out = 0;
    let mut request = |rig: &mut Rig, name: &str, arguments: Message| {
        rig.send(&Packet::CmdRequest(name.into(), arguments)).unwrap();
        for (job, change, octets) in rig.gateway.replicated[carried_out..].iter().cloned() {
            let item = item(ConfigItemKind::Connection, "connection gw");
            let expected = match name {
                "load-conn" => ConfigChange::Set(item),
                _ => ConfigChange::Replace { item, of: carried_out as u64 - 1 },
            };
            assert_eq!(change, expected);
            carry_out(&octets, &mut other).unwrap();
            rig.server.finish_replication(job);
        }
        carried_out = rig.gateway.replicated.len();
        let answer = rig.receive();
        let [Packet::CmdResponse(answer)] = answer.as_slice() else { panic!("{answer:?}") };
        let actions = [&rig.gateway, &other].map(|gateway| gateway.connections[0].children[0].start_action);
        assert_eq!(rig.gateway.connections, other.connections);
        (answer.text("success") == Some("yes"), actions[0], carried_out)
    };
    let child = |name: &str| message(&[("child", name)]);
    assert_eq!(request(&mut rig, "load-conn", load_conn("gw")), (true, StartAction::None, 1));
    assert_eq!(request(&mut rig, "install", child("net")), (true, StartAction::Trap, 2));
    assert_eq!(request(&mut rig, "uninstall", child("net")), (true, StartAction::None, 3));
    assert_eq!(request(&mut rig, "install", child("absent")), (false, StartAction::None, 3));
    assert_eq!(rig.gateway.refusals, ["install: no connection has a child of that name"]);
    // A trap that its `dpd_action` has set is not a part of the configuration.
    assert_eq!(request(&mut rig, "uninstall", child("net")), (false, StartAction::None, 3));
    let refused = rig.request("uninstall", child("net"));
    assert!(refused.text("errmsg").unwrap().contains("no trap by start_action"), "{refused:?}");
    assert_eq!(rig.gateway.policies, []);
}

#[test]
fn a_policy_is_not_installed_over_a_load_that_has_come_first() {
    let mut rig = Rig::new();
    rig.gateway.replicates = true;
    rig.send(&Packet::CmdRequest("load-conn".into(), load_conn("gw"))).unwrap();
    rig.server.finish_replication(rig.gateway.replicated[0].0);
    rig.receive();
    // Another node's load came before, and will be replaced by this node's.
    rig.gateway.connections[0].children[0].start_action = StartAction::Start;
    rig.send(&command("install", &[("child", "net")])).unwrap();
    assert_eq!(rig.gateway.connections[0].children[0].start_action, StartAction::Trap);
    rig.server.refuse_replication(rig.gateway.replicated[1].0);
    let packets = rig.receive();
    let [Packet::CmdResponse(answer)] = packets.as_slice() else { panic!("{packets:?}") };
    assert_eq!(answer.text("success"), Some("no"));
    assert!(answer.text("errmsg").unwrap().starts_with("not done on any node"), "{answer:?}");
}

#[test]
fn a_replicated_command_that_changes_nothing_is_refused() {
    let mut gateway = Gateway::default();
    for (name, arguments) in [("initiate", message(&[("child", "net")])), ("list-sas", Message::new())] {
        let mut framed = Vec::new();
        Packet::CmdRequest(name.to_owned(), arguments).encode(&mut framed).unwrap();
        carry_out(&framed[4..], &mut gateway).unwrap_err();
        take_back(&framed[4..], &mut gateway).unwrap_err();
    }
    assert_eq!(carry_out(&[9], &mut gateway).is_err(), take_back(&[], &mut gateway).is_err());
}
