//! ARP and Neighbor Discovery: whether the way to a peer leads to another MAC address than before, and
//! whether somebody else claims an address of ours.
//!
//! The kernel believes whoever answers. The workers send to the neighbours that it has, and the
//! control thread follows its table: a neighbour that moves shows there. Of claims of our own
//! addresses the kernel says nothing: they are listened for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use testudo_alarms::{Kind, Sighting, Subject};
use testudo_fastpath::claims::{Claim, ClaimListener};
use testudo_fastpath::fib::{Fib, PortIndex, PortLink};
use testudo_fastpath::mac::MacAddr;

/// Neighbours that are remembered after the kernel has forgotten them.
const MAX_NEIGHBOURS: usize = 4096;

/// The MAC address that each neighbour had last.
#[derive(Default)]
pub(crate) struct Claims {
    known: BTreeMap<(PortIndex, IpAddr), MacAddr>,
    generation: Option<u64>,
}

/// A neighbour that has moved.
pub(crate) struct Moved {
    pub(crate) address: IpAddr,
    from: MacAddr,
    to: MacAddr,
    interface: String,
}

impl Claims {
    /// The neighbours that have moved since the last call.
    pub(crate) fn follow(&mut self, fib: &Fib) -> Vec<Moved> {
        if self.generation.replace(fib.generation()) == Some(fib.generation()) {
            return Vec::new();
        }
        let mut moved = Vec::new();
        for (port, address) in fib.neighbours() {
            let Some(mac) = fib.neighbour(port, address) else { continue };
            if self.known.len() >= MAX_NEIGHBOURS && !self.known.contains_key(&(port, address)) {
                self.known.clear();
            }
            if let Some(from) = self.known.insert((port, address), mac).filter(|from| *from != mac) {
                let interface = fib.port(port).map(|link| link.name.clone()).unwrap_or_default();
                moved.push(Moved { address, from, to: mac, interface });
            }
        }
        moved
    }
}

impl Moved {
    /// As a sighting: packets for a peer go there now.
    pub(crate) fn sighting(&self) -> Sighting {
        let Self { address, from, to, interface } = self;
        let evidence = format!("on {interface} {address} was at {from} and is at {to} now");
        let sighting = Sighting::of(Kind::AddressSpoofing, Subject::Address(*address), 1);
        Sighting { evidence, decisive: true, ..sighting }
    }
}

/// Claims of the addresses of this gateway.
#[derive(Default)]
pub(crate) struct OwnClaims {
    listener: ClaimListener,
    /// The table whose links are listened on.
    generation: Option<u64>,
    warned: bool,
    /// What was ours at the last look.
    ours: Ours,
    /// Claims that are told at the next look, if what they claim is still ours then: an address that
    /// moves to another host is claimed there before it is gone here.
    pending: Vec<Claim>,
}

/// Addresses by the interface on whose link they are ours.
pub(super) type Ours = BTreeSet<(String, IpAddr)>;

impl OwnClaims {
    /// What has been claimed that is ours: `vips` are the cluster's addresses, and `macs` those of the
    /// ports and of the cluster.
    pub(crate) fn take(
        &mut self,
        fib: &Fib,
        vips: &BTreeSet<IpAddr>,
        macs: &BTreeSet<MacAddr>,
    ) -> Vec<Sighting> {
        self.follow(fib);
        // On each link its own: another link may have the same private or link-local addresses.
        let on_link = |port: &PortLink| {
            let addresses: Vec<IpAddr> = port.addresses.iter().chain(vips).copied().collect();
            let name = port.name.clone();
            addresses.into_iter().map(move |address| (name.clone(), address))
        };
        let now: Ours = fib.ports().iter().flat_map(on_link).collect();
        let claims = self.listener.take();
        self.judged(claims, now, macs)
    }

    /// What claims up to this look tell, if these addresses are ours now.
    pub(super) fn judged(
        &mut self,
        claims: Vec<Claim>,
        now: Ours,
        macs: &BTreeSet<MacAddr>,
    ) -> Vec<Sighting> {
        sightings(self.judge(claims, now, macs))
    }

    /// Of the claims up to the last look, those of what is ours before and behind them.
    fn judge(&mut self, mut claims: Vec<Claim>, now: Ours, macs: &BTreeSet<MacAddr>) -> Vec<Claim> {
        let is_in = |ours: &Ours, claim: &Claim| ours.contains(&(claim.interface.clone(), claim.address));
        claims.retain(|claim| !macs.contains(&claim.mac) && is_in(&now, claim) && is_in(&self.ours, claim));
        let mut told = std::mem::replace(&mut self.pending, claims);
        told.retain(|claim| is_in(&now, claim));
        self.ours = now;
        told
    }

