use super::*;
use crate::policies::tests::ts;
use std::net::Ipv6Addr;

fn scope(local: &[TrafficSelector], remote: &[TrafficSelector], prefix: &str) -> Scope {
    Scope::of(&SelectorPair::new(local, remote), &prefix.parse().expect(prefix))
}

#[test]
fn a_scope_covers_what_is_sent_by_no_more_than_its_senders() {
    let net = "10.2.0.0/16";
    let remote = [ts(net)];
    let halves = scope(&[ts("10.1.0.0/17"), ts("10.1.128.0/17")], &remote, net);
    let whole = scope(&[ts("10.1.0.0/16")], &remote, net);
    let part = scope(&[ts("10.1.0.0/24")], &remote, net);
    assert!(halves.covers(&whole) && whole.covers(&halves) && whole.covers(&part));
    assert!(!part.covers(&whole));
    // Nothing is known of what it leaves out of the prefix.
    let narrow = scope(&[ts("10.1.0.0/16")], &[ts("10.2.0.0/24")], net);
    assert!(whole.covers(&narrow) && !narrow.covers(&narrow));
}

#[test]
fn protocols_and_ports_count_on_both_sides() {
    let net = "10.2.0.0/16";
    let with = |protocol, port_start, port_end| TrafficSelector { protocol, port_start, port_end, ..ts(net) };
    let all =
        [with(0, 0, u16::MAX), with(6, 0, u16::MAX), with(6, 80, 90), with(6, 80, 80), with(6, u16::MAX, 0)];
    let covered = [[1, 1, 1, 1, 1], [0, 1, 1, 1, 1], [0, 0, 1, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]];
    for (own, row) in all.iter().zip(covered) {
        for (other, is_covered) in all.iter().zip(row) {
            let [sides, peers] = [
                [scope(&[*own], &[ts(net)], net), scope(&[*other], &[ts(net)], net)],
                [scope(&[ts(net)], &[*own], net), scope(&[ts(net)], &[*other], net)],
            ];
            for [own, other] in [sides, peers] {
                assert_eq!(own.covers(&other), is_covered == 1, "{own:?} {other:?}");
            }
        }
    }
}

/// As many selectors as a peer can put into one SA, none of which fits a prefix.
#[test]
fn the_selectors_of_a_peer_are_about_few_prefixes() {
    let addr = |n: u16, rest: u16| Ipv6Addr::new(n, rest, rest, rest, rest, rest, rest, rest ^ 1).into();
    let range =
        |n: u16| AddrRange::new(addr(n * 0x0100, 0), addr(n * 0x0100 + 0xff, 0xffff)).expect("in order");
    let odd: Vec<TrafficSelector> =
        (0..255).map(|n| TrafficSelector { addrs: range(n), ..ts("0.0.0.0/0") }).collect();
    for count in [1, 2, 8, 9, 64, 255] {
        let remote = &odd[..count];
        let prefixes = footprint(&SelectorPair::new(&[ts("10.0.0.0/8")], remote), false);
        assert!(prefixes.len() <= MAX_SA_PREFIXES, "{count}: {}", prefixes.len());
        for TrafficSelector { addrs, .. } in remote {
            for addr in [addrs.start(), addrs.end()] {
                assert!(prefixes.iter().any(|prefix| prefix.contains(addr)), "{count}: {addr}");
            }
        }
    }
}
