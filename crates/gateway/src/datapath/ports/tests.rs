use super::*;
use testudo_fastpath::mac::MacAddr;

const PORT: PortIndex = PortIndex(1);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

fn link(ifindex: u32, up: bool) -> PortLink {
    let (name, addresses) = ("lan0".to_owned(), Vec::new());
    PortLink { index: PORT, name, ifindex, mac: MAC, mtu: 1500, up, addresses }
}

/// Two ports, of which the second has that interface.
fn ports(ifindex: u32) -> (Ports, Instant) {
    let port = |index, name: &str, ifindex| FilterPort {
        index: PortIndex(index),
        name: name.to_owned(),
        ifindex,
        mac: MAC,
        cluster_mac: None,
        check_source: true,
        allow_generic: false,
    };
    let now = Instant::now();
    (Ports::new(&[port(0, "wan0", 7), port(1, "lan0", ifindex)], now), now)
}

fn warning(line: Option<PortLine>) -> String {
    match line {
        Some(PortLine::Warning(line)) => line,
        other => panic!("{other:?}"),
    }
}

fn state(ports: &Ports, now: Instant) -> (&'static str, u64) {
    let condition = ports.condition(PORT, now).unwrap();
    (condition.state, condition.lasts.as_secs())
}

fn after(seconds: u64, now: Instant) -> Instant {
    now + Duration::from_secs(seconds)
}

#[test]
fn a_port_is_in_use_as_long_as_its_interface_is_the_same() {
    let (ports, now) = ports(8);
    assert_eq!(ports.need(&link(8, true), now), Need::Nothing);
    assert_eq!(ports.need(&link(8, false), now), Need::Nothing, "the link is another matter");
    assert_eq!(ports.need(&link(0, false), now), Need::Close);
    assert_eq!(ports.need(&link(9, true), now), Need::Close, "another interface has the name");
    assert_eq!(ports.missing().count(), 0);
    assert!(ports.is_in_use(PORT));
}

#[test]
fn an_interface_that_goes_is_waited_for_and_used_again() {
    let (mut ports, now) = ports(8);
    let line = warning(ports.lost(PORT, after(10, now)));
    assert_eq!(line, "port lan0: interface is gone; waiting for it");
    assert_eq!(state(&ports, after(12, now)), ("missing", 2));
    assert!(!ports.is_in_use(PORT));
    assert!(ports.is_in_use(PortIndex(0)), "the other port goes on");
    assert_eq!(ports.need(&link(0, false), after(12, now)), Need::Nothing);
    assert_eq!(ports.need(&link(9, false), after(12, now)), Need::Open);
    let line = ports.opened(&link(9, false), XdpMode::Native, after(13, now));
    let expected = "port lan0: interface is there after 3 s, in use; filter attached, Native";
    assert_eq!(line, Some(PortLine::Info(expected.to_owned())));
    assert_eq!(state(&ports, after(13, now)), ("up", 0));
    assert_eq!(ports.need(&link(9, false), after(14, now)), Need::Nothing);
}

#[test]
fn one_that_is_missing_at_the_start_is_said_and_waited_for() {
    let (ports, now) = ports(0);
    let said: Vec<PortLine> = ports.missing().collect();
    let expected = "port lan0: there is no interface of that name; waiting for it".to_owned();
    assert_eq!(said, [PortLine::Warning(expected)]);
    assert_eq!(state(&ports, after(60, now)), ("missing", 60));
    assert_eq!(ports.need(&link(0, false), now), Need::Nothing);
    assert_eq!(ports.need(&link(9, true), now), Need::Open);
}

#[test]
fn one_that_cannot_be_used_is_tried_again_and_said_once_for_each_reason() {
    let (mut ports, now) = ports(0);
    let refuse = |ports: &mut Ports, link: &PortLink, why: &str, at| ports.refused(link, why.to_owned(), at);
    let down = link(9, false);
    let line = warning(refuse(&mut ports, &down, "one queue", now));
    assert_eq!(line, "port lan0: interface cannot be used yet: one queue");
    assert_eq!(ports.condition(PORT, now).unwrap().why, Some("one queue"));
    assert_eq!(ports.need(&down, now), Need::Nothing, "not at once");
    assert_eq!(ports.need(&link(9, true), now), Need::Open, "the interface has changed");
    assert_eq!(ports.need(&down, now + RETRY_INTERVAL), Need::Open);
    assert_eq!(refuse(&mut ports, &down, "one queue", after(5, now)), None);
    assert_eq!(state(&ports, after(6, now)), ("waiting", 6));
    warning(refuse(&mut ports, &down, "MTU", after(7, now)));
    assert_eq!(state(&ports, after(8, now)), ("waiting", 1));
    assert_eq!(ports.need(&link(0, false), after(8, now)), Need::Close);
    ports.lost(PORT, after(9, now));
    assert_eq!(ports.need(&down, after(9, now)), Need::Open, "one that comes is tried at once");
}

#[test]
fn each_change_of_a_link_is_said_once() {
    let (mut ports, now) = ports(8);
    assert_eq!(ports.link(&link(8, true), now), None);
    assert_eq!(warning(ports.link(&link(8, false), after(3, now))), "port lan0: link is down");
    assert_eq!(ports.link(&link(8, false), after(4, now)), None);
    assert_eq!(state(&ports, after(5, now)), ("link-down", 2));
    let up = ports.link(&link(8, true), after(6, now));
    assert_eq!(up, Some(PortLine::Info("port lan0: link is up".to_owned())));
    assert_eq!(state(&ports, after(7, now)), ("up", 1));
    ports.lost(PORT, after(8, now));
    assert_eq!(ports.link(&link(0, false), after(8, now)), None, "an interface that is gone has no link");
}