    fn follow(&mut self, fib: &Fib) {
        if self.generation == Some(fib.generation()) {
            return;
        }
        match self.listener.follow(fib.ports()) {
            Ok(()) => (self.generation, self.warned) = (Some(fib.generation()), false),
            Err(error) => {
                if !std::mem::replace(&mut self.warned, true) {
                    tracing::warn!("who claims addresses of this gateway is not watched everywhere: {error}");
                }
            }
        }
    }
}

/// One for each address.
fn sightings(claims: Vec<Claim>) -> Vec<Sighting> {
    let mut counts: BTreeMap<IpAddr, (u64, Claim)> = BTreeMap::new();
    for claim in claims {
        counts.entry(claim.address).or_insert((0, claim)).0 += 1;
    }
    let sighting = |(address, (count, first)): (IpAddr, (u64, Claim))| {
        let Claim { interface, mac, .. } = first;
        let evidence = format!("on {interface} {mac} claims {address}, which is an address of this gateway");
        let sighting = Sighting::of(Kind::AddressSpoofing, Subject::Address(address), count);
        Sighting { evidence, decisive: true, ..sighting }
    };
    counts.into_iter().map(sighting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fib(generation: u64, neighbours: &[([u8; 4], u8)]) -> Fib {
        let port = PortIndex(0);
        let (name, addresses) = ("eth0".into(), Vec::new());
        let mac = MacAddr([2; 6]);
        let link = PortLink { index: port, ifindex: 7, name, mac, mtu: 1500, up: true, addresses };
        let builder = Fib::builder().generation(generation).port(link);
        neighbours
            .iter()
            .fold(builder, |builder, (address, mac)| {
                builder.neighbour(port, IpAddr::from(*address), MacAddr([*mac; 6]))
            })
            .build()
    }

    #[test]
    fn a_neighbour_that_moves_is_seen_also_after_the_kernel_has_forgotten_it() {
        let mut claims = Claims::default();
        let peer = [192, 0, 2, 1];
        assert!(claims.follow(&fib(1, &[(peer, 4), ([192, 0, 2, 2], 6)])).is_empty());
        assert!(claims.follow(&fib(2, &[(peer, 4)])).is_empty());
        assert!(claims.follow(&fib(3, &[])).is_empty());
        let moved = claims.follow(&fib(4, &[(peer, 8)]));
        assert_eq!(moved.len(), 1);
        let text = moved[0].sighting().evidence;
        assert_eq!(text, "on eth0 192.0.2.1 was at 04:04:04:04:04:04 and is at 08:08:08:08:08:08 now");
        assert!(claims.follow(&fib(4, &[(peer, 10)])).is_empty(), "this table has been followed");
        assert!(claims.follow(&fib(5, &[(peer, 8)])).is_empty());
    }

    fn claim(address: [u8; 4], mac: u8) -> Claim {
        Claim { interface: "eth0".into(), address: address.into(), mac: MacAddr([mac; 6]) }
    }

    #[test]
    fn an_address_is_stolen_if_it_is_ours_on_that_link_before_and_afterwards() {
        let (us, vip, other) = ([192, 0, 2, 1], [192, 0, 2, 9], [192, 0, 2, 7]);
        let ours = |addresses: &[[u8; 4]]| -> Ours {
            addresses.iter().map(|address| ("eth0".to_owned(), IpAddr::from(*address))).collect()
        };
        let macs = BTreeSet::from([MacAddr([2; 6]), MacAddr([3; 6])]);
        let mut own = OwnClaims::default();
        let mut look = |claims: Vec<Claim>, now: &[[u8; 4]]| own.judge(claims, ours(now), &macs);
        assert_eq!(look(vec![claim(us, 4)], &[us, vip]), [], "the former owner of what is new here");
        assert_eq!(look(vec![claim(us, 2), claim(vip, 3), claim(other, 4)], &[us, vip]), []);
        let elsewhere = Claim { interface: "eth1".into(), ..claim(us, 4) };
        assert_eq!(look(vec![elsewhere, claim(us, 4), claim(vip, 4)], &[us, vip]), [], "not yet");
        assert_eq!(look(Vec::new(), &[us]), [claim(us, 4)], "the other one has gone to its new owner");
        assert_eq!(look(Vec::new(), &[us]), [], "once");
    }

    #[test]
    fn there_is_one_sighting_for_each_address_that_is_claimed() {
        assert_eq!(sightings(Vec::new()), []);
        let seen =
            sightings(vec![claim([192, 0, 2, 9], 4), claim([192, 0, 2, 1], 4), claim([192, 0, 2, 9], 6)]);
        let counts: Vec<u64> = seen.iter().map(|sighting| sighting.count).collect();
        assert_eq!((counts, seen.iter().all(|sighting| sighting.decisive)), (vec![1, 2], true));
        let expected = "on eth0 04:04:04:04:04:04 claims 192.0.2.1, which is an address of this gateway";
        assert_eq!(seen[0].evidence, expected);
    }
}
