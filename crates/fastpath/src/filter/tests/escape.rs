//! Whatever is done to a frame, what has to be protected does not pass in clear.

use super::bench::{Bench, XDP_PASS};
use super::fixtures::{behind_headers, between_others, to_us};
use super::frames::*;
use crate::filter::{FilterAction, Reason};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// An Ethernet header is the least that the kernel takes for a test.
const ETHERNET: usize = 14;

/// Sets the lengths in the IP header to what is left of a frame that was cut.
fn fix_length(frame: &mut [u8]) {
    let left = (frame.len() - ETHERNET) as u16;
    match frame[12..14] {
        [0x08, 0x00] if left >= 20 => frame[16..18].copy_from_slice(&left.to_be_bytes()),
        [0x86, 0xdd] if left >= 40 => frame[18..20].copy_from_slice(&(left - 40).to_be_bytes()),
        _ => {}
    }
}

#[test]
fn no_cut_makes_a_frame_pass_that_did_not() {
    let bench = Bench::new();
    let not_passed = |r: Reason| r.action() != FilterAction::Pass;
    let fixtures = [to_us(), between_others(), behind_headers()].concat();
    for (name, frame, reason) in fixtures.iter().filter(|(_, _, r)| not_passed(*r)) {
        for length in ETHERNET..frame.len() {
            let mut cut = frame[..length].to_vec();
            let (action, _) = bench.run_uncounted(&cut);
            assert_ne!(action, XDP_PASS, "{name} ({reason:?}) cut to {length} octets");
            fix_length(&mut cut);
            let (action, _) = bench.run_uncounted(&cut);
            // A whole packet of a protocol that is cut before its type is known is an ordinary one.
            let icmp = name.contains("ping") || name.contains("ICMP");
            assert!(action != XDP_PASS || icmp, "{name} ({reason:?}) cut to a packet of {length} octets");
        }
    }
}

/// A frame of a length and with octets of its own; only what is asked for is as it should be.
fn arb_octets() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        prop_oneof![3 => any::<u8>(), 1 => Just(0), 1 => Just(UDP), 1 => Just(OPTIONS)],
        0..120,
    )
}

fn check(strategy: impl Strategy<Value = Vec<u8>>, frame: impl Fn(&[u8]) -> Vec<u8>) {
    let bench = Bench::new();
    let mut runner = TestRunner::new(Config { cases: 4000, failure_persistence: None, ..Config::default() });
    let result = runner.run(&strategy, |octets| {
        let frame = frame(&octets);
        let (action, _) = bench.run_uncounted(&frame);
        prop_assert_ne!(action, XDP_PASS, "{:02x?}", frame);
        Ok(())
    });
    result.unwrap();
}

#[test]
fn nothing_to_a_protected_ipv4_prefix_passes() {
    check(arb_octets(), |octets| {
        let mut frame = ipv4(CLIENT4, REMOTE4, TCP).frame(&[]);
        for (i, octet) in octets.iter().take(16).enumerate() {
            // Version and header length stay likely; the destination stays.
            frame[ETHERNET + i] = if i == 0 { 0x45 | octet & 0x0a } else { *octet };
        }
        frame.extend(octets.get(16..).unwrap_or_default());
        if octets.len() % 2 == 0 {
            fix_length(&mut frame);
        }
        frame
    });
}

#[test]
fn nothing_to_a_protected_ipv6_prefix_passes() {
    check(arb_octets(), |octets| {
        let mut frame = ipv6(CLIENT6, REMOTE6, TCP, &[]);
        for (i, octet) in octets.iter().take(24).enumerate() {
            frame[ETHERNET + i] = if i == 0 { 0x60 | octet & 0x0f } else { *octet };
        }
        frame.extend(octets.get(24..).unwrap_or_default());
        if octets.len() % 2 == 0 {
            fix_length(&mut frame);
        }
        frame
    });
}

/// Extension headers of all kinds and lengths, right and wrong.
fn arb_headers() -> impl Strategy<Value = Vec<u8>> {
    let header = (
        prop::sample::select(vec![HOP_BY_HOP, ROUTING, FRAGMENT, OPTIONS]),
        0..4u8,
        prop_oneof![3 => Just(0u8), 1 => any::<u8>()],
        prop_oneof![3 => Just(0u16), 1 => any::<u16>()],
    );
    // Each header is written as four octets here: kind, length, type, and one more for the fields
    // behind.
    prop::collection::vec(header, 0..12).prop_map(|headers| {
        headers.into_iter().flat_map(|(k, l, t, f)| [k, l, t, (f >> 8) as u8 ^ f as u8]).collect()
    })
}

#[test]
fn no_row_of_extension_headers_brings_esp_to_the_kernel() {
    check(arb_headers(), |headers| {
        let (first, packet) = headers.chunks_exact(4).rev().fold((ESP, esp()), |(next, packet), header| {
            let [kind, length, kind_of_routing, field] = header else { unreachable!("chunks of four") };
            let wrapped = match *kind {
                // A first fragment; behind the header of a later one there are no headers to be
                // found.
                FRAGMENT => fragment6(next, 0, field & 1 != 0, 9, &packet),
                ROUTING => routing(next, *kind_of_routing, &packet),
                _ => options(next, length + 1, &packet),
            };
            (*kind, wrapped)
        });
        ipv6(PEER6, US6, first, &packet)
    });
}
