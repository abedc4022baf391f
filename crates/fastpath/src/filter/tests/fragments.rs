//! Fragments to our addresses: what belongs to a worker is put together by it, all else by the
//! kernel.

use super::bench::Bench;
use super::frames::*;
use crate::filter::Reason;

const MORE: u16 = 0x2000;

fn fragment4(proto: u8, id: u16, field: u16, payload: &[u8]) -> Vec<u8> {
    Ipv4 { id, fragment: field, ..ipv4(PEER4, US4, proto) }.frame(payload)
}

fn fragment_of_6(next: u8, offset: u16, more: bool, id: u32, payload: &[u8]) -> Vec<u8> {
    ipv6(PEER6, US6, FRAGMENT, &fragment6(next, offset, more, id, payload))
}

#[track_caller]
fn expect(bench: &Bench, frame: &[u8], reason: Reason) {
    assert_eq!(bench.run(frame).reason, reason);
}

#[test]
fn fragments_of_esp_are_for_a_worker() {
    let bench = Bench::new().with_socket();
    let reason = Reason::WorkerFragment;
    expect(&bench, &fragment4(ESP, 1, MORE, &esp()), reason);
    expect(&bench, &fragment4(ESP, 1, MORE | 6, &esp()), reason);
    expect(&bench, &fragment4(ESP, 1, 12, &[1; 3]), reason);
    expect(&bench, &fragment_of_6(ESP, 0, true, 1, &esp()), reason);
    expect(&bench, &fragment_of_6(ESP, 6, false, 1, &esp()), reason);
    expect(&bench, &fragment_of_6(ESP, 0, false, 1, &esp()), reason);
}

#[test]
fn fragments_of_ah_are_for_a_worker() {
    let bench = Bench::new().with_socket();
    let reason = Reason::WorkerFragment;
    expect(&bench, &fragment4(AH, 1, MORE, &ah()), reason);
    expect(&bench, &fragment4(AH, 1, 6, &ah()), reason);
    expect(&bench, &fragment_of_6(AH, 0, true, 1, &ah()), reason);
    expect(&bench, &fragment_of_6(AH, 6, false, 1, &ah()), reason);
}

#[test]
fn esp_to_4500_is_for_a_worker_with_all_its_fragments() {
    let bench = Bench::new().with_socket();
    let first = udp(4500, 4500, &esp());
    let reason = Reason::WorkerFragment;
    expect(&bench, &fragment4(UDP, 1, MORE, &first), reason);
    expect(&bench, &fragment4(UDP, 1, MORE | 7, &[0; 48]), reason);
    expect(&bench, &fragment4(UDP, 1, 13, &[0; 5]), reason);
    expect(&bench, &fragment_of_6(UDP, 0, true, 1, &first), reason);
    expect(&bench, &fragment_of_6(UDP, 7, true, 1, &[0; 48]), reason);
    expect(&bench, &fragment_of_6(UDP, 13, false, 1, &[0; 5]), reason);
}

#[test]
fn ike_to_4500_is_put_together_by_the_kernel() {
    let bench = Bench::new().with_socket();
    let first = udp(4500, 4500, &marked_ike());
    expect(&bench, &fragment4(UDP, 1, MORE, &udp(4500, 4500, &esp())), Reason::WorkerFragment);
    expect(&bench, &fragment4(UDP, 1, MORE, &first), Reason::PassIke);
    expect(&bench, &fragment4(UDP, 1, MORE | 7, &[0; 48]), Reason::PassLocal);
    expect(&bench, &fragment4(UDP, 1, 13, &[0; 5]), Reason::PassLocal);
    expect(&bench, &fragment_of_6(UDP, 0, true, 1, &first), Reason::PassIke);
    expect(&bench, &fragment_of_6(UDP, 7, true, 1, &[0; 48]), Reason::PassLocal);
}

#[test]
fn an_atomic_fragment_is_a_fragment() {
    let bench = Bench::new().with_socket();
    let datagram = udp(4500, 4500, &esp());
    expect(&bench, &fragment_of_6(UDP, 0, false, 1, &datagram), Reason::WorkerFragment);
    expect(&bench, &fragment_of_6(UDP, 0, false, 2, &udp(500, 500, &ike())), Reason::PassIke);
    expect(&bench, &fragment_of_6(TCP, 0, false, 3, &[0; 20]), Reason::PassLocal);
}

#[test]
fn other_datagrams_pass_in_fragments() {
    let bench = Bench::new().with_socket();
    expect(&bench, &fragment4(UDP, 1, MORE, &udp(500, 500, &ike())), Reason::PassIke);
    expect(&bench, &fragment4(UDP, 1, 5, &[0; 20]), Reason::PassLocal);
    expect(&bench, &fragment4(UDP, 2, MORE, &udp(53, 53, &[0; 32])), Reason::PassLocal);
    expect(&bench, &fragment4(UDP, 2, 5, &[0; 20]), Reason::PassLocal);
    expect(&bench, &fragment4(TCP, 3, MORE, &[0; 24]), Reason::PassLocal);
    expect(&bench, &fragment4(TCP, 3, 3, &[0; 24]), Reason::PassLocal);
    expect(&bench, &fragment_of_6(UDP, 0, true, 1, &udp(500, 500, &ike())), Reason::PassIke);
    expect(&bench, &fragment_of_6(UDP, 5, false, 1, &[0; 20]), Reason::PassLocal);
}

