use super::*;
use std::time::Duration;

fn config() -> EndpointConfig {
    EndpointConfig {
        cookie_threshold: 6,
        source_cookie_threshold: 3,
        source_half_open_limit: 2,
        network_half_open_limit: 4,
        half_open_limit: 16,
        ..EndpointConfig::default()
    }
}

const VICTIM: &str = "192.0.2.1";

fn forged(addr: &str) -> Claimant {
    Claimant { source: HalfOpenSource { addr: addr.parse().unwrap(), proven: false }, connections: 0 }
}

fn stranger(addr: &str) -> Claimant {
    Claimant { source: HalfOpenSource { addr: addr.parse().unwrap(), proven: true }, connections: 0 }
}

fn named(addr: &str, connections: usize) -> Claimant {
    Claimant { connections, ..stranger(addr) }
}

/// Decides as an endpoint does, and drops the handshake that must make room. Gives the decision.
struct Table {
    counts: HalfOpens,
    next: u64,
    evicted: Vec<u64>,
}

impl Table {
    fn new() -> Self {
        Self { counts: HalfOpens::default(), next: 1, evicted: Vec::new() }
    }

    fn admit(&self, claimant: Claimant) -> Admission {
        self.counts.admit(&config(), Time::default(), claimant)
    }

    /// Takes what room there is for strangers, each from a network of its own.
    fn fill(&mut self) {
        for site in 0x100..0x100 + (of_strangers(config().half_open_limit) - self.counts.strangers.total) {
            assert_eq!(self.enter(stranger(&format!("2001:db8:{site:x}::1"))), Admission::Admit);
        }
    }

    fn enter(&mut self, claimant: Claimant) -> Admission {
        let admission = self.admit(claimant);
        if admission == Admission::Admit {
            if let Room::InPlaceOf(id) = self.counts.room(&config(), claimant) {
                self.counts.leave(id);
                self.evicted.push(id.0);
            }
            self.counts.enter(IkeSaId(self.next), claimant);
            self.next += 1;
        }
        admission
    }
}

#[test]
fn forged_requests_do_not_use_up_the_share_of_their_source() {
    let mut table = Table::new();
    for _ in 0..3 {
        assert_eq!(table.enter(forged(VICTIM)), Admission::Admit);
    }
    assert_eq!(table.admit(forged(VICTIM)), Admission::DemandCookie);
    for _ in 0..2 {
        assert_eq!(table.enter(stranger(VICTIM)), Admission::Admit);
    }
    assert_eq!(table.admit(stranger(VICTIM)), Admission::Refuse(Discard::SourceLimit));
}

#[test]
fn everybody_needs_a_cookie_from_the_threshold_on() {
    let mut table = Table::new();
    for site in 0..6 {
        assert_eq!(table.enter(forged(&format!("2001:db8:{site}::1"))), Admission::Admit);
    }
    assert_eq!(table.admit(forged(VICTIM)), Admission::DemandCookie);
    assert_eq!(table.admit(stranger(VICTIM)), Admission::Admit);
}

#[test]
fn a_site_is_its_56_and_a_network_its_48_or_24() {
    for [first, same, neighbour, elsewhere] in [
        ["2001:db8:1:100::1", "2001:db8:1:1ff::2", "2001:db8:1:NN00::1", "2001:db8:2::1"],
        ["192.0.2.1", "192.0.2.1", "192.0.2.1NN", "192.0.3.1"],
    ] {
        let mut table = Table::new();
        assert_eq!(table.enter(stranger(first)), Admission::Admit);
        assert_eq!(table.enter(stranger(same)), Admission::Admit);
        assert_eq!(table.admit(stranger(first)), Admission::Refuse(Discard::SourceLimit), "{first}");
        for number in ["20", "30"] {
            assert_eq!(table.enter(stranger(&neighbour.replace("NN", number))), Admission::Admit);
        }
        let full = stranger(&neighbour.replace("NN", "40"));
        assert_eq!(table.admit(full), Admission::Admit, "{first}: there is room");
        table.fill();
        assert_eq!(table.admit(full), Admission::Refuse(Discard::SourceLimit), "{first}");
        assert_eq!(table.admit(stranger(elsewhere)), Admission::Admit);
    }
}

