//! Traffic selectors: the configured ones, and the intersection of two sides (RFC 7296 §2.9).

use crate::config::{Child, TsSpec};
use crate::message::Payloads;
use testudo_ipsec::sa::ChildSaParams;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

/// Bound on the selectors of one side in our answer: more would be more policies than one SA should
/// have.
const MAX_SELECTORS: usize = 64;

/// The selectors of an SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selectors {
    pub(crate) local: Vec<TrafficSelector>,
    pub(crate) remote: Vec<TrafficSelector>,
}

impl Selectors {
    /// The configured selectors of a child; `dynamic` means these addresses.
    pub(crate) fn configured(child: &Child, local: &[AddrRange], remote: &[AddrRange]) -> Self {
        Self { local: resolve(&child.local_ts, local), remote: resolve(&child.remote_ts, remote) }
    }

    /// The selectors of an initiator's request, from the responder's point of view. `None` if TSi
    /// or TSr is missing.
    pub(crate) fn asked(request: &Payloads) -> Option<Self> {
        let (initiator, responder) = (request.ts_initiator()?, request.ts_responder()?);
        Some(Self { local: responder.selectors.clone(), remote: initiator.selectors.clone() })
    }

    /// The selectors of an existing SA.
    pub(crate) fn of(params: &ChildSaParams) -> Self {
        Self { local: params.local_ts.clone(), remote: params.remote_ts.clone() }
    }

    /// Number of selectors of both sides together.
    pub(crate) fn len(&self) -> usize {
        self.local.len() + self.remote.len()
    }

    /// The intersection with others. `None` if no packet could ever match both sides.
    pub(crate) fn narrow(&self, other: &Self) -> Option<Self> {
        let mut local = common(&self.local, &other.local);
        let mut remote = common(&self.remote, &other.remote);
        for v4 in [true, false] {
            let of_family = |selector: &TrafficSelector| selector.addrs.start().is_ipv4() == v4;
            if !local.iter().any(of_family) || !remote.iter().any(of_family) {
                local.retain(|selector| !of_family(selector));
                remote.retain(|selector| !of_family(selector));
            }
        }
        // Both sides have the same families now.
        (!local.is_empty()).then_some(Self { local, remote })
    }

    /// True if each selector lies within one of the other's.
    pub(crate) fn within(&self, other: &Self) -> bool {
        let inside = |ours: &[TrafficSelector], theirs: &[TrafficSelector]| {
            !ours.is_empty() && ours.iter().all(|ts| theirs.iter().any(|wide| contains(wide, ts)))
        };
        inside(&self.local, &other.local) && inside(&self.remote, &other.remote)
    }
}

fn resolve(specs: &[TsSpec], dynamic: &[AddrRange]) -> Vec<TrafficSelector> {
    let one = |spec: &TsSpec| match *spec {
        TsSpec::Fixed(selector) => vec![selector],
        TsSpec::Dynamic { protocol, port_start, port_end } => dynamic
            .iter()
            .map(|addrs| TrafficSelector { addrs: *addrs, protocol, port_start, port_end })
            .collect(),
    };
    specs.iter().flat_map(one).collect()
}

/// Every non-empty intersection, except those that lie within another. The order of `theirs` is
/// kept, because the initiator's first choice comes first (RFC 7296 §2.9).
fn common(ours: &[TrafficSelector], theirs: &[TrafficSelector]) -> Vec<TrafficSelector> {
    let mut found: Vec<TrafficSelector> = Vec::new();
    for selector in theirs.iter().flat_map(|their| ours.iter().filter_map(|our| our.intersection(their))) {
        if found.iter().any(|wide| contains(wide, &selector)) {
            continue;
        }
        found.retain(|narrow| !contains(&selector, narrow));
        if found.len() == MAX_SELECTORS {
            break;
        }
        found.push(selector);
    }
    // They stay for as long as their Child SA, of which a gateway has tens of thousands.
    found.shrink_to_fit();
    found
}