#[test]
fn a_datagram_is_known_by_addresses_number_and_protocol() {
    let bench = Bench::new().with_socket();
    let first = udp(4500, 4500, &esp());
    expect(&bench, &fragment4(UDP, 1, MORE, &first), Reason::WorkerFragment);
    expect(&bench, &fragment4(UDP, 2, 7, &[0; 9]), Reason::PassLocal);
    expect(&bench, &fragment4(TCP, 1, 7, &[0; 9]), Reason::PassLocal);
    let other = Ipv4 { id: 1, fragment: 7, ..ipv4(CLIENT4, US4, UDP) };
    expect(&bench, &other.frame(&[0; 9]), Reason::PassLocal);
    expect(&bench, &fragment4(UDP, 1, 7, &[0; 9]), Reason::WorkerFragment);
}

#[test]
fn a_number_used_again_is_another_datagram() {
    let bench = Bench::new().with_socket();
    expect(&bench, &fragment4(UDP, 1, MORE, &udp(4500, 4500, &esp())), Reason::WorkerFragment);
    expect(&bench, &fragment4(UDP, 1, MORE, &udp(500, 500, &ike())), Reason::PassIke);
    expect(&bench, &fragment4(UDP, 1, 5, &[0; 9]), Reason::PassLocal);
}

#[test]
fn a_first_fragment_shows_its_ports() {
    let bench = Bench::new().with_socket();
    for length in 0..4 {
        let ports = &udp(4500, 4500, &[])[..length];
        expect(&bench, &fragment4(UDP, 1, MORE, ports), Reason::DropFragmentShort);
        expect(&bench, &fragment_of_6(UDP, 0, true, 1, ports), Reason::DropFragmentShort);
    }
    let ports = &udp(500, 500, &[])[..4];
    expect(&bench, &fragment4(UDP, 1, MORE, ports), Reason::PassIke);
    // To 4500 what follows them too: IKE or ESP.
    for length in 0..4 {
        let start = &udp(4500, 4500, &esp())[..8 + length];
        expect(&bench, &fragment4(UDP, 1, MORE, start), Reason::DropFragmentShort);
        expect(&bench, &fragment_of_6(UDP, 0, true, 1, start), Reason::DropFragmentShort);
    }
    let start = &udp(4500, 4500, &esp())[..12];
    expect(&bench, &fragment4(UDP, 1, MORE, start), Reason::WorkerFragment);
    expect(&bench, &fragment_of_6(UDP, 0, true, 1, start), Reason::WorkerFragment);
}

#[test]
fn headers_inside_the_fragmentable_part_hide_nothing() {
    let bench = Bench::new().with_socket();
    let esp_behind = options(ESP, 1, &esp());
    expect(&bench, &fragment_of_6(OPTIONS, 0, true, 1, &esp_behind), Reason::WorkerFragment);
    expect(&bench, &fragment_of_6(OPTIONS, 7, false, 1, &[0; 9]), Reason::WorkerFragment);
    let udp_behind = options(UDP, 1, &udp(4500, 4500, &esp()));
    expect(&bench, &fragment_of_6(OPTIONS, 0, true, 2, &udp_behind), Reason::WorkerFragment);
    expect(&bench, &fragment_of_6(OPTIONS, 7, false, 2, &[0; 9]), Reason::WorkerFragment);
    expect(&bench, &fragment_of_6(OPTIONS, 7, false, 3, &[0; 9]), Reason::PassLocal);
    // RFC 7112: the first fragment holds all headers.
    expect(
        &bench,
        &fragment_of_6(OPTIONS, 0, true, 4, &[ESP, 1, 0, 0, 0, 0, 0, 0]),
        Reason::DropFragmentShort,
    );
    let twice = fragment6(ESP, 0, true, 5, &esp());
    expect(&bench, &fragment_of_6(FRAGMENT, 0, true, 5, &twice), Reason::DropMalformed);
}

#[test]
fn fragments_from_a_protected_prefix_are_dropped_as_clear() {
    let bench = Bench::new().with_socket();
    let frame = Ipv4 { fragment: MORE, ..ipv4(REMOTE4, US4, UDP) }.frame(&udp(53, 53, &[0; 32]));
    expect(&bench, &frame, Reason::DropClearInbound);
    let frame = ipv6(REMOTE6, US6, FRAGMENT, &fragment6(TCP, 9, false, 1, &[0; 8]));
    expect(&bench, &frame, Reason::DropClearInbound);
}