/// All customers of a carrier come from a few addresses, one network: as many as there is room for
/// are served.
#[test]
fn a_network_is_served_while_there_is_room() {
    for carrier in ["192.0.2.", "2001:db8:1:N00::"] {
        let address = |host: usize| match carrier.split_once('N') {
            Some((front, back)) => format!("{front}{host:x}{back}1"),
            None => format!("{carrier}{host}"),
        };
        let mut table = Table::new();
        for host in 0..12 {
            assert_eq!(table.enter(stranger(&address(host))), Admission::Admit, "{carrier}{host}");
        }
        assert_eq!((table.counts.total(), table.evicted.len()), (12, 0), "a quarter is not theirs");
        // From here on it competes with others, and has more than its part.
        assert_eq!(table.admit(stranger(&address(12))), Admission::Refuse(Discard::SourceLimit));
        assert_eq!(table.enter(stranger("198.51.100.1")), Admission::Admit);
        assert_eq!(table.evicted, [1], "another one takes the place of its oldest");
    }
}

/// Ten /64s of one site, or a whole /32 of networks, flood: a peer from elsewhere gets in, and
/// stays while its handshake continues.
#[test]
fn a_flood_from_few_prefixes_or_many_shuts_nobody_else_out() {
    let sites: fn(u32) -> String = |n| format!("2001:db8:1:{:x}::1", n % 10);
    let networks: fn(u32) -> String = |n| format!("2001:db8:{:x}::1", n % 0x1_0000);
    for (flood, most) in [(sites, 2), (networks, 12)] {
        let mut table = Table::new();
        for n in 0..1000 {
            table.enter(stranger(&flood(n)));
        }
        assert_eq!(table.counts.total(), most);
        for round in 0..100 {
            let honest = table.next;
            assert_eq!(table.enter(stranger(VICTIM)), Admission::Admit);
            for n in 0..4 {
                table.enter(stranger(&flood(1000 + 4 * round + n)));
            }
            assert!(!table.evicted.contains(&honest), "{round}");
            table.counts.leave(IkeSaId(honest));
            assert_eq!(table.admit(named("198.51.100.1", 1)), Admission::Admit);
        }
    }
}

/// The attacker has a network for every place: a new peer gets in, and stays longer than the
/// flood's oldest.
#[test]
fn a_newcomer_takes_the_place_of_the_oldest_of_the_largest_network() {
    let mut table = Table::new();
    let mut flood = (0..u16::MAX).map(|site| stranger(&format!("2001:db8:{site:x}::1")));
    let honest = table.next;
    assert_eq!(table.enter(stranger(VICTIM)), Admission::Admit);
    for claimant in flood.by_ref().take(11) {
        assert_eq!(table.enter(claimant), Admission::Admit);
    }
    assert_eq!((table.counts.total(), table.evicted.len()), (12, 0), "a quarter is not theirs");
    // One network has two: they go before any other, the older first.
    let greedy = table.next;
    assert_eq!(table.enter(stranger("198.51.100.1")), Admission::Admit);
    assert_eq!(table.evicted, [honest], "all have one, and this is the oldest");
    assert_eq!(table.enter(stranger("198.51.100.2")), Admission::Admit);
    assert_eq!(table.enter(stranger(VICTIM)), Admission::Admit);
    assert_eq!(table.evicted, [honest, honest + 1, greedy]);
    for claimant in flood.take(1000) {
        assert_eq!(table.enter(claimant), Admission::Admit);
    }
    assert_eq!(table.counts.total(), 12);
    assert_eq!(table.counts.strangers.networks.len(), 12, "nothing is kept of what is gone");
}