fn contains(wide: &TrafficSelector, narrow: &TrafficSelector) -> bool {
    wide.intersection(narrow).as_ref() == Some(narrow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(range: &str) -> TrafficSelector {
        let (start, end) = range.split_once('-').unwrap_or((range, range));
        let addrs = AddrRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap();
        TrafficSelector::all(addrs)
    }

    fn with(base: &str, protocol: u8, port_start: u16, port_end: u16) -> TrafficSelector {
        TrafficSelector { protocol, port_start, port_end, ..ts(base) }
    }

    fn selectors(local: &[&str], remote: &[&str]) -> Selectors {
        let list = |texts: &[&str]| texts.iter().map(|text| ts(text)).collect();
        Selectors { local: list(local), remote: list(remote) }
    }

    #[test]
    fn the_smaller_range_is_what_is_common() {
        let ours = selectors(&["10.1.0.0-10.1.255.255"], &["10.2.0.0-10.2.0.255"]);
        let theirs = selectors(&["10.1.2.0-10.1.2.255"], &["10.2.0.0-10.2.255.255"]);
        let narrowed = ours.narrow(&theirs).unwrap();
        assert_eq!(narrowed, selectors(&["10.1.2.0-10.1.2.255"], &["10.2.0.0-10.2.0.255"]));
        assert!(narrowed.within(&ours) && narrowed.within(&theirs));
    }

    #[test]
    fn nothing_in_common_is_no_selector() {
        let ours = selectors(&["10.1.0.0-10.1.0.255"], &["10.2.0.0-10.2.0.255"]);
        assert_eq!(ours.narrow(&selectors(&["10.9.0.1"], &["10.2.0.1"])), None);
        assert_eq!(ours.narrow(&selectors(&["10.1.0.1"], &["10.9.0.1"])), None);
    }

    #[test]
    fn a_family_without_a_counterpart_goes() {
        let ours = selectors(&["10.1.0.1", "2001:db8::1"], &["10.2.0.1", "2001:db8::2"]);
        let theirs = selectors(&["10.1.0.1", "2001:db8::1"], &["10.2.0.1"]);
        assert_eq!(ours.narrow(&theirs), Some(selectors(&["10.1.0.1"], &["10.2.0.1"])));
        let crossed = selectors(&["10.1.0.1"], &["2001:db8::2"]);
        assert_eq!(ours.narrow(&crossed), None, "no packet is of both families");
    }

    #[test]
    fn the_initiators_packet_selector_is_swallowed_by_the_wider_one() {
        let ours = selectors(&["10.1.0.0-10.1.0.255"], &["10.2.0.0-10.2.0.255"]);
        let theirs =
            selectors(&["10.1.0.5", "10.1.0.0-10.1.255.255"], &["10.2.0.9", "0.0.0.0-255.255.255.255"]);
        assert_eq!(ours.narrow(&theirs), Some(ours.clone()));
    }

    #[test]
    fn protocols_and_ports_narrow_too() {
        let any = ts("10.0.0.1");
        let web = with("10.0.0.1", 6, 80, 443);
        assert_eq!(any.intersection(&web), Some(web));
        assert_eq!(web.intersection(&with("10.0.0.1", 6, 100, 8080)), Some(with("10.0.0.1", 6, 100, 443)));
        assert_eq!(web.intersection(&with("10.0.0.1", 17, 80, 443)), None);
        assert_eq!(web.intersection(&with("10.0.0.1", 6, 444, 445)), None);
        let opaque = with("10.0.0.1", 6, u16::MAX, 0);
        assert_eq!(any.intersection(&opaque), Some(opaque));
        assert_eq!(opaque.intersection(&opaque), Some(opaque));
        assert_eq!(opaque.intersection(&web), None);
    }

    #[test]
    fn a_flood_of_selectors_is_cut() {
        let ours = selectors(&["0.0.0.0-255.255.255.255"], &["10.2.0.1"]);
        let many = (0..255).map(|i| ts(&format!("10.1.{i}.1"))).collect();
        let theirs = Selectors { local: many, remote: vec![ts("10.2.0.1")] };
        let narrowed = ours.narrow(&theirs).unwrap();
        assert_eq!(narrowed.local.len(), MAX_SELECTORS);
        assert_eq!(narrowed.local[0], ts("10.1.0.1"), "the initiator's first choice stays");
    }

    #[test]
    fn within_refuses_what_is_wider_or_empty() {
        let ours = selectors(&["10.1.0.0-10.1.0.255"], &["10.2.0.1"]);
        assert!(!selectors(&["10.1.0.0-10.1.1.0"], &["10.2.0.1"]).within(&ours));
        assert!(!Selectors { local: vec![], remote: vec![ts("10.2.0.1")] }.within(&ours));
    }
}
