//! Children: selectors, scalars, and those without tunnels.

use super::*;
use std::num::NonZeroU16;
use testudo_ipsec::selector::TrafficSelector;

#[test]
fn traffic_selectors() {
    let fixed = |addrs, protocol, port_start, port_end| {
        TsSpec::Fixed(TrafficSelector { addrs, protocol, port_start, port_end })
    };
    let net = range("10.1.0.0", "10.1.255.255");
    assert_eq!(ts("10.1.0.0/16").unwrap(), fixed(net, 0, 0, 65535));
    assert_eq!(ts("10.1.7.7/16").unwrap(), fixed(net, 0, 0, 65535));
    assert_eq!(ts("10.1.0.0/16[tcp]").unwrap(), fixed(net, 6, 0, 65535));
    assert_eq!(ts("10.1.0.0/16[tcp/80]").unwrap(), fixed(net, 6, 80, 80));
    assert_eq!(ts("10.1.0.0/16[tcp/ssh]").unwrap(), fixed(net, 6, 22, 22));
    assert_eq!(ts("10.1.0.0/16[tcp/ftp-data]").unwrap(), fixed(net, 6, 20, 20));
    assert_eq!(ts("10.1.0.0/16[udp/1000-2000]").unwrap(), fixed(net, 17, 1000, 2000));
    assert_eq!(ts("10.1.0.0/16[89]").unwrap(), fixed(net, 89, 0, 65535));
    assert_eq!(ts("10.1.0.0/16[/53]").unwrap(), fixed(net, 0, 53, 53));
    assert_eq!(ts("10.1.0.0/16[any/any]").unwrap(), fixed(net, 0, 0, 65535));
    assert_eq!(ts("10.1.0.0/16[udp/opaque]").unwrap(), fixed(net, 17, 65535, 0));
    assert_eq!(ts("10.1.0.0/16[icmp/2048]").unwrap(), fixed(net, 1, 0x0800, 0x0800));
    assert_eq!(ts("10.1.0.0/16[icmp/8]").unwrap(), fixed(net, 1, 0x0800, 0x0800), "a type alone");
    assert_eq!(ts("10.0.0.1-10.0.0.9").unwrap(), fixed(range("10.0.0.1", "10.0.0.9"), 0, 0, 65535));
    assert_eq!(ts("10.0.0.1").unwrap(), fixed(range("10.0.0.1", "10.0.0.1"), 0, 0, 65535));
    assert_eq!(
        ts("fd00::/8[ipv6-icmp]").unwrap(),
        fixed(range("fd00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), 58, 0, 65535)
    );
    assert_eq!(
        ts("::/0").unwrap(),
        fixed(range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), 0, 0, 65535)
    );
    assert_eq!(ts("dynamic").unwrap(), TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: 65535 });
    assert_eq!(ts("dynamic[gre]").unwrap(), TsSpec::Dynamic { protocol: 47, port_start: 0, port_end: 65535 });
    let ports = "the port as a number, the name of a service such as http, a range n-m, opaque or any";
    let protocols = "the protocol as a number of at most 255, or a name such as tcp";
    let addresses = "a subnet, an address, a range or dynamic, optionally with [protocol/port]";
    for (text, expected) in [
        ("10.1.0.0/16[tcp/httpx]", ports),
        ("10.1.0.0/16[tcp/http-https]", ports),
        ("10.1.0.0/16[tcp/70000]", ports),
        ("10.1.0.0/16[tcp/9-1]", ports),
        ("10.1.0.0/16[tcp/1-2-3]", ports),
        ("10.1.0.0/16[xyz]", protocols),
        ("10.1.0.0/16[256]", protocols),
        ("10.1.0.0/16[tcp/80", "a closing ] at the end"),
        ("10.1.0.0/16[tcp]x", "a closing ] at the end"),
        ("lan", addresses),
        ("%any", addresses),
        ("", addresses),
    ] {
        let why = format!("connections.gw.children.net.local_ts: found {text:?}, expected {expected}");
        assert_eq!(ts(text).unwrap_err(), why);
    }
    assert!(
        ts("fd00::/8[icmp]")
            .unwrap_err()
            .ends_with("this kind of ICMP does not belong to the addresses' family")
    );
}

