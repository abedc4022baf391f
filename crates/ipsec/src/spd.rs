//! The security policy database (RFC 4301 §4.4.1): ordered policies.
//!
//! Workers receive changes as a whole new SPD, which shares its unchanged parts with the former
//! one. Neither a change nor a look-up walks all policies: see the module `index`.

mod index;
mod trie;

use crate::drops::DropReason;
use crate::error::Error;
use crate::packet_selector::PacketSelector;
use crate::selector::{AddrRange, SelectorPair, TrafficSelector};
use index::{Holder, Index, Range};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;
use testudo_wire::ip::Protocol;

/// Bound on the policies of an SPD.
pub const MAX_POLICIES: usize = 1 << 20;

/// Number of a protecting policy. Tables are indexed by it: allot small numbers, and reuse free
/// ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PolicyId(pub u32);

impl PolicyId {
    /// All numbers are below this.
    pub const LIMIT: u32 = MAX_POLICIES as u32;

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The action on matching traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Send it only through the SA of this policy.
    Protect(PolicyId),
    /// Pass it in clear.
    Bypass,
    /// Drop it.
    Discard,
}

/// An entry of the SPD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Lower is examined first; among equals, the policy that was given first.
    pub priority: u32,
    /// Our side.
    pub local: Vec<TrafficSelector>,
    /// The peer's side.
    pub remote: Vec<TrafficSelector>,
    /// The action.
    pub action: Action,
}

/// The SPD's decision on an outbound packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A policy matches.
    Act(Action),
    /// No policy matches; the default is to discard (RFC 4301 §5.1).
    NoPolicy,
}

/// The SPD's decision on a packet that came in without protection (RFC 4301 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboundClear {
    /// It may pass.
    Bypass,
    /// It must be dropped: it should have been protected, or should not have come at all.
    Drop(DropReason),
    /// No policy matches.
    NoPolicy,
}

/// The precedence of a policy: the lowest one is examined first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Compared first.
    pub priority: u32,
    /// Compared among equal priorities.
    pub place: u64,
    /// Compared among the parts of a policy that stands in several places.
    pub part: u32,
}

/// The policies, ready for look-up. A clone costs nothing: it shares all equal parts with the
/// original, so that one can be changed in a few steps while a worker uses the other.
#[derive(Clone, Debug, Default)]
pub struct Spd {
    index: Index,
    len: usize,
    /// Number of policies that examine more than addresses.
    with_ports: usize,
    /// Policies for ESP of our own: see [`Spd::insert_around`].
    around: Index,
    around_len: usize,
}

#[derive(Debug)]
struct RankedPolicy {
    rank: Rank,
    selectors: SelectorPair,
    action: Action,
}

impl RankedPolicy {
    fn holds_back(&self) -> bool {
        self.action != Action::Bypass
    }
}

impl Spd {
    /// Orders and indexes the policies.
    pub fn new(policies: Vec<Policy>) -> Result<Self, Error> {
        check_numbers(&policies)?;
        let mut spd = Self::default();
        for (place, policy) in (0..).zip(&policies) {
            let selectors = SelectorPair::new(&policy.local, &policy.remote);
            spd.insert(Rank { priority: policy.priority, place, part: 0 }, &selectors, policy.action)?;
        }
        Ok(spd)
    }

    /// No policies at all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Adds a policy. No two may share a rank or, if they protect, a number.
    pub fn insert(&mut self, rank: Rank, selectors: &SelectorPair, action: Action) -> Result<(), Error> {
        self.check_one_more(selectors, action)?;
        self.index.insert(&Arc::new(RankedPolicy { rank, selectors: selectors.clone(), action }));
        self.len += 1;
        self.with_ports += usize::from(selectors.asks_for_ports());
        Ok(())
    }

    /// Removes the policy with this rank and these selectors. Returns false if there is none.
    pub fn remove(&mut self, rank: Rank, selectors: &SelectorPair) -> bool {
        let removed = self.index.remove(selectors, rank);
        self.len -= usize::from(removed);
        self.with_ports -= usize::from(removed && selectors.asks_for_ports());
        removed
    }

    fn check_one_more(&self, selectors: &SelectorPair, action: Action) -> Result<(), Error> {
        check(selectors, action)?;
        match self.len < MAX_POLICIES {
            true => Ok(()),
            false => Err(Error::TooManyPolicies { found: self.len.saturating_add(1) }),
        }
    }

    /// Adds a policy of AH for ESP of our own (a bundle: RFC 4301 §4.3, appendix E). Packets of ESP
    /// SAs between these ends go through the policy's SA too, and ESP packets for those SAs must
    /// have come through such an SA. The policy concerns no other packet.
    pub fn insert_around(&mut self, rank: Rank, selectors: &SelectorPair, id: PolicyId) -> Result<(), Error> {
        let action = Action::Protect(id);
        self.check_one_more(selectors, action)?;
        self.around.insert(&Arc::new(RankedPolicy { rank, selectors: selectors.clone(), action }));
        self.len += 1;
        self.around_len += 1;
        Ok(())
    }

