//! The virtual addresses that peers have given this gateway: on the TUN, for what the gateway
//! itself sends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use testudo_ike::output::IkeSaId;

/// The IKE SAs that have brought each address. An IKE SA that replaces another brings the address
/// before the other goes.
#[derive(Debug, Default)]
pub(crate) struct VirtualIps(BTreeMap<IpAddr, BTreeSet<IkeSaId>>);

impl VirtualIps {
    /// True if the address is new.
    pub(crate) fn add(&mut self, addr: IpAddr, ike: IkeSaId) -> bool {
        let users = self.0.entry(addr).or_default();
        users.insert(ike);
        users.len() == 1
    }

    /// True if no IKE SA has the address any more.
    pub(crate) fn remove(&mut self, addr: IpAddr, ike: IkeSaId) -> bool {
        let Some(users) = self.0.get_mut(&addr) else { return false };
        users.remove(&ike);
        let unused = users.is_empty();
        if unused {
            self.0.remove(&addr);
        }
        unused
    }

    /// A rekeyed IKE SA takes over the addresses of the one that it replaces.
    pub(crate) fn hand_on(&mut self, from: IkeSaId, to: IkeSaId) {
        for users in self.0.values_mut() {
            if users.remove(&from) {
                users.insert(to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stays_as_long_as_an_ike_sa_has_it() {
        let addr = IpAddr::from([10, 3, 0, 1]);
        let mut addresses = VirtualIps::default();
        assert!(addresses.add(addr, IkeSaId(1)));
        assert!(!addresses.add(addr, IkeSaId(2)));
        assert!(!addresses.remove(addr, IkeSaId(1)));
        assert!(!addresses.remove(addr, IkeSaId(1)), "it was his no more");
        assert!(addresses.remove(addr, IkeSaId(2)));
        assert!(addresses.add(addr, IkeSaId(3)));
    }

    #[test]
    fn an_address_goes_with_the_ike_sa_that_replaced_another() {
        let addr = IpAddr::from([10, 3, 0, 1]);
        let mut addresses = VirtualIps::default();
        addresses.add(addr, IkeSaId(1));
        addresses.hand_on(IkeSaId(1), IkeSaId(2));
        addresses.hand_on(IkeSaId(3), IkeSaId(4));
        assert!(!addresses.remove(addr, IkeSaId(1)));
        assert!(addresses.remove(addr, IkeSaId(2)));
    }
}