#[test]
fn scalars_of_a_child() {
    let transport = ChildMode::Transport;
    for (text, mode) in
        [("tunnel", ChildMode::Tunnel), ("Tunnel", ChildMode::Tunnel), ("transport", transport)]
    {
        assert_eq!(child_with("mode", text).unwrap().mode, mode);
    }
    for (text, action) in [
        ("none", StartAction::None),
        ("clear", StartAction::None),
        ("trap", StartAction::Trap),
        ("route", StartAction::Trap),
        ("start", StartAction::Start),
        ("restart", StartAction::Start),
        ("trap|start", StartAction::TrapStart),
    ] {
        assert_eq!(child_with("start_action", text).unwrap().start_action, action);
        assert_eq!(child_with("dpd_action", text).unwrap().dpd_action, action);
        assert_eq!(child_with("close_action", text).unwrap().close_action, action);
    }
    for (text, window) in [("0", 0), ("1", 64), ("32", 64), ("64", 64), ("65", 128), ("8192", 8192)] {
        assert_eq!(child_with("replay_window", text).unwrap().replay_window, window);
    }
    for (text, dscp_out, dscp_in) in
        [("out", true, false), ("in", false, true), ("yes", true, true), ("no", false, false)]
    {
        let copy = child_with("copy_dscp", text).unwrap().copy;
        assert_eq!((copy.dscp_out, copy.dscp_in), (dscp_out, dscp_in));
    }
    assert!(!child_with("copy_df", "no").unwrap().copy.df);
    assert!(!child_with("copy_ecn", "no").unwrap().copy.ecn);
    assert_eq!(child_with("priority", "7").unwrap().priority, 7);
    for (key, value, why) in [
        ("mode", "beet", "but this mode is not supported; expected tunnel, transport, pass or drop"),
        ("mode", "tunel", "expected tunnel, transport, pass or drop"),
        ("start_action", "go", "expected none, trap, start or trap|start"),
        ("dpd_action", "hold", "expected none, trap, start or trap|start"),
        ("replay_window", "8193", "expected a number of packets up to 8192, or 0 for no anti-replay"),
        ("copy_dscp", "both", "expected out, in, yes or no"),
    ] {
        let expected = format!("connections.gw.children.net.{key}: found {value:?}, {why}");
        assert_eq!(child_with(key, value).unwrap_err(), expected);
    }
}

#[test]
fn the_icmp_errors_of_a_child() {
    for (text, icmp) in [("yes", true), ("no", false)] {
        assert_eq!(child_with("icmp", text).unwrap().icmp, icmp);
    }
    let why = "connections.gw.children.net.icmp: found \"perhaps\", expected yes or no";
    assert_eq!(child_with("icmp", "perhaps").unwrap_err(), why);
}

#[test]
fn the_mss_of_a_child() {
    let number = |octets| Mss::AtMost(NonZeroU16::new(octets).unwrap());
    for (text, mss) in [
        ("auto", Mss::Auto),
        ("OFF", Mss::Off),
        ("536", number(536)),
        ("1360", number(1360)),
        ("65495", number(65495)),
    ] {
        assert_eq!(child_with("mss", text).unwrap().mss, mss);
    }
    for text in ["0", "535", "65496", "65536", "4294968656", "-1", "1360.5", "no", "1 360"] {
        let expected = format!(
            "connections.gw.children.net.mss: found {text:?}, expected auto, off, or a number of octets from 536 to \
             65495"
        );
        assert_eq!(child_with("mss", text).unwrap_err(), expected);
    }
}

