//! Every rule in virtual time: how many looks behind the first evidence its alarm is raised.

use super::neighbours::Ours;
use super::scripted::{Plane, Refusing, SA};
use super::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use testudo_base::spi::Spi;
use testudo_fastpath::claims::Claim;
use testudo_fastpath::mac::MacAddr;
use testudo_ike::endpoint::Discard;
use testudo_ipsec::drops::DropReason;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
const US: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
/// Looks without an attack before it begins.
const CALM: u32 = 40;
/// Packets of the SA between two looks.
const TRAFFIC: u64 = 1000;

/// A gateway with one SA that carries traffic.
struct World {
    now: Rc<Cell<Duration>>,
    alarms: Alarms,
    plane: Plane,
    ike: Refusing,
    own_claims: OwnClaims,
    claims: Vec<Claim>,
    lateness: Lateness,
    /// Packets of the SA since its order was looked at: all, and the late ones.
    carried: (u64, u64),
    /// Whether one turn is enough to look at all SAs.
    few: bool,
}

impl World {
    fn new(few: bool) -> Self {
        let now = Rc::new(Cell::new(Duration::from_secs(1000)));
        let clock = Rc::clone(&now);
        Self {
            now,
            alarms: Alarms::by_clock(Some(Rules::default()), Box::new(move || clock.get())),
            plane: Plane::default(),
            ike: Refusing::default(),
            own_claims: OwnClaims::default(),
            claims: Vec::new(),
            lateness: Lateness::default(),
            carried: (0, 0),
            few,
        }
    }

    fn carry(&mut self, packets: u64, late: u64) {
        self.plane.received += packets;
        self.carried = (self.carried.0 + packets, self.carried.1 + late);
    }

    /// A look, as the gateway does it when it is due. Returns what is raised up to its end.
    fn look(&mut self) -> Vec<Kind> {
        self.now.set(self.now.get() + self.alarms.time_to_look().unwrap());
        assert!(self.alarms.is_due());
        let ours = Ours::from([("eth0".to_owned(), US)]);
        let stolen = self.own_claims.judged(std::mem::take(&mut self.claims), ours, &BTreeSet::new());
        stolen.into_iter().for_each(|sighting| self.alarms.see(sighting));
        self.alarms.look(Counts { packets: &self.plane, ike: &mut self.ike });
        if self.alarms.wants_order(self.few) {
            let (received, late) = std::mem::take(&mut self.carried);
            self.alarms.ordered(ChildSaId(5), &mut self.lateness, received, late);
        }
        let news = std::iter::from_fn(|| self.alarms.next_news());
        let raised = news.map(|news| match news {
            News::Raised(alarm) => alarm.kind,
            other => panic!("{other:?}"),
        });
        raised.collect()
    }

    /// What an attack does between two looks, just behind the first of them: so much of it, if its
    /// frames are counted.
    fn attack(&mut self, kind: Kind, count: u64) {
        match kind {
            Kind::ReplayBurst => {
                self.carry(TRAFFIC, 0);
                self.plane.drop(DropReason::Replayed, SA, count);
            }
            // The peer has been set back, and sends what it has sent before.
            Kind::CounterReversal => self.plane.drop(DropReason::ReplayTooOld, SA, count),
            Kind::ForgedPackets => self.plane.drop(DropReason::AuthFailed, SA, count),
            Kind::SpiScan => {
                (0..4).for_each(|spi| self.plane.drop(DropReason::UnknownSpi, Spi(spi), count.div_ceil(4)))
            }
            Kind::ClearText => self.plane.clear += count,
            Kind::IkeBruteForce => self.ike.refuse(Discard::Refused, PEER, count),
            Kind::HalfOpenFlood => self.ike.cookies += count,
            Kind::FragmentOverlap => self.plane.overlaps += count,
            Kind::AddressSpoofing => {
                let (interface, mac) = ("eth0".to_owned(), MacAddr([6; 6]));
                self.claims.push(Claim { interface, address: US, mac });
            }
            Kind::PathMtu => (0..count).for_each(|_| self.alarms.disbelieved_router(PEER, 576)),
            Kind::Certificate => self.alarms.other_voucher("peer".to_owned(), String::new()),
            Kind::Reordering => self.carry(2 * count, count),
        }
    }

