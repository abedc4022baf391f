//! ESP inside AH: two Child SAs of one IKE SA, of which the second protects what the first has
//! made.

use crate::common::{Arrivals, Pair, SOON, Scenario, UP_LIMIT};
use crate::esp_suites::{INNER_MTU, sizes_are_answered};
use crate::mtu::{headers, ping, pings_pass};
use crate::transport::{LARGE, SMALL, between_hosts, guest, pings_are_answered, tcp_flows};
use testudo_lab::capture::Capture;
use testudo_lab::gateway::Kind;
use testudo_lab::ping::Ping;
use testudo_lab::swanctl::ChildSa;
use testudo_lab::topology::{Family, Side, WIRE_PORTS};
use testudo_lab::wait_until;

const SIDES: [Side; 2] = [Side::One, Side::Two];

/// The newest installed Child SA of that name, at that side.
fn child(pair: &Pair, side: Side, name: &str) -> testudo_lab::Result<Option<ChildSa>> {
    let children = pair.swanctl(side).list_sas()?.into_iter().flat_map(|ike| ike.children);
    Ok(children.into_iter().rfind(|child| child.name == name && child.state == "INSTALLED"))
}

fn up(pair: &Pair) {
    pair.up(Side::One);
    pair.swanctl(Side::One).initiate("outer", UP_LIMIT).unwrap();
    for side in SIDES {
        let found = ["lab", "outer"].map(|name| child(pair, side, name).unwrap());
        let protocols = found.each_ref().map(|child| child.as_ref().and_then(|child| child.get("protocol")));
        assert_eq!(protocols, [Some("ESP"), Some("AH")], "{side:?}: {found:?}");
    }
}

/// All that crosses the untrusted network from now on and is neither AH nor IKE.
fn bare(pair: &Pair) -> Vec<Arrivals> {
    let allowed = ["ip protocol 51", "ip6 nexthdr 51", "udp dport { 500, 4500 }"];
    WIRE_PORTS.iter().map(|port| Arrivals::count(&pair.t.wire, port, &allowed)).collect()
}

fn is_none(bare: &[Arrivals]) {
    assert_eq!(bare.iter().map(Arrivals::packets).sum::<u64>(), 0, "came bare");
}

/// New keys of both, by either side.
fn renew(pair: &Pair, meanwhile: impl Fn()) {
    for name in ["lab", "outer"] {
        for side in SIDES {
            let spi =
                || Ok(child(pair, Side::One, name)?.and_then(|child| child.get("spi-in").map(str::to_owned)));
            let before = spi().unwrap();
            pair.swanctl(side).run(["--rekey", "--child", name]).unwrap();
            wait_until("new keys", SOON, || {
                let now = spi()?;
                Ok(if now.is_some() && now != before { Ok(()) } else { Err(format!("{now:?}")) })
            })
            .unwrap();
            meanwhile();
        }
    }
}

fn between_ourselves(outer: Family) {
    let scenario = Scenario::new("bundle", Kind::Testudo).outer(outer);
    let pair = scenario.start_with(|_, connection| connection.add_ah(&[]));
    let bare = bare(&pair);
    up(&pair);
    let first = Capture::everything(&pair.t.wire, 40).unwrap();
    pair.ping_both_ways();
    let wire = first.stop().unwrap().show(40).unwrap();
    assert!(wire.lines().any(|line| line.contains("AH(spi=0x") && line.contains("ESP(spi=0x")), "{wire}");
    pair.tcp_both_ways(outer);
    renew(&pair, || pair.ping_both_ways());
    is_none(&bare);
    for side in SIDES {
        let drops = pair.drops(side);
        let wrong = ["auth_failed", "not_in_ah", "selector_mismatch", "unknown_spi", "no_sa"];
        assert_eq!(wrong.map(|reason| drops[reason]), [0; 5], "{side:?}");
        for name in ["lab", "outer"] {
            let child = child(&pair, side, name).unwrap().unwrap();
            assert!(child.number("packets-in").unwrap() > 0 && child.number("packets-out").unwrap() > 0);
        }
    }
}