    /// Removes a policy that [`Self::insert_around`] added. Returns false if there is none.
    pub fn remove_around(&mut self, rank: Rank, selectors: &SelectorPair) -> bool {
        let removed = self.around.remove(selectors, rank);
        self.len -= usize::from(removed);
        self.around_len -= usize::from(removed);
        removed
    }

    /// Holds back what goes to these addresses, although no policy is about them: what is theirs
    /// must not leave in clear because a wider policy lets this host's own packets pass. A policy
    /// that protects or discards a packet decides all the same; one that bypasses IPsec does not.
    /// [`Spd::let_go`] must be called as often.
    pub fn hold_back(&mut self, addrs: &AddrRange) {
        self.index.hold(Range::of(addrs), Holder::Itself);
    }

    /// Undoes [`Spd::hold_back`].
    pub fn let_go(&mut self, addrs: &AddrRange) {
        self.index.let_go(Range::of(addrs), Holder::Itself);
    }

    /// True if there are policies for ESP of our own.
    #[inline]
    pub(crate) fn has_around(&self) -> bool {
        self.around_len > 0
    }

    /// The policy for ESP of our own between these ends.
    pub fn around(&self, local: IpAddr, remote: IpAddr) -> Option<PolicyId> {
        let packet = PacketSelector::new(local, remote, Protocol::ESP, None)?;
        match self.around.first(&packet)?.action {
            Action::Protect(id) => Some(id),
            Action::Bypass | Action::Discard => None,
        }
    }

    /// How many policies there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without policies.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first policy that matches.
    pub fn lookup(&self, packet: &PacketSelector) -> Decision {
        self.index.first(packet).map_or(Decision::NoPolicy, |entry| Decision::Act(entry.action))
    }

    /// True if a packet without ports, a later fragment, might match a policy before the one that
    /// it matches. False if that policy itself asks for such packets (OPAQUE: RFC 4301 §7.2).
    pub fn needs_ports(&self, later: &PacketSelector) -> bool {
        self.with_ports > 0 && self.index.needs_ports(later, |_| true)
    }

    /// [`Self::needs_ports`], counting only policies that would not let it pass in clear.
    pub(crate) fn may_hold_back(&self, later: &PacketSelector) -> bool {
        self.with_ports > 0 && self.index.needs_ports(later, RankedPolicy::holds_back)
    }

    /// How narrow the narrowest range is that holds back what goes to the packet's remote address,
    /// from wherever it comes: the width of [`SelectorPair`]'s ranges. Those of [`Spd::hold_back`]
    /// count.
    pub fn held_back(&self, packet: &PacketSelector) -> Option<u8> {
        self.index.held_back(packet)
    }

    /// True if [`Spd::hold_back`] holds back what goes to the packet's remote address.
    pub(crate) fn is_shut(&self, packet: &PacketSelector) -> bool {
        self.index.is_shut(packet)
    }

    /// Decides on a packet that came in clear. `packet` is seen from our side ([`Direction::In`]).
    ///
    /// [`Direction::In`]: crate::packet_selector::Direction::In
    pub fn inbound_clear(&self, packet: &PacketSelector) -> InboundClear {
        match self.lookup(packet) {
            Decision::Act(Action::Bypass) => InboundClear::Bypass,
            Decision::Act(Action::Protect(_)) => InboundClear::Drop(DropReason::ClearButProtected),
            Decision::Act(Action::Discard) => InboundClear::Drop(DropReason::PolicyDiscard),
            Decision::NoPolicy => InboundClear::NoPolicy,
        }
    }
}

/// True if this many bits are all bits of an address of the packet's family.
pub(crate) fn is_everything(packet: &PacketSelector, width: Option<u8>) -> bool {
    width == Some(if packet.is_ipv6() { 128 } else { 32 })
}

/// Checks a policy's number and selectors.
fn check(selectors: &SelectorPair, action: Action) -> Result<(), Error> {
    if selectors.local_selectors().next().is_none() {
        return Err(Error::NoSelectors { side: "local" });
    }
    if selectors.remote_selectors().next().is_none() {
        return Err(Error::NoSelectors { side: "remote" });
    }
    match action {
        Action::Protect(id) if id.0 >= PolicyId::LIMIT => Err(Error::PolicyNumber { found: id }),
        _ => Ok(()),
    }
}

/// Two policies with one number would share an SA.
#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "windows of two"))]
fn check_numbers(policies: &[Policy]) -> Result<(), Error> {
    let protecting = policies.iter().filter_map(|policy| match policy.action {
        Action::Protect(id) => Some(id),
        Action::Bypass | Action::Discard => None,
    });
    let mut numbers: Vec<PolicyId> = protecting.collect();
    numbers.sort_unstable();
    match numbers.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::DuplicatePolicy(pair[0])),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