#[test]
fn strangers_keep_nobody_out_whom_a_connection_names() {
    let mut table = Table::new();
    for site in 0..100 {
        assert_eq!(table.enter(stranger(&format!("2001:db8:{site:x}::1"))), Admission::Admit);
    }
    let evicted = table.evicted.len();
    for host in 0..4 {
        assert_eq!(table.enter(named(&format!("192.0.2.{host}"), 1)), Admission::Admit);
    }
    assert_eq!((table.counts.total(), table.evicted.len()), (16, evicted), "what is kept for them");
    let first = table.next;
    for host in 4..20 {
        assert_eq!(table.enter(named(&format!("192.0.2.{host}"), 1)), Admission::Admit);
        assert_eq!(table.counts.total(), 16);
    }
    let (of_strangers, of_named) = table.evicted[evicted..].split_at(12);
    assert!(of_strangers.iter().all(|id| *id < first), "as long as there are any");
    assert_eq!(of_named, [first - 4, first - 3, first - 2, first - 1], "then the oldest of theirs");
    assert_eq!(table.admit(stranger(VICTIM)), Admission::Refuse(Discard::HalfOpenLimit));
    assert_eq!(table.admit(forged(VICTIM)), Admission::DemandCookie);
}

/// An address may stand for many peers if it is configured so.
#[test]
fn a_named_address_may_have_as_many_as_connections_name_it() {
    let mut table = Table::new();
    for _ in 0..5 {
        assert_eq!(table.enter(named(VICTIM, 5)), Admission::Admit);
    }
    assert_eq!(table.admit(named(VICTIM, 5)), Admission::Refuse(Discard::SourceLimit));
    assert_eq!(table.admit(named("192.0.2.2", 1)), Admission::Admit, "its neighbour does not suffer");
    assert_eq!(table.admit(forged(VICTIM)), Admission::DemandCookie, "without a cookie it is nobody's");
}

/// A half-open SA with a running computation counts, but cannot be evicted.
#[test]
fn computations_take_up_room() {
    let mut table = Table::new();
    let sites = || (0..12).map(|site| stranger(&format!("2001:db8:{site:x}::1")));
    sites().for_each(|claimant| table.counts.begin(claimant));
    assert_eq!(table.admit(stranger(VICTIM)), Admission::Refuse(Discard::HalfOpenLimit));
    assert_eq!(table.admit(named(VICTIM, 1)), Admission::Admit);
    sites().for_each(|claimant| table.counts.end(claimant));
    assert_eq!(table.admit(stranger(VICTIM)), Admission::Admit);
    assert_eq!((table.counts.total(), table.counts.strangers.networks.len()), (0, 0));
}

#[test]
fn an_ike_sa_leaves_as_what_it_came_as_and_once() {
    let mut table = Table::new();
    table.enter(named(VICTIM, 1));
    table.enter(stranger("192.0.2.2"));
    table.counts.leave(IkeSaId(1));
    table.counts.leave(IkeSaId(1));
    assert_eq!(table.counts.total(), 1);
    table.counts.leave(IkeSaId(2));
    assert_eq!((table.counts.total(), table.counts.claimants.len()), (0, 0));
    assert!(table.counts.strangers.ranks.is_empty() && table.counts.named.ranks.is_empty());
}

#[test]
fn requests_that_are_refused_lead_to_cookies_too_and_are_forgotten() {
    let at = |seconds| Time(Duration::from_secs(seconds));
    let mut counts = HalfOpens::default();
    for _ in 0..6 {
        assert_eq!(counts.admit(&config(), at(10), forged(VICTIM)), Admission::Admit);
        counts.refused(at(10));
    }
    assert_eq!(counts.admit(&config(), at(10), forged(VICTIM)), Admission::DemandCookie);
    assert_eq!(counts.admit(&config(), at(10), stranger(VICTIM)), Admission::Admit);
    assert_eq!(counts.admit(&config(), at(11), forged(VICTIM)), Admission::Admit);
    assert_eq!(counts.admit(&config(), at(1_000), forged(VICTIM)), Admission::Admit);
}