#[test]
fn bundles_over_ipv4() {
    between_ourselves(Family::V4);
}

#[test]
#[ignore = "make test-all: the other family"]
fn bundles_over_ipv6() {
    between_ourselves(Family::V6);
}

/// Both in transport mode: one IP header, and what the hosts themselves say inside.
fn hosts_talk(outer: Family) {
    let pair = Scenario::new("bundle", Kind::Testudo).outer(outer).start_with(|side, connection| {
        between_hosts(outer, side, connection);
        connection.add_ah(&[]);
    });
    up(&pair);
    let bare = bare(&pair);
    pings_are_answered(&pair, outer, (&SIDES, SMALL));
    tcp_flows(&pair, outer);
    is_none(&bare);
    // In fragments outside, of which the later ones do not show what they are.
    pings_are_answered(&pair, outer, (&SIDES, LARGE));
    assert_eq!(pair.dropped("auth_failed") + pair.dropped("not_in_ah"), 0);
}

#[test]
fn hosts_talk_in_bundles_over_ipv4() {
    hosts_talk(Family::V4);
}

#[test]
#[ignore = "make test-all: the other family"]
fn hosts_talk_in_bundles_over_ipv6() {
    hosts_talk(Family::V6);
}

/// The first packets ask for the SA of AH, and until it is there nothing leaves.
#[test]
fn esp_asks_for_its_ah() {
    let scenario = Scenario::new("bundle", Kind::Testudo);
    let pair = scenario.start_with(|_, connection| connection.add_ah(&["start_action = trap"]));
    let bare = bare(&pair);
    pair.up(Side::One);
    wait_until("an answer to a ping", SOON, || {
        let pong = Ping::new(Side::Two.host(Family::V4)).count(3).brief().run(pair.t.host(Side::One))?;
        Ok(if pong.received == pong.sent { Ok(()) } else { Err(format!("{pong:?}")) })
    })
    .unwrap();
    assert!(child(&pair, Side::Two, "outer").unwrap().is_some() && pair.dropped("no_sa") > 0);
    is_none(&bare);
}

/// Two gateways of which one alone wants AH do not hear each other, and say why.
#[test]
fn without_ah_it_is_not_taken_in() {
    let pair = Scenario::new("bundle", Kind::Testudo).start_with(|side, connection| {
        if side == Side::One {
            connection.add_ah(&[]);
        }
    });
    pair.up(Side::One);
    for from in SIDES {
        let pong = Ping::new(from.other().host(Family::V4)).count(3).brief().run(pair.t.host(from)).unwrap();
        assert_eq!(pong.received, 0, "from {from:?}");
    }
    let drops = pair.drops(Side::One);
    assert!(drops["no_sa"] >= 3 && drops["not_in_ah"] >= 3, "{drops:?}");
}

/// Hosts learn what fits both.
#[test]
fn hosts_learn_what_fits_both() {
    const OUTER_MTU: u16 = 1400;
    let scenario = Scenario::new("bundle", Kind::Testudo).outer_mtu(OUTER_MTU);
    let pair = scenario.start_with(|_, connection| connection.add_ah(&[]));
    up(&pair);
    // The IP header and AH, then ESP: header, IV and ICV around words of text with two octets of
    // trailer.
    let mtu = (u32::from(OUTER_MTU) - 20 - 28 - 32) / 4 * 4 - 2;
    for from in SIDES {
        for inner in [Family::V4, Family::V6] {
            let fitting = mtu - headers(inner);
            pings_pass(&pair, from, inner, fitting, "do");
            let said = ping(&pair, from, inner, fitting + 1, "do");
            let named = [format!("(mtu = {mtu})"), format!("mtu={mtu}")];
            assert!(named.iter().any(|mtu| said.contains(mtu)), "{inner} from {from:?}: {said}");
        }
    }
    pair.tcp_both_ways(Family::V4);
}

/// The text after a word.
fn after<'t>(text: &'t str, word: &str) -> &'t str {
    let mut words = text.split_ascii_whitespace().skip_while(|found| *found != word);
    words.nth(1).unwrap_or_else(|| panic!("no {word}: {text}"))
}