    /// Looks behind the begin of an attack until its alarm is raised. The attack does so much
    /// between two of them.
    fn looks_until(&mut self, kind: Kind, count: u64) -> u32 {
        for _ in 0..CALM {
            self.carry(TRAFFIC, 0);
            assert_eq!(self.look(), [], "without an attack");
        }
        let found = (1..20).find(|_| {
            self.attack(kind, count);
            self.look().contains(&kind)
        });
        found.unwrap_or_else(|| panic!("{kind} is not found"))
    }
}

/// Frames of an attack between two looks that reach the threshold, whatever it is.
fn burst(kind: Kind) -> u64 {
    // The traffic of the second before is not late.
    Rules::default().of(kind).threshold.max(if kind == Kind::Reordering { 4 * TRAFFIC } else { 0 })
}

/// An attack that goes on is raised by the second look that sees it. That only old numbers come is
/// known when they have come for half a second: the third look.
#[test]
fn every_rule_raises_its_alarm_within_two_looks() {
    for kind in Kind::ALL {
        let looks = World::new(true).looks_until(kind, burst(kind));
        let most = if kind == Kind::CounterReversal { 3 } else { 2 };
        assert!(looks <= most, "{kind}: {looks} looks");
        assert!(looks * LOOK_INTERVAL < Duration::from_secs(1), "{kind}");
    }
}

/// Where the SAs are too many for each look, reordering is found within a second all the same,
/// whichever of the three looks the attack begins behind.
#[test]
fn reordering_of_one_among_very_many_sas_is_found_within_a_second() {
    for calm in 0..LOOKS_PER_LONG_ROUND {
        let mut world = World::new(false);
        (0..calm).for_each(|_| assert_eq!(world.look(), []));
        let looks = world.looks_until(Kind::Reordering, burst(Kind::Reordering));
        assert!(looks * LOOK_INTERVAL < Duration::from_secs(1), "{looks} looks");
    }
}

/// One as dense as the threshold may be taken for noise: what it does in the second in which it
/// begins is usual in the next.
#[test]
fn an_attack_twice_as_dense_as_the_threshold_is_found_within_a_second() {
    for kind in Kind::ALL {
        let threshold = Rules::default().of(kind).threshold;
        let quarter = if kind == Kind::Reordering { TRAFFIC } else { threshold.div_ceil(2) };
        let looks = World::new(true).looks_until(kind, quarter);
        assert!(looks * LOOK_INTERVAL < Duration::from_secs(1), "{kind}: {looks} looks");
    }
}

#[test]
fn a_message_of_a_router_that_is_believed_raises_an_alarm_by_itself_if_it_is_implausible() {
    let mut world = World::new(true);
    assert_eq!(world.look(), []);
    world.alarms.path_mtu(PEER, LEAST_PLAUSIBLE_MTU);
    assert_eq!(world.look(), []);
    world.alarms.path_mtu(PEER, LEAST_PLAUSIBLE_MTU - 1);
    assert_eq!(world.look(), [Kind::PathMtu]);
}

#[test]
fn clients_are_told_how_serious_each_kind_is() {
    let mut rules = Rules::default();
    rules.of_mut(Kind::ClearText).unwrap().severity = None;
    rules.of_mut(Kind::SpiScan).unwrap().severity = Some(Severity::Critical);
    let kinds = Alarms::new(Some(rules)).page(0, Vec::new()).kinds;
    let of = |kind: Kind| &*kinds.iter().find(|watched| watched.kind == kind.name()).unwrap().severity;
    let found = [Kind::ClearText, Kind::SpiScan, Kind::ReplayBurst].map(of);
    assert_eq!((kinds.len(), found), (Kind::COUNT, ["off", "critical", "warning"]));
    assert_eq!(Alarms::new(None).page(0, Vec::new()).kinds, []);
}
