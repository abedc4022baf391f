//! How large a packet the path to a peer takes.

use super::MIN_REST_FACTOR;
use super::held_mtus::HeldMtus;
use super::relay::Relays;
use super::sas::Sas;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use testudo_fastpath::fib::{Fib, Out, Route};
use testudo_fastpath::worker::boottime;
use testudo_ipsec::pmtu::PathMtus;

/// An outer path of unknown MTU is taken for Ethernet.
const DEFAULT_MTU: u16 = 1500;

/// The MTUs towards outer addresses, by the kernel's routes, by what was learned, and by
/// what clients say.
pub(super) struct OuterMtus {
    /// Path MTUs that routers or other nodes have told.
    learned: PathMtus,
    /// What clients say.
    pub(super) held: HeldMtus,
    /// Routes have changed, and the SAs have not followed yet.
    due: bool,
    /// When they may follow.
    next: Instant,
}

impl OuterMtus {
    pub(super) fn new() -> Self {
        Self { learned: PathMtus::default(), held: HeldMtus::default(), due: false, next: Instant::now() }
    }

    /// The MTU towards an outer address.
    pub(super) fn of(&self, fib: &Fib, remote: IpAddr) -> u16 {
        self.at(fib, boottime(), remote)
    }

    fn at(&self, fib: &Fib, now: Duration, remote: IpAddr) -> u16 {
        let known = self.by_routers(fib, now, remote);
        self.held.get(now, remote).map_or(known, |held| held.min(known))
    }

    /// What remains when no client says anything.
    fn by_routers(&self, fib: &Fib, now: Duration, remote: IpAddr) -> u16 {
        let of_route = match fib.lookup(remote) {
            Route::Forward(hop) if matches!(hop.out, Out::Port(_)) => hop.mtu,
            _ => DEFAULT_MTU,
        };
        self.learned.get(now, remote).map_or(of_route, |learned| learned.min(of_route))
    }

    /// At that time a path took no more than `mtu`. The MTU of the path, if that has made it
    /// smaller.
    pub(super) fn learn(&mut self, fib: &Fib, at: Duration, remote: IpAddr, mtu: u16) -> Option<u16> {
        let before = self.of(fib, remote);
        if mtu > self.by_routers(fib, boottime(), remote) {
            return None;
        }
        self.learned.learn(at, remote, mtu);
        Some(self.of(fib, remote)).filter(|after| *after < before)
    }

    /// Routes have changed: the SAs follow as soon as they may.
    pub(super) fn routes_changed(&mut self) {
        self.due = true;
    }

    /// Brings the SAs' path MTUs up to date, not too often: routes may change all the time, and
    /// there may be very many SAs.
    pub(super) fn follow(&mut self, fib: &Fib, sas: &Sas, relays: Option<&Relays>) {
        let begun = Instant::now();
        if self.due && self.next <= begun {
            self.due = false;
            let now = boottime();
            let of = |remote| self.at(fib, now, remote);
            sas.set_path_mtus(of);
            if let Some(relays) = relays {
                relays.set_path_mtus(of);
            }
            self.next = Instant::now() + begun.elapsed() * MIN_REST_FACTOR;
        }
    }

    /// Forgets what was learned too long ago.
    pub(super) fn expire(&mut self, fib: &Fib, sas: &Sas) {
        for remote in self.learned.expire(boottime()) {
            sas.set_path_mtu(remote, self.of(fib, remote));
        }
    }
}