/// The SAs of AH as charon has installed them, for nothing but packets between the gateways: what
/// the kernel asks about it is what is inside of both. They are made again without that; no packet
/// has used them.
fn for_anything(pair: &Pair, states: &str) {
    let blocks = states.replace("\nsrc ", "\n\nsrc ");
    for ah in blocks.split("\n\n").filter(|sa| sa.contains("proto ah ") && sa.contains("\n\tsel ")) {
        let named =
            format!("src {} dst {} proto ah spi {}", after(ah, "src"), after(ah, "dst"), after(ah, "spi"));
        let spi = after(ah, "spi").split('(').next().unwrap_or_default();
        let named = named.replace(after(ah, "spi"), spi);
        let flags = if ah.contains("align4") { "align4 esn" } else { "esn" };
        let key =
            ah.split_ascii_whitespace().skip_while(|word| *word != "auth-trunc").nth(2).unwrap_or_default();
        // charon deletes an SA that was replaced when its time comes, which may be after the list
        // was made: that SA stays away.
        let made = format!(
            "if ip xfrm state delete {named}; then ip xfrm state add {named} reqid {} mode transport replay-window 32 flag {flags} \
             auth-trunc 'hmac(sha256)' {key} 128; else ! ip xfrm state get {named}; fi",
            after(ah, "reqid").split('(').next().unwrap_or_default(),
        );
        guest(pair).run(&made).unwrap();
    }
}

/// A Linux kernel has a bundle as one policy with two templates, which charon does not make: it is
/// told here.
fn bundle_of_guest(pair: &Pair, outer: Family) {
    let states = guest(pair).run("ip xfrm state").unwrap();
    for_anything(pair, &states);
    let reqid = |protocol: &str| {
        let line = states.lines().find(|line| line.contains(&format!("proto {protocol} ")));
        after(line.unwrap_or_else(|| panic!("{states}")), "reqid").split('(').next().unwrap_or_default()
    };
    let [esp, ah] = ["esp", "ah"].map(reqid);
    for (way, from) in [("out", Side::Two), ("in", Side::One), ("fwd", Side::One)] {
        let to = from.other();
        let ends = format!("src {} dst {}", from.outer(outer), to.outer(outer));
        let command = format!(
            "ip xfrm policy update src {} dst {} dir {way} tmpl {ends} proto esp reqid {esp} mode tunnel \
             tmpl {ends} proto ah reqid {ah} mode transport",
            from.network(outer),
            to.network(outer),
        );
        guest(pair).run(&command).unwrap();
    }
}

fn a_linux_kernel_takes_bundles(outer: Family) {
    let scenario = Scenario::new("bundle-kernel", Kind::Guest).outer(outer).inner_mtu(INNER_MTU - 100);
    let pair = scenario.start_with(|_, connection| {
        connection.esp_proposals = "aes128gcm16-esn".into();
        connection.add_ah(&[]);
    });
    up(&pair);
    bundle_of_guest(&pair, outer);
    let bare = bare(&pair);
    // Of the other family the kernel's SA in transport mode takes nothing.
    sizes_are_answered(&pair, outer);
    renew(&pair, || bundle_of_guest(&pair, outer));
    for from in SIDES {
        pair.ping_from(from, outer, 900);
    }
    is_none(&bare);
    let drops = pair.drops(Side::One);
    assert_eq!((drops["auth_failed"], drops["not_in_ah"]), (0, 0));
    for counter in ["XfrmInTmplMismatch", "XfrmInStateProtoError", "XfrmInNoPols"] {
        assert_eq!(guest(&pair).xfrm_counter(counter).unwrap(), 0, "{counter}");
    }
}

#[test]
fn a_linux_kernel_takes_bundles_over_ipv4() {
    a_linux_kernel_takes_bundles(Family::V4);
}

#[test]
#[ignore = "make test-all: the other family"]
fn a_linux_kernel_takes_bundles_over_ipv6() {
    a_linux_kernel_takes_bundles(Family::V6);
}