#[test]
fn pass_and_drop_policies_say_what_and_when() {
    let shunt = |mode: &str| Message::new().with("mode", mode).with("start_action", "trap");
    let nets = |message: Message| {
        message.with_list("local_ts", ["10.1.0.0/16"]).with_list("remote_ts", ["0.0.0.0/0"])
    };
    let pass = child(nets(shunt("pass")).with_list("esp_proposals", ["default"])).unwrap();
    assert_eq!((pass.mode, pass.proposals.len()), (ChildMode::Pass, 0));
    assert_eq!(child(nets(shunt("drop"))).unwrap().mode, ChildMode::Drop);
    let waiting = child(nets(Message::new().with("mode", "pass"))).unwrap();
    assert_eq!((waiting.mode, waiting.start_action), (ChildMode::Pass, StartAction::None));
    let path = "connections.gw.children.net";
    for (content, why) in [
        (
            nets(Message::new().with("mode", "drop").with("start_action", "start")),
            ".start_action: found \"start\", expected trap, which installs a pass or drop policy, or none",
        ),
        (
            shunt("pass"),
            ".local_ts: found dynamic, the default, which has no meaning without a peer; expected subnets such as \
             0.0.0.0/0 or ::/0",
        ),
    ] {
        assert_eq!(child(content).unwrap_err(), format!("{path}{why}"));
    }
}

#[test]
fn connections_without_peers_need_no_authentication() {
    let nets = |mode: &str| {
        let child = Message::new().with("mode", mode).with("start_action", "trap");
        child.with_list("local_ts", ["10.1.0.0/16"]).with_list("remote_ts", ["10.1.0.0/16"])
    };
    let load = |children: Message| {
        let content = Message::new().with_section("children", children);
        connection(&Message::new().with_section("gw", content), Policy::Modern).map_err(|why| why.to_string())
    };
    let both = Message::new().with_section("lan", nets("pass")).with_section("rest", nets("drop"));
    let loaded = load(both.clone()).unwrap();
    assert!(!loaded.has_peers());
    let shown = testudo_vici::render::list_conn(&loaded).remove(0);
    assert!(shown.section("gw").unwrap().section("local-1").is_none(), "{shown:?}");
    for children in [Message::new(), both.with_section("net", Message::new())] {
        assert_eq!(load(children).unwrap_err(), "connections.gw.local: missing, expected a section");
    }
}

#[test]
fn a_script_and_a_number_for_a_child() {
    let script = |host| {
        let keys = Message::new().with("updown", "/usr/lib/ipsec/_updown iptables").with("hostaccess", host);
        child(keys).unwrap().updown.unwrap()
    };
    let found = script("yes");
    assert_eq!(
        (found.program.as_str(), found.arguments.as_slice()),
        ("/usr/lib/ipsec/_updown", &["iptables".to_owned()][..])
    );
    assert!(found.host_access && !script("no").host_access);
    assert_eq!(child_with("updown", "").unwrap().updown, None);
    assert_eq!(child_with("hostaccess", "yes").unwrap().updown, None, "nobody is there to be told");
    // A script that is not run does not refuse the connection: its policies would be missing.
    for text in ["_updown", "/bin/a; b"] {
        assert_eq!(child_with("updown", text).unwrap().updown, None, "{text}");
    }
    assert_eq!(child_with("reqid", "7").unwrap().reqid.map(u32::from), Some(7));
    assert_eq!(child_with("reqid", "0").unwrap().reqid, None);
    assert!(child_with("reqid", "4294967296").is_err());
    for (text, expected) in [("no", false), ("yes", true), ("encap", true), ("Encap", true)] {
        assert_eq!(child_with("per_cpu_sas", text).unwrap().per_cpu_sas, expected, "{text}");
    }
    assert!(!child_with("reqid", "7").unwrap().per_cpu_sas, "not by default");
    let why = child_with("per_cpu_sas", "2").unwrap_err();
    assert!(why.ends_with("per_cpu_sas: found \"2\", expected yes, no or encap"), "{why}");
}
