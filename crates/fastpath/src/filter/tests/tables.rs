//! The arrays beside the hashes say the same as these.

use super::bench::Bench;
use super::frames::*;
use crate::filter::Reason;
use crate::filter::layout::{ADDRESS, UNSELECTED, slot_of};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;

/// Addresses of one slot, and one of another, of each family.
const V4: [&str; 4] = ["192.0.2.77", "2.192.0.77", "77.2.192.0", "192.0.2.78"];
const V6: [&str; 4] = ["2001:db8::77", "2001:db8:0:77::", "2001:db8:77::", "2001:db8::78"];

fn frame(addr: &str) -> Vec<u8> {
    match addr.contains(':') {
        true => ipv6(PEER6, addr, ESP, &esp()),
        false => ipv4(PEER4, addr, ESP).frame(&esp()),
    }
}

#[test]
fn addresses_that_share_a_slot_are_told_apart_while_they_come_and_go() {
    for addrs in [V4, V6] {
        let slots = addrs.map(|addr| slot_of(addr.parse().unwrap()));
        assert_eq!([slots[0]; 3], slots[..3], "{addrs:?}");
        assert_ne!(slots[0], slots[3], "{addrs:?}");
    }
    let flags = prop_oneof![Just(None), Just(Some(ADDRESS)), Just(Some(ADDRESS | UNSELECTED))];
    let change = (prop::sample::select([V4, V6].concat()), flags);
    let mut runner = TestRunner::new(Config { cases: 20, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&prop::collection::vec(change, 1..20), |changes| {
        let mut bench = Bench::new().with_socket();
        let mut known = BTreeMap::new();
        for (addr, flags) in changes {
            match flags {
                Some(flags) => {
                    bench.set_address(addr, flags);
                    known.insert(addr, flags);
                }
                None => {
                    bench.remove_address(addr);
                    known.remove(addr);
                }
            }
            for addr in V4.iter().chain(&V6) {
                let expected = if known.contains_key(addr) { Reason::WorkerEsp } else { Reason::PassOther };
                prop_assert_eq!(bench.run(&frame(addr)).reason, expected, "{}, known {:?}", addr, known);
            }
        }
        Ok(())
    });
    outcome.unwrap();
}
